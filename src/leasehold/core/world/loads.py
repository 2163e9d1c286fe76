"""What pods without an open lease of ours take of their nodes: a foreign pod, or one that lingers.

Kept by the World beside the fleet, so that each pod is counted once and taken off exactly.
"""

from leasehold.core.facts import Pod, PodPhase, Record
from leasehold.core.world.fleet import Fleet


class _Load(Record):
    node: str
    gpus: int
    cpu_milli: int
    memory_bytes: int
    slots: int  # a mask


class Loads:
    """By pod, as the fleet was told."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_pod: dict[str, _Load] = {}

    def put(self, pod: Pod) -> None:
        """It takes its GPUs as a foreign pod does, while it lives on a node that is known."""
        assert pod.key not in self._by_pod, pod.key
        if pod.has_ended or pod.phase is PodPhase.ORDERED or pod.node not in self._fleet.nodes:
            return  # news of the pod may come before news of its node, which will count it
        mask = sum(1 << slot for slot in set(pod.slots))
        load = _Load(
            node=pod.node,
            gpus=pod.gpus,
            cpu_milli=pod.cpu_milli,
            memory_bytes=pod.memory_bytes,
            slots=mask,
        )
        self._by_pod[pod.key] = load
        self._count(load, 1)

    def drop(self, key: str) -> None:
        load = self._by_pod.pop(key, None)
        if load is not None:
            self._count(load, -1)

    def forget(self, key: str) -> None:
        """Its node is gone, or was not there: nothing is to be taken off."""
        self._by_pod.pop(key, None)

    def _count(self, load: _Load, sign: int) -> None:
        self._fleet.load(
            load.node,
            gpus=sign * load.gpus,
            cpu_milli=sign * load.cpu_milli,
            memory_bytes=sign * load.memory_bytes,
            pods=sign,
            slots=load.slots,
        )
