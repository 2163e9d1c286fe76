"""GPUs that foreign processes use, reported as one Pod per node.

Run by `agent` as one task on a machine with real devices. The controller treats such a Pod like the
pod of another scheduler, and gives the GPUs it uses to nobody else. Foreign processes are never
ended.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from leasehold.adapters.agent.devices import DeviceWatch, is_alive
from leasehold.adapters.agent.requests import LocalNode
from leasehold.adapters.objects.foreign_pod import write_foreign
from leasehold.core.objects.node import Labels
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store, StoreError


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
        """Report foreign GPU use periodically; never return if there are devices."""
        with_devices = [node for node in self._nodes if node.devices]
        for node in self._nodes:
            if not node.devices:
                await self._tell(node, ())  # remove the report of an earlier configuration
        while with_devices:
            for node in with_devices:
                held = await self.held(node)
                slots = tuple(
                    slot for slot, device in enumerate(node.devices) if device.uuid in held
                )
                await self._tell(node, slots)
            await self._clock.sleep(self._devices_ms)

    async def held(self, node: LocalNode) -> dict[str, frozenset[int]]:
        """Return the pids of foreign processes by device UUID; devices without foreign processes
        are left out."""
        found: dict[str, frozenset[int]] = {}
        for device in node.devices:
            pids = await asyncio.to_thread(self._watch.holders, device.uuid)
            strangers = frozenset(pid for pid in pids if not self.is_ours(pid, device.uuid))
            if strangers:
                found[device.uuid] = strangers
        return found

    async def lingers(self, devices: Sequence[str]) -> bool:
        """Return whether the driver still lists a process on these devices that has already
        ended."""
        for uuid in devices:
            pids = await asyncio.to_thread(self._watch.holders, uuid)
            if any(not is_alive(pid) for pid in pids):
                return True
        return False

    async def _tell(self, node: LocalNode, slots: tuple[int, ...]) -> None:
        if self._written.get(node.name) == slots:
            return
        with suppress(StoreError):  # tried again at the next look
            await write_foreign(self._store, node.name, len(slots), self._labels, slots=slots)
            self._written[node.name] = slots


def describe(pids: frozenset[int]) -> str:
    """Return the pids as text for a message."""
    return ", ".join(f"{pid}" if is_alive(pid) else f"{pid} (not here)" for pid in sorted(pids))
