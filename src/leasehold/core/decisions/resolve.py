"""resolve — make room for a reserved run whose time has come, by the published rules.

First the place is chosen, where the loss is least; only leases there may be cut. Then spares,
shrinking by rounds, and the lottery, stopping the moment the run fits, and pruning. A shortage of
money is not answered here: see `overdraft`. Changes nothing: it works under a mark.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.core.decisions.admit import Wish, admit, as_found_by
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.cuts import (
    CutKind,
    Cuts,
    Scope,
    Seeder,
    cut_all,
    cut_until_it_fits,
    enough,
    structural,
)
from leasehold.core.decisions.funded import Bills, funded, is_split, paid_there
from leasehold.core.decisions.kept import Kept
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import (
    Want,
    candidate_pools,
    pods_room,
    shape_of,
    try_pack,
)
from leasehold.core.decisions.releases import releases_on
from leasehold.core.decisions.room_ahead import RoomAhead
from leasehold.core.facts import Lease, Location, Record
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Covered, Packed, PodPlace, Refusal, Refused
from leasehold.core.world.fleet import Pool
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Loss = tuple[int, int, int]  # GPUs by lottery, by shrink, in spares


class Site(Record):
    """The place that was chosen, and what was compared."""

    domains: tuple[str, ...]
    losses: tuple[tuple[str, int, int, int], ...]
    deficit: int
    need: tuple[tuple[int, int], ...]  # group, GPUs
    free: tuple[tuple[str, int], ...]  # node, GPUs


class Resolved(Record):
    site: Site
    cuts: Cuts
    plan: Admitted  # where it goes once the victims are gone; paid without what they leave


def resolve(
    world: World, wish: Wish, agenda: Agenda, *, now: Instant, seeder: Seeder
) -> Resolved | Refused:
    """What must be cut so that the run fits, or why cutting is no answer."""
    mark = world.what_if.mark()
    try:
        terrain = prepare(world, wish, agenda, at=now, now=now)
        if isinstance(terrain, Refused):
            return terrain
        scope = terrain.scope()
        cuts = cut_until_it_fits(scope, seeder=seeder, now=now, but=wish.run.uid)
        if cuts is None:
            return not_enough(terrain.want, terrain.site.deficit)
        packed = terrain.packed()
        assert packed is not None, "the scope counted room for every pod, CPU and memory too"
        plan = paid_there(world, wish, packed, at=now, now=now)
        assert plan is not None, "nobody is cut for what nobody pays for"
        return Resolved(site=terrain.site, cuts=cuts, plan=plan)
    finally:
        world.what_if.undo(mark)


def plan_after_cuts(
    world: World, wish: Wish, agenda: Agenda, *, now: Instant, gone: Collection[str]
) -> Admitted | None:
    """Where it would start, and who pays: as it finds the fleet, if it can; else after all the cuts
    that may be made for it. None if even those are not enough. `gone`: leases that the caller has
    given back."""
    mark = world.what_if.mark()
    try:
        terrain = prepare(world, wish, agenda, at=now, now=now, gone=gone)
        if isinstance(terrain, Refused):
            return None
        packed = terrain.packed() if cut_all(terrain.scope(), at=now, but=wish.run.uid) else None
        if packed is None:
            return None
        after = paid_there(world, wish, packed, at=now, now=now)
    finally:
        world.what_if.undo(mark)
    return _without_cuts(world, wish, agenda, now=now, gone=gone) or after


def _without_cuts(
    world: World, wish: Wish, agenda: Agenda, *, now: Instant, gone: Collection[str]
) -> Admitted | None:
    mark = world.what_if.mark()
    over = let_go(world, now=now, gone=gone)
    plan = admit(world, wish, agenda, start=now, now=now, gone=over)
    world.what_if.undo(mark)
    return plan if isinstance(plan, Admitted) else None


def kept_before_cuts(
    world: World, wish: Wish, agenda: Agenda, packed: Packed, *, now: Instant, gone: Collection[str]
) -> tuple[tuple[str, int], ...]:
    """Of those places what plans ahead leave as long as nobody is cut for it, by node: some of it
    may be under leases. `gone`: leases that the caller has given back."""
    mark = world.what_if.mark()
    over = let_go(world, now=now, gone=gone)
    found = tuple(
        (node, part)
        for node, gpus in packed.gpus_by_node
        if (part := min(gpus, _left_on(world, wish, agenda, node, now=now, over=over))) > 0
    )
    world.what_if.undo(mark)
    return found


def _left_on(
    world: World, wish: Wish, agenda: Agenda, node: str, *, now: Instant, over: Collection[str]
) -> int:
    """What is left of a node whenever somebody holds some of it, the leases there at that time
    taken off. Nothing becomes less but when a hold begins."""
    state, end = world.fleet.nodes[node], min(FOREVER, now + wish.end_after)
    holds = [
        hold for hold in agenda.holds_on(node, wish.run.uid) if now < hold.end and hold.start < end
    ]
    ends = releases_on(world, node, after=now, gone=over).values()
    least = state.node.gpus
    for at in {max(now, hold.start) for hold in holds}:
        held = sum(hold.gpus for hold in holds if hold.start <= at < hold.end)
        least = min(least, state.unclipped_free() + sum(each <= at for each in ends) - held)
    return least


def prepare(
    world: World,
    wish: Wish,
    agenda: Agenda,
    *,
    at: Instant,
    now: Instant,
    gone: Collection[str] = (),
) -> "Terrain | Refused":
    """Under the caller's mark: the fleet as the run would find it at that instant, and the place
    chosen in it. `gone`: leases that the caller has given back."""
    over = let_go(world, now=now, gone=gone)
    ended = set(_ended_by(world, wish, at, now)) - over
    for name in sorted(ended):
        world.fleet.give(world.leases[name])
    over |= ended
    kept = as_found_by(world, wish, agenda, start=at, gone=over)
    locations = funded(world, wish, at, now)
    if isinstance(locations, Refused):
        return locations
    end = min(FOREVER, at + wish.end_after)
    ahead = RoomAhead(world, agenda, uid=wish.run.uid, start=at, end=end, now=now, ended=ended)
    ahead.look(kept, over)
    terrain = Terrain(world, wish, locations, kept, ahead, at=at, now=now)
    refused = terrain.choose()
    return terrain if refused is None else refused


def _ended_by(world: World, wish: Wish, at: Instant, now: Instant) -> list[str]:
    """Leases that are known to have ended by then, where the run may go."""
    if at <= now:
        return []
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    return leases_ended_by(world, [name for pool in pools for name in pool.nodes], at, now)


def let_go(world: World, *, now: Instant, gone: Collection[str] = ()) -> set[str]:
    """Under the caller's mark: the GPUs and the money of leases that are ending are back, as those
    of `gone` are already. Returns all of them."""
    going = {name for name in world.ending if is_going(world, world.leases[name], now)}
    for name in sorted(going.difference(gone)):
        world.fleet.give(world.leases[name])
        world.accounts.end(world.leases[name], world.terms[name], at=now)
    return going.union(gone)


def is_going(world: World, lease: Lease, now: Instant) -> bool:
    """Whether a lease that must end can be counted on to end: one that did not go for so long may
    never go, and whoever were cut to sit beside it would be cut in vain, again and again."""
    ending = lease.ending
    return ending is not None and now < ending.deadline + world.policy.victim_timeout


def count_money_back(world: World, now: Instant) -> None:
    """Under the caller's mark: what leases that can be counted on to end give back."""
    for name in sorted(world.ending):
        if is_going(world, world.leases[name], now):
            world.accounts.end(world.leases[name], world.terms[name], at=now)


def not_enough(want: Want, deficit: int) -> Refused:
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="even if everything that may be cut were cut, it would not fit; nothing is cut. "
        "Smaller groups, another selector, or protected runs growing older would help",
        asked=want.gpus,
        short_by=deficit,
    )


class Terrain:
    """The fleet as a run finds it at an instant, and what a place in it would cost."""

    def __init__(
        self,
        world: World,
        wish: Wish,
        locations: list[Location],
        kept: Kept,
        ahead: RoomAhead,
        *,
        at: Instant,
        now: Instant,
    ) -> None:
        self._world = world
        self._wish = wish
        self._uid = wish.run.uid
        self.kept = kept
        self._ahead = ahead
        self._at, self._now = at, now
        self._is_split = is_split(world, wish, locations)
        self._meant: tuple[str, ...] = ()  # the domain chosen for each group
        self.locations = locations
        self.want = wish.want  # within the chosen domains, once there are any
        self.site = Site(domains=(), losses=(), deficit=0, need=(), free=())
        self.pods: tuple[tuple[str, int], ...] = ()  # by chosen domain, with spares

    def choose(self) -> Refused | None:
        """For each group the domain where the loss is least, in index order, of those where it is
        paid for on top of the groups before it; or why there is none."""
        want, world = self.want, self._world
        pools = {pool.domain: pool for pool in candidate_pools(world.fleet, want, self.locations)}
        step = 1 if want.spread else len(want.groups)
        first = {domain: self._loss(pool, step) for domain, pool in pools.items()}
        margins = dict(first)
        assigned: dict[str, int] = {}
        meant: list[str] = []
        mark = world.what_if.mark()
        bills = Bills(world, self._wish, at=self._at, now=self._now)
        refused = None
        for _ in range(len(want.groups) // step):
            domain = self._best(margins, pools, assigned, step, bills)
            if domain is None:
                refused = not_enough(want, want.gpus)
                break
            if self._is_split:
                bills.take(_location(pools[domain]))
            meant += [domain] * step
            assigned[domain] = count = assigned.get(domain, 0) + step
            before = self._loss(pools[domain], count)
            after = self._loss(pools[domain], count + step)
            margins[domain] = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
        world.what_if.undo(mark)
        if refused is None:
            self._meant = tuple(meant)
            self._take([pools[domain] for domain in sorted(assigned)], assigned, first)
        return refused

    def _best(
        self,
        margins: dict[str, Loss],
        pools: dict[str, Pool],
        assigned: dict[str, int],
        step: int,
        bills: Bills,
    ) -> str | None:
        """Where one more group costs least; domains that can hold no more are struck out."""
        paid = [
            domain
            for domain in margins
            if not self._is_split or isinstance(bills.of(_location(pools[domain])), Covered)
        ]
        for domain in sorted(paid, key=lambda each: (margins[each], each)):
            if self._can_hold(pools[domain], assigned.get(domain, 0) + step):
                return domain
            del margins[domain]
        return None

    def _take(self, pools: list[Pool], assigned: dict[str, int], losses: dict[str, Loss]) -> None:
        fleet, want = self._world.fleet, self.want
        per_group = want.pods + want.spares
        domains = tuple(pool.domain for pool in pools)
        self.want = replace(want, within=domains)
        self.pods = tuple((domain, assigned[domain] * per_group) for domain in domains)
        self.site = Site(
            domains=domains,
            losses=tuple((domain, *loss) for domain, loss in sorted(losses.items())),
            deficit=sum(
                max(0, assigned[pool.domain] * per_group - self._room(pool)) * want.pod_gpus
                for pool in pools
            ),
            need=tuple((group, want.gpus_per_group) for group in want.groups),
            free=tuple(
                (name, fleet.nodes[name].free)
                for pool in pools
                for name in pool.nodes
                if fleet.nodes[name].free
            ),
        )

    def _room(self, pool: Pool) -> int:
        return pods_room(self._world.fleet, pool, shape_of(self.want))

    def _loss(self, pool: Pool, groups: int) -> Loss:
        """What so many groups would cost there after structural cuts, without drawing."""
        want, world = self.want, self._world
        world.steps.take(len(pool.nodes))
        needed = groups * (want.pods + want.spares)
        room = self._room(pool)
        if room >= needed:
            return 0, 0, 0
        if not any(name in world.yielding for name in pool.nodes):
            return (needed - room) * want.pod_gpus, 0, 0
        mark = world.what_if.mark()
        taken = structural(self._scope([pool], needed))
        room = self._room(pool)
        world.what_if.undo(mark)
        return (
            max(0, needed - room) * want.pod_gpus,
            sum(cut.gpus for cut in taken if cut.kind is CutKind.SHRINK),
            sum(cut.gpus for cut in taken if cut.kind is CutKind.SPARE),
        )

    def _can_hold(self, pool: Pool, groups: int) -> bool:
        """Whether so many groups would fit if all that may be cut there were cut, and those ahead
        who count on that domain would, too."""
        needed = groups * (self.want.pods + self.want.spares)
        if self._room(pool) >= needed and not self._ahead.lies_in(pool.domain):
            return True
        mark = self._world.what_if.mark()
        scope = self._scope([pool], needed)
        if self._ahead.is_anywhere:
            some = replace(self.want, groups=self.want.groups[:groups], within=(pool.domain,))
            scope = self._scope([pool], needed, leaving_room_with=some)
        structural(scope)
        answer = scope.fits() or enough(scope, scope.conflict_set(now=self._at, but=self._uid))
        self._world.what_if.undo(mark)
        return answer

    def scope(self) -> Scope:
        """The chosen domains: everything on them may be cut until all groups fit."""
        pools = [self._world.fleet.pools[(self.want.flavor, each)] for each in self.site.domains]
        return self._scope(pools, leaving_room_with=self.want if self._ahead.is_anywhere else None)

    def _scope(
        self,
        pools: list[Pool],
        pods_needed: int | None = None,
        *,
        leaving_room_with: Want | None = None,
    ) -> Scope:
        """`leaving_room_with`: it fits only if those ahead do when that is put there."""
        want = self.want
        per_group = want.pods + want.spares
        groups = len(want.groups)

        def fits() -> bool:
            if pods_needed is not None:
                if self._room(pools[0]) < pods_needed:
                    return False
            else:
                rooms = [self._room(pool) // per_group for pool in pools]
                if (sum(rooms) if want.spread else max(rooms)) < groups:
                    return False
                if self._is_split and self.packed() is None:
                    return False
            return leaving_room_with is None or self._leaves_room(leaving_room_with, scope.gone)

        leases = [each for pool in pools for each in self._leases_in(pool)]
        if pods_needed is None:
            leases.sort(key=_by_name)
        scope = Scope(
            self._world,
            leases,
            fits,
            free=self.kept.end,
            restore=self.kept.restore,
            gone=self.kept.before,
        )
        return scope

    def _leaves_room(self, want: Want, gone: Collection[str]) -> bool:
        packed = self.packed() if want is self.want else try_pack(self._world, want, self.locations)
        return packed is not None and self._ahead.is_left(packed, self.kept, gone)

    def packed(self) -> Packed | None:
        """Where it goes as things stand in the what-if: as it is packed best, if somebody pays for
        that; else each group where it was meant to be."""
        world = self._world
        packed = try_pack(world, self.want, self.locations)
        if packed is None or not self._is_split:
            return packed
        if paid_there(world, self._wish, packed, at=self._at, now=self._now) is not None:
            return packed
        mark = world.what_if.mark()
        places: list[PodPlace] = []
        for group, domain in zip(self.want.groups, self._meant, strict=True):
            one = replace(self.want, groups=(group,), within=(domain,))
            part = try_pack(world, one, self.locations)
            if part is None:
                break
            places += part.places
            for place in part.places:
                world.fleet.plan_pod(place.node, shape_of(one))
        world.what_if.undo(mark)
        return (
            Packed(places=tuple(places))
            if len({x.group for x in places}) == len(self.want.groups)
            else None
        )

    def _leases_in(self, pool: Pool) -> list[Lease]:
        world = self._world
        return [
            world.leases[name]
            for node in pool.nodes
            for name in world.open_by_node.get(node, ())
            if world.leases[name].uid != self._uid and name not in self.kept.before
        ]


def _location(pool: Pool) -> Location:
    return pool.home[1], pool.home[2]


def _by_name(lease: Lease) -> str:
    return lease.name
