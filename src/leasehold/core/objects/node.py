"""Nodes: what placement needs of a Kubernetes Node object, and simulated Node objects.

Called by the loop that folds objects, by the simulator and by the embedded server. A node without a
required label is decoded, too, and lists in `lacks` what is missing; its place is never guessed.
"""

from leasehold.core.facts import Node, Record, Taint
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.quantity import CPU, MEMORY, milli, quantity_or, units
from leasehold.core.objects.wire import instant_at, list_at, part, stamps, text_at
from leasehold.core.units import format_instant

FLEET = f"{GROUP}/fleet"  # taint against other schedulers; our pods tolerate it
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
FENCE = f"{GROUP}/fence"  # annotation that asks the node's agent to fence it
DRAIN = f"{GROUP}/drain"  # annotation that asks us to drain it; the value names the user
_ASKER_CHARS_MAX = 120
REGION_WELL_KNOWN = "topology.kubernetes.io/region"
FLAVOR_WELL_KNOWN = "nvidia.com/gpu.product"

# Kubernetes repeats these facts as taints; we read the facts themselves. The last taint is ours and
# repels none of our pods.
_SAID_ELSEWHERE = frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        FLEET,
    }
)


class Labels(Record, frozen=True):
    """The label names with which the nodes of a fleet describe themselves."""

    region: str = "region"
    cluster: str = "cluster"
    fabric: str = "fabric.domain"
    flavor: str = "gpu.flavor"
    rack: str = "rack"
    gpu_resource: str = "nvidia.com/gpu"


def node_from_wire(raw: object, *, labels: Labels) -> Node:
    stamped = stamps(raw)
    metadata, spec, status = part(raw, "metadata"), part(raw, "spec"), part(raw, "status")
    written = part(metadata, "labels")
    region = text_at(written, labels.region) or text_at(written, REGION_WELL_KNOWN)
    cluster = text_at(written, labels.cluster)
    fabric = text_at(written, labels.fabric)
    flavor = text_at(written, labels.flavor) or text_at(written, FLAVOR_WELL_KNOWN)
    allocatable = part(status, "allocatable")
    gpus = quantity_or(allocatable.get(labels.gpu_resource), units, 0)
    wanted = {
        f"label {labels.region}": region,
        f"label {labels.cluster}": cluster,
        f"label {labels.fabric}": fabric,
        f"label {labels.flavor}": flavor,
        f"allocatable {labels.gpu_resource}": "some" if gpus else "",
    }
    taints = [each for each in list_at(spec, "taints") if isinstance(each, dict)]
    condition = _ready_condition(status)
    ready = text_at(condition, "status") == "True"
    cordoned = spec.get("unschedulable") is True
    return Node(
        name=stamped.name,
        flavor=flavor,
        region=region,
        cluster=cluster,
        fabric=fabric,
        gpus=gpus,
        cpu_milli=quantity_or(allocatable.get(CPU), milli, 1 << 50),
        memory_bytes=quantity_or(allocatable.get(MEMORY), units, 1 << 60),
        pods_max=quantity_or(allocatable.get("pods"), units, 110),
        ready=ready,
        not_ready_since=None if ready else instant_at(condition, "lastTransitionTime"),
        cordoned=cordoned,
        fenced=any(text_at(taint, "key") == OUT_OF_SERVICE for taint in taints),
        # Uncordoning cancels a drain: pods that left would otherwise come back.
        drained_by=_asker(metadata) if cordoned else "",
        taints=tuple(
            Taint(
                key=text_at(taint, "key"),
                value=text_at(taint, "value"),
                effect=text_at(taint, "effect") or "NoSchedule",
            )
            for taint in taints
            if text_at(taint, "key") not in _SAID_ELSEWHERE
        ),
        is_reserved=any(text_at(taint, "key") == FLEET for taint in taints),
        lacks=", ".join(name for name, value in wanted.items() if not value),
        uid=stamped.uid,
        version=stamped.version,
    )


def node_to_wire(node: Node, *, labels: Labels) -> Wire:
    """Return a Node object that `node_from_wire` can read; the store sets identity and version."""
    condition: Wire = {"type": "Ready", "status": "True" if node.ready else "Unknown"}
    if node.not_ready_since is not None:
        condition["lastTransitionTime"] = format_instant(node.not_ready_since)
    taints: list[Wire] = [
        {"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints
    ]
    if node.fenced and all(taint.key != OUT_OF_SERVICE for taint in node.taints):
        taints.append({"key": OUT_OF_SERVICE, "value": "", "effect": "NoExecute"})
    if node.is_reserved:
        taints.append({"key": FLEET, "value": "", "effect": "NoSchedule"})
    spec: Wire = {"taints": taints} if taints else {}
    if node.cordoned:
        spec["unschedulable"] = True
    written = {
        labels.region: node.region,
        labels.cluster: node.cluster,
        labels.fabric: node.fabric,
        labels.flavor: node.flavor,
    }
    metadata: Wire = {
        "name": node.name,
        "labels": {name: value for name, value in written.items() if value},
    }
    if node.drained_by:
        metadata["annotations"] = {DRAIN: node.drained_by}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": {
            "allocatable": {
                labels.gpu_resource: str(node.gpus),
                CPU: f"{node.cpu_milli}m",
                MEMORY: str(node.memory_bytes),
                "pods": str(node.pods_max),
            },
            "conditions": [condition],
        },
    }


def _asker(metadata: Wire) -> str:
    """Return the user who asked for the drain, from the node's annotation.

    An empty annotation gives "asked", no annotation gives "".
    """
    annotations = part(metadata, "annotations")
    if DRAIN not in annotations:
        return ""
    said = " ".join(text_at(annotations, DRAIN).split())
    return said[:_ASKER_CHARS_MAX] or "asked"


def _ready_condition(status: Wire) -> Wire:
    for condition in list_at(status, "conditions"):
        if isinstance(condition, dict) and condition.get("type") == "Ready":
            return condition
    return {}
