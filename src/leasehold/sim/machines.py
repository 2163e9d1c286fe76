"""The physics of simulated machines: which processes run where, when they end, who can be heard.

Called by `sim.nodes`, which tells it what was seen of Pods and reports what became of them, and
through that by scenario steps (a node dies, a pod exits). Plain state without I/O or awaiting:
whoever calls brings `now`. It decides nothing; it also watches for what no machine can do, such as
running one rank twice or more GPUs than there are, and notes that as a breach.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from leasehold.core.facts import Node, Pod, Record, Uid
from leasehold.core.units import Instant, Millis

SIGNALLED = 143  # the exit code of a process that a signal ended
EVERY_GROUP = -1

Rank = tuple[Uid, int, int]  # run, group, pod within the group


class NodeIs(StrEnum):
    """What can be said to a node."""

    DEAD = "dead"
    SILENT = "silent"
    READY = "ready"
    CORDONED = "cordoned"
    UNCORDONED = "uncordoned"
    DRAINING = "draining"  # cordoned, and to be emptied; uncordoned again it is neither


class Work(Record):
    """What the pods of one attempt do; without `lasts` they run until they are stopped."""

    lasts: Millis | None = None
    exit_code: int = 0
    stops: Millis = 0  # from the signal to the end


@dataclass
class Machine:
    """A node as it really is. `heard`: its kubelet reaches the store, as far as its own doing goes.
    A link that is cut makes it `deaf`, `mute` or both; mute for long, it is `missed`."""

    node: Node
    alive: bool = True
    heard: bool = True
    exists: bool = True  # as a Node object
    cordoned: bool = False
    draining: bool = False
    silent_since: Instant | None = None
    fences_at: Instant | None = None  # when it stops its processes, because nobody hears it
    has_fenced: bool = False  # and starts none until it is heard again
    foreign: int = 0  # GPUs that another scheduler's pods hold
    broken: int = 0  # GPUs that it has no more
    deaf: bool = False
    mute: bool = False
    missed_at: Instant | None = None  # when it will be, because it is mute
    missed: bool = False

    @property
    def is_ready(self) -> bool:
        return self.alive and self.heard and not self.missed

    @property
    def hears(self) -> bool:
        """Whether its kubelet learns what is written."""
        is_there = self.alive and self.exists and not self.has_fenced
        return is_there and self.heard and not self.deaf

    @property
    def gpus(self) -> int:
        """Those that work."""
        return self.node.gpus - self.broken


@dataclass
class JobProcess:
    """What one pod runs. It ends by itself, by a signal, or with its machine."""

    uid: Uid  # the pod's
    node: str
    rank: Rank
    gpus: int
    work: Work
    began_at: Instant
    ends_at: Instant | None  # by itself
    exit_code: int
    is_stuck: bool = False
    is_unwanted: bool = False  # its Pod object is gone
    grace: Millis | None = None  # of the signal; None: it got none
    stops_at: Instant | None = None  # because of the signal
    ended_at: Instant | None = None
    is_lost: bool = False  # it ended with its machine, and nobody saw it

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def due(self) -> Instant | None:
        """When it will end, as things stand."""
        stops_at = None if self.is_stuck else self.stops_at
        known = [at for at in (self.ends_at, stops_at) if at is not None]
        return min(known, default=None)

    def signal(self, grace: Millis, now: Instant) -> None:
        """A first signal, or a later one that leaves less time."""
        if self.grace is None:
            self.stops_at = now + min(self.work.stops, grace)
        elif grace < self.grace and self.stops_at is not None:
            self.stops_at = min(self.stops_at, now + grace)
        self.grace = grace if self.grace is None else min(self.grace, grace)

    def end(self, at: Instant) -> None:
        by_itself = self.ends_at is not None and self.ends_at <= at
        self.ended_at = at
        if not by_itself:
            self.exit_code = SIGNALLED


@dataclass
class _Plan:
    works: tuple[Work, ...]
    per_group: bool  # groups start and retry alone


@dataclass
class Hall:
    """All machines and the processes on them."""

    machines: dict[str, Machine] = field(default_factory=dict)
    processes: dict[Uid, JobProcess] = field(default_factory=dict)  # by the pod's uid
    breaches: list[str] = field(default_factory=list)
    _plans: dict[Uid, _Plan] = field(default_factory=dict)
    _attempts: dict[tuple[Uid, int, int], Instant] = field(default_factory=dict)

    def assign(self, run: Uid, works: tuple[Work, ...], *, per_group: bool) -> None:
        """What the pods of a run will do, one entry per attempt; the last one repeats."""
        self._plans[run] = _Plan(works or (Work(),), per_group)

    def works_of(self, run: Uid) -> tuple[Work, ...]:
        plan = self._plans.get(run)
        return plan.works if plan else ()

    def start(self, pod: Pod, now: Instant) -> None:
        """Whoever calls it lets time pass before, and hears what has ended by then."""
        plan = self._plans.get(pod.run_uid, _Plan((Work(),), False))
        work = plan.works[min(max(pod.attempt, 1), len(plan.works)) - 1]
        attempt = (pod.run_uid, pod.group if plan.per_group else EVERY_GROUP, pod.attempt)
        began = self._attempts.setdefault(attempt, now)
        process = JobProcess(
            uid=pod.uid,
            node=pod.node,
            rank=(pod.run_uid, pod.group, pod.index),
            gpus=pod.gpus,
            work=work,
            began_at=now,
            # A pod that is started again late has no time left, but cannot end before it starts.
            ends_at=None if work.lasts is None else max(began + work.lasts, now),
            exit_code=work.exit_code,
        )
        self._watch_for_breaches(process, pod.key)
        self.processes[pod.uid] = process

    def pass_time(self, now: Instant) -> list[JobProcess]:
        """Ends what has come to its end, at the time it really did."""
        ended = []
        for name, machine in self.machines.items():
            if machine.fences_at is not None and machine.fences_at <= now:
                ended += self._fence(name, machine.fences_at)
                machine.fences_at, machine.has_fenced = None, True
        for process in self.running():
            due = process.due
            if due is not None and due <= now:
                process.end(due)
                ended.append(process)
        return ended

    def next_end(self) -> Instant | None:
        dues = [process.due for process in self.running()]
        for machine in self.machines.values():
            dues += (machine.fences_at, machine.missed_at)
        return min((due for due in dues if due is not None), default=None)

    def running(self) -> Iterator[JobProcess]:
        return (process for process in list(self.processes.values()) if process.is_running)

    def find(self, rank: Rank) -> JobProcess | None:
        """The newest running process of a rank."""
        found = [process for process in self.running() if process.rank == rank]
        return found[-1] if found else None

    def exit(self, process: JobProcess, code: int, now: Instant) -> None:
        process.ends_at, process.exit_code = now, code
        process.end(now)

    def unstick(self, process: JobProcess, now: Instant) -> None:
        """It hears again, and what it was told meanwhile takes effect at once."""
        was_stuck, process.is_stuck = process.is_stuck, False
        if was_stuck and (process.grace is not None or process.is_unwanted):
            process.end(now)

    def abandon(self, pod_uid: Uid, now: Instant) -> None:
        """The Pod object is gone: a kubelet that can be heard ends what it runs."""
        process = self.processes.get(pod_uid)
        if process is None:
            return
        process.is_unwanted = True
        if process.is_running and self.machines[process.node].hears and not process.is_stuck:
            process.end(now)
        if not process.is_running:
            del self.processes[pod_uid]

    def used_on(self, name: str) -> int:
        """GPUs that processes have there."""
        return sum(process.gpus for process in self.running() if process.node == name)

    def break_gpus(self, name: str, left: int, code: int | None, now: Instant) -> list[JobProcess]:
        """So many are left. With a code, whatever ran on the others ends with it: those in use
        break first, the newest of them at the front. Without, it goes on as if nothing were."""
        machine = self.machines[name]
        lost = machine.gpus - left
        machine.broken = machine.node.gpus - left
        ended: list[JobProcess] = []
        for process in reversed(list(self.running())):
            if lost > 0 and code is not None and process.node == name:
                lost -= process.gpus
                self.exit(process, code, now)
                ended.append(process)
        return ended

    def lose(self, name: str, now: Instant) -> None:
        """Everything on the machine stops, and nothing will be told of it."""
        for process in self.processes.values():
            if process.node == name:
                process.is_lost = True
                if process.is_running:
                    process.end(now)

    def _fence(self, name: str, at: Instant) -> list[JobProcess]:
        """The machine stops what still runs; what ended before will be told when it is heard."""
        ended = [process for process in self.running() if process.node == name]
        for process in ended:
            due = process.due
            process.is_lost = due is None or due > at
            process.end(at if due is None else min(due, at))
        return ended

    def hear(self, name: str, now: Instant) -> None:
        """The machine's kubelet catches up: what nobody wants any more ends."""
        for process in list(self.processes.values()):
            if process.node == name and process.is_unwanted:
                self.abandon(process.uid, now)

    def _watch_for_breaches(self, new: JobProcess, name: str) -> None:
        for other in self.running():
            if other.rank == new.rank:
                where = f"{name} starts on {new.node} while its rank still runs on {other.node}"
                self.breaches.append(where)
        on_node, gpus = self.used_on(new.node), self.machines[new.node].node.gpus
        if on_node + new.gpus > gpus:
            self.breaches.append(f"{name} makes {on_node + new.gpus} of {new.node}'s {gpus} GPUs")
