"""One pod that stands for all that somebody else runs on a node.

Written by the node agent and by the simulated nodes, which repeat a call that failed. It reads what
is there and writes what differs, so that doing it twice is doing it once.
"""

from leasehold.core.facts import PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import SLOTS, pod_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import NotFound, Store

ELSEWHERE = "elsewhere"  # the namespace of other schedulers' pods


async def write_foreign(
    store: Store, node: str, gpus: int, labels: Labels, *, slots: tuple[int, ...] = ()
) -> None:
    """The Pod object says how many GPUs are held there, and which, where that is known; there is
    none when none is."""
    name = f"foreign-{node}"
    wanted = pod_to_wire(
        b"{}",
        name=name,
        namespace=ELSEWHERE,
        node=node,
        gpus=gpus,
        labels={},
        annotations={SLOTS: ",".join(map(str, slots))} if slots else None,
        env={},
        gpu_resource=labels.gpu_resource,
    )
    try:
        stored = await store.get("Pod", ELSEWHERE, name)
        if not gpus:
            uid = text_at(part(stored, "metadata"), "uid")
            await store.delete("Pod", ELSEWHERE, name, uid=uid, grace_ms=0)
            return
        metadata, notes = part(stored, "metadata"), part(part(wanted, "metadata"), "annotations")
        if stored.get("spec") != wanted["spec"] or part(metadata, "annotations") != notes:
            metadata["annotations"] = notes
            await store.update({**stored, "metadata": metadata, "spec": wanted["spec"]})
    except NotFound:
        if not gpus:
            return
        await store.create(wanted)
    running: Wire = {"phase": PodPhase.RUNNING.value}
    await store.patch_status("Pod", ELSEWHERE, name, running, version=None)
