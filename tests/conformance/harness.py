"""What a conformance suite needs of an implementation: a fresh one, and a way to run coroutines.

To let another store join, write a class like `MemoryHarness` and add it to `STORES` (one that needs
a server, as `KubernetesHarness` does, gets it from `conftest`); another
runtime joins by a function like `on_kernel` in `RUNTIMES`.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import TypeVar

from tests.kubernetes.cluster import Cluster

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.writes import Admit
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.adapters.sqlite.shared import SharedStore
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import Store
from leasehold.sim.faulty import Faults, FaultyStore
from leasehold.sim.kernel import Kernel
from leasehold.sim.store_wrapper import StoreAround

T = TypeVar("T")
Main = Callable[[Clock, Tasks], Coroutine[object, object, T]]

START = 1_763_164_810_000


class MemoryHarness:
    def __init__(self) -> None:
        self.kernel = Kernel(START)
        self.process = self.kernel.process("client")

    @property
    def tasks(self) -> Tasks:
        return self.process.tasks

    def store(self, admit: Admit | None = None, *, history_max: int = 1000) -> Store:
        server = self.kernel.process("server")
        return MemoryStore(server.tasks, server.clock, admit, history_max=history_max)

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        return self.kernel.complete(coroutine, process=self.process)

    def close(self) -> None:
        """Leaves nothing behind."""


class QuietFaultyHarness(MemoryHarness):
    """The simulator's wrapper, with no fault switched on, is a store like any other."""

    def store(self, admit: Admit | None = None, *, history_max: int = 1000) -> Store:
        return FaultyStore(
            super().store(admit, history_max=history_max), self.process, Faults(1, {})
        )


class SqliteHarness(MemoryHarness):
    """A file, written to on the calling task."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._stores: list[SqliteStore] = []

    def store(self, admit: Admit | None = None, *, history_max: int = 1000) -> Store:
        server = self.kernel.process("server")
        path = Path(self._folder.name) / f"{len(self._stores)}.sqlite"
        store = SqliteStore(path, server.tasks, server.clock, admit, history_max=history_max)
        self._stores.append(store)
        return store

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self._folder.cleanup()


class AsyncioHarness(MemoryHarness):
    """A file behind a writer's thread, on one loop that is run again for each story."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._folder = tempfile.TemporaryDirectory()
        self._stores: list[SqliteStore] = []
        self._tasks = self.run(_make(asyncio_runtime.AsyncioTasks))

    @property
    def tasks(self) -> Tasks:
        return self._tasks

    def store(self, admit: Admit | None = None, *, history_max: int = 1000) -> Store:
        path = Path(self._folder.name) / f"{len(self._stores)}.sqlite"
        clock = asyncio_runtime.AsyncioClock()
        store = self.run(
            _make(lambda: GroupStore(path, self._tasks, clock, admit, history_max=history_max))
        )
        self._stores.append(store)
        return store

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        async def story() -> T:
            return await coroutine

        return self._runner.run(story())

    def close(self) -> None:
        for store in self._stores:
            self.run(_make(store.close))
        self._runner.close()
        self._folder.cleanup()


class InTurns(StoreAround):
    """Of several who have a file open, each call goes to the next one."""

    def __init__(self, stores: Sequence[Store]) -> None:
        super().__init__(stores[0])
        self._turns = itertools.cycle(stores)

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        self._store = next(self._turns)
        return await call()


class SharedHarness(AsyncioHarness):
    """A file that two have open: what one has written the other sees, and may not undo."""

    def store(self, admit: Admit | None = None, *, history_max: int = 1000) -> Store:
        path = Path(self._folder.name) / f"{len(self._stores)}.sqlite"
        clock = asyncio_runtime.AsyncioClock()

        def make() -> SharedStore:
            return SharedStore(path, self._tasks, clock, admit, history_max=history_max)

        both = [self.run(_make(make)) for _ in range(2)]
        self._stores += both
        return InTurns(both)


class KubernetesHarness(AsyncioHarness):
    """A real API server, which has its own history and its own admission: whoever wants to set
    them asks for an `own_harness`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients: list[Client] = []
        super().__init__()

    def store(self, admit: Admit | None = None, *, history_max: int = 0) -> Store:
        assert admit is None
        assert not history_max

        async def make() -> Store:
            client = Client(self._cluster.context)
            self._clients.append(client)
            return KubernetesStore(client, asyncio_runtime.AsyncioClock())

        return self.run(make())

    def close(self) -> None:
        for client in self._clients:
            self.run(client.close())
        super().close()
        self._cluster.wipe()


async def _make(maker: Callable[[], T]) -> T:
    return maker()


STORES: dict[str, type[MemoryHarness]] = {
    "memory": MemoryHarness,
    "memory behind quiet faults": QuietFaultyHarness,
    "sqlite": SqliteHarness,
    "sqlite behind a writer's thread": AsyncioHarness,
    "sqlite shared by two": SharedHarness,
}


def on_kernel(main: Main[T]) -> T:
    kernel = Kernel(START)
    process = kernel.process("test")
    return kernel.complete(main(process.clock, process.tasks), process=process)


def on_shuffled_kernel(main: Main[T]) -> T:
    kernel = Kernel(START, seed=7)
    process = kernel.process("test")
    return kernel.complete(main(process.clock, process.tasks), process=process)


def on_asyncio(main: Main[T]) -> T:
    return asyncio_runtime.run(main)


RUNTIMES = {"kernel": on_kernel, "shuffled kernel": on_shuffled_kernel, "asyncio": on_asyncio}
