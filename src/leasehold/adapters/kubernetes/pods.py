"""What a pod of ours is on Kubernetes, beyond what any store is told of it.

Used by `store` when it creates one. Here kubelets run it, schedulers and autoscalers look at it,
and DNS knows it: it is named as ours, it stays where a node has fallen silent, and its mates find
rank 0 by a name that outlives rank 0's pod.
"""

import hashlib
import re

from leasehold.core.names import GROUP, LEASE_CLOSED, Wire
from leasehold.core.objects.node import FLEET
from leasehold.core.objects.pod import GROUP_INDEX, LEAST, MASTER, POD_INDEX, RUN_UID
from leasehold.core.objects.wire import list_at, part, text_at

SCHEDULER = "leasehold"
PRIORITY = "leasehold"
SERVICE_CHARS_MAX = 40  # of a Run's name in its Service's
# Silence is not death: a node that cannot be heard may still run its pods.
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
    """The pod as the API server is given it."""
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
    # However it goes, its object stays until the ledger says how it ended.
    metadata = {**metadata, "finalizers": [*list_at(metadata, "finalizers"), LEASE_CLOSED]}
    return {**pod, "metadata": metadata, "spec": spec}


def service_of(pod: Wire) -> Wire:
    """The headless Service under which the pods of its Run find each other, also before they are
    ready: ranks meet while they start."""
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
    """How many of its Run's pods whoever empties nodes must leave alone: `kubectl drain` waits."""
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
    """Whether there is anybody to be found by name."""
    for container in list_at(part(pod, "spec"), "containers"):
        for each in list_at(container if isinstance(container, dict) else {}, "env"):
            if isinstance(each, dict) and each.get("name") == "PET_NNODES":
                return each.get("value") != "1"
    return False


def service_name(pod: Wire) -> str:
    """A DNS label, of the Run's name as far as that is one, and of its uid."""
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
