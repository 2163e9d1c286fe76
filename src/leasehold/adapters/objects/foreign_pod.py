"""One Pod per node that represents all GPUs used by foreign processes.

Written by the node agent and by simulated nodes. Both may repeat a call that failed, so a call can
be repeated safely; it writes nothing if the stored Pod is already right.
"""

from leasehold.core.facts import PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import SLOTS, pod_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import NotFound, Store

ELSEWHERE = "elsewhere"  # namespace of other schedulers' pods


async def write_foreign(
    store: Store, node: str, gpus: int, labels: Labels, *, slots: tuple[int, ...] = ()
) -> None:
    """Store a Pod that stands for `gpus` used GPUs of the node and, if known, their slots. Delete
    the Pod if `gpus` is 0."""
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
