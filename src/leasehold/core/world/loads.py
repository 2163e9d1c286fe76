"""What pods without an open lease use on their nodes: foreign pods, and our pods that still run.

Kept by the World beside the fleet, so that each pod is counted once and removed exactly.
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
    """What each of these pods uses on its node, as it is counted in the fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_pod: dict[str, _Load] = {}

    def put(self, pod: Pod) -> None:
        """Count the GPUs, CPU and memory of a pod on its node.

        A pod that has ended, or whose node is not known, is not counted.
        """
        assert pod.key not in self._by_pod, pod.key
        if pod.has_ended or pod.phase is PodPhase.ORDERED or pod.node not in self._fleet.nodes:
            return  # a pod may be seen before its node; it is counted when the node comes
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
        """Forget a pod without removing its load, because its node is gone or was unknown."""
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
