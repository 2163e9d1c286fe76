"""resolve — make room for a reserved run whose time has come, by the published rules.

First the place is chosen, where the loss is least; only leases there may be cut. Then spares,
shrinking by rounds, and the lottery, stopping the moment the run fits, and pruning. A shortage of
money is not answered here: see `overdraft`. Changes nothing: it works under a mark.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from leasehold.core.admit import Wish, as_found_by, ask_for, claims_of
from leasehold.core.agenda import Agenda
from leasehold.core.cover import cover
from leasehold.core.cuts import Cuts, Kind, Scope, Seeder, cut_until_it_fits, enough, structural
from leasehold.core.facts import Lease, Record, Relation, Uid
from leasehold.core.fleet import Pool
from leasehold.core.pack import Place, Want, candidate_pools, pods_room, shape_of, try_pack
from leasehold.core.units import Instant
from leasehold.core.verdicts import Covered, Packed, Refusal, Refused
from leasehold.core.width import places_for
from leasehold.core.world import World

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
    packed: Packed  # where the run goes once the victims are gone


def resolve(
    world: World, wish: Wish, agenda: Agenda, *, now: Instant, seeder: Seeder
) -> Resolved | Refused:
    """What must be cut so that the run fits, or why cutting is no answer."""
    mark = world.journal.mark()
    try:
        chosen = prepare(world, wish, agenda, now=now)
        if isinstance(chosen, Refused):
            return chosen
        site, want, places = chosen
        scope = scope_of(world, want, wish.run.uid)
        cuts = cut_until_it_fits(scope, seeder=seeder, now=now, but=wish.run.uid)
        if cuts is None:
            return not_enough(want, site.deficit)
        packed = try_pack(world, want, places)
        assert packed is not None, "the scope counted room for every pod, CPU and memory too"
        return Resolved(site=site, cuts=cuts, packed=packed)
    finally:
        world.journal.undo(mark)


def prepare(
    world: World, wish: Wish, agenda: Agenda, *, now: Instant
) -> tuple[Site, Want, list[Place]] | Refused:
    """Under the caller's mark: the fleet as the run would find it, and the place chosen in it."""
    for name in sorted(world.ending):
        if is_going(world, world.leases[name], now):
            world.fleet.give(world.leases[name])
    as_found_by(world, wish, agenda, start=now)
    places = _funded(world, wish, now)
    if isinstance(places, Refused):
        return places
    site = _choose(world, wish.want, places, wish.run.uid, now)
    if isinstance(site, Refused):
        return site
    return site, replace(wish.want, within=site.domains), places


def is_going(world: World, lease: Lease, now: Instant) -> bool:
    """Whether a lease that must end can be counted on to end: one that did not go for so long may
    never go, and whoever were cut to sit beside it would be cut in vain, again and again."""
    ending = lease.ending
    return ending is not None and now < ending.deadline + world.policy.drain_timeout


def _funded(world: World, wish: Wish, now: Instant) -> list[Place] | Refused:
    places = places_for(world, wish.run.spec)
    groups = len(wish.want.groups)
    for gpus in (wish.want.gpus, wish.want.gpus_per_group):
        answers = [
            cover(world, ask_for(wish, place, gpus, start=now, borrowed=wish.borrowed_already),
                  now=now)
            for place in places
        ]  # fmt: skip
        funded = [place for place, each in zip(places, answers, strict=True)
                  if isinstance(each, Covered)]  # fmt: skip
        if funded or not wish.want.spread or groups == 1 or len(places) == 1:
            break
    if funded and gpus == wish.want.gpus:
        return funded
    if funded:
        return _funded_together(world, wish, places, now) or funded
    return _first_refusal(answers)


def _funded_together(world: World, wish: Wish, places: list[Place], now: Instant) -> Refused | None:
    """Why not every group finds a payer on top of those before it; what pays for one group once
    must not cost anybody the GPUs of all."""
    mark = world.journal.mark()
    borrowed = wish.borrowed_already
    refused = None
    for _ in wish.want.groups:
        answers = [
            cover(world, ask_for(wish, place, wish.want.gpus_per_group, start=now,
                                 borrowed=borrowed), now=now)
            for place in places
        ]  # fmt: skip
        covered = next((each for each in answers if isinstance(each, Covered)), None)
        if covered is None:
            refused = _first_refusal(answers)
            break
        borrowed += sum(
            each.gpus for each in covered.segments if each.relation is Relation.BORROWED
        )
        for claim in claims_of(world, wish, covered, start=now):
            world.accounts.claim(claim)
    world.journal.undo(mark)
    return refused


def _first_refusal(answers: Sequence[Covered | Refused]) -> Refused:
    """The first that time may help, else the first."""
    refusals = [each for each in answers if isinstance(each, Refused)]
    if not refusals:
        return Refused(reason=Refusal.NO_SUCH_FLAVOR, remedy="no node has this flavor there")
    return next((each for each in refusals if each.time_may_help), refusals[0])


def not_enough(want: Want, deficit: int) -> Refused:
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="even if everything that may be cut were cut, it would not fit; nothing is cut. "
        "Smaller groups, another selector, or protected runs growing older would help",
        asked=want.gpus,
        short_by=deficit,
    )


def _choose(
    world: World, want: Want, places: Sequence[Place], uid: Uid, now: Instant
) -> Site | Refused:
    """For each group the domain where the loss is least, in index order."""
    pools = {pool.domain: pool for pool in candidate_pools(world.fleet, want, places)}
    step = 1 if want.spread else len(want.groups)
    first = {domain: _loss(world, want, pool, step, uid) for domain, pool in pools.items()}
    margins = dict(first)
    assigned: dict[str, int] = {}
    for _ in range(len(want.groups) // step):
        while margins:
            domain = min(margins, key=lambda each: (margins[each], each))
            count = assigned.get(domain, 0) + step
            if _can_hold(world, want, pools[domain], count, uid=uid, now=now):
                break
            del margins[domain]
        else:
            return not_enough(want, want.gpus)
        assigned[domain] = count
        before = _loss(world, want, pools[domain], count, uid)
        after = _loss(world, want, pools[domain], count + step, uid)
        margins[domain] = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
    fleet = world.fleet
    shape = shape_of(want)
    per_group = want.pods + want.spares
    deficit = sum(
        max(0, count * per_group - pods_room(fleet, pools[domain], shape)) * want.pod_gpus
        for domain, count in assigned.items()
    )
    domains = tuple(sorted(assigned))
    return Site(
        domains=domains,
        losses=tuple((domain, *loss) for domain, loss in sorted(first.items())),
        deficit=deficit,
        need=tuple((group, want.gpus_per_group) for group in want.groups),
        free=tuple(
            (name, fleet.nodes[name].free)
            for domain in domains
            for name in pools[domain].nodes
            if fleet.nodes[name].free
        ),
    )


def _loss(world: World, want: Want, pool: Pool, groups: int, uid: Uid) -> Loss:
    """What so many groups would cost there after structural cuts, without drawing."""
    needed = groups * (want.pods + want.spares)
    room = pods_room(world.fleet, pool, shape_of(want))
    if room >= needed:
        return 0, 0, 0
    if not any(name in world.yielding for name in pool.nodes):
        return (needed - room) * want.pod_gpus, 0, 0
    mark = world.journal.mark()
    scope = _scope(world, _leases_in(world, pool, uid), want, [pool], needed)
    taken = structural(scope)
    room = pods_room(world.fleet, pool, shape_of(want))
    world.journal.undo(mark)
    return (
        max(0, needed - room) * want.pod_gpus,
        sum(cut.gpus for cut in taken if cut.kind is Kind.SHRINK),
        sum(cut.gpus for cut in taken if cut.kind is Kind.SPARE),
    )


def _can_hold(world: World, want: Want, pool: Pool, groups: int, *, uid: Uid, now: Instant) -> bool:
    """Whether so many groups would fit if all that may be cut there were cut."""
    needed = groups * (want.pods + want.spares)
    if pods_room(world.fleet, pool, shape_of(want)) >= needed:
        return True
    mark = world.journal.mark()
    scope = _scope(world, _leases_in(world, pool, uid), want, [pool], needed)
    structural(scope)
    answer = scope.fits() or enough(scope, scope.conflict_set(now=now, but=uid))
    world.journal.undo(mark)
    return answer


def _leases_in(world: World, pool: Pool, but: Uid) -> list[Lease]:
    return [
        lease
        for node in pool.nodes
        for name in world.open_by_node.get(node, ())
        if (lease := world.leases[name]).uid != but and lease.ending is None
    ]


def scope_of(world: World, want: Want, but: Uid) -> Scope:
    """The chosen domains: everything on them may be cut until all groups of `want` fit."""
    pools = [world.fleet.pools[(want.flavor, domain)] for domain in want.within]
    leases = [lease for pool in pools for lease in _leases_in(world, pool, but)]
    leases.sort(key=lambda lease: lease.name)
    return _scope(world, leases, want, pools, None)


def _scope(
    world: World, leases: list[Lease], want: Want, pools: list[Pool], pods_needed: int | None
) -> Scope:
    fleet, shape = world.fleet, shape_of(want)
    per_group = want.pods + want.spares
    groups = len(want.groups)

    def fits() -> bool:
        if pods_needed is not None:
            return pods_room(fleet, pools[0], shape) >= pods_needed
        rooms = [pods_room(fleet, pool, shape) // per_group for pool in pools]
        return sum(rooms) >= groups if want.spread else max(rooms) >= groups

    return Scope(world, leases, fits, free=fleet.give, restore=fleet.take)
