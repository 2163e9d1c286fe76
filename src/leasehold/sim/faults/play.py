"""Plays a plan: store, network, nodes, users and several controllers in virtual time.

Called by `leasehold sim`, the shrinker and the tests. A broken rule stops the simulation at that
commit or step. After the faults have stopped, everything must come to rest, and ledger, objects and
statuses must agree.
"""

import hashlib
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.objects.storage import Change
from leasehold.control.audit import audit
from leasehold.control.turn import Turn
from leasehold.core.ledger.head import Head
from leasehold.core.ledger.verify import Fold
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.run import grace_problems
from leasehold.core.objects.tenure import KIND as TENURE
from leasehold.core.objects.wire import part, text_at, version_at
from leasehold.core.units import MINUTE, SECOND, Instant, Millis, format_span
from leasehold.core.world.invariants import check_all
from leasehold.core.world.world import World
from leasehold.ports.store import PatchStatus, Store
from leasehold.ports.tenure import Margins
from leasehold.shell.ledger.known_ledger import KnownLedger
from leasehold.sim.faults.check_knowledge import SuccessorCheck
from leasehold.sim.faults.check_progress import ProgressCheck
from leasehold.sim.faults.check_standby import INVARIANT, disagreement
from leasehold.sim.faults.check_statuses import KINDS as TOLD
from leasehold.sim.faults.check_statuses import LateStatuses, SignedStore, untrue_statuses
from leasehold.sim.faults.checks import LeaderChange, TenureChecks
from leasehold.sim.faults.coverage import Coverage
from leasehold.sim.faults.nemesis import Nemesis, link_of
from leasehold.sim.faults.plan import FaultPlan
from leasehold.sim.faults.points import PointedStore
from leasehold.sim.faults.processes import Controllers
from leasehold.sim.faults.queries import RandomQueries
from leasehold.sim.faults.rollout import Versions
from leasehold.sim.faulty import Faults, FaultyStore
from leasehold.sim.kernel import Deadlock, Kernel, Livelock, Process
from leasehold.sim.network import Network, NetworkedStore
from leasehold.sim.nodes import SimFleet
from leasehold.sim.replica import LaggingReplica, StaleStore
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.ledger import key_of, ledger_problems, lines_after, objects_of
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.populate import node_of, put_budgets
from leasehold.sim.scenario.story import (
    Cancel,
    Deletion,
    Expect,
    RestartController,
    Step,
    Story,
)
from leasehold.sim.scenario.trouble import CONTROLLERS, NODE_ROLES, NODES, Attack, Harm, Profile

LEADER_WITHIN: Millis = 60 * SECOND  # after the faults have stopped
MEDDLED = 3  # cancel one of this many newest runs at a bad moment
# Time until everything must be at rest. Stories use whole minutes, as do the limits, windows and
# grace periods in them, so the check must not fall on a minute, when something may be due.
QUIET: Millis = 12 * MINUTE + 37 * SECOND + 431


class RuleBroken(Exception):  # noqa: N818 - named for the condition
    """A rule that simulations check was broken; the text names the rule."""


@dataclass
class SeedOutcome:
    """The result of one seed. `digest` is a digest of the whole history."""

    seed: int
    profile: Profile
    problems: list[str] = field(default_factory=list)
    digest: str = ""
    at: Millis = 0  # end of the simulation, since the start
    steps: int = 0
    commits: int = 0
    effects: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    take_overs: list[LeaderChange] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)


def play(
    plan: FaultPlan, *, keep_trace: bool = False, margins: Margins | None = None
) -> SeedOutcome:
    """Play the plan to its end, or up to the first broken rule."""
    with tempfile.TemporaryDirectory(prefix="leasehold-storm-") as folder:
        storm = FaultSimulation(
            plan, Path(folder), keep_trace=keep_trace, margins=margins or Margins()
        )
        try:
            storm.run()
        except RuleBroken as violated:
            storm.outcome.problems.append(str(violated))
        except (Livelock, Deadlock) as stuck:
            storm.outcome.problems.append(f"{type(stuck).__name__}: {stuck}")
        except Exception as defect:
            notes = "; ".join(getattr(defect, "__notes__", ()))
            said = f"{type(defect).__name__}: {' '.join(str(defect).split())[:500]} {notes}"
            storm.outcome.problems.append(f"a task died: {said}")
        return storm.close()


class FaultSimulation:
    def __init__(
        self, plan: FaultPlan, folder: Path, *, keep_trace: bool, margins: Margins
    ) -> None:
        self._plan = plan
        self._keeps_trace = keep_trace
        self.outcome = SeedOutcome(seed=plan.seed, profile=plan.profile)
        self._story: Story = parse_story(plan.story, f"seed {plan.seed}")
        config = self._story.config
        self._hash = hashlib.sha256()
        self.kernel = Kernel(self._story.start, plan.seed if plan.is_shuffled else None)
        self._user = self.kernel.process("user")
        grace_max = config.policy.grace_max
        self._admission = Admission(also=lambda run: grace_problems(run, grace_max))
        self._checks = TenureChecks(
            lambda: self._cast.members.values(),
            lambda: self.kernel.now,
            self._fail,
            margins=margins,
            breaks_clocks=plan.profile is Profile.BREAKING,
        )
        self._marks = Coverage(lambda node: self.fleet.is_silent(node))
        self._fold = Fold()
        self._curious = RandomQueries(plan.seed, self._folded, self._fail)
        self._keeping_up = ProgressCheck(self._fail)
        self.store = MemoryStore(
            self._user.tasks, self._user.clock, self._admission, on_change=self._on_change
        )
        self._successors = SuccessorCheck(self.store, self._user.clock, config.labels, self._fail)
        self._faults = Faults(plan.seed, plan.store)
        self._node_faults = Faults(plan.seed, plan.nodes)
        self._network = Network(self.kernel, plan.seed, plan.network)
        self._replica = LaggingReplica(plan.seed, plan.stale, lambda: self.kernel.now)
        self.fleet = self._new_fleet()
        self._version = 0  # of the last write
        self._late = LateStatuses(plan.seed, plan.late, self.store, self._network.wire)
        self._versions = Versions(plan.seed, plan.rollout, config)
        self._cast = Controllers(
            self.kernel,
            self._versions,
            seed=plan.seed,
            has_ledger=lambda: self._checks.head is not None,
            wrap=self._wrapped,
            tell=self._tell,
            on_commit=self._on_commit,
            on_turn=self._on_turn,
            on_handed_over=self._on_handed_over,
            fail=self._fail,
            archive=folder,
            margins=margins,
        )
        self._nemesis = Nemesis(
            self.kernel, self._cast, self._network, self.fleet, self._meddle,
            seed=plan.seed, drifts=plan.drifts, tell=self._tell,
        )  # fmt: skip
        self._actor = StoryUsers(
            self.store,
            self.fleet,
            admission=self._admission,
            world=lambda: self._world,
            now=lambda: self.kernel.now,
        )

    @property
    def _world(self) -> World | None:
        leader = self._cast.leader()
        return None if leader is None else leader.plane.world

    def run(self) -> None:
        for name, row in self._story.node_rows():
            self.fleet.add_node(node_of(name, row))
        put_budgets(self.store, self._story)
        self.kernel.settle()
        self.kernel.after_step = self._after_step
        for name in CONTROLLERS:
            process = self.kernel.process(name)
            process.clock.drift(self._plan.drifts.get(name, 0))
            process.clock.jump(self._plan.offsets.get(name, 0))
            self._cast.start(name)
        self._nemesis.begin(self._plan.attacks)
        for step in self._story.steps:
            self._advance(self._story.start + step.at)
            self._take(step)
        self._advance(max(self.kernel.now, self._story.start + self._plan.trouble))
        self._calm_down()
        self._judge()

    def close(self) -> SeedOutcome:
        outcome = self.outcome
        outcome.digest = self._hash.hexdigest()
        outcome.at = self.kernel.now - self._story.start
        outcome.steps = self.kernel.steps
        for counter in (
            self._faults, self._node_faults, self._network, self._replica, self._versions,
            self._late, self._nemesis, self.fleet,
        ):  # fmt: skip
            outcome.effects += counter.effects
        for checked in (self._checks, self._curious, self._keeping_up, self._successors):
            outcome.evaluated += checked.evaluated
        outcome.take_overs = self._checks.take_overs
        self._marks.count_effects(outcome.effects, self._checks.take_overs)
        outcome.marks = self._marks.seen
        self.kernel.after_step = None
        self.kernel.failure = None
        self.kernel.close()
        return outcome

    def _take(self, step: Step) -> None:
        if isinstance(step.action, Attack):
            return  # the nemesis has it from the plan
        self._tell("user", str(step.action))
        match step.action:
            case Expect():
                return
            case RestartController():
                attack = Attack(at=0, harm=Harm.CRASH, who="leader", lasts=SECOND)
                self._nemesis.strike(attack)
            case _:
                self.kernel.complete(self._actor.perform(step), process=self._user)
        self.kernel.settle()

    def _meddle(self, random: Random) -> str:
        """Let a user cancel or delete one of the newest runs. Return what the user does; "" if
        there are no runs."""
        runs = [(_created(wire), key_of(wire)) for wire in objects_of(self.store, "Run")]
        if not runs:
            return ""
        run = random.choice(sorted(runs)[-MEDDLED:])[1]
        action = Cancel(run=run) if random.random() < 0.6 else Deletion(kind="run", name=run)
        step = Step(at=0, line=0, action=action)
        self._user.tasks.spawn("meddling", self._actor.perform(step))
        return str(action)

    def _advance(self, at: Instant) -> None:
        if at > self.kernel.now:
            self.kernel.advance_to(at)

    def _calm_down(self) -> None:
        """Stop the faults, wait for a leader, and let everything come to rest."""
        self._tell("nemesis", "no more trouble")
        for each in (
            self._faults, self._node_faults, self._network, self._replica, self._versions,
            self._late,
        ):  # fmt: skip
            each.stop()
        self._nemesis.stop(core=self._plan.core)
        until = self.kernel.now + LEADER_WITHIN
        while self._world is None and self.kernel.now < until:
            self._advance(self.kernel.now + SECOND)
        if self._world is None:
            self._fail(f"ExpiredLeaseClaimable: nobody leads {format_span(LEADER_WITHIN)} "
                       "after the last fault")  # fmt: skip
            return
        self._advance(self.kernel.now + QUIET)

    def _judge(self) -> None:
        leader, world = self._cast.leader(), self._world
        if leader is None or world is None:
            self._fail("nobody leads at the end")
            raise RuleBroken(self.outcome.problems[0])
        # A leader with a fast clock may have decided in our future: continue from there.
        now = max(self.kernel.now, world.head.instant)
        problems = [f"ledger: {each}" for each in ledger_problems(self.store)]
        resource = self._story.config.labels.gpu_resource
        pods = [
            pod_from_wire(wire, gpu_resource=resource) for wire in objects_of(self.store, "Pod")
        ]
        problems += [f"audit: {each}" for each in audit(world, pods, now)]
        problems += [*map(str, check_all(world, now)), *self.fleet.breaches]
        problems += untrue_statuses(world, self.store, now)
        self.outcome.problems += problems
        head = self._checks.head
        leader.plane.controller.wake()
        self._advance(self.kernel.now + 10)
        if self._checks.head != head:
            self.outcome.problems.append("at rest, and yet a turn that nobody asked for decided")

    def _new_fleet(self) -> SimFleet:
        nodes = self.kernel.process(NODES)
        config = self._story.config
        total, timed = config.fencing.total, config.policy.node_failure_after
        fences = {flavor: None if after is None else total for flavor, after in timed}

        cuts_links = any(attack.who in NODE_ROLES for attack in self._plan.attacks)

        def reached(link: str) -> Store:
            cached = StaleStore(self.store, NODES, self._replica, listed=("Pod",))
            linked = NetworkedStore(cached, nodes, self._network, link)
            return FaultyStore(linked, nodes, self._node_faults)

        fleet = SimFleet(
            reached(NODES),
            nodes.clock,
            nodes.tasks,
            labels=config.labels,
            fences=fences,
            # Links of their own only if one is cut; otherwise all nodes share one, so that stored
            # plans play unchanged.
            links=(lambda name: reached(link_of(name))) if cuts_links else None,
        )
        nodes.tasks.spawn("fleet", fleet.run())
        return fleet

    def _wrapped(self, process: Process) -> Store:
        signed = SignedStore(self.store, partial(self._on_status, process.name))
        replicated = StaleStore(signed, process.name, self._replica, got=(TENURE,))
        linked = NetworkedStore(replicated, process, self._network)
        inner = FaultyStore(linked, process, self._faults)
        store: Store = inner
        if any(attack.point for attack in self._plan.attacks):
            store = PointedStore(inner, lambda point: self._nemesis.reach(process, point))
        return self._keeping_up.around(store, process.name)

    def _on_change(self, change: Change) -> None:
        self._hash.update(b"%d %s " % (change.version, change.event.encode()))
        self._hash.update(change.body)
        self._version = change.version
        self._replica.on_change(change)
        self._marks.on_change(change)
        self._checks.on_change(change)
        self._curious.on_change(change)
        self._keeping_up.on_change(change)
        self._successors.on_change(change)

    def _on_turn(self, name: str, turn: Turn) -> None:
        self._keeping_up.turned(name, turn)
        is_folded = not self._cast.members[name].plane.controller.has_news
        shown = self._keeping_up.shown(name)
        self._successors.turned(name, turn.world, shown, folded=is_folded)

    def _on_status(self, writer: str, write: PatchStatus, obj: Wire) -> None:
        """Handle a status write: perhaps deliver it again later, and note it if a deposed
        controller wrote it. The writer is deposed if the head has the epoch of another controller
        that is alive."""
        if write.kind in TOLD:
            self._late.maybe_again(write)
        if write.kind in TOLD and version_at(part(obj, "metadata")) == self._version:
            head = self._checks.head
            owners = [each for each in self._cast.alive() if head and each.epoch == head.epoch]
            if any(each.process.name != writer for each in owners):
                self._marks.seen["status of somebody deposed"] += 1

    def _after_step(self, process: Process) -> None:
        if process.name in self._cast.members:
            self._checks.look()
            self._curious.after_step(self._cast.alive)

    def _on_commit(self, world: World, now: Instant) -> None:
        self.outcome.commits += 1
        self.outcome.evaluated["World"] += 1
        for problem in (*map(str, check_all(world, now)), *self.fleet.breaches):
            self._fail(problem)
        self._folded()

    def _on_handed_over(self, _: Head, known: KnownLedger | None) -> None:
        if known is None:
            self._marks.seen["taken over by reading all"] += 1
            return
        self._marks.seen["taken over from a standby"] += 1
        self.outcome.evaluated[INVARIANT] += 1
        problem = disagreement(self.store, self._user.clock, known)
        if problem:
            self._fail(problem)

    def _folded(self) -> Fold:
        """Return the state that all committed batches add up to. Each batch is verified once, when
        it is added."""
        for line in lines_after(self.store, self._fold.seq, self._fold.digest):
            disagreement = self._fold.step(line)
            if disagreement is not None:
                self._fail(str(disagreement))
                break
            self._curious.on_batch(self._fold)
        return self._fold

    def _fail(self, problem: str) -> None:
        """Stop the simulation with a violation. It is set on the kernel instead of raised, because
        the loop might handle an exception."""
        self._tell("check", problem)
        if self.kernel.failure is None:
            self.kernel.failure = RuleBroken(problem)

    def _tell(self, who: str, words: str) -> None:
        line = f"{format_span(self.kernel.now - self._story.start):>12}  {who}: {words}"
        self._hash.update(line.encode())
        self._marks.on_word(who, words)
        if self._keeps_trace:
            self.outcome.trace.append(line)


def _created(obj: Wire) -> str:
    return text_at(part(obj, "metadata"), "creationTimestamp")
