"""What is spoken for but not yet leased: places and money of planned starts.

While runs are considered in order, each reservation's plan goes on the agenda, and those behind
it see the fleet less what would delay it. A hold counts from its start to its end, so whoever ends
before it begins may use the places in between (backfill). Holds that began keep GPUs from everybody
behind: those of an activation under way, and the free GPUs that a start that needs cuts keeps.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from leasehold.core.decisions.cuts import is_immune, protection_of
from leasehold.core.decisions.order import is_ahead
from leasehold.core.decisions.pack import Want
from leasehold.core.decisions.releases import releases_on
from leasehold.core.facts import EnvelopeKey, Lease, Record, Role, Run, Uid
from leasehold.core.units import FOREVER, Instant, Millis
from leasehold.core.world.accounts import Claim
from leasehold.core.world.fleet import mask_of
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.world import World


class Hold(Record):
    uid: Uid
    node: str
    gpus: int
    start: Instant
    end: Instant = FOREVER


class Room(Record):
    """What a start that needs cuts will have: so many pods in each of its domains."""

    uid: Uid
    start: Instant
    end: Instant
    want: Want
    pods: tuple[tuple[str, int], ...]  # by domain

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(domain for domain, _ in self.pods)


class Start(Record):
    """A start that is known: what it asks for, so that it can be tried again."""

    uid: Uid
    at: Instant
    want: Want
    span: Millis | None
    borrowed: int


class Agenda:
    """Holds and claims, by run and by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[Hold]] = {}
        self._of: dict[Uid, list[Hold]] = {}
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
        promised: bool = False,
    ) -> "Kept":
        """Under a mark: take off what a run occupying [start, end) must leave alone; `promised`:
        also the room that others will have made by then. Who starts at once may sit there: it is
        cut like anybody else.

        `gone`: leases whose slots were given back under the mark."""
        self.respect(world, uid)
        rooms = self.rooms(but=uid, start=start, end=end) if promised else []
        return Kept(
            world,
            self._by_node,
            rooms,
            but=uid,
            start=start,
            end=end,
            gone=gone,
            cutting=self._promised.keys(),
        )

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


class Kept:
    """What plans keep of each node's GPUs from one run, also while a what-if ends leases there.

    A plan counts on GPUs that come free by themselves. Who ends their lease earlier, and takes the
    place, takes it from the plan: so what is kept on a node is counted anew with each. Of a node
    without free GPUs nothing need be kept before somebody ends a lease there."""

    def __init__(
        self,
        world: World,
        holds: Mapping[str, list[Hold]],
        rooms: Sequence[Room],
        *,
        but: Uid,
        start: Instant,
        end: Instant,
        gone: Collection[str],
        cutting: Collection[Uid] = (),
    ) -> None:
        """`rooms`: what others will have, by whatever cuts: it can have the rest. `cutting`: all
        that need cuts at any time."""
        self._world = world
        self._holds = holds
        self._rooms: dict[str, int] = {}  # GPUs of a node that are others' room
        self._out_of_reach: dict[str, int] = {}  # GPUs of such a node that the run cannot have
        self._beneath: dict[str, int] = {}  # those of them where others' room may be
        self._but = but
        self._cutting = cutting
        self._start, self._end = start, end
        self.before = frozenset(gone)  # leases that were over before any was ended here
        self._gone = set(gone)
        self._kept: dict[str, int] = {}
        self._staying: dict[str, frozenset[int]] = {}
        nodes = world.fleet.nodes
        for name in holds:
            state = nodes.get(name)
            if state is not None and state.free:
                self.settle(name)
        for room in rooms:
            for domain, pods in room.pods:
                self._give_room(room, domain, pods)
        for name in self._rooms:
            self.settle(name)

    def _give_room(self, room: Room, domain: str, pods: int) -> None:
        """Where it is in the way least, of where its cuts may bring it: on which nodes it will be
        is for them to say. First beside all that this run could have of a node, then where that
        is least."""
        fleet = self._world.fleet
        pool = fleet.pools.get((room.want.flavor, domain))
        size = room.want.pod_gpus
        held = {name: self._held(room, name) for name in (pool.nodes if pool is not None else ())}
        pods = max(0, pods - sum(gpus // size for gpus in held.values()))
        found: list[tuple[int, str, int]] = []
        beneath: dict[str, int] = {}
        for name in pool.nodes if pool is not None else ():
            state = fleet.nodes[name]
            if state.takes_work:
                taken, kept = self._taken_on(name, room)
                self._out_of_reach[name] = taken
                beneath[name] = taken - kept + held[name] % size
                theirs = state.node.gpus - state.foreign - kept - held[name] // size * size
                theirs -= self._planned(room, name)
                found.append((state.free, name, theirs))
        for beside in (True, False):
            for mine, name, theirs in sorted(found):
                left = theirs - self._rooms.get(name, 0) - beside * mine
                here = min(pods, max(0, left) // size)
                if here:
                    self._rooms[name] = self._rooms.get(name, 0) + here * size
                    self._beneath[name] = min(beneath[name], self._beneath.get(name, beneath[name]))
                    pods -= here

    def _held(self, room: Room, node: str) -> int:
        """GPUs that were free for it when it starts, and are kept as such."""
        return sum(
            hold.gpus
            for hold in self._holds.get(node, ())
            if hold.uid == room.uid and hold.start <= room.start < hold.end
        )

    def _planned(self, room: Room, node: str) -> int:
        """The most GPUs that others will have there at once while it runs."""
        drops: list[Drop] = []
        for hold in self._holds.get(node, ()):
            if (
                hold.uid not in (room.uid, self._but)
                and hold.start < room.end
                and room.start < hold.end
                and not self._cuts_behind(hold.uid, room)
            ):
                drops += (hold.start, hold.gpus), (hold.end, -hold.gpus)
        return -fewest(0, drops, start=room.start, stop=room.end) if drops else 0

    def _cuts_behind(self, uid: Uid, room: Room) -> bool:
        """What such a one keeps of the GPUs that come free is no place before it has cut."""
        runs = self._world.runs
        return uid in self._cutting and is_ahead(runs[room.uid], of=runs[uid])

    def _taken_on(self, node: str, room: Room) -> tuple[int, int]:
        """GPUs of a node under others' leases, and how many of them no cut for that room could
        free: a filler goes with the spare that it sits on."""
        taken = kept = spares = 0  # slots
        for lease in self._others_on(node):
            mask = mask_of(lease.slots)
            taken |= mask
            if lease.uid == room.uid or self._world.terms[lease.name].frees_at <= room.start:
                continue
            if lease.role is Role.SPARE:
                spares |= mask
            elif is_immune(self._world, lease, room.start, against=room.uid):
                kept |= mask
        return taken.bit_count(), (kept & ~spares).bit_count()

    def _others_on(self, node: str) -> list[Lease]:
        names = self._world.open_by_node.get(node, ())
        leases = [self._world.leases[name] for name in names if name not in self._gone]
        return [lease for lease in leases if lease.uid != self._but]

    def end(self, lease: Lease) -> None:
        """The lease is over: its slots are free now, and do not come free later."""
        self._world.fleet.give(lease)
        if not self._is_kept(lease.node):
            return
        self._gone.add(lease.name)
        self._note(lambda: self._gone.discard(lease.name))
        self.settle(lease.node)

    def restore(self, lease: Lease) -> None:
        self._world.fleet.take(lease)
        if not self._is_kept(lease.node):
            return
        self._gone.discard(lease.name)
        self._note(lambda: self._gone.add(lease.name))
        self.settle(lease.node)

    def gain(self, lease: Lease) -> int:
        """How many more GPUs there would be if this lease alone ended."""
        if not self._is_kept(lease.node):
            return lease.gpus
        self.settle(lease.node)
        state = self._world.fleet.nodes[lease.node]
        before = state.unclipped_free()
        mark = self._world.what_if.mark()
        self.end(lease)
        after = state.unclipped_free()
        self._world.what_if.undo(mark)
        return after - before

    def lift(self) -> None:
        """Under a mark: nothing is kept any more."""
        for name, gpus in self._kept.items():
            if gpus:
                self._world.fleet.plan(name, -gpus)

    def stay(self, node: str, slots: Collection[int]) -> bool:
        """Somebody sits down on these slots, on which spares stand now: they do not come free
        before the end. False, and nothing changes, if a plan would miss them."""
        if not self._is_kept(node):
            return True
        self.settle(node)
        before = self._staying.get(node, frozenset())
        self._staying[node] = before | set(slots)
        if self._missed(node) > (
            self._world.fleet.nodes[node].unclipped_free() + self._kept.get(node, 0)
        ):
            self._staying[node] = before
            return False
        self._note(lambda: self._staying.__setitem__(node, before))
        self.settle(node)
        return True

    def settle(self, name: str) -> None:
        """Count what is kept of a node as things stand in the what-if."""
        if not self._is_kept(name) or name not in self._world.fleet.nodes:
            return
        before = self._kept.get(name, 0)
        now = self._missed(name)
        if name in self._rooms:
            state = self._world.fleet.nodes[name]
            most = state.node.gpus - state.foreign - self._out_of_reach[name]
            most -= max(0, self._rooms[name] - self._beneath[name])
            free = state.unclipped_free() + before
            now += max(0, free - max(0, most))  # beside what is held
        if now != before:
            self._world.fleet.plan(name, now - before)
            self._kept[name] = now
            self._note(lambda: self._kept.__setitem__(name, before))

    def _is_kept(self, name: str) -> bool:
        return name in self._holds or name in self._rooms

    def _missed(self, name: str) -> int:
        """How many GPUs that are free at the start would be missed at some hold's time."""
        drops: list[Drop] = []
        later = False
        for hold in self._holds.get(name, ()):
            if hold.uid != self._but and self._start < hold.end and hold.start < self._end:
                drops += (hold.start, hold.gpus), (hold.end, -hold.gpus)
                later = later or hold.start > self._start
        if not drops:
            return 0
        if later:
            releases = releases_on(self._world, name, after=self._start, gone=self._gone)
            staying = self._staying.get(name, ())
            drops += [(at, -1) for slot, at in releases.items() if slot not in staying]
        return max(0, -fewest(0, drops, start=self._start, stop=self._end))

    def _note(self, inverse: Callable[[], None]) -> None:
        what_if = self._world.what_if
        if what_if.active:
            what_if.note(inverse)
