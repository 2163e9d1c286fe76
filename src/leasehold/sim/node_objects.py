"""Writes the objects of simulated machines: Nodes and Pod statuses.

Called by `sim.nodes`, which repeats failed calls. Each function writes only what differs, and can
be repeated.
"""

from contextlib import suppress

from msgspec.structs import replace

from leasehold.core.facts import Pod, PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels, node_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Instant, format_instant
from leasehold.ports.store import NotFound, Store
from leasehold.sim.machines import JobProcess, Machine

REJECTED = "Rejected"
SHUT_DOWN = "NodeShutdown"
DRAINER = "the story"  # the requester of drains


async def write_node(store: Store, machine: Machine, labels: Labels) -> None:
    """Write the Node object of a machine: first its taint and cordon, then its readiness. Delete it
    if the node was deleted."""
    name = machine.node.name
    is_ready = machine.is_ready
    node = replace(
        machine.node,
        gpus=machine.gpus,
        ready=is_ready,
        not_ready_since=None if is_ready else machine.silent_since,
        cordoned=machine.cordoned,
        fenced=not machine.alive,
        drained_by=DRAINER if machine.draining else "",
    )
    wanted = node_to_wire(node, labels=labels)
    try:
        stored = await store.get("Node", "", name)
    except NotFound:
        if machine.exists:
            await store.create(wanted)
        return
    if not machine.exists:
        uid = text_at(part(stored, "metadata"), "uid")
        with suppress(NotFound):  # the request arrived twice, and this is the second answer
            await store.delete("Node", "", name, uid=uid)
        return
    metadata, annotations = part(stored, "metadata"), part(part(wanted, "metadata"), "annotations")
    if stored.get("spec") != wanted["spec"] or part(metadata, "annotations") != annotations:
        metadata = {**metadata, "annotations": annotations}
        stored = await store.update({**stored, "metadata": metadata, "spec": wanted["spec"]})
    if stored.get("status") != wanted["status"]:
        await store.patch_status("Node", "", name, part(wanted, "status"), version=None)


def rejection(pod: Pod) -> Wire:
    return {
        "phase": PodPhase.FAILED.value,
        "reason": REJECTED,
        "message": f"node {pod.node} does not take the pod",
    }


def shut_down(pod: Pod) -> Wire:
    """Return the status that a kubelet writes, once its node is back, for a pod that was lost with
    the node."""
    return {
        "phase": PodPhase.FAILED.value,
        "reason": SHUT_DOWN,
        "message": f"node {pod.node} went down under it",
    }


def running(process: JobProcess, container: str) -> Wire:
    state = {"running": {"startedAt": format_instant(process.began_at)}}
    return {
        "phase": PodPhase.RUNNING.value,
        "containerStatuses": [{"name": container, "state": state}],
    }


def ended(process: JobProcess, at: Instant, container: str) -> Wire:
    code = process.exit_code
    terminated = {
        "exitCode": code,
        "startedAt": format_instant(process.began_at),
        "finishedAt": format_instant(at),
    }
    return {
        "phase": PodPhase.FAILED.value if code else PodPhase.SUCCEEDED.value,
        "containerStatuses": [{"name": container, "state": {"terminated": terminated}}],
    }
