"""Checks that the leader keeps up with the events it received, and with its leases.

Each process is checked after each of its turns. Delays are counted in turns, not in minutes: a
store that refuses nearly everything makes turns long, but a turn must still try what is due. What a
process received is recorded outside all layers that inject faults.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from leasehold.adapters.objects.storage import Change, decode
from leasehold.control.turn import Turn
from leasehold.core.facts import Cause, Uid
from leasehold.core.objects.lease import lease_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.world.world import World
from leasehold.ports.store import (
    Answers,
    Delete,
    Listing,
    NotFound,
    Store,
    Watch,
    WatchEvent,
    Write,
)
from leasehold.shell.loop.recover import WATCHED
from leasehold.sim.store_wrapper import StoreAround

KNOWS, GO, LOSSES = "KnowsWhatIsThere", "UnwantedPodsGo", "LossesAreReal"
DEAD = "DeadHoldNothing"
LET_GO = (b'"deletionTimestamp"', b'"DisruptionTarget"')  # marks a pod that must go or was evicted
BECAUSE_DELETED = b'"cause":"Deleted"'  # in a lease that may have this cause
# Key, uid ("" is any pod of that name), and whether it must go without grace, because its node is
# dead and nothing there would react to it.
PodName = tuple[str, Uid, bool]


class Attention:
    """What one start of a process has received so far, and its state at the end of its last
    turn."""

    def __init__(self) -> None:
        self.shown: dict[str, int] = {}  # kind -> newest version received
        self.tried: set[PodName] = set()  # pods whose removal was tried since the last turn
        self.removed: set[PodName] = set()  # pods whose removal succeeded
        self.world: World | None = None
        self.shown_before: dict[str, int] = {}
        self.unwanted_before: set[PodName] = set()
        self.leased_before: set[Uid] = set()  # runs with open leases
        self.on_dead_before: set[str] = set()  # lease names

    def turn_over(self, world: World, unwanted: set[PodName], on_dead: set[str]) -> None:
        self.world = world
        self.shown_before = dict(self.shown)
        self.unwanted_before = unwanted
        self.leased_before = set(world.open_by_run)
        self.on_dead_before = on_dead
        self.tried.clear()


class ObservedStore(StoreAround):
    """The outermost layer around the store: records what it returns to the process, and which pods
    the process deletes."""

    def __init__(self, store: Store, attention: Attention) -> None:
        super().__init__(store)
        self._attention = attention

    async def list(self, kind: str) -> Listing:
        listing = await self._store.list(kind)
        self._attention.shown[kind] = listing.version
        return listing

    def watch(self, kind: str, version: int) -> "ObservedWatch":
        return ObservedWatch(self._store.watch(kind, version), kind, self._attention)

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        deletions = {
            index: (f"{write.namespace}/{write.name}", write.uid or "", write.grace_ms == 0)
            for index, write in enumerate(writes)
            if isinstance(write, Delete) and write.kind == "Pod"
        }
        self._attention.tried.update(deletions.values())
        answers = await self._store.write_all(writes)
        for index, pod in deletions.items():
            if answers[index] is None or isinstance(answers[index], NotFound):
                self._attention.removed.add(pod)
        return answers


class ObservedWatch:
    def __init__(self, watch: Watch, kind: str, attention: Attention) -> None:
        self._watch = watch
        self._kind = kind
        self._attention = attention

    async def next(self) -> WatchEvent:
        event = await self._watch.next()
        self._attention.shown[self._kind] = event.version
        return event

    def close(self) -> None:
        self._watch.close()


class ProgressCheck:
    """After each turn, checks that the process has applied what it received, and tried to remove
    pods that are not needed. Calls `fail` with each violation."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        # (kind, uid) -> creation version and name
        self._made: dict[tuple[str, Uid], tuple[int, str]] = {}
        self._gone: dict[tuple[str, Uid], int] = {}  # (kind, uid) -> deletion version
        self._let_go: set[tuple[str, str]] = set()  # pods that were deleted or told to go
        self._attention: dict[str, Attention] = {}
        self.evaluated: Counter[str] = Counter()

    def around(self, store: Store, process: str) -> Store:
        """Return the store for a new start of the process; what passes through it is recorded."""
        attention = self._attention[process] = Attention()
        return ObservedStore(store, attention)

    def shown(self, process: str) -> Mapping[str, int]:
        """Return, by kind, the newest version that the current start of the process received."""
        return self._attention[process].shown

    def on_change(self, change: Change) -> None:
        kind, namespace, name = change.key
        if kind == "Lease":
            self._on_lease(change)
        elif kind in WATCHED:
            if change.event != "MODIFIED":
                self._on_coming_and_going(change)
            if kind == "Pod" and (
                change.event == "DELETED" or any(mark in change.body for mark in LET_GO)
            ):
                self._let_go.add((namespace, name))

    def _on_coming_and_going(self, change: Change) -> None:
        kind, _, name = change.key
        uid = text_at(part(decode(change.body), "metadata"), "uid")
        if change.event == "ADDED":
            self._made[kind, uid] = (change.version, name)
        else:
            del self._made[kind, uid]
            self._gone[kind, uid] = change.version

    def _on_lease(self, change: Change) -> None:
        """Check a written lease: if it was closed because its pod was deleted, somebody must have
        deleted or evicted that pod."""
        if BECAUSE_DELETED not in change.body:
            return
        obj = decode(change.body)
        if text_at(part(obj, "status"), "cause") == Cause.DELETED:
            self.evaluated[LOSSES] += 1
            lease = lease_from_wire(obj)
            if (lease.namespace, lease.pod) not in self._let_go:
                self._fail(f"{LOSSES}: {lease.name} is closed because its pod {lease.pod} was "
                           "deleted, and nobody ever did that")  # fmt: skip

    def turned(self, process: str, turn: Turn) -> None:
        """Check a process after one of its turns."""
        attention, world = self._attention[process], turn.world
        unwanted = set(_unwanted(world))
        on_dead = set(_on_dead_nodes(world))
        if attention.world is world:
            self._check_knowledge(process, attention, world)
            self._check_removals(process, attention, unwanted)
            self.evaluated[DEAD] += 1
            for lease in sorted(on_dead & attention.on_dead_before):
                node = world.leases[lease].node
                self._fail(f"{DEAD}: {process} has {lease} open on {node}, known to be dead")
        attention.turn_over(world, unwanted, on_dead)

    def _check_knowledge(self, process: str, attention: Attention, world: World) -> None:
        """Check that the World has every object, and lacks every deleted object, that the process
        was told about before this turn."""
        self.evaluated[KNOWS] += 1
        shown, believed = attention.shown_before, set()
        for kind, name, uid, matters in _believed(world, attention.leased_before):
            believed.add((kind, uid))
            gone_at = self._gone.get((kind, uid))
            if matters and gone_at is not None and gone_at <= shown.get(kind, 0):
                self._fail(f"{KNOWS}: {process} has seen version {shown[kind]}, and believes in "
                           f"{kind} {name}, gone at {gone_at}")  # fmt: skip
        for (kind, uid), (made_at, name) in self._made.items():
            if made_at <= shown.get(kind, 0) and (kind, uid) not in believed:
                self._fail(f"{KNOWS}: {process} has seen version {shown[kind]}, and knows nothing "
                           f"of {kind} {name}, made at {made_at}")  # fmt: skip

    def _check_removals(self, process: str, attention: Attention, unwanted: set[PodName]) -> None:
        """Check each pod that was unwanted after the last turn and still is: the process must have
        removed it in this turn, or tried to."""
        self.evaluated[GO] += 1
        for pod in sorted(unwanted & attention.unwanted_before):
            enough = {pod, (*pod[:2], True)}
            if enough.isdisjoint(attention.removed) and enough.isdisjoint(attention.tried):
                self._fail(f"{GO}: {process} knows pod {pod[0]}, whose leases are over or to end, "
                           "and had a turn without trying to remove it")  # fmt: skip


def _believed(world: World, leased: set[Uid]) -> Iterator[tuple[str, str, Uid, bool]]:
    """Yield kind, name and uid of each object in the World, and whether the object must leave the
    World soon after its deletion. A pod that has ended may stay, and so may a run that still had
    leases at the last turn."""
    for key, pod in world.pods.items():
        yield "Pod", key, pod.uid, not pod.has_ended
    for name, state in world.fleet.nodes.items():
        yield "Node", name, state.node.uid, True
    for uid, run in world.runs.items():
        yield "Run", run.key, uid, uid not in leased
    for key, budget in world.budgets.items():
        yield "Budget", key, budget.uid, True


def _unwanted(world: World) -> Iterator[PodName]:
    """Yield the pods that must be removed: those of runs that have not ended, and that no lease
    needs. A pod on a live node is left out if its deletion was already requested."""
    for keys in world.pods_by_run.values():
        for key in keys:
            pod = world.pods[key]
            leases = [world.leases[name] for name in world.open_by_pod.get(key, ())]
            if pod.has_ended or any(lease.ending is None for lease in leases):
                continue
            state = world.fleet.nodes.get(pod.node)
            if state is None or state.node.fenced:
                yield key, pod.uid, True
            elif not pod.deleting:
                yield key, pod.uid, False


def _on_dead_nodes(world: World) -> Iterator[str]:
    """Yield the names of open leases on nodes that are fenced or missing."""
    for node, names in world.open_by_node.items():
        state = world.fleet.nodes.get(node)
        if state is None or state.node.fenced:
            yield from names
