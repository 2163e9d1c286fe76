"""What is spoken for but not yet leased: places and money of planned starts.

While runs are considered in order, each reservation's plan goes on the agenda, and those behind
it see the fleet less what would delay it. A hold counts from its start to its end, so whoever ends
before it begins may use the places in between (backfill). Holds that began keep GPUs from everybody
behind: those of an activation under way, and the free GPUs that a start that needs cuts keeps.
"""

from collections.abc import Collection, Iterable

from leasehold.core.decisions.cuts import protection_of
from leasehold.core.decisions.holds import Hold, Room, Start
from leasehold.core.decisions.kept import Kept
from leasehold.core.decisions.order import is_ahead
from leasehold.core.facts import EnvelopeKey, Run, Uid
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import World


class Agenda:
    """Holds and claims, by run and by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[Hold]] = {}
        self._of: dict[Uid, list[Hold]] = {}
        self._loose: dict[Uid, set[Instant]] = {}  # when these end, of those that have any
        self._promised: dict[Uid, Room] = {}
        self._known: dict[Uid, Start] = {}
        self._spares: dict[Uid, tuple[Instant, frozenset[str]]] = {}
        self.changed: dict[str, None] = {}  # nodes, since somebody last looked
        self.claims: dict[Uid, tuple[Claim, ...]] = {}
        self._claims_by_payer: dict[EnvelopeKey, list[Claim]] = {}
        self.changes = 0  # of anything
        self.releases = 0  # those of them that leave others more than before

    def hold(self, uid: Uid, holds: Iterable[Hold]) -> None:
        """Instead of whatever places this run held."""
        self.forget_places(uid)
        self.changes += 1
        self._of[uid] = list(holds)
        loose = {h.loose_until + 1 for h in self._of[uid] if h.loose_until < FOREVER}
        if loose:
            self._loose[uid] = loose
        for hold in self._of[uid]:
            self._by_node.setdefault(hold.node, []).append(hold)
            self.changed[hold.node] = None

    def promise(self, room: Room) -> None:
        """Room that a start that needs cuts will have made: nobody behind is cut for it, or plans
        with it."""
        self._promised[room.uid] = room
        self.changes += 1

    def announce(self, start: Start) -> None:
        """A known start, of a run that holds its places."""
        self._known[start.uid] = start

    def count_on(self, uid: Uid, spares: Iterable[str], *, start: Instant) -> None:
        """Spares that a plan will have dropped from then on: nobody sits down on them."""
        self._spares[uid] = (start, frozenset(spares))
        self.changes += 1

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
        for hold in self._of.pop(uid, ()):
            self._by_node[hold.node].remove(hold)
            self.changed[hold.node] = None
            self._note_release()
        promised = self._promised.pop(uid, None)
        self._loose.pop(uid, None)
        self._known.pop(uid, None)
        if self._spares.pop(uid, None) or promised:
            self._note_release()

    def _note_release(self) -> None:
        self.changes += 1
        self.releases += 1

    @property
    def uids(self) -> set[Uid]:
        """Whoever keeps anything from others."""
        return {uid for uid in {*self._of, *self._promised, *self.claims} if self.has(uid)}

    def only(self, uids: Iterable[Uid]) -> "Agenda":
        """What these runs hold and claim, in the order of this agenda; nothing of the others."""
        uids = set(uids)
        found = Agenda()
        for uid, holds in self._of.items():
            if uid in uids:
                found.hold(uid, holds)
        for uid, room in self._promised.items():
            if uid in uids:
                found.promise(room)
        for uid, start in self._known.items():
            if uid in uids:
                found.announce(start)
        for uid, claims in self.claims.items():
            if uid in uids:
                found.claim(uid, claims)
        return found

    def as_found_by(self, world: World, run: Run, now: Instant) -> "Agenda":
        """What those ahead of a run in line hold and claim, and what was made for others."""
        return self.only(
            {
                uid
                for uid in self.uids
                if uid != run.uid
                and (is_ahead(world.runs[uid], of=run) or self._was_made_for(uid, now))
            }
        )

    def as_cut_by(self, world: World, uid: Uid, *, at: Instant, now: Instant) -> "Agenda":
        """Without the places of those for whom room is being made, and whom this run may cut then:
        they will sit there like anybody, though no lot can be drawn yet. Their money stays."""
        seated = [each for each in self._of if self._can_be_cut(world, each, uid, at=at, now=now)]
        if not seated:
            return self
        found = self.only(self.uids)
        for each in seated:
            found.forget_places(each)
        return found

    def _can_be_cut(self, world: World, uid: Uid, by: Uid, *, at: Instant, now: Instant) -> bool:
        """It starts when all victims have gone, or not at all."""
        if uid == by or not self._was_made_for(uid, now):
            return False
        nodes = (world.fleet.nodes.get(hold.node) for hold in self._of[uid])
        domains = {state.node.domain for state in nodes if state is not None}
        started = now + world.policy.victim_timeout
        return protection_of(world, world.runs[uid], started, domains, against=by) <= at

    def _was_made_for(self, uid: Uid, now: Instant) -> bool:
        return uid not in self._promised and any(
            hold.start <= now for hold in self._of.get(uid, ())
        )

    def has(self, uid: Uid) -> bool:
        """Whether it keeps anything from others."""
        return uid in self._promised or bool(self._of.get(uid) or self.claims.get(uid))

    def holds_of(self, uid: Uid) -> tuple[Hold, ...]:
        return tuple(self._of.get(uid, ()))

    def holds_on(self, node: str, but: Uid) -> list[Hold]:
        return [hold for hold in self._by_node.get(node, ()) if hold.uid != but]

    def ends_of_rooms(self, now: Instant) -> set[Instant]:
        """When those that needed cuts are known to have ended."""
        return {room.end for room in self._promised.values() if now < room.end < FOREVER}

    def ends_of_loose(self) -> set[Instant]:
        """The instants after which free GPUs are no longer kept beside a room."""
        return {at for ends in self._loose.values() for at in ends}

    def nodes_held(self, uid: Uid | None) -> list[str]:
        """Nodes this run holds something on; those anybody holds, if none is named."""
        if uid is None:
            return sorted(self._by_node)
        return sorted({hold.node for hold in self._of.get(uid, ())})

    def counts_on(self, spare: str, *, but: Uid, until: Instant) -> bool:
        """Whether somebody's plan needs this spare before then."""
        return any(
            uid != but and start < until and spare in names
            for uid, (start, names) in self._spares.items()
        )

    def respect(self, world: World, uid: Uid) -> None:
        """Under a mark: count the money that is spoken for, except this run's own."""
        world.accounts.respect(self._claims_by_payer, but=uid)

    def apply(
        self,
        world: World,
        uid: Uid,
        *,
        start: Instant,
        end: Instant,
        gone: Collection[str] = (),
        planned_at: Instant | None = None,
    ) -> Kept:
        """Under a mark: take off what a run occupying [start, end) must leave alone; `planned_at`:
        the present instant, if that is later; then also the room that others will have made. Who
        starts at once may sit there: it is cut like anybody else.

        `gone`: leases whose slots were given back under the mark."""
        self.respect(world, uid)
        rooms: list[Room] = []
        cut_then: dict[Uid, set[Uid]] = {}
        if planned_at is not None:
            rooms = self.rooms(but=uid, start=start, end=end)
            cut_then = self._cut_then(world, rooms, planned_at)
        return Kept(
            world,
            self._by_node,
            rooms,
            but=uid,
            start=start,
            end=end,
            gone=gone,
            cutting=self._promised.keys(),
            cut_then=cut_then,
        )

    def _cut_then(self, world: World, rooms: list[Room], now: Instant) -> dict[Uid, set[Uid]]:
        """Of those for whom room is being made: whom each of these may cut when it starts."""
        made = [uid for uid in self._of if self._was_made_for(uid, now)]
        return {
            room.uid: {
                uid
                for uid in made
                if self._can_be_cut(world, uid, room.uid, at=max(room.start, now), now=now)
            }
            for room in (rooms if made else ())
        }

    @property
    def has_rooms(self) -> bool:
        """Whether anybody needs cuts."""
        return bool(self._promised)

    def rooms(self, *, but: Uid, start: Instant, end: Instant) -> list[Room]:
        """What others will have made by cuts at some instant of [start, end), in order of line."""
        return [
            room
            for uid, room in self._promised.items()
            if uid != but and start < room.end and room.start < end
        ]

    def starts(self, *, since: Instant) -> list[Start]:
        """Those that are known, from then on, in order of line."""
        return [start for start in self._known.values() if start.at >= since]

    def holds_before(self, world: World, room: Room, now: Instant) -> dict[str, list[Hold]]:
        """By node: what one that needs cuts may not count on. Those are known starts ahead of it,
        and what was made for others already, unless it may cut them then."""
        run, at = world.runs[room.uid], max(room.start, now)
        left_alone = {
            uid
            for uid in self._of
            if uid not in self._promised
            and uid != room.uid
            and (self._was_made_for(uid, now) or is_ahead(world.runs[uid], of=run))
            and not self._can_be_cut(world, uid, room.uid, at=at, now=now)
        }
        return {
            node: [hold for hold in holds if hold.uid in left_alone]
            for node, holds in self._by_node.items()
        }
