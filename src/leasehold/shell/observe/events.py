"""Kubernetes Events: what happened to an object, recorded on that object.

The loop reports its turns here, and the node agent reports what it does. A task writes the Events
in batches, so no decision waits for them. A repeated Event increases its count. Events expire after
a while; the lasting record is the ledger.
"""

import hashlib
from collections import OrderedDict

from leasehold.control.reasons import is_warning
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Phase, Record, Uid
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import HOUR, SECOND, Instant, Millis, format_instant, plural
from leasehold.core.verdicts import Refusal
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import (
    Answers,
    Create,
    Delete,
    NotFound,
    Store,
    StoreError,
    Unavailable,
    Update,
    Write,
)

KEEP: Millis = HOUR
KNOWN_MAX = 10_000  # most recent first; older ones would be created again
ROUND_MAX = 256
NAME_CHARS_MAX = 253 - 17  # of the object's name, before the digest in the Event's name
AGAIN: Millis = 5 * SECOND  # after the store rejected Events
UNTOLD_MAX = 1_000  # warnings kept for a retry
PAUSE: Millis = SECOND  # collect reports for so long and write them together
DEFAULT_NAMESPACE = "default"  # holds events about cluster-scoped objects

# Warnings among this module's own reasons; notices and notes carry their type.
_WARNINGS = frozenset({"Failed", "NotUsed", "Preempted", *map(str, Refusal)})
_GROUPS = {"Run": API_VERSION, "Budget": API_VERSION, "Pod": "v1", "Node": "v1"}


class Occurrence(Record, frozen=True):
    """Something that happened to an object; `uid` is "" if only its name is known."""

    kind: str
    namespace: str
    name: str
    uid: Uid
    reason: str
    message: str
    type: str = ""  # Normal or Warning; "": derived from the reason

    @property
    def is_warning(self) -> bool:
        return self.type == "Warning" if self.type else self.reason in _WARNINGS


class EventWriter:
    """Collects occurrences and writes them as Events."""

    def __init__(self, store: Store, clock: Clock, tasks: Tasks, *, sweeps: bool = True) -> None:
        """`sweeps`: also delete old Events, for a store where no API server does that."""
        self._sweeps = sweeps
        self._store = store
        self._clock = clock
        self._told = tasks.signal()
        self._fresh: dict[Occurrence, tuple[int, Instant]] = {}  # -> count, time of the last
        self._known: OrderedDict[str, Wire] = OrderedDict()  # by event name, as written
        self._phases: dict[Uid, Phase] = {}
        self._lacks: dict[str, str] = {}
        self._drains: dict[str, bool] = {}  # nodes under drain -> whether they are empty
        self._node_changes = -1
        self._swept: Instant = 0

    def tell(self, story: Occurrence) -> None:
        count, _ = self._fresh.get(story, (0, 0))
        self._fresh[story] = (count + 1, self._clock.now())
        self._told.set()

    def forget(self) -> None:
        """Drop all occurrences that are not written yet, because another process leads now."""
        self._fresh.clear()
        self._phases.clear()
        self._lacks.clear()
        self._drains.clear()
        self._node_changes = -1

    def after_turn(self, turn: Turn) -> None:
        world = turn.world
        for notice in turn.notices:
            namespace, _, name = notice.subject.rpartition("/")
            self.tell(
                Occurrence(
                    kind=notice.kind,
                    namespace=namespace,
                    name=name,
                    uid=_uid_of(world, notice.kind, notice.subject),
                    reason=str(notice.reason),
                    type="Warning" if is_warning(notice.reason) else "Normal",
                    message=notice.message,
                )
            )
        for resolution in turn.resolutions:
            self._tell_victims(world, resolution)
        for uid in turn.touched:
            self._tell_phase(world, uid, turn.now)
        if world.node_changes != self._node_changes:
            self._node_changes = world.node_changes
            for name, state in world.fleet.nodes.items():
                self._tell_lack(name, state.node.lacks)
        if self._drains or world.fleet.draining:
            self._tell_drains(world)

    async def run(self) -> None:
        """Write collected occurrences and delete old Events; never return."""
        while True:
            await self._told.wait(AGAIN if self._fresh else KEEP // 4)
            await self._clock.sleep(PAUSE)
            await self._write()
            if self._sweeps and self._clock.now() - self._swept > KEEP // 4:
                await self._sweep()

    def _tell_phase(self, world: World, uid: Uid, now: Instant) -> None:
        """Report that a run has completed or failed, once, when it enters that phase."""
        run = world.runs.get(uid)
        if run is None:
            self._phases.pop(uid, None)
            return
        view = run_view(world, uid, now)
        before, self._phases[uid] = self._phases.get(uid), view.phase
        if view.phase in (Phase.COMPLETED, Phase.FAILED) and before != view.phase:
            reason = str(view.phase)
            self.tell(
                Occurrence(
                    kind="Run",
                    namespace=run.namespace,
                    name=run.name,
                    uid=uid,
                    reason=reason,
                    message=f"{view.because}: {view.message}" if view.message else view.because,
                )
            )

    def _tell_victims(self, world: World, resolution: Resolution) -> None:
        lost: dict[Uid, list[str]] = {}
        for name in resolution.victims:
            lost.setdefault(world.leases[name].uid, []).append(name)
        whom = resolution.beneficiary or resolution.subject
        for uid, names in lost.items():
            leases = [world.leases[name] for name in names]
            gpus = sum(lease.gpus for lease in leases)
            why = sorted({str(each.ending.why.reason) for each in leases if each.ending})
            first = leases[0]
            self.tell(
                Occurrence(
                    kind="Run",
                    namespace=first.namespace,
                    name=first.run,
                    uid=uid,
                    reason="Preempted",
                    message=f"{resolution.name} takes {plural(gpus, 'GPU')} ({', '.join(why)}) "
                    f"for {whom}; see kubectl runs explain",
                )
            )

    def _tell_lack(self, name: str, lacks: str) -> None:
        before = self._lacks.get(name, "")
        if lacks:
            self._lacks[name] = lacks
        else:
            self._lacks.pop(name, None)
        if lacks and lacks != before:
            told = f"the node is not used, because it lacks {lacks}"
            self.tell(
                Occurrence(
                    kind="Node", namespace="", name=name, uid="", reason="NotUsed", message=told
                )
            )

    def _tell_drains(self, world: World) -> None:
        """For each node under drain, report once that it is draining, and once that it is empty."""
        self._drains = {
            name: empty for name, empty in self._drains.items() if name in world.fleet.draining
        }
        for name in world.fleet.draining:
            empty = name not in world.open_by_node
            if self._drains.get(name) is empty:
                continue
            self._drains[name] = empty
            asker = world.fleet.nodes[name].node.drained_by
            said = (
                ("Drained", "the node has no open leases")
                if empty
                else (
                    "Draining",
                    f"{asker} drains the node: it gets no new work, and runs that can leave "
                    "it without loss leave it",
                )
            )
            self.tell(
                Occurrence(
                    kind="Node", namespace="", name=name, uid="", reason=said[0], message=said[1]
                )
            )

    async def _write(self) -> None:
        fresh, self._fresh = self._fresh, {}
        todo = list(fresh.items())
        for first in range(0, len(todo), ROUND_MAX):
            told = todo[first : first + ROUND_MAX]
            events = [self._event(story, count, at) for story, (count, at) in told]
            writes: list[Write] = [_write_of(event) for event in events]
            answers: Answers
            try:
                answers = await self._store.write_all(writes)
            except StoreError as error:
                answers = [error] * len(writes)
            for (story, when), event, answer in zip(told, events, answers, strict=True):
                name = str(_metadata(event)["name"])
                if isinstance(answer, Unavailable) and story.is_warning:
                    self._keep_for_later(story, *when)
                    continue
                if isinstance(answer, dict):
                    self._known[name] = answer
                    self._known.move_to_end(name)
                else:
                    self._known.pop(name, None)
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)

    def _keep_for_later(self, story: Occurrence, count: int, at: Instant) -> None:
        """Keep a warning that the store could not write, because warnings matter most when a disk
        is full. Drop it if too many are kept already."""
        if len(self._fresh) < UNTOLD_MAX:
            more, last = self._fresh.get(story, (0, at))
            self._fresh[story] = (more + count, max(last, at))

    def _event(self, story: Occurrence, count: int, at: Instant) -> Wire:
        """Return the Event to write for an occurrence that was reported `count` times, last at
        `at`. If its Event was written before, return that Event with a higher count."""
        when = format_instant(at)
        parts = (story.kind, story.namespace, story.name, story.uid, story.reason, story.message)
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        name = f"{story.name[:NAME_CHARS_MAX].rstrip('-.')}.{digest}"
        known = self._known.get(name)
        if known is not None:
            told = known.get("count")
            assert isinstance(told, int), "we wrote it"
            return {**known, "count": told + count, "lastTimestamp": when}
        involved: Wire = {
            "apiVersion": _GROUPS.get(story.kind, API_VERSION),
            "kind": story.kind,
            "name": story.name,
        }
        if story.namespace:
            involved["namespace"] = story.namespace
        if story.uid:
            involved["uid"] = story.uid
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": story.namespace or DEFAULT_NAMESPACE},
            "involvedObject": involved,
            "reason": story.reason,
            "message": story.message,
            "type": "Warning" if story.is_warning else "Normal",
            "count": count,
            "firstTimestamp": when,
            "lastTimestamp": when,
            "source": {"component": "leasehold"},
            "reportingComponent": "leasehold",
        }

    async def _sweep(self) -> None:
        self._swept = self._clock.now()
        try:
            listing = await self._store.list("Event")
            old = format_instant(self._swept - KEEP)
            dead: list[Write] = [
                Delete("Event", str(meta["namespace"]), str(meta["name"]), None)
                for event in listing.items
                if str(event.get("lastTimestamp", "")) < old
                for meta in (_metadata(event),)
            ]
            for first in range(0, len(dead), ROUND_MAX):
                await self._store.write_all(dead[first : first + ROUND_MAX])
        except (StoreError, NotFound):
            return


def _write_of(event: Wire) -> Write:
    return Update(event) if "resourceVersion" in _metadata(event) else Create(event)


def _metadata(obj: Wire) -> Wire:
    found = obj["metadata"]
    assert isinstance(found, dict), obj
    return found


def _uid_of(world: World, kind: str, subject: str) -> Uid:
    if kind == "Run":
        return world.uid_of.get(subject, "")
    budget = world.budgets.get(subject)
    return budget.uid if kind == "Budget" and budget is not None else ""
