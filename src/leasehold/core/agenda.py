"""What is spoken for but not yet leased: places and money of planned starts.

While runs are considered in order, each reservation's plan goes on the agenda, and those behind
it see the fleet less what would delay it. A *firm* hold keeps GPUs from everybody at once (an
activation under way, a reservation that needs cuts), until its run will have ended; a *timed* one
counts from its start, so a run that ends before then may use the places in between (backfill).
"""

from collections.abc import Iterable

from leasehold.core.accounts import Claim
from leasehold.core.facts import EnvelopeKey, Record, Uid
from leasehold.core.levels import Drop, fewest
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world import World


class Hold(Record):
    uid: Uid
    node: str
    gpus: int
    start: Instant
    end: Instant = FOREVER


class Agenda:
    """Holds and claims, by run and by node."""

    def __init__(self) -> None:
        self.firm: dict[Uid, tuple[Hold, ...]] = {}
        self._firm_by_node: dict[str, list[Hold]] = {}
        self._timed: dict[str, list[Hold]] = {}  # by node
        self._timed_of: dict[Uid, list[Hold]] = {}
        self.changed: dict[str, None] = {}  # nodes, since somebody last looked
        self.claims: dict[Uid, tuple[Claim, ...]] = {}
        self._claims_by_payer: dict[EnvelopeKey, list[Claim]] = {}
        self.changes = 0  # of anything
        self.releases = 0  # those of them that leave others more than before

    def hold_firmly(self, uid: Uid, holds: Iterable[Hold]) -> None:
        self.forget_places(uid)
        self.changes += 1
        self.firm[uid] = tuple(holds)
        for hold in self.firm[uid]:
            self._firm_by_node.setdefault(hold.node, []).append(hold)
            self.changed[hold.node] = None

    def hold_later(self, holds: Iterable[Hold]) -> None:
        self.changes += 1
        for hold in holds:
            self._timed.setdefault(hold.node, []).append(hold)
            self._timed_of.setdefault(hold.uid, []).append(hold)
            self.changed[hold.node] = None

    def claim(self, uid: Uid, claims: Iterable[Claim]) -> None:
        self._drop_claims(uid)
        self.changes += 1
        self.claims[uid] = tuple(claims)
        for claim in self.claims[uid]:
            self._claims_by_payer.setdefault(claim.payer, []).append(claim)

    def _drop_claims(self, uid: Uid) -> None:
        for claim in self.claims.pop(uid, ()):
            self._claims_by_payer[claim.payer].remove(claim)
            self._note_release()

    def forget(self, uid: Uid) -> None:
        """The run starts, or gives up its plan."""
        self._drop_claims(uid)
        self.forget_places(uid)

    def forget_places(self, uid: Uid) -> None:
        for hold in self.firm.pop(uid, ()):
            self._firm_by_node[hold.node].remove(hold)
            self.changed[hold.node] = None
            self._note_release()
        for hold in self._timed_of.pop(uid, ()):
            self._timed[hold.node].remove(hold)
            self.changed[hold.node] = None
            self._note_release()

    def _note_release(self) -> None:
        self.changes += 1
        self.releases += 1

    def ends_of_holds(self, now: Instant) -> set[Instant]:
        """When planned runs are known to have ended."""
        return {
            hold.end for holds in self._timed.values() for hold in holds if now < hold.end < FOREVER
        }

    def firm_on(self, node: str, but: Uid) -> int:
        """GPUs that are kept for good, as far as is known."""
        firm = self._firm_by_node.get(node, ())
        return sum(hold.gpus for hold in firm if hold.uid != but and hold.end == FOREVER)

    def timed_on(self, node: str, but: Uid) -> list[Hold]:
        """Holds with a start to come or an end that is known."""
        found = [hold for hold in self._firm_by_node.get(node, ()) if hold.end < FOREVER]
        return [hold for hold in (*found, *self._timed.get(node, ())) if hold.uid != but]

    def nodes_held(self, uid: Uid | None) -> list[str]:
        """Nodes this run holds something on; those anybody holds later, if none is named."""
        if uid is None:
            return sorted({*self._timed, *self._firm_by_node})
        held = (*self.firm.get(uid, ()), *self._timed_of.get(uid, ()))
        return sorted({hold.node for hold in held})

    def apply(self, world: World, uid: Uid, *, start: Instant, end: Instant) -> None:
        """Under a mark: take off what a run occupying [start, end) must leave alone."""
        world.accounts.respect(self._claims_by_payer, but=uid)
        nodes = world.fleet.nodes
        for owner, holds in self.firm.items():
            if owner != uid:
                for hold in holds:
                    state = nodes.get(hold.node)
                    if start < hold.end and state is not None and state.free:
                        world.fleet.plan(hold.node, min(hold.gpus, state.free))
        for name, timed in self._timed.items():
            state = nodes.get(name)
            if timed and state is not None and state.free:
                keep = self._kept(world, name, timed, uid=uid, start=start, end=end)
                if keep:
                    world.fleet.plan(name, min(keep, state.free))

    def _kept(
        self, world: World, name: str, timed: list[Hold], *, uid: Uid, start: Instant, end: Instant
    ) -> int:
        """How many of a node's free GPUs would be missed at some hold's start."""
        free = world.fleet.nodes[name].free
        drops: list[Drop] = []
        for hold in timed:
            if hold.uid != uid and start < hold.end and hold.start < end:
                drops += (hold.start, hold.gpus), (hold.end, -hold.gpus)
        if not drops:
            return 0
        drops += [(at, -1) for at in _frees(world, name, start)]
        return free - max(0, min(free, fewest(free, drops, start=start, stop=end)))


def _frees(world: World, name: str, start: Instant) -> Iterable[Instant]:
    """When GPUs of a node come free after `start`, as far as is known; of a slot under two leases
    when the later one ends."""
    found: dict[int, Instant] = {}
    for lease_name in world.open_by_node.get(name, ()):
        frees_at = world.terms[lease_name].frees_at
        if frees_at > start:
            for slot in world.leases[lease_name].slots:
                found[slot] = max(frees_at, found.get(slot, 0))
    return found.values()
