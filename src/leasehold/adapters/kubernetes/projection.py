"""Decodes only the fields that we read of Pods and Nodes, to save memory.

A cluster may have ten thousands of foreign pods with environments, volumes and probes, and each
node lists all its images. Only the fields that `core.objects.pod` and `core.objects.node` read are
decoded, straight from the answer. This applies to lists and watches; a `get` returns the whole
object.
"""

from collections.abc import Callable

import msgspec

from leasehold.core.names import Wire
from leasehold.core.objects.pod import RUN_UID


class _Part(msgspec.Struct, omit_defaults=True, rename="camel"):
    """The base of the partial records. A field that a record does not declare is dropped when it is
    decoded."""


class _Metadata(_Part):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None


class _Resources(_Part):
    requests: dict[str, object] | None = None
    limits: dict[str, object] | None = None


class _Container(_Part):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None


class _PodSpec(_Part):
    node_name: str = ""
    scheduler_name: str = ""
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    overhead: dict[str, object] | None = None
    resources: _Resources | None = None


class _Condition(_Part):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _PodStatus(_Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[_Condition] | None = None
    start_time: str = ""
    container_statuses: list[dict[str, object]] | None = None
    init_container_statuses: list[dict[str, object]] | None = None


class _Pod(_Part):
    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus | None = None


class _NodeSpec(_Part):
    unschedulable: bool = False
    taints: list[dict[str, object]] | None = None


class _NodeStatus(_Part):
    allocatable: dict[str, object] | None = None
    conditions: list[_Condition] | None = None


class _Node(_Part):
    metadata: _Metadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


_decode_pod = msgspec.json.Decoder(_Pod).decode
_decode_node = msgspec.json.Decoder(_Node).decode
_decode_any = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode

Read = Callable[[bytes], Wire]
_ENDED = ("Succeeded", "Failed")


def reader_of(kind: str, api_version: str) -> Read:
    """Return the function that decodes an object of this kind from a list or a watch. It adds
    apiVersion and kind, which items of a list may lack."""
    match kind:
        case "Pod":
            return _pod
        case "Node":
            return _node
        case _:

            def read(raw: bytes) -> Wire:
                obj = _decode_any(raw)
                obj["apiVersion"], obj["kind"] = api_version, kind
                metadata = obj.get("metadata")
                if isinstance(metadata, dict):
                    metadata.pop("managedFields", None)
                return obj

            return read


def is_foreign(obj: Wire) -> bool:
    """Return whether the object is a Pod that leasehold did not create."""
    metadata = obj.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return not isinstance(labels, dict) or RUN_UID not in labels


def substance(kind: str, obj: Wire) -> bytes | None:
    """Return the part of the object that matters to us, encoded. An event that leaves it unchanged
    is skipped: a node's heartbeat, or an unimportant change of a foreign pod. Return None if every
    event of the object matters."""
    if kind != "Node" and not (kind == "Pod" and is_foreign(obj)):
        return None
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    kept = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    return _encode({**obj, "metadata": kept})


def _pod(raw: bytes) -> Wire:
    pod = _decode_pod(raw)
    metadata, status = pod.metadata, pod.status
    if RUN_UID not in (metadata.labels or {}):
        metadata.labels = metadata.annotations = metadata.finalizers = None
        metadata.generation = None
        if status is not None:
            pod.status = _PodStatus(phase=status.phase)
        if status is not None and status.phase in _ENDED:
            pod.spec = _PodSpec(node_name=pod.spec.node_name)  # an ended pod holds no resources
    found: Wire = msgspec.to_builtins(pod)
    return {"apiVersion": "v1", "kind": "Pod", **found}


def _node(raw: bytes) -> Wire:
    node = _decode_node(raw)
    if node.status is not None:
        node.status.conditions = [
            each for each in node.status.conditions or [] if each.type == "Ready"
        ]
    found: Wire = msgspec.to_builtins(node)
    return {"apiVersion": "v1", "kind": "Node", **found}
