"""Checks that the leader decides only with what a successor could read from the store.

After a turn, a fresh controller reads the store without faults, and its World is compared with the
leader's. Facts of the ledger are always compared. Objects of a kind are compared only if the leader
has received and applied the newest version of every object of that kind.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from leasehold.adapters.objects.storage import Change, decode
from leasehold.core.facts import Node, PodPhase, Run
from leasehold.core.ledger.batch import resolution_digest
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.wire import part
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.recover import WATCHED, read_world
from leasehold.sim.scenario.ledger import at_once

INVARIANT = "SuccessorKnowsTheSame"
_STATUS_IS_OURS = ("Budget", "Run")  # writes of only their status are not news
Tables = Iterator[tuple[str, Mapping[str, object]]]


class SuccessorCheck:
    """After each turn, compares the leader's World with the one that a successor would read from
    the store; calls `fail` with each difference."""

    def __init__(
        self, store: Store, clock: Clock, labels: Labels, fail: Callable[[str], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._labels = labels
        self._fail = fail
        self._newest: dict[str, int] = {}  # kind -> version of the last news
        self._said: dict[tuple[str, str, str], Wire] = {}  # last seen objects, without status
        self.evaluated: Counter[str] = Counter()

    def on_change(self, change: Change) -> None:
        """Note a write to the store, so that it is known which version of each kind is the
        newest."""
        kind = change.key[0]
        if kind not in WATCHED:
            return
        if kind in _STATUS_IS_OURS:
            before = self._said.pop(change.key, None)
            if change.event != "DELETED":
                said = self._said[change.key] = _without_status(decode(change.body))
                if said == before:
                    return
        self._newest[kind] = change.version

    def turned(self, process: str, world: World, shown: Mapping[str, int], *, folded: bool) -> None:
        """Compare the Worlds after a turn of `process`. `shown`: by kind, the newest version that
        the leader received. `folded`: whether its World reflects everything that it received."""
        fresh = self._fresh(world)
        if fresh is None:
            return  # another process has moved the head, and the leader is about to notice
        self.evaluated[INVARIANT] += 1
        tables = [*zip(_ledger(world, fresh), _ledger(fresh, world), strict=True)]
        for kind in WATCHED:
            if folded and self._newest.get(kind, 0) <= shown.get(kind, 0):
                tables += zip(_objects(kind, world), _objects(kind, fresh), strict=True)
        for (what, known), (_, stored) in tables:
            if known != stored:
                self._fail(f"{INVARIANT}: {_difference(process, what, known, stored)}")

    def _fresh(self, world: World) -> World | None:
        """Return the World that a controller would read if it started now. Return None if the
        stored head is not the head of `world`."""
        ledger = Ledger(self._store, self._clock)
        try:
            there = at_once(ledger.look())
        except NotFound:
            return None
        if there.head != world.head:
            return None
        return at_once(
            read_world(self._store, self._clock, ledger, policy=world.policy, labels=self._labels)
        ).world


def _ledger(world: World, other: World) -> Tables:
    """Yield tables of the facts in committed batches, and of what follows from these facts.

    Overdrafts and reservations are included only if both Worlds have them. A successor's first turn
    drops those that are over, and plans those again whose objects could not be written. The books
    of deleted Runs are left out, because nothing is decided about such Runs.
    """
    yield "lease", world.leases
    yield "resolution", {name: resolution_digest(each) for name, each in world.resolutions.items()}
    yield (
        "overdraft",
        {key: each for key, each in world.overdrafts.items() if key in other.overdrafts},
    )
    yield "told Budget", world.budget_facts
    yield "told node", world.node_facts
    yield (
        "reservation",
        {
            name: (each.uid, each.batch, each.announced, each.commitment)
            for name, each in world.reservations.items()
            if name in other.reservations
        },
    )
    yield (
        "book",
        {
            uid: (book.attempt, book.resized_at, book.swapped_at, book.cuts, book.resolved_in)
            for uid, book in world.books.items()
            if uid in world.runs and uid in other.runs
        },
    )


def _objects(kind: str, world: World) -> Tables:
    """Yield tables of the objects of one kind that users, nodes or kubelets write."""
    match kind:
        case "Budget":
            yield kind, {key: replace(each, version=0) for key, each in world.budgets.items()}
            yield "lowered cap", dict(_lowered(world))
        case "Run":
            found = {uid: world.wanted_run(uid) for uid in world.runs}
            yield kind, {uid: _run(each) for uid, each in found.items() if each is not None}
        case "Node":
            yield kind, {key: _node(each.node) for key, each in world.fleet.nodes.items()}
        case _:
            yield (
                kind,
                {
                    key: each
                    for key, each in world.pods.items()
                    if each.phase is not PodPhase.ORDERED
                },
            )


def _lowered(world: World) -> Iterator[tuple[str, list[int]]]:
    """Yield the caps that were lowered below a lease that is still open. Other lowered caps have no
    effect, and a successor cannot know since when such a cap is sufficient again."""
    for payer, lent, *said in world.lowered.to_rows()[1]:
        names = world.open_by_payer.get(payer, ())
        if any(world.lowered.was_lowered_under(world.leases[name], lent=lent) for name in names):
            yield f"{payer} {lent}", said


def _run(run: Run) -> Run:
    """Return the run without the fields that depend on its status: the leader ignores status writes
    of its own, so it may know an older status than a successor."""
    return replace(run, version=0, seen_running=0)


def _node(node: Node) -> Node:
    """Return the node without `unheard_since`, because each process measures it by its own
    clock."""
    return replace(node, unheard_since=None)


def _difference(
    process: str, what: str, known: Mapping[str, object], stored: Mapping[str, object]
) -> str:
    for key in sorted(known.keys() | stored.keys()):
        one, other = known.get(key), stored.get(key)
        if one != other:
            if type(one) is type(other) and isinstance(one, msgspec.Struct):
                what, one, other = _field(what, one, other)
            return f"{process} knows {what} {key} as {one}, and a successor reads {other}"
    return f"{process} and a successor have the same {what} in another order"


def _field(what: str, one: object, other: object) -> tuple[str, object, object]:
    """Return the name and both values of the first field that differs between two records."""
    for name in one.__struct_fields__:  # type: ignore[attr-defined]
        mine, theirs = getattr(one, name), getattr(other, name)
        if mine != theirs:
            return f"{name} of {what}", mine, theirs
    return what, one, other


def _without_status(obj: Wire) -> Wire:
    metadata = {
        key: value
        for key, value in part(obj, "metadata").items()
        if key not in ("resourceVersion", "managedFields")
    }
    return {**obj, "metadata": metadata, "status": None}
