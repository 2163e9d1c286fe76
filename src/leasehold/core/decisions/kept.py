"""What plans keep of the fleet from one run, while it is asked where it could be, or whom it cuts.

Made by `Agenda.apply` and by `room_ahead`; works on the fleet under the caller's mark.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from leasehold.core.decisions.cuts import is_immune
from leasehold.core.decisions.holds import Hold, Room
from leasehold.core.decisions.order import is_ahead
from leasehold.core.decisions.releases import releases_on
from leasehold.core.facts import Lease, Role, Uid
from leasehold.core.units import Instant
from leasehold.core.world.fleet import mask_of
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.world import World


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
        cut_then: Mapping[Uid, Collection[Uid]] | None = None,
    ) -> None:
        """`rooms`: what others will have, by whatever cuts: it can have the rest. `cutting`: all
        that need cuts at any time; `cut_then`: for whom room is being made, and who may cut them
        all the same when it starts."""
        self._world = world
        self._holds = holds
        self._rooms: dict[str, int] = {}  # GPUs of a node that are others' room
        self._out_of_reach: dict[str, int] = {}  # GPUs of such a node that the run cannot have
        self._beneath: dict[str, int] = {}  # those of them where others' room may be
        self._but = but
        self._cutting = cutting
        self._cut_then = cut_then or {}
        self._roomy = {room.uid for room in rooms}
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
            if hold.uid == room.uid
            and hold.start <= room.start < hold.end
            and not self._is_in_room(hold, self._start)
        )

    def _is_in_room(self, hold: Hold, at: Instant) -> bool:
        """Whether it is counted with the room of whoever holds it, since that has started then."""
        return hold.loose_until < at and hold.uid in self._roomy

    def _planned(self, room: Room, node: str) -> int:
        """The most GPUs that others will have there at once while it runs."""
        drops: list[Drop] = []
        for hold in self._holds.get(node, ()):
            if (
                hold.uid not in (room.uid, self._but)
                and hold.uid not in self._cut_then.get(room.uid, ())
                and hold.start < room.end
                and room.start < hold.end
                and not self._cuts_behind(hold.uid, room)
                and not self._is_in_room(hold, room.start)
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
            if (
                hold.uid != self._but
                and self._start < hold.end
                and hold.start < self._end
                and not self._is_in_room(hold, self._start)
            ):
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
