"""GPUs that somebody else's processes hold: one Pod per node stands for them all.

Run by `agent` as one task on a machine with real devices. The controller counts such a pod like any
pod of another scheduler and gives out fewer GPUs. It ends nothing: a stranger's process is to be
respected.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from leasehold.adapters.agent.devices import DeviceWatch, is_alive
from leasehold.adapters.agent.requests import LocalNode
from leasehold.core.facts import PodPhase
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import SLOTS, pod_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store, StoreError, Wire

ELSEWHERE = "elsewhere"  # the namespace of other schedulers' pods


class Foreign:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        nodes: Sequence[LocalNode],
        labels: Labels,
        watch: DeviceWatch,
        devices_ms: int,
    ) -> None:
        self._store = store
        self._clock = clock
        self._nodes = nodes
        self._labels = labels
        self._watch = watch
        self._devices_ms = devices_ms
        self._written: dict[str, tuple[int, ...]] = {}
        self.is_ours: Callable[[int, str], bool] = lambda _pid, _uuid: False

    async def run(self) -> None:
        """For ever; a machine without devices has nothing to look at."""
        with_devices = [node for node in self._nodes if node.devices]
        for node in self._nodes:
            if not node.devices:
                await self._tell(node, ())  # one of before, when there were devices
        while with_devices:
            for node in with_devices:
                held = await self.held(node)
                slots = tuple(
                    slot for slot, device in enumerate(node.devices) if device.uuid in held
                )
                await self._tell(node, slots)
            await self._clock.sleep(self._devices_ms)

    async def held(self, node: LocalNode) -> dict[str, frozenset[int]]:
        """By device: the strangers that hold it. Only those that are held."""
        found: dict[str, frozenset[int]] = {}
        for device in node.devices:
            pids = await asyncio.to_thread(self._watch.holders, device.uuid)
            strangers = frozenset(pid for pid in pids if not self.is_ours(pid, device.uuid))
            if strangers:
                found[device.uuid] = strangers
        return found

    async def lingers(self, devices: Sequence[str]) -> bool:
        """Whether the driver still knows processes on them that are gone."""
        for uuid in devices:
            pids = await asyncio.to_thread(self._watch.holders, uuid)
            if any(not is_alive(pid) for pid in pids):
                return True
        return False

    async def _tell(self, node: LocalNode, slots: tuple[int, ...]) -> None:
        if self._written.get(node.name) == slots:
            return
        with suppress(StoreError):  # told again at the next look
            await write_foreign(self._store, node.name, slots, self._labels)
            self._written[node.name] = slots


def describe(pids: frozenset[int]) -> str:
    """For a person who wants to know who it is."""
    return ", ".join(f"{pid}" if is_alive(pid) else f"{pid} (not here)" for pid in sorted(pids))


async def write_foreign(store: Store, node: str, slots: tuple[int, ...], labels: Labels) -> None:
    """The Pod object says which GPUs are held there; there is none when none is."""
    name, gpus = f"foreign-{node}", len(slots)
    wanted = pod_to_wire(
        b"{}",
        name=name,
        namespace=ELSEWHERE,
        node=node,
        gpus=gpus,
        labels={},
        annotations={SLOTS: ",".join(map(str, slots))},
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
