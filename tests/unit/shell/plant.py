"""A small installation for tests of the shell: virtual time, a store, machines, the product's loop.

It is like the simulator's stage, but the test chooses the layer between the loop and the store, the
decider, and whether a defect stops everything.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from leasehold.adapters.containment import About, Containment
from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.control.audit import audit
from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import RunView, run_view
from leasehold.core.facts import Lease, Node, Uid
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_from_wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, Instant, Millis
from leasehold.core.world.invariants import check_all
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Answers, Store, Write
from leasehold.shell.loop.loop import Controller, Decider
from leasehold.shell.loop.observer import LoopObserver
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.sim.faulty import one_by_one
from leasehold.sim.kernel import Kernel, Process
from leasehold.sim.machines import Work
from leasehold.sim.nodes import SimFleet
from leasehold.sim.scenario.ledger import at_once, ledger_problems, objects_of
from leasehold.sim.scenario.parse_actions import manifest
from leasehold.sim.store_wrapper import StoreAround

# A start by preemption comes 15 minutes after a wait begins, as in scenarios.
SOON = Policy(patience=15 * MINUTE, min_tenure=0)
T = TypeVar("T")
START: Instant = 500_000 * HOUR
KEY = b"k" * 32


class Doomed(StoreAround):
    """A store whose user dies at its call number `fatal`, just before it or just after."""

    def __init__(self, store: Store, process: Process, fatal: int, *, after: bool) -> None:
        super().__init__(store)
        self._process = process
        self._fatal = fatal
        self._after = after
        self.calls = 0

    async def _call(self, _verb: str, _kind: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        is_fatal = self.calls == self._fatal
        if is_fatal and not self._after:
            self._process.crash()
        try:
            return await call()
        finally:
            if is_fatal:
                self._process.crash()

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        return await one_by_one(self, writes)


class Thinker:
    """A clock by which each decision of `decider` takes some time."""

    def __init__(self, clock: Clock, decider: Decider, takes: Millis) -> None:
        self.now, self.sleep = clock.now, clock.sleep
        self.decide = followed(decider, self._think)
        self._clock = clock
        self._takes = takes
        self._thought: Millis = 0

    def monotonic(self) -> Instant:
        return self._clock.monotonic() + self._thought

    def _think(self, _: World, __: Turn) -> None:
        self._thought += self._takes


def followed(decider: Decider, then: Callable[[World, Turn], None]) -> Decider:
    """Return a decider that decides as `decider` does and passes each turn to `then` first."""

    def deciding(
        world: World,
        *,
        now: Instant,
        key: bytes,
        time_trusted: bool,
        quarantined: frozenset[Uid],
        left_alone: frozenset[Uid],
        is_strict: bool,
    ) -> Turn:
        turn = decider(
            world,
            now=now,
            key=key,
            time_trusted=time_trusted,
            quarantined=quarantined,
            left_alone=left_alone,
            is_strict=is_strict,
        )
        then(world, turn)
        return turn

    return deciding


class Listener(LoopObserver):
    def __init__(self, told: list[str], on_turn: Callable[[Turn], None]) -> None:
        self._told = told
        self._on_turn = on_turn

    def said(self, _: Instant, words: str) -> None:
        self._told.append(words)

    def alerted(self, _: Instant, words: str) -> None:
        self._told.append(f"alert: {words}")

    def turned(self, turn: Turn) -> None:
        self._on_turn(turn)


class Plant:
    """Nodes of eight GPUs in one domain, and one Budget per owner `t:x`, in namespace `x`."""

    def __init__(
        self,
        *,
        nodes: int = 2,
        owners: str = "ab",
        concurrency: int = 64,
        fatal: int = 0,
        after: bool = False,
        strict: bool = True,
        is_shared: bool = False,
        decider: Decider = decide,
        policy: Policy | None = None,
        on_turn: Callable[[Turn], None] = lambda _: None,
        gather: Millis = 0,
        thinking: Millis = 0,
    ) -> None:
        """Start everything; `thinking` is how long each decision seems to take."""
        self._on_turn = on_turn
        self._gather = gather
        self._thinking = thinking
        self.key = KEY  # of the controller that starts next
        self.told: list[str] = []
        self.contained: list[tuple[About, str]] = []
        self.kernel = Kernel(START)
        self.user = self.kernel.process("user")
        self.control = self.kernel.process("controller")
        self.store = MemoryStore(self.user.tasks, self.user.clock, Admission())
        machines = self.kernel.process("nodes")
        self.fleet = SimFleet(self.store, machines.clock, machines.tasks, labels=Labels())
        machines.tasks.spawn("fleet", self.fleet.run())
        for index in range(nodes):
            name = f"n{index}"
            self.fleet.add_node(
                Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=8)
            )
        for owner in owners:
            envelope: Wire = {"name": "e", "flavor": "H", "concurrency": concurrency}
            spec: Wire = {"owner": f"t:{owner}", "envelopes": [envelope]}
            at_once(self.store.create(manifest("Budget", f"{owner}/{owner}", spec)))
        self.kernel.settle()
        self._policy = policy or SOON
        self._decider = decider
        self._strict = strict
        self._is_shared = is_shared
        self._incarnation = -1
        self.doomed = Doomed(self.store, self.control, fatal, after=after)
        self._start()

    def _start(self) -> None:
        self._incarnation = self.control.incarnation
        thinker = Thinker(self.control.clock, self._decider, self._thinking)
        self.controller = Controller(
            self.doomed,
            thinker,
            self.control.tasks,
            PlaneSettings(
                policy=self._policy,
                lottery_key=self.key,
                is_strict=self._strict,
                is_shared=self._is_shared,
                gather=self._gather,
            ),
            decider=thinker.decide,
            audience=Listener(self.told, self._on_turn),
            containment=Containment(lambda about, why, _: self.contained.append((about, why))),
        )
        self.control.tasks.spawn("controller", self.controller.run())

    def submit(self, key: str, *, lasts: Millis | None = None, **spec: object) -> None:
        """Submit a run: by default 8 GPUs in one pod, of the owner named after its namespace."""
        resources = {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 8}
        full: Wire = {"owner": f"t:{key[0]}", "resources": resources, **spec}
        stored = at_once(self.store.create(manifest("Run", key, full)))
        metadata = stored["metadata"]
        assert isinstance(metadata, dict)
        self.fleet.assign(str(metadata["uid"]), (Work(lasts=lasts),), per_group=False)

    def wait(self, span: Millis) -> None:
        """Advance the time, and start the controller again whenever it died."""
        at = self.kernel.now + span
        self._settle()
        while (due := self.kernel.next_timer()) is not None and due <= at:
            self.kernel.advance_to(due)
            self._settle()
        self.kernel.advance_to(at)
        self._settle()

    def _settle(self) -> None:
        self.kernel.settle()
        while self._incarnation != self.control.incarnation:
            self._start()
            self.kernel.settle()

    @property
    def world(self) -> World:
        assert self.controller.world is not None
        return self.controller.world

    def view(self, key: str) -> RunView:
        return run_view(self.world, self.world.uid_of[key], self.kernel.now)

    def views(self) -> dict[str, tuple[str, str, int]]:
        found = {key: self.view(key) for key in sorted(self.world.uid_of)}
        return {key: (view.phase, view.because, view.gpus) for key, view in found.items()}

    def leases(self) -> list[Lease]:
        """Return the leases in the store, sorted by name."""
        found = [lease_from_wire(wire) for wire in objects_of(self.store, "Lease")]
        return sorted(found, key=lambda each: each.name)

    def problems(self) -> list[str]:
        """Return problems of the ledger, leases, pods, balances, invariants and machines."""
        now = self.kernel.now
        pods = [pod_from_wire(wire, gpu_resource="nvidia.com/gpu")
                for wire in objects_of(self.store, "Pod")]  # fmt: skip
        return [*ledger_problems(self.store), *audit(self.world, pods, now),
                *map(str, check_all(self.world, now)), *self.fleet.breaches]  # fmt: skip
