"""Simulated machines: which processes run where, when they end, and which nodes are reachable.

Called by `sim.nodes`, which passes in observed Pods and reports results. Scenario steps (a node
dies, a pod exits) also reach the machines through `sim.nodes`. Plain state without I/O or awaiting:
the caller passes `now`. Nothing is decided here. Breaches are recorded: things that no real machine
can do, such as running one rank twice or using more GPUs than exist.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from leasehold.core.facts import Node, Pod, Record, Uid
from leasehold.core.units import Instant, Millis

SIGNALLED = 143  # exit code of a process ended by a signal
EVERY_GROUP = -1

Rank = tuple[Uid, int, int]  # run, group, pod within the group


class NodeIs(StrEnum):
    """The states of a node that a scenario can set."""

    DEAD = "dead"
    SILENT = "silent"
    READY = "ready"
    CORDONED = "cordoned"
    UNCORDONED = "uncordoned"
    DRAINING = "draining"  # cordoned and being emptied; uncordoning ends both


class Work(Record):
    """What the pods of one attempt do. If `lasts` is None, they run until they are stopped."""

    lasts: Millis | None = None
    exit_code: int = 0
    stops: Millis = 0  # time from the signal to the end


@dataclass
class Machine:
    """The real state of a node. `heard`: the scenario has not made the node silent. A cut link
    makes its kubelet `deaf` (it sees no writes), `mute` (its own writes are lost) or both. A node
    that is mute for long is `missed`: it is shown as not ready."""

    node: Node
    alive: bool = True
    heard: bool = True
    exists: bool = True  # its Node object exists
    cordoned: bool = False
    draining: bool = False
    silent_since: Instant | None = None
    fences_at: Instant | None = None  # when it kills its processes, because it is not heard
    has_fenced: bool = False  # self-fenced: starts nothing until it is heard again
    foreign: int = 0  # GPUs used by another scheduler's pods
    broken: int = 0  # GPUs that failed
    deaf: bool = False
    mute: bool = False
    missed_at: Instant | None = None  # when it will be missed, because it is mute
    missed: bool = False

    @property
    def is_ready(self) -> bool:
        return self.alive and self.heard and not self.missed

    @property
    def hears(self) -> bool:
        """Whether the machine's kubelet sees writes to the store."""
        is_there = self.alive and self.exists and not self.has_fenced
        return is_there and self.heard and not self.deaf

    @property
    def gpus(self) -> int:
        """The number of working GPUs."""
        return self.node.gpus - self.broken


@dataclass
class JobProcess:
    """The process of one pod. It ends by itself, because of a signal, or with its machine."""

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
    grace: Millis | None = None  # of the signal; None: not signalled
    stops_at: Instant | None = None  # because of the signal
    ended_at: Instant | None = None
    is_lost: bool = False  # it ended unobserved with its machine

    @property
    def is_running(self) -> bool:
        return self.ended_at is None

    @property
    def due(self) -> Instant | None:
        """When the process will end if nothing else happens to it; None if it runs on."""
        stops_at = None if self.is_stuck else self.stops_at
        known = [at for at in (self.ends_at, stops_at) if at is not None]
        return min(known, default=None)

    def signal(self, grace: Millis, now: Instant) -> None:
        """Tell the process to stop within `grace`. A second signal counts only if its grace ends
        earlier."""
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
    per_group: bool  # groups start and retry separately


@dataclass
class MachineRoom:
    """All machines and the processes on them."""

    machines: dict[str, Machine] = field(default_factory=dict)
    processes: dict[Uid, JobProcess] = field(default_factory=dict)  # by the pod's uid
    breaches: list[str] = field(default_factory=list)
    _plans: dict[Uid, _Plan] = field(default_factory=dict)
    _attempts: dict[tuple[Uid, int, int], Instant] = field(default_factory=dict)

    def assign(self, run: Uid, works: tuple[Work, ...], *, per_group: bool) -> None:
        """Set what the pods of a run do: one entry of `works` per attempt; the last entry is used
        for all later attempts."""
        self._plans[run] = _Plan(works or (Work(),), per_group)

    def works_of(self, run: Uid) -> tuple[Work, ...]:
        plan = self._plans.get(run)
        return plan.works if plan else ()

    def start(self, pod: Pod, now: Instant) -> None:
        """Start a pod's process. The caller must have called `pass_time` up to `now`."""
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
        """End the processes that are due, each at its own end time, and return them."""
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
        """Return the newest running process of a rank; None if none runs."""
        found = [process for process in self.running() if process.rank == rank]
        return found[-1] if found else None

    def exit(self, process: JobProcess, code: int, now: Instant) -> None:
        process.ends_at, process.exit_code = now, code
        process.end(now)

    def unstick(self, process: JobProcess, now: Instant) -> None:
        """Let a stuck process react to signals again. If it was told to stop meanwhile, it ends at
        once."""
        was_stuck, process.is_stuck = process.is_stuck, False
        if was_stuck and (process.grace is not None or process.is_unwanted):
            process.end(now)

    def abandon(self, pod_uid: Uid, now: Instant) -> None:
        """Note that the Pod object of a process is gone. The kubelet ends the process if it sees
        that."""
        process = self.processes.get(pod_uid)
        if process is None:
            return
        process.is_unwanted = True
        if process.is_running and self.machines[process.node].hears and not process.is_stuck:
            process.end(now)
        if not process.is_running:
            del self.processes[pod_uid]

    def used_on(self, name: str) -> int:
        """Return the number of GPUs that processes on this machine use."""
        return sum(process.gpus for process in self.running() if process.node == name)

    def break_gpus(self, name: str, left: int, code: int | None, now: Instant) -> list[JobProcess]:
        """Break or repair GPUs until `left` of the machine's work; return the processes that end.
        With a `code`, GPUs in use break first, the newest process' first, and their processes exit
        with that code. Without a `code` all processes continue."""
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
        """Stop everything on the machine; nobody observes how the processes end."""
        for process in self.processes.values():
            if process.node == name:
                process.is_lost = True
                if process.is_running:
                    process.end(now)

    def _fence(self, name: str, at: Instant) -> list[JobProcess]:
        """Kill the processes on a machine that fences itself. A process that ended before is still
        reported when the machine is heard again; the killed ones are lost."""
        ended = [process for process in self.running() if process.node == name]
        for process in ended:
            due = process.due
            process.is_lost = due is None or due > at
            process.end(at if due is None else min(due, at))
        return ended

    def hear(self, name: str, now: Instant) -> None:
        """Let the machine's kubelet catch up: it ends processes whose Pod objects are gone."""
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
