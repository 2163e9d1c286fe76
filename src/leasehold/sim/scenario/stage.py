"""The environment of a story: virtual time, a store, a fleet, and the shipped control loop.

Created by the runner for one execution. The stage starts and restarts the controller, advances
time, and checks the rules that must hold at every commit. It knows nothing about steps and
expectations.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.control.audit import audit
from leasehold.core.ledger.verify import Fold
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.run import grace_problems
from leasehold.core.units import Instant
from leasehold.core.world.invariants import check_all
from leasehold.core.world.world import World
from leasehold.ports.store import Store
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.archive.reader import Archive
from leasehold.shell.loop.loop import Controller
from leasehold.shell.loop.observer import LoopObserver
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.sim.faulty import KINDS, Faults, FaultyStore
from leasehold.sim.kernel import Kernel, Process
from leasehold.sim.nodes import SimFleet
from leasehold.sim.on_cluster import ClusterStore
from leasehold.sim.scenario.ledger import ledger_problems, lines_after, objects_of
from leasehold.sim.scenario.populate import node_of, put_budgets
from leasehold.sim.scenario.story import Story

Observer = Callable[[Instant, str], None]

KILLS = ("kill-before", "kill-after")
RESTARTS_MAX = 1_000  # per instant


class Violated(Exception):  # noqa: N818 - named for the condition
    """A rule that must hold at every commit was broken."""

    def __init__(self, at: Instant, problems: list[str]) -> None:
        super().__init__(at, problems)
        self.at = at
        self.problems = problems


def draw_rates(seed: int) -> dict[str, float]:
    """Draw a mix of faults for a seed: the rate of each kind. Most kinds occur, but none so often
    that nothing succeeds."""
    random = Random(f"{seed}/rates")
    rates = {}
    for kind in KINDS:
        if kind == "reorder":
            continue
        if random.random() < 0.7:
            rates[kind] = random.choice((0.02, 0.05, 0.1))
    for kind in KILLS:
        if kind in rates:
            rates[kind] = random.choice((0.002, 0.01))
    if random.random() < 0.7:
        rates["reorder"] = 0.5
    return rates


def draw_is_shared(seed: int | None) -> bool:
    """Draw whether the controller acts as if other processes could lead. It then confirms the head
    before each write that repeats no committed fact, and binds pods in a second write."""
    return seed is not None and Random(f"{seed}/shared").random() < 0.5


class Watcher(LoopObserver):
    """Observes the loop: passes its messages on, and has every commit checked."""

    def __init__(self, observe: Observer, on_commit: Callable[[World, Instant], None]) -> None:
        self._observe = observe
        self._on_commit = on_commit

    def said(self, at: Instant, words: str) -> None:
        self._observe(at, words)

    def alerted(self, at: Instant, words: str) -> None:
        self._observe(at, f"alert: {words}")

    def committed(self, world: World, at: Instant) -> None:
        self._on_commit(world, at)


class Stage:
    def __init__(
        self,
        story: Story,
        *,
        seed: int | None,
        rates: Mapping[str, float],
        observe: Observer,
        file: Path | None = None,
        cluster: Callable[[], KubeContext] | None = None,
        archive: Path | None = None,
    ) -> None:
        """Create store, fleet and controller. The store is in memory unless there is a `file` or a
        `cluster`. With an `archive`, as much as possible is compacted after every commit."""
        self._story = story
        self.archive = None if archive is None else Archive(archive)
        self._seed = seed
        self._observe = observe
        self.kernel = Kernel(story.start, seed)
        self.user = self.kernel.process("user")
        self._control = self.kernel.process("controller")
        nodes = self.kernel.process("nodes")
        grace_max = story.config.policy.grace_max
        self.admission = Admission(also=lambda run: grace_problems(run, grace_max))
        self.store = self._new_store(file, cluster)
        self.faults = Faults(seed or 0, rates) if rates else None
        # Node faults exclude crashes: a kubelet that forgets its pods is a different story.
        kept = {kind: rate for kind, rate in rates.items() if kind not in KILLS}
        self._node_faults = Faults(seed or 0, kept) if kept else None
        seen = self._seen_by(nodes, self._node_faults)
        # Where silence counts as death after a time, nodes fence themselves before that.
        total = story.config.fencing.total
        timed = story.config.policy.node_failure_after
        fences = {flavor: None if after is None else total for flavor, after in timed}
        self.fleet = SimFleet(
            seen, nodes.clock, nodes.tasks, labels=story.config.labels, fences=fences
        )
        nodes.tasks.spawn("fleet", self.fleet.run())
        self._populate()
        self._fold = Fold()  # of every batch so far; survives restarts
        self._incarnation = -1
        self._controller: Controller | None = None
        self.start_controller()

    @property
    def now(self) -> Instant:
        return self.kernel.now

    @property
    def controller(self) -> Controller:
        """The running controller; after a crash, the one that crashed, until the next one is
        started."""
        assert self._controller is not None, "it is started with the stage"
        return self._controller

    @property
    def world(self) -> World | None:
        return None if self._controller is None else self._controller.world

    def start_controller(self) -> None:
        """Start a new controller that knows only what the store has. A controller that still runs
        is crashed first."""
        if self._incarnation == self._control.incarnation:
            self._control.crash()
        if self._incarnation >= 0 and isinstance(self.store, SqliteStore):
            self.store.reopen()  # only the file may carry over
        self._incarnation = self._control.incarnation
        config = self._story.config
        store = self._seen_by(self._control, self.faults)
        self._compactor = self._new_compactor(store)
        self._controller = Controller(
            store,
            self._control.clock,
            self._control.tasks,
            PlaneSettings(
                policy=config.policy,
                labels=config.labels,
                lottery_key=hashlib.sha256(f"leasehold/sim/{self._seed}".encode()).digest(),
                is_shared=isinstance(self.store, ClusterStore) or draw_is_shared(self._seed),
                is_strict=True,
            ),
            audience=Watcher(self._observe, self._on_commit),
            between_turns=None if self._compactor is None else self._compactor.step,
        )
        self._control.tasks.spawn("controller", self._controller.run())

    def close(self) -> None:
        if isinstance(self.store, SqliteStore | ClusterStore):
            self.store.close()

    def advance_to(self, at: Instant) -> None:
        """Advance time to `at`. Restart the controller whenever a fault has killed it."""
        at = max(at, self.now)
        self.settle()
        while (due := self.kernel.next_timer()) is not None and due <= at:
            self.kernel.advance_to(due)
            self.settle()
        self.kernel.advance_to(at)
        self.settle()

    def settle(self) -> None:
        for _ in range(RESTARTS_MAX):
            self.kernel.settle()
            if self._incarnation == self._control.incarnation:
                return
            self.start_controller()
        raise AssertionError("the controller dies at every start")

    def stop_faults(self) -> None:
        for faults in (self.faults, self._node_faults):
            if faults is not None:
                faults.stop()

    def ledger(self) -> list[str]:
        return ledger_problems(self.store, self.archive)

    def audit(self) -> list[str]:
        if self.world is None:
            return ["the control loop has not recovered"]
        resource = self._story.config.labels.gpu_resource
        pods = [
            pod_from_wire(wire, gpu_resource=resource) for wire in objects_of(self.store, "Pod")
        ]
        return list(audit(self.world, pods, self.now))

    def broken(self) -> list[str]:
        """Return every broken invariant, and everything that machines did although no real machine
        can."""
        if self.world is None:
            return ["the control loop has not recovered"]
        return [*map(str, check_all(self.world, self.now)), *self.fleet.breaches]

    def _new_store(
        self, file: Path | None, cluster: Callable[[], KubeContext] | None
    ) -> MemoryStore | SqliteStore | ClusterStore:
        tasks, clock = self.user.tasks, self.user.clock
        if cluster is not None:
            return ClusterStore(cluster, tasks, clock, self.admission)
        if file is None:
            return MemoryStore(tasks, clock, self.admission)
        # The same uids as in memory, so that a story has the same bytes on both.
        return SqliteStore(file, tasks, clock, self.admission, prefix="uid")

    def _new_compactor(self, store: Store) -> Compactor | None:
        if self.archive is None:
            return None
        return Compactor(
            store,
            self._control.clock,
            folder=self.archive.folder,
            keep_closed=0,
            max_objects=self._story.config.policy.max_objects,
            alert=lambda words: self._observe(self.now, f"alert: {words}"),
        )

    def _populate(self) -> None:
        for name, row in self._story.node_rows():
            self.fleet.add_node(node_of(name, row))
        put_budgets(self.store, self._story)
        self.kernel.settle()

    def _seen_by(self, process: Process, faults: Faults | None) -> Store:
        return self.store if faults is None else FaultyStore(self.store, process, faults)

    def _on_commit(self, world: World, now: Instant) -> None:
        """Check the rules at a commit. A violation is set on the kernel instead of raised, because
        the loop might handle an exception."""
        problems = [*map(str, check_all(world, now)), *self.fleet.breaches]
        if self._compactor is not None:
            self._compactor.request()
        for line in lines_after(self.store, self._fold.seq, self._fold.digest, self.archive):
            problem = self._fold.step(line)
            problems += [] if problem is None else [str(problem)]
        if problems:
            self.kernel.failure = Violated(now, problems)
