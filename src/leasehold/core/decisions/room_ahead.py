"""room_ahead — whether those ahead still find their room after somebody's cuts.

Asked by `resolve` for whoever would cut others: it is put where it would go, and then each start
that needs cuts ahead of it, the first to start first, is put into its intended domains with all the
cuts that it may make there. A sweep that lost groups to one can give up fewer to the next; a place
that a known start ahead counts on is nobody's room. And a known start that was planned beside such
room is tried again: the room may have been put where the start was to be. Works under a mark and
changes nothing.
"""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from leasehold.core.decisions.admit import Wish, admit
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.cuts import Scope, cut_all
from leasehold.core.decisions.holds import Hold, Room, Start
from leasehold.core.decisions.kept import Kept
from leasehold.core.decisions.order import is_ahead
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import candidate_pools, pods_room, shape_of, try_pack
from leasehold.core.facts import Lease, Uid
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Packed
from leasehold.core.world.fleet import Pool
from leasehold.core.world.width import locations_for, own_domains
from leasehold.core.world.world import World


class RoomAhead:
    """What those ahead will have made while one run would occupy [start, end)."""

    def __init__(
        self,
        world: World,
        agenda: Agenda,
        *,
        uid: Uid,
        start: Instant,
        end: Instant,
        now: Instant,
        ended: Collection[str] = (),
    ) -> None:
        """`ended`: leases that will have ended by then, and not for one that starts before."""
        self._world = world
        self._ended = frozenset(ended)
        self._agenda = agenda
        self._uid, self._start, self._end = uid, start, end
        self._now = now
        rooms = [room for room in agenda.rooms(but=uid, start=start, end=FOREVER) if room.pods]
        # What somebody cuts later makes no room for one that starts before.
        rooms.sort(key=lambda room: room.start)
        self._rooms = [room for room in rooms if room.start < end]
        # Who starts when it has ended may miss what one of those has elsewhere because of it, or
        # whom it has cut: a sweep that lost groups can give up fewer.
        self._later = rooms[len(self._rooms) :]
        self._without_it: set[Uid] = set()  # those of them who find no room anyway
        self._starts = [
            (start, domains)
            for start in (agenda.starts(since=start) if self._rooms else ())
            if (domains := self._domains_shared(start))
        ]
        self._found_by: dict[Uid, Agenda] = {}
        self._touched: dict[Uid, set[str]] = {}

    def _domains_shared(self, start: Start) -> set[str]:
        """Where a known start lies beside room that one ahead of it will have made."""
        world, run = self._world, self._world.runs[start.uid]
        theirs = {
            domain
            for room in self._rooms
            if is_ahead(world.runs[room.uid], of=run) and room.want.flavor == start.want.flavor
            for domain in room.domains
        }
        nodes = (world.fleet.nodes.get(hold.node) for hold in self._agenda.holds_of(start.uid))
        return theirs.intersection(state.node.domain for state in nodes if state is not None)

    @property
    def is_anywhere(self) -> bool:
        return bool(self._rooms or self._later)

    def lies_in(self, domain: str) -> bool:
        return any(domain in room.domains for room in self._rooms)

    def look(self, kept: Kept, gone: Collection[str]) -> None:
        """Before anybody is cut: who finds no room without this run, either. As `is_left`."""
        if self._later:
            mark = self._world.what_if.mark()
            kept.lift()
            self._without_it.update(self._without_room(self._rooms + self._later, [], set(gone)))
            self._world.what_if.undo(mark)

    def is_left(self, packed: Packed, kept: Kept, gone: Collection[str]) -> bool:
        """Whether everybody ahead can still be put there after this run. `kept`: what is kept from
        the run; `gone`: the leases that are over in the what-if."""
        world = self._world
        domains = {world.fleet.nodes[place.node].node.domain for place in packed.places}
        # A sweep that loses a group here can give up fewer elsewhere.
        for uid in {world.leases[name].uid for name in gone if name not in kept.before}:
            domains.update(own_domains(world, uid))
        mark = world.what_if.mark()
        kept.lift()
        seated = self._holds(self._uid, packed, self._start, self._end)
        over = set(gone)
        answer = all(
            self._can_start(start, seated, over)
            for start, shared in self._starts
            if not domains.isdisjoint(shared)
        )
        reached = self._reached_from(domains, self._rooms)
        near = [room for room in self._rooms if not reached.isdisjoint(room.domains)]
        if answer and not self._are_put(near, seated, over):
            # Somebody further off may cut a run that is here as well.
            more = [room for room in self._rooms if not reached.isdisjoint(self._touched_by(room))]
            answer = len(more) > len(near) and self._are_put(more, seated, over)
        if answer and self._later:
            answer = self._delays_nobody_later(domains, seated, over)
        world.what_if.undo(mark)
        return answer

    def _delays_nobody_later(self, domains: set[str], seated: list[Hold], over: set[str]) -> bool:
        """Of those that start when it has ended: who finds no room would find none without it."""
        rooms = self._rooms + self._later
        reached = self._reached_from(domains, rooms)
        near = [room for room in rooms if not reached.isdisjoint(room.domains)]
        met = {room.uid for room in self._rooms}
        for asked in (near, rooms) if len(near) < len(rooms) else (rooms,):
            mark = self._world.what_if.mark()
            missed = set(self._without_room(asked, seated, over)) - met
            self._world.what_if.undo(mark)
            if missed <= self._without_it:
                return True
        return False

    def left_out(self, domains: set[str], over: set[str]) -> set[Uid]:
        """Who ahead finds no room as things are in the what-if; nobody, if all do whom anything in
        these domains can be in the way of. `over`: as `gone`."""
        reached = self._reached_from(domains, self._rooms)
        near = [room for room in self._rooms if not reached.isdisjoint(room.domains)]
        if self._are_put(near, [], over):
            return set()
        mark = self._world.what_if.mark()
        found = set(self._without_room(self._rooms, [], over))
        self._world.what_if.undo(mark)
        return found

    def _are_put(self, rooms: list[Room], seated: list[Hold], over: set[str]) -> bool:
        mark = self._world.what_if.mark()
        answer = next(self._without_room(rooms, seated, over), None) is None
        self._world.what_if.undo(mark)
        return answer

    def _without_room(self, rooms: list[Room], seated: list[Hold], over: set[str]) -> Iterator[Uid]:
        """Under the caller's mark: one after the other, each on top of those before it. Nobody is
        cut for one that finds none."""
        what_if = self._world.what_if
        seated, over = list(seated), set(over)
        for room in rooms:
            mark, after = what_if.mark(), set(over)
            found = self._put(room, seated, after)
            if found is None:
                what_if.undo(mark)
                yield room.uid
            else:
                what_if.keep(mark)
                over = after
                seated += self._holds(room.uid, found, room.start, room.end)

    def _touched_by(self, room: Room) -> set[str]:
        """Its domains, and where else those are whom it may cut there."""
        found = self._touched.get(room.uid)
        if found is None:
            world = self._world
            found = set(room.domains)
            for uid in {each.uid for each in self._leases_in(self._pools_of(room), room.uid, ())}:
                found.update(own_domains(world, uid))
            self._touched[room.uid] = found
        return found

    def _reached_from(self, domains: set[str], rooms: list[Room]) -> set[str]:
        """With those of everybody who may have to move over: who finds no room in one of its
        domains needs more in another, which somebody else counts on."""
        found = set(domains)
        left = list(rooms)
        while near := [room for room in left if not found.isdisjoint(room.domains)]:
            left = [room for room in left if found.isdisjoint(room.domains)]
            for room in near:
                found.update(room.domains)
        return found

    def _can_start(self, start: Start, seated: list[Hold], over: set[str]) -> bool:
        """Whether a known start is still possible, then and on top of those ahead of it."""
        world = self._world
        run = world.runs[start.uid]
        agenda = self._found_by.get(start.uid)
        if agenda is None:
            agenda = self._agenda.as_found_by(world, run, self._now)
            self._found_by[start.uid] = agenda
        agenda.hold(self._uid, seated)
        wish = Wish(run=run, want=start.want, span=start.span, borrowed_already=start.borrowed)
        pools = candidate_pools(world.fleet, wish.want, locations_for(world, run.spec))
        nodes = [name for pool in pools for name in pool.nodes]
        ended = set(leases_ended_by(world, nodes, start.at, self._now)) - over
        mark = world.what_if.mark()
        for name in sorted(ended):
            world.fleet.give(world.leases[name])
        plan = admit(world, wish, agenda, start=start.at, now=self._now, gone=ended | over)
        world.what_if.undo(mark)
        return isinstance(plan, Admitted)

    def _holds(self, uid: Uid, packed: Packed, start: Instant, end: Instant) -> list[Hold]:
        return [
            Hold(uid=uid, node=node, gpus=gpus, start=start, end=end)
            for node, gpus in packed.gpus_by_node
        ]

    def _put(self, room: Room, seated: list[Hold], over: set[str]) -> Packed | None:
        """Under a mark: where it goes after its cuts, which are added to what is over."""
        world, pools = self._world, self._pools_of(room)
        at = max(room.start, self._now)
        nodes = [name for pool in pools for name in pool.nodes]
        there = [name for name in self._ended & over if world.terms[name].frees_at > at]
        for name in sorted(there):
            world.fleet.take(world.leases[name])
        over.difference_update(there)
        ended = [each for each in leases_ended_by(world, nodes, at, self._now) if each not in over]
        for name in ended:
            world.fleet.give(world.leases[name])
        holds = self._agenda.holds_before(world, room, self._now)
        for hold in seated:
            holds.setdefault(hold.node, []).append(hold)
        kept = Kept(world, holds, (), but=room.uid, start=at, end=room.end, gone=over.union(ended))
        scope = self._scope(room, pools, kept, over.union(ended))
        packed = None
        if cut_all(scope, at=at, but=room.uid):
            want = replace(room.want, within=room.domains)
            packed = try_pack(world, want, locations_for(world, world.runs[room.uid].spec))
        over.update(scope.gone.difference(ended))
        kept.lift()
        for name in ended:
            world.fleet.take(world.leases[name])
        for name in sorted(set(there) - over):
            world.fleet.give(world.leases[name])
        over.update(there)
        return packed

    def _scope(self, room: Room, pools: list[Pool], kept: Kept, gone: set[str]) -> Scope:
        fleet, want = self._world.fleet, room.want
        per_group = want.pods + want.spares

        def fits() -> bool:
            rooms = [pods_room(fleet, pool, shape_of(want)) // per_group for pool in pools]
            return (sum(rooms) if want.spread else max(rooms, default=0)) >= len(want.groups)

        leases = self._leases_in(pools, room.uid, gone)
        return Scope(self._world, leases, fits, free=kept.end, restore=kept.restore, gone=gone)

    def _pools_of(self, room: Room) -> list[Pool]:
        pools = self._world.fleet.pools
        found = (pools.get((room.want.flavor, domain)) for domain in room.domains)
        return [pool for pool in found if pool is not None]

    def _leases_in(self, pools: list[Pool], uid: Uid, gone: Collection[str]) -> list[Lease]:
        world = self._world
        return [
            world.leases[name]
            for pool in pools
            for node in pool.nodes
            for name in sorted(world.open_by_node.get(node, ()))
            if name not in gone and world.leases[name].uid not in (uid, self._uid)
        ]
