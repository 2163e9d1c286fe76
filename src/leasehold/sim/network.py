"""The network between a simulated process and the store: delays, losses, copies and cuts.

The simulator puts one `NetworkedStore` between each start of a process and the store. A request
that was sent travels independently: it may arrive after its sender gave up, died or was deposed,
and it may arrive twice. Each direction can be cut on its own, so a write can happen although its
answer never arrives. Delays of concurrent requests are drawn separately, so one can overtake
another.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Generic, TypeVar

from leasehold.core.units import SECOND, Millis
from leasehold.ports.store import (
    Answers,
    OutcomeUnknown,
    Store,
    StoreError,
    Unavailable,
    Watch,
    WatchEvent,
    WatchExpired,
    Write,
)
from leasehold.sim.faulty import one_by_one
from leasehold.sim.kernel import Crashed, Kernel, KernelSignal, Process
from leasehold.sim.store_wrapper import READS, StoreAround

T = TypeVar("T")

GIVE_UP_MS: Millis = 5 * SECOND  # how long a client waits for an answer
DELAY_MS_MAX: Millis = 400
SPIKE_MS_MAX: Millis = 20 * SECOND

KINDS = (
    "net-drop",  # a request or its answer is lost
    "net-copy",  # a request arrives twice
    "net-delay",  # each way takes up to DELAY_MS_MAX
    "net-spike",  # one way takes up to SPIKE_MS_MAX
    "net-cut",  # counted once per message lost in a cut
)


class Network:
    """All links to the store. `_requests` and `_answers` name the processes whose requests, or
    answers, are lost because of a cut."""

    def __init__(self, kernel: Kernel, seed: int, rates: Mapping[str, float]) -> None:
        unknown = sorted(set(rates) - set(KINDS))
        assert not unknown, f"no such fault: {unknown}"
        self.effects: Counter[str] = Counter()
        self.wire = kernel.process("network")
        self._seed = seed
        self._rates = dict(rates)
        self._streams: dict[tuple[str, str], Random] = {}
        self._requests: set[str] = set()
        self._answers: set[str] = set()
        self._waiting: list[tuple[str, KernelSignal]] = []  # watches behind a cut

    def stop(self) -> None:
        """Stop all faults and heal all cuts."""
        self._rates = {}
        for name in sorted(self._requests | self._answers):
            self.heal(name)

    def cut(self, process: str, *, requests: bool = True, answers: bool = True) -> None:
        if requests:
            self._requests.add(process)
        if answers:
            self._answers.add(process)

    def heal(self, process: str) -> None:
        self._requests.discard(process)
        self._answers.discard(process)
        healed = [signal for name, signal in self._waiting if name == process]
        self._waiting = [(name, signal) for name, signal in self._waiting if name != process]
        for signal in healed:
            signal.set()

    def is_cut(self, process: str) -> bool:
        return process in self._requests or process in self._answers

    def swallows(self, process: str, *, request: bool) -> bool:
        """Return whether the message that is sent now is lost, because of a cut or by chance."""
        if process in (self._requests if request else self._answers):
            self.effects["net-cut"] += 1
            return True
        return self.strikes("net-drop", process)

    def strikes(self, kind: str, process: str) -> bool:
        rate = self._rates.get(kind, 0.0)
        struck = rate > 0 and self.stream(kind, process).random() < rate
        if struck:
            self.effects[kind] += 1
        return struck

    def delay(self, process: str) -> Millis:
        """Draw how long a message travels in one direction; mostly 0."""
        if self.strikes("net-spike", process):
            return self.stream("net-spike", process).randrange(SPIKE_MS_MAX)
        if self.strikes("net-delay", process):
            return self.stream("net-delay", process).randrange(DELAY_MS_MAX)
        return 0

    def stream(self, kind: str, process: str) -> Random:
        found = self._streams.get((kind, process))
        if found is None:
            found = self._streams[kind, process] = Random(f"{self._seed}/{process}/{kind}")
        return found

    async def healed(self, process: str) -> None:
        while process in self._answers or process in self._requests:
            signal = self.wire.tasks.signal()
            self._waiting.append((process, signal))
            await signal.wait(None)

    @property
    def is_quiet(self) -> bool:
        return not self._rates and not self._requests and not self._answers


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self.value: list[T] = []
        self.error: StoreError | None = None


class NetworkedStore(StoreAround):
    """The store as one start of a process reaches it. `link`: the link's name, if it is not the
    name of the process."""

    def __init__(self, store: Store, process: Process, network: Network, link: str = "") -> None:
        super().__init__(store)
        self._process = process
        self._link = link or process.name
        self._incarnation = process.incarnation
        self._network = network

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await self._ask(call, Unavailable if verb in READS else OutcomeUnknown)

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        bodies: list[bytes] = []

        async def scan() -> int:
            bodies.clear()
            return await self._store.scan(kind, bodies.append)

        version = await self._call("scan", kind, scan)
        for body in bodies:
            see(body)
        return version

    def watch(self, kind: str, version: int) -> "NetworkedWatch":
        self._assert_alive()
        return NetworkedWatch(self._store.watch(kind, version), self._process, self._network)

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        """Send each write as a message of its own, as a client of an API server does."""
        if self._network.is_quiet:
            self._assert_alive()
            return await self._store.write_all(writes)
        return await one_by_one(self, writes)

    async def _ask(self, call: Callable[[], Awaitable[T]], silence: type[StoreError]) -> T:
        self._assert_alive()
        network, name = self._network, self._link
        if network.is_quiet:
            return await call()
        out, back = network.delay(name), network.delay(name)
        lost = network.swallows(name, request=True)
        copied = not lost and network.strikes("net-copy", name)
        if not (out or back or lost or copied or network.is_cut(name)):
            result = await call()
            if not network.swallows(name, request=False):
                return result
            await self._process.clock.sleep(GIVE_UP_MS)
            raise silence
        answer: _Answer[T] = _Answer()
        came = self._process.tasks.signal()
        for copy in range(0 if lost else 1 + copied):
            # Whichever copy's answer comes first counts.
            travel = self._travel(call, answer, came, out=out * (copy + 1), back=back)
            network.wire.tasks.spawn("request", travel)
        answered = await came.wait(GIVE_UP_MS)
        if not answered:
            raise silence
        if answer.error is not None:
            raise answer.error
        return answer.value[0]

    async def _travel(
        self,
        call: Callable[[], Awaitable[T]],
        answer: _Answer[T],
        came: KernelSignal,
        *,
        out: Millis,
        back: Millis,
    ) -> None:
        network, name, incarnation = self._network, self._link, self._incarnation
        clock = network.wire.clock
        if out:
            await clock.sleep(out)
        found: list[T] = []
        error: StoreError | None = None
        try:
            found.append(await call())
        except StoreError as said:
            error = said
        if back:
            await clock.sleep(back)
        if network.swallows(name, request=False) or self._process.incarnation != incarnation:
            return
        if not answer.value and answer.error is None:
            answer.value, answer.error = found, error
            came.set()

    def _assert_alive(self) -> None:
        if self._process.incarnation != self._incarnation:
            raise Crashed


class NetworkedWatch:
    """A watch that delivers nothing during a cut. When the cut is healed, it continues or
    expires."""

    def __init__(self, watch: Watch, process: Process, network: Network) -> None:
        self._watch = watch
        self._process = process
        self._network = network

    async def next(self) -> WatchEvent:
        event = await self._watch.next()
        name = self._process.name
        if self._network.is_cut(name):
            await self._behind_the_cut(name)
            if self._network.stream("net-cut", name).random() < 0.5:
                self._watch.close()
                raise WatchExpired
        return event

    async def _behind_the_cut(self, name: str) -> None:
        """Wait until the cut is healed. A task of this process waits, so that the wait ends if the
        process dies."""
        came = self._process.tasks.signal()

        async def wait() -> None:
            await self._network.healed(name)
            came.set()

        self._network.wire.tasks.spawn("watch behind a cut", wait())
        await came.wait(None)

    def close(self) -> None:
        self._watch.close()
