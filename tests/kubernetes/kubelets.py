"""Kubelets that need no installation: the simulator's machines, in real time."""

from collections.abc import Callable
from operator import methodcaller
from typing import TypeVar

from tests.beside import Beside
from tests.kubernetes.cluster import Cluster

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.core.facts import Node
from leasehold.sim.nodes import SimFleet

T = TypeVar("T")


class Kubelets(Beside):
    """The simulated kubelets of all nodes of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        super().__init__()

    def add(
        self,
        *names: str,
        gpus: int = 8,
        domain: str = "us/gpu-a/a",
        flavor: str = "H100-80GB",
        reserved: bool = False,
    ) -> None:
        """Add nodes. `reserved` gives them the taint that keeps other schedulers away."""
        region, room, fabric = domain.split("/")
        for name in names:
            node = Node(
                name=name,
                flavor=flavor,
                region=region,
                cluster=room,
                fabric=fabric,
                gpus=gpus,
                cpu_milli=64_000,
                memory_bytes=1 << 40,
                is_reserved=reserved,
            )
            self.to_machines(methodcaller("add_node", node))

    def to_machines(self, action: Callable[[SimFleet], T]) -> T:
        """Run `action` on the simulated machines and return its result."""
        return self.do(lambda: action(self._fleet))

    async def _live(self) -> None:
        client, clock, tasks = Client(self._cluster.context), AsyncioClock(), AsyncioTasks()
        self._fleet = SimFleet(KubernetesStore(client, clock), clock, tasks)
        self._is_up.set()
        try:
            await tasks.supervise(self._fleet.run())
        finally:
            await client.close()
