"""Additions to our pods on Kubernetes.

Used by `store` at creation. On a cluster, kubelets run the pods, other schedulers and autoscalers
see them, and DNS resolves them. So a pod is marked as ours, and stays bound to a node that is
silent. Its job finds rank 0 by a DNS name that stays valid when another pod takes over rank 0.
"""

import hashlib
import re

from leasehold.core.names import GROUP, LEASE_CLOSED, Wire
from leasehold.core.objects.node import FLEET
from leasehold.core.objects.pod import GROUP_INDEX, LEAST, MASTER, POD_INDEX, RUN_UID
from leasehold.core.objects.wire import list_at, part, text_at

SCHEDULER = "leasehold"
PRIORITY = "leasehold"
SERVICE_CHARS_MAX = 40  # of the Run's name, in its Service's name
# Silence is not death: an unreachable node may still run its pods.
_TOLERATIONS: list[object] = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"},
    {"key": FLEET, "operator": "Exists"},
]
_ADDRESSES = ("MASTER_ADDR", "PET_MASTER_ADDR")
_ENDPOINT = "PET_RDZV_ENDPOINT"


def is_ours(obj: Wire) -> bool:
    return obj.get("kind") == "Pod" and RUN_UID in part(part(obj, "metadata"), "labels")


def dressed(pod: Wire) -> Wire:
    """Return the pod as it is sent to the API server, with everything that only a cluster needs."""
    metadata, spec = part(pod, "metadata"), dict(part(pod, "spec"))
    labels = part(metadata, "labels")
    spec["schedulerName"] = SCHEDULER
    spec["priorityClassName"] = PRIORITY
    spec["tolerations"] = [*list_at(spec, "tolerations"), *_TOLERATIONS]
    spec["hostname"] = _hostname(text_at(labels, GROUP_INDEX), text_at(labels, POD_INDEX))
    spec["subdomain"] = service_name(pod)
    master = text_at(part(metadata, "annotations"), MASTER)
    if master:
        at = f"{master}.{spec['subdomain']}.{metadata['namespace']}"
        spec["containers"] = [_meeting(each, at) for each in list_at(spec, "containers")]
    # Keep the object until its end is in the ledger, whatever deletes it.
    metadata = {**metadata, "finalizers": [*list_at(metadata, "finalizers"), LEASE_CLOSED]}
    return {**pod, "metadata": metadata, "spec": spec}


def service_of(pod: Wire) -> Wire:
    """Return the headless Service by which the pods of a Run find each other by name. It also
    resolves pods that are not ready, because ranks meet while they start."""
    metadata = part(pod, "metadata")
    run = next((each for each in list_at(metadata, "ownerReferences")), None)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service_name(pod),
            "namespace": metadata["namespace"],
            "ownerReferences": [run] if run is not None else [],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN_UID: part(metadata, "labels")[RUN_UID]},
        },
    }


def disruption_budget_of(pod: Wire) -> Wire:
    """Return the PodDisruptionBudget of the pod's Run. It states how many of the Run's pods
    `kubectl drain` must leave running."""
    service = service_of(pod)
    least = text_at(part(part(pod, "metadata"), "annotations"), LEAST)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": service["metadata"],
        "spec": {
            "minAvailable": int(least) if least.isdigit() else 0,
            "selector": {"matchLabels": part(part(service, "spec"), "selector")},
        },
    }


def has_mates(pod: Wire) -> bool:
    """Return whether the pod's job has several nodes, so that its pods must find each other by
    name."""
    for container in list_at(part(pod, "spec"), "containers"):
        for each in list_at(container if isinstance(container, dict) else {}, "env"):
            if isinstance(each, dict) and each.get("name") == "PET_NNODES":
                return each.get("value") != "1"
    return False


def service_name(pod: Wire) -> str:
    """Return the name of the Run's Service: a DNS label made of the Run's name and uid."""
    labels = part(part(pod, "metadata"), "labels")
    run = re.sub("[^a-z0-9-]", "-", text_at(labels, f"{GROUP}/run").lower())
    digest = hashlib.sha256(text_at(labels, RUN_UID).encode()).hexdigest()[:8]
    return f"run-{run[:SERVICE_CHARS_MAX].strip('-')}-{digest}"


def _hostname(group: str, index: str) -> str:
    return f"g{group}-p{index}"


def _meeting(container: object, at: str) -> object:
    if not isinstance(container, dict):
        return container
    variables: list[object] = []
    for each in list_at(container, "env"):
        if isinstance(each, dict) and each.get("name") in _ADDRESSES:
            variables.append({"name": each["name"], "value": at})
        elif isinstance(each, dict) and each.get("name") == _ENDPOINT:
            port = text_at(each, "value").rpartition(":")[2]
            variables.append({"name": _ENDPOINT, "value": f"{at}:{port}"})
        else:
            variables.append(each)
    return {**container, "env": variables} if variables else container
