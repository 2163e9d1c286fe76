"""Kubelets that nobody has to install: the simulator's machines, on real time."""

import asyncio
import threading
from collections.abc import Callable
from operator import methodcaller
from typing import TypeVar

from tests.kubernetes.cluster import Cluster

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.core.facts import Node
from leasehold.sim.nodes import SimFleet

T = TypeVar("T")
DEADLINE_S = 30


class Kubelets:
    """All nodes of a cluster, on a thread with a loop of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._is_up.wait(DEADLINE_S), "the kubelets do not come up"

    def add(self, *names: str, gpus: int = 8, domain: str = "us/gpu-a/a") -> None:
        region, room, fabric = domain.split("/")
        for name in names:
            node = Node(
                name=name,
                flavor="H100-80GB",
                region=region,
                cluster=room,
                fabric=fabric,
                gpus=gpus,
                cpu_milli=64_000,
                memory_bytes=1 << 40,
            )
            self.do(methodcaller("add_node", node))

    def do(self, action: Callable[[SimFleet], T]) -> T:
        """Something happens to a machine, where nobody else looks at it meanwhile."""

        async def act() -> T:
            return action(self._fleet)

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(DEADLINE_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(DEADLINE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _live(self) -> None:
        client, clock, tasks = Client(self._cluster.context), AsyncioClock(), AsyncioTasks()
        self._fleet = SimFleet(KubernetesStore(client, clock), clock, tasks)
        self._is_up.set()
        try:
            await tasks.supervise(self._fleet.run())
        finally:
            await client.close()
