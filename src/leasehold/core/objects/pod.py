"""Pods: what the loop needs of a Kubernetes Pod object, and the Pods that we create.

Called by the loop that folds objects (`pod_from_wire`) and by materialisation of committed leases
(`pod_to_wire`). Foreign pods are decoded, too, because they use GPUs, CPU and memory.
"""

from collections.abc import Mapping

from leasehold.core.facts import Pod, PodPhase
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.quantity import CPU, MEMORY, asked, milli, units
from leasehold.core.objects.wire import (
    decoded,
    instant_at,
    list_at,
    part,
    text_at,
    version_at,
    whole_at,
)
from leasehold.core.units import SECOND, Instant, Millis

RUN_UID = f"{GROUP}/run-uid"
RUN = f"{GROUP}/run"
GROUP_INDEX = f"{GROUP}/group-index"
POD_INDEX = f"{GROUP}/pod-index"
ATTEMPT = f"{GROUP}/attempt"
MOVED_ENV = "movedEnv"  # in a status: variables that the process got with other values
UNKNOWN_EXIT = "ExitUnknown"  # reason of an end with unknown exit code
NODE = f"{GROUP}/node"  # annotation: target node of a pod that is bound after its creation
MASTER = f"{GROUP}/master"  # annotation: host name of the gang's rank 0, where hosts have names
LEAST = f"{GROUP}/min-available"  # annotation: how many pods of its run must stay at a time
SLOTS = f"{GROUP}/slots"  # annotation: ordinals of its GPUs on its node

_GPU_RESOURCE = Labels().gpu_resource
_WAITING_CHARS_MAX = 300
# Reasons of a kubelet for ending pods without their fault.
_DISRUPTIONS = frozenset({"Evicted", "NodeShutdown", "Preempting", "Shutdown", "Terminated"})
_PHASES = {str(phase): phase for phase in PodPhase}


def pod_from_wire(raw: object, *, gpu_resource: str = _GPU_RESOURCE) -> Pod:
    metadata, spec, status = part(raw, "metadata"), part(raw, "spec"), part(raw, "status")
    labels, notes = part(metadata, "labels"), part(metadata, "annotations")
    node = text_at(spec, "nodeName")
    ended = _terminated(spec, status)
    reason = text_at(status, "reason")
    # Most pods have neither; skip the check for them.
    has_started = bool(reason or "conditions" in status) and _has_started(status)
    gpus, cpu_milli, memory_bytes = asked(
        spec, (gpu_resource, units), (CPU, milli), (MEMORY, units)
    )
    return Pod(
        namespace=text_at(metadata, "namespace"),
        name=text_at(metadata, "name"),
        node=node or text_at(notes, NODE),
        gpus=gpus,
        placed=bool(node),
        uid=text_at(metadata, "uid"),
        version=version_at(metadata),
        run_uid=text_at(labels, RUN_UID),
        group=_index(labels, GROUP_INDEX),
        index=_index(labels, POD_INDEX),
        attempt=_index(labels, ATTEMPT),
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        phase=_phase(metadata, node, status),
        reason="" if has_started else reason,
        exit_code=None if text_at(ended, "reason") == UNKNOWN_EXIT else whole_at(ended, "exitCode"),
        said=_said(ended, status),
        slots=_slots(text_at(notes, SLOTS)),
        began_at=_began_at(status),
        finished_at=instant_at(ended, "finishedAt"),
        deleting=metadata.get("deletionTimestamp") is not None,
        asked_to_go=_asked_to_go(metadata),
        waits_for=_waits_for(status),
        disrupted=has_started and _is_disrupted(status),
        finalizers=tuple(str(each) for each in list_at(metadata, "finalizers")),
    )


def pod_to_wire(
    template: bytes,
    *,
    name: str,
    namespace: str,
    node: str,
    gpus: int,
    labels: Mapping[str, str],
    env: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    owner: Wire | None = None,
    grace: Millis | None = None,
    gpu_resource: str = _GPU_RESOURCE,
) -> Wire:
    """Return the Pod: the user's template on its node, with GPUs for the first container and
    environment variables for all."""
    user = decoded(template)
    spec = part(user, "spec")
    containers = [each for each in list_at(spec, "containers") if isinstance(each, dict)]
    if not containers:
        containers = [{"name": "main", "image": "none"}]
    for container in containers:
        _add_env(container, env)
    if gpus:
        _add_gpus(containers[0], gpus, gpu_resource)
    metadata = part(user, "metadata")
    written: Wire = {"name": name, "namespace": namespace}
    written["labels"] = {**part(metadata, "labels"), **labels}
    notes = {**part(metadata, "annotations"), **(annotations or {})}
    if notes:
        written["annotations"] = notes
    if owner is not None:
        written["ownerReferences"] = [owner]
    placed: Wire = {"restartPolicy": "Never", **spec, "containers": containers, "nodeName": node}
    if grace is not None:
        # Kubernetes counts whole seconds; round up, so that the grace period is never too short.
        placed["terminationGracePeriodSeconds"] = -(-grace // SECOND)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": written, "spec": placed}


def without_node(wire: Wire) -> Wire:
    """Return the pod without its node, for clusters where pods are bound after creation; an
    annotation names the target node."""
    metadata, spec = part(wire, "metadata"), dict(part(wire, "spec"))
    notes = {**part(metadata, "annotations"), NODE: spec.pop("nodeName")}
    return {**wire, "metadata": {**metadata, "annotations": notes}, "spec": spec}


def _add_env(container: Wire, env: Mapping[str, str]) -> None:
    # Ours come first, so that the user's variables may refer to them. A user's variable of the same
    # name is dropped.
    kept = [each for each in list_at(container, "env") if _name_of(each) not in env]
    ours: list[object] = [{"name": name, "value": value} for name, value in env.items()]
    if ours or kept:
        container["env"] = ours + kept


def _add_gpus(container: Wire, gpus: int, resource: str) -> None:
    resources = dict(part(container, "resources"))
    for where in ("limits", "requests"):
        resources[where] = {**part(resources, where), resource: str(gpus)}
    container["resources"] = resources


def _name_of(variable: object) -> str:
    return text_at(variable, "name") if isinstance(variable, dict) else ""


def _index(labels: Wire, key: str) -> int:
    written = text_at(labels, key)
    return int(written) if written.isascii() and written.isdigit() and len(written) < 20 else 0


def _slots(written: str) -> tuple[int, ...]:
    """Parse the slots annotation; malformed text, e.g. from a foreign pod, gives no slots."""
    numbers = written.split(",") if written else []
    if not all(each.isascii() and each.isdigit() and len(each) < 5 for each in numbers):
        return ()
    return tuple(int(each) for each in numbers)


def _asked_to_go(metadata: Wire) -> Instant | None:
    """Return when the pod's deletion was requested.

    The deletion timestamp is later than that: it is the end of the grace period.
    """
    due = instant_at(metadata, "deletionTimestamp")
    if due is None:
        return None
    grace = whole_at(metadata, "deletionGraceMs")
    if grace is None:
        grace = SECOND * (whole_at(metadata, "deletionGracePeriodSeconds") or 0)
    return due - grace


def _phase(metadata: Wire, node: str, status: Wire) -> PodPhase:
    """Return the phase. A pod deleted before it had a node has ended, because nothing can bind
    it."""
    if not node and metadata.get("deletionTimestamp") is not None:
        return PodPhase.FAILED
    return _PHASES.get(text_at(status, "phase"), PodPhase.PENDING)


def _has_started(status: Wire) -> bool:
    """Return whether any container ever ran, i.e. whether the node accepted the pod."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in list_at(status, key) if key in status else ():
            known = {**part(each, "state"), **part(each, "lastState")}
            if "running" in known or "terminated" in known:
                return True
    return False


def _began_at(status: Wire) -> Instant | None:
    """Return when the first container began to run, not counting init containers."""
    if "containerStatuses" not in status:
        return None
    known: list[Instant] = []
    for each in list_at(status, "containerStatuses"):
        for state in (part(each, "state"), part(each, "lastState")):
            for way in ("running", "terminated"):
                at = instant_at(part(state, way), "startedAt")
                known += () if at is None else (at,)
    return min(known, default=None)


def _is_disrupted(status: Wire) -> bool:
    if text_at(status, "reason") in _DISRUPTIONS:
        return True
    return any(
        isinstance(each, dict)
        and each.get("type") == "DisruptionTarget"
        and each.get("status") == "True"
        for each in list_at(status, "conditions")
    )


def _waits_for(status: Wire) -> str | None:
    """Return what an accepted pod waits for; None unless a kubelet accepted but did not start it.

    A start time in the status shows that it was accepted. The first container with a message
    counts.
    """
    if text_at(status, "phase") != PodPhase.PENDING or not text_at(status, "startTime"):
        return None
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in list_at(status, key):
            waiting = part(part(each, "state"), "waiting")
            said = [text_at(waiting, name) for name in ("reason", "message")]
            if any(said):
                return ": ".join(filter(None, said))[:_WAITING_CHARS_MAX]
    return ""


def _said(ended: Wire, status: Wire) -> str:
    """Return the node's message about the pod's end, or else a reason that says more than the exit
    code."""
    reason = text_at(ended, "reason")
    sentence = text_at(ended, "message") or text_at(status, "message")
    return sentence or ("" if reason in ("Completed", "Error") else reason)


def _terminated(spec: Wire, status: Wire) -> Wire:
    """Return how the first container ended; the kubelet lists statuses by name, not in order."""
    if "containerStatuses" not in status:
        return {}
    statuses = [each for each in list_at(status, "containerStatuses") if isinstance(each, dict)]
    first = [each for each in list_at(spec, "containers") if isinstance(each, dict)][:1]
    named = [each for each in statuses if first and each.get("name") == first[0].get("name")]
    for each in (named or statuses)[:1]:
        return part(part(each, "state"), "terminated")
    return {}
