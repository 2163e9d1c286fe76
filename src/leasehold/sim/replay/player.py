"""Replays jobs on the shipped core: the World, `decide`, and a ledger on a memory store.

This module plays the parts of the users, of the kubelets, and of the loop around `decide`. Users
submit. Pods start at once, and end when their work is done or they are stopped. The shipped code
takes all decisions, with the same World, turns and commits. Statuses, Events and other objects that
a replay does not need are not written.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec.structs import replace

from leasehold.adapters.memory.store import MemoryStore
from leasehold.control.decide import decide
from leasehold.control.running.life import phase_of
from leasehold.control.touched import broken_by
from leasehold.control.turn import Turn
from leasehold.core.facts import (
    Budget,
    Closed,
    Lease,
    Node,
    Phase,
    Pod,
    PodPhase,
    Role,
    Run,
    Uid,
    parse_why,
)
from leasehold.core.ledger.batch import Batch
from leasehold.core.policy import Policy
from leasehold.core.units import DAY, FOREVER, GpuMs, Instant, Millis
from leasehold.core.world.world import World
from leasehold.shell.ledger.commit import Ledger
from leasehold.sim.kernel import Kernel
from leasehold.sim.replay.jobs import Job, Known, none_known
from leasehold.sim.replay.runs import RunMaker
from leasehold.sim.scenario.ledger import at_once

SIGNALLED = 143
TURNS_MAX = 10_000  # limit per instant
# After so long without submission, start or end, waiting jobs are given up
SILENCE_MAX: Millis = 40 * DAY

Progress = Callable[[int], object]  # called with the number of finished jobs


class Defect(Exception):  # noqa: N818 - named for the condition
    """A defect of leasehold: an invariant was broken, or the turns at one instant did not end."""


@dataclass(frozen=True)
class Setting:
    """The fleet, Budgets and configuration with which jobs are replayed."""

    name: str
    nodes: tuple[Node, ...]
    budgets: tuple[Budget, ...]
    policy: Policy


@dataclass(frozen=True)
class JobBehaviour:
    """How all jobs behave. A preempted job continues from its last saved state; a job that saves
    nothing fails when it is preempted."""

    known: Known = none_known
    checkpoint: Millis | None = None  # amount of work between two checkpoints
    saves_on_stop: bool = False  # save all work when told to stop
    resume: Millis = 0  # time to load a checkpoint

    @property
    def declared(self) -> Millis | None:
        """The `runtime.checkpoint` that every Run declares. If it is None, a preempted run is not
        requeued."""
        if self.checkpoint is not None:
            return self.checkpoint
        return 1_000 if self.saves_on_stop else None


@dataclass
class JobHistory:
    """What happened to one job in a replay."""

    job: Job
    first_start: Instant | None = None
    ended_at: Instant | None = None
    ending: str = ""  # Completed, or the reason of failure; "": not over
    waited: Millis = 0  # total time from submission to end without running
    preemptions: int = 0
    lost: GpuMs = 0  # GPU time whose work was lost
    ran: GpuMs = 0  # total GPU time
    saved: Millis = 0  # completed and saved work
    since: Instant = 0  # start of the current wait or run
    attempt: int = 0  # number of starts
    pods: dict[str, Pod] = field(default_factory=dict)  # of the running attempt

    @property
    def is_running(self) -> bool:
        return bool(self.pods)


@dataclass
class Played:
    """The result of a replay: the history of each job, the GPUs in use, and the final state."""

    setting: Setting
    courses: list[JobHistory]
    use: list[tuple[Instant, str, int]]  # (time, owner, change of GPUs in use)
    started_at: Instant
    ended_at: Instant
    turns: int
    cpu_seconds: float
    world: World
    store: MemoryStore


def play(
    setting: Setting,
    jobs: Sequence[Job],
    habits: JobBehaviour,
    *,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Played:
    """Replay the jobs, which must be in order of submission. Stop when all are over, or when no
    event is left that could start the waiting ones."""
    assert jobs, "there is something to replay"
    assert all(one.submit <= two.submit for one, two in zip(jobs, jobs[1:])), "in order"
    began = time.process_time()
    player = _Player(setting, jobs, habits, seed=seed, progress=progress)
    player.run()
    return Played(
        setting=setting,
        courses=list(player.courses.values()),
        use=player.use,
        started_at=jobs[0].submit,
        ended_at=player.now,
        turns=player.turns,
        cpu_seconds=time.process_time() - began,
        world=player.world,
        store=player.store,
    )


class _Player:
    def __init__(
        self,
        setting: Setting,
        jobs: Sequence[Job],
        habits: JobBehaviour,
        *,
        seed: int,
        progress: Progress,
    ) -> None:
        self._habits = habits
        self._progress = progress
        self._jobs = jobs
        self._submitted = 0
        self._over = 0
        self._key = hashlib.sha256(f"leasehold/replay/{seed}".encode()).digest()
        self._kernel = Kernel(jobs[0].submit)
        process = self._kernel.process("replay")
        self.store = MemoryStore(process.tasks, process.clock, history_max=1)
        self._ledger = Ledger(self.store, process.clock)
        self.world = World(setting.policy)
        for node in setting.nodes:
            self.world.put_node(node)
        for budget in setting.budgets:
            self.world.put_budget(budget)
        self.world.fold_head(at_once(self._ledger.seal()).head)
        self._maker = RunMaker(setting.nodes, setting.budgets, habits.known, habits.declared)
        self.courses: dict[Uid, JobHistory] = {}
        self.use: list[tuple[Instant, str, int]] = []
        self.turns = 0
        self._ends: list[tuple[Instant, int, Uid]] = []  # heap of (time, attempt, uid)
        self._wake: Instant = FOREVER
        self._moved_at = self.now  # last submission, start or end of a job

    @property
    def now(self) -> Instant:
        return self._kernel.now

    def run(self) -> None:
        while (at := self._next()) is not None:
            self._kernel.advance_to(at)
            self._end_what_is_done()
            self._submit()
            self._settle()

    def _next(self) -> Instant | None:
        """Return the time of the next event; None if the replay is over."""
        while self._ends and not self._is_current(*self._ends[0][1:]):
            heappop(self._ends)
        due = [self._ends[0][0]] if self._ends else []
        if self._submitted < len(self._jobs):
            due.append(self._jobs[self._submitted].submit)
        if not due and self._over == len(self._jobs):
            return None
        if not due and self._wake > self._moved_at + SILENCE_MAX:
            return None
        return min(self._wake, *due) if due else self._wake

    def _is_current(self, attempt: int, uid: Uid) -> bool:
        course = self.courses[uid]
        return course.is_running and course.attempt == attempt

    # What users and kubelets do.

    def _submit(self) -> None:
        while self._submitted < len(self._jobs):
            job = self._jobs[self._submitted]
            if job.submit > self.now:
                return
            run = self._maker.run_of(job, self._submitted)
            self.courses[run.uid] = JobHistory(job=job, since=self.now)
            self.world.put_run(run)
            self._submitted += 1
            self._moved_at = self.now

    def _end_what_is_done(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            _, attempt, uid = heappop(self._ends)
            if not self._is_current(attempt, uid):
                continue
            course = self.courses[uid]
            course.saved = course.job.duration
            course.ran += (self.now - course.since) * course.job.gpus
            self._end_pods(course, PodPhase.SUCCEEDED)

    def _end_pods(self, course: JobHistory, phase: PodPhase) -> None:
        """End all pods of a running job now."""
        for pod in course.pods.values():
            ended = replace(
                pod,
                version=pod.version + 1,
                phase=phase,
                exit_code=0 if phase is PodPhase.SUCCEEDED else SIGNALLED,
                finished_at=self.now,
            )
            self.world.put_pod(ended)
        course.pods = {}
        course.since = self.now
        self._moved_at = self.now
        self.use.append((self.now, course.job.owner, -course.job.gpus))

    def _start(self, uid: Uid, leases: Iterable[Lease]) -> bool:
        """Start pods for those of a job's leases that have none. Return whether any pod was
        started."""
        course = self.courses[uid]
        gpus: dict[str, int] = {}
        first: dict[str, Lease] = {}
        for lease in leases:
            if lease.role is not Role.SPARE and lease.pod_key not in course.pods:
                gpus[lease.pod_key] = gpus.get(lease.pod_key, 0) + lease.gpus
                first.setdefault(lease.pod_key, lease)
        if not first:
            return False
        assert not course.is_running, f"{uid} starts whole"
        for key, lease in first.items():
            course.pods[key] = _pod(lease, gpus[key])
            self.world.put_pod(course.pods[key])
        self._begin(uid, course)
        return True

    def _begin(self, uid: Uid, course: JobHistory) -> None:
        course.waited += self.now - course.since
        course.since = self._moved_at = self.now
        if course.first_start is None:
            course.first_start = self.now
        course.attempt += 1
        self.use.append((self.now, course.job.owner, course.job.gpus))
        takes = course.job.duration - course.saved + self._loading(course)
        heappush(self._ends, (self.now + takes, course.attempt, uid))

    def _loading(self, course: JobHistory) -> Millis:
        """Return how long the job takes to load the work that it saved earlier."""
        return self._habits.resume if course.saved else 0

    def _stop(self, course: JobHistory, why: Closed) -> None:
        """Stop a job before its work is done; it ends at once. Count what it saved and what it
        lost."""
        spent = self.now - course.since
        done = max(0, spent - self._loading(course))
        kept = 0
        if self._habits.saves_on_stop:
            kept = done
        elif self._habits.checkpoint is not None:
            kept = done - done % self._habits.checkpoint
        course.saved += kept
        course.ran += spent * course.job.gpus
        course.lost += (spent - kept) * course.job.gpus
        course.preemptions += why is not Closed.TIME_LIMIT
        self._end_pods(course, PodPhase.FAILED)

    # The loop around `decide`.

    def _settle(self) -> None:
        """Take turns until a turn decides nothing more at this instant."""
        for _ in range(TURNS_MAX):
            turn = decide(self.world, now=self.now, key=self._key)
            self.turns += 1
            violations = broken_by(turn)
            if violations:
                raise Defect("; ".join(map(str, violations)))
            for batch in turn.batches:
                self._commit(turn, batch)
            self.world.work.take_budgets()
            is_news = False
            for batch in turn.batches:
                is_news |= self._perform(batch)
            if not (turn.batches or turn.again or is_news):
                self._wake = turn.wake_at
                return
        raise Defect(f"nothing settles at {self.now}")

    def _commit(self, turn: Turn, batch: Batch) -> None:
        mine = [each for each in turn.resolutions if each.batch == batch.seq]
        at_once(self._ledger.commit(batch, mine))
        self.world.fold_head(self._ledger.known.head)

    def _perform(self, batch: Batch) -> bool:
        """Start and stop pods as a committed batch requires. Return whether any pod changed, so
        that another turn is needed."""
        leases = self.world.leases
        is_news = False
        for name, reason, _ in batch.ending:
            course = self.courses[leases[name].uid]
            if course.is_running:
                self._stop(course, parse_why(reason).reason)
                is_news = True
        for closing in batch.closed:
            self._forget_pod(leases[closing.lease])
        opened: dict[Uid, list[Lease]] = {}
        for lease in batch.opened:
            opened.setdefault(lease.uid, []).append(lease)
        for uid, mine in opened.items():
            is_news |= self._start(uid, mine)
        return is_news

    def _forget_pod(self, lease: Lease) -> None:
        """Remove the pod of a closed lease if it has no other lease. If the run has no open lease
        left, note whether the job is over."""
        world = self.world
        if lease.pod and lease.pod_key not in world.open_by_pod:
            world.drop_pod(lease.pod_key)
        run = world.runs[lease.uid]
        course = self.courses[lease.uid]
        if course.ended_at is None and not world.open_by_run.get(lease.uid):
            self._note_end(run, course)

    def _note_end(self, run: Run, course: JobHistory) -> None:
        phase, why = phase_of(self.world, run)
        if phase not in (Phase.COMPLETED, Phase.FAILED):
            return
        course.ended_at = self.now
        course.ending = why or str(phase)
        if phase is Phase.FAILED:
            course.lost = course.ran  # all work was lost
        self._over += 1
        self._progress(self._over)


def _pod(lease: Lease, gpus: int) -> Pod:
    return Pod(
        namespace=lease.namespace,
        name=lease.pod,
        node=lease.node,
        gpus=gpus,
        uid=lease.pod_key,
        version=1,
        run_uid=lease.uid,
        group=lease.group,
        index=lease.index,
        attempt=lease.attempt,
        phase=PodPhase.RUNNING,
    )
