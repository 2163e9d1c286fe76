"""What reservations keep from others: places and money, put on the turn's agenda.

An exact start keeps its places and money from its start on. One that needs cuts keeps the free GPUs
of its domains from the activation lead on, and the spares it will have dropped. An activation keeps
the places it makes room in. Those who are considered later find all of it; nobody ahead does.
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, ask_for, claim_on_top, claims_of
from leasehold.core.decisions.cover import cover
from leasehold.core.decisions.forecast import Known
from leasehold.core.decisions.holds import Hold, Room, Start
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import Want, best_node, shape_of
from leasehold.core.decisions.resolve import count_money_back
from leasehold.core.facts import Lease, Location, Relation
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Covered
from leasehold.core.world.accounts import Claim
from leasehold.core.world.fleet import Pool
from leasehold.core.world.world import World

Gpus = dict[str, int]  # by node


def hold_known(turn: Turn, wish: Wish, known: Known) -> None:
    """A start that is known: its nodes and its payers, from then on."""
    hold_places(turn, wish, known.plan.packed.gpus_by_node, start=known.at)
    turn.agenda.announce(
        Start(
            uid=wish.run.uid,
            at=known.at,
            want=wish.want,
            span=wish.span,
            borrowed=wish.borrowed_already,
        )
    )
    claims = [
        claim
        for _, covered in known.plan.covered
        for claim in claims_of(turn.world, wish, covered, start=known.at)
    ]
    turn.agenda.claim(wish.run.uid, claims)


def hold_places(
    turn: Turn,
    wish: Wish,
    places: tuple[tuple[str, int], ...],
    *,
    start: Instant,
    going: Sequence[Lease] = (),
) -> None:
    """So many GPUs of these nodes, from then on; what leases of its own that are `going` have of
    them, from their ends on."""
    end = min(FOREVER, start + wish.end_after)
    uid = wish.run.uid
    holds = [
        Hold(uid=uid, node=node, gpus=part, start=at, end=end)
        for node, gpus in places
        for part, at in _from_when(
            turn, gpus, (each for each in going if each.node == node), start=start, end=end
        )
    ]
    turn.agenda.hold(uid, holds)


def put_off(turn: Turn, claims: Sequence[Claim], going: Sequence[Lease]) -> list[Claim]:
    """The same claims; what leases of its own that are `going` cost, from their ends on."""
    found: list[Claim] = []
    for claim in claims:
        same = (
            lease
            for lease in going
            if lease.payer == claim.payer
            and claim.borrowed == (lease.relation is Relation.BORROWED)
        )
        parts = _from_when(turn, claim.gpus, same, start=claim.start, end=claim.end)
        found += (_part_of(claim, part, start=at) for part, at in parts)
    return found


def _from_when(
    turn: Turn, gpus: int, going: Iterable[Lease], *, start: Instant, end: Instant
) -> Iterator[tuple[int, Instant]]:
    """So many GPUs from then on; those that leases which are going have still, from their ends on,
    if that is before the end."""
    left = gpus
    for lease in going:
        part = min(left, lease.gpus)
        at = turn.world.terms[lease.name].frees_at
        left -= part
        if part and turn.now < at < end:
            yield part, at
    if left:
        yield left, start


def _part_of(claim: Claim, gpus: int, *, start: Instant) -> Claim:
    return replace(claim, gpus=gpus, start=start, gpu_ms=claim.gpu_ms // claim.gpus * gpus)


def hold_needs_cuts(
    turn: Turn,
    wish: Wish,
    domains: tuple[str, ...],
    *,
    start: Instant,
    dropped: tuple[str, ...] = (),
    pods: tuple[tuple[str, int], ...] = (),
) -> None:
    """The free GPUs there, and the spares it will drop, from the lead before its start on; its
    room (`pods` by domain) and its money from its start on."""
    begin = max(turn.now, start - turn.world.policy.activation_lead)
    _keep_free_gpus(turn, wish, domains, dict(pods), begin=begin, start=start)
    turn.agenda.count_on(wish.run.uid, dropped, start=begin)
    end = min(FOREVER, start + wish.end_after)
    room = Room(uid=wish.run.uid, start=start, end=end, want=wish.want, pods=pods)
    turn.agenda.promise(room)
    claim_money(turn, wish, domains, start=max(turn.now, start), pods=pods)


def _keep_free_gpus(
    turn: Turn,
    wish: Wish,
    domains: tuple[str, ...],
    pods: dict[str, int],
    *,
    begin: Instant,
    start: Instant,
) -> None:
    """The GPUs of these domains that are free when it begins to keep them, and those that come
    free until it starts, also when a planned run has ended by then; but no more than the run needs
    there, nor what is spoken for."""
    world, uid = turn.world, wish.run.uid
    end = min(FOREVER, max(turn.now, start) + wish.end_after)
    found = (world.fleet.pools.get((wish.want.flavor, domain)) for domain in domains)
    pools = [pool for pool in found if pool is not None]
    nodes = [name for pool in pools for name in pool.nodes]
    ends = {world.terms[name].frees_at for name in leases_ended_by(world, nodes, start, begin)}
    ends.update(
        hold.end
        for name in nodes
        for hold in turn.agenda.holds_on(name, uid)
        if begin < hold.end <= start
    )
    instants = [begin, *sorted(at for at in ends if at > turn.now)]
    seated = max(turn.now, start)
    holds: list[Hold] = []
    for at, until in zip(instants, [*instants[1:], end], strict=True):
        whole, loose = _free_at(turn, wish, pools, pods, at=at, end=end)
        holds += (
            Hold(uid=uid, node=name, gpus=gpus, start=at, end=until, loose_until=loose_until)
            for kept, loose_until in ((whole, FOREVER), (loose, seated))
            for name, gpus in sorted(kept.items())
        )
    turn.agenda.hold(uid, holds)


def _free_at(
    turn: Turn, wish: Wish, pools: list[Pool], pods: dict[str, int], *, at: Instant, end: Instant
) -> tuple[Gpus, Gpus]:
    """What is free then and until the end, of what it needs: whole pods, and beside them."""
    world, want = turn.world, wish.want
    mark = world.what_if.mark()
    world.fleet.tolerate(wish.run.spec.tolerations)
    ended = leases_ended_by(world, [n for pool in pools for n in pool.nodes], at, turn.now)
    for name in ended:
        world.fleet.give(world.leases[name])
    turn.agenda.apply(world, wish.run.uid, start=at, end=end, gone=ended)
    whole: Gpus = {}
    loose: Gpus = {}
    left = want.gpus
    for pool in pools:
        needed = pods.get(pool.domain, left // want.pod_gpus)
        left -= _keep_in(world, want, pool, needed, whole=whole, loose=loose)
    world.what_if.undo(mark)
    return whole, loose


def _keep_in(world: World, want: Want, pool: Pool, pods: int, *, whole: Gpus, loose: Gpus) -> int:
    """Whole pods where they would go, then for those without a place what is free, from the
    emptiest node on: it need not be cut. Under the caller's mark; returns how many GPUs."""
    shape, needed = shape_of(want), pods * want.pod_gpus
    while pods and (name := best_node(world.fleet, pool, shape, ())) is not None:
        world.fleet.plan_pod(name, shape)
        whole[name] = whole.get(name, 0) + want.pod_gpus
        pods -= 1
    missing = pods * want.pod_gpus
    free = sorted((-world.fleet.nodes[name].free, name) for name in pool.nodes)
    for gpus, name in free:
        part = min(missing, -gpus)
        if part:
            loose[name] = part
            missing -= part
    return needed - missing


def claim_money(
    turn: Turn,
    wish: Wish,
    domains: tuple[str, ...],
    *,
    start: Instant,
    pods: tuple[tuple[str, int], ...] = (),
) -> None:
    """Keep the payers' money for a run that will go to these domains, if they can pay at all, where
    its `pods` are to be; what those ahead were promised is theirs. What a lease that is ending
    gives back is there by then, as it was for the plan."""
    world = turn.world
    mark = world.what_if.mark()
    count_money_back(world, turn.now)
    turn.agenda.respect(world, wish.run.uid)
    locations = sorted({_location_of(domain) for domain in domains})
    claims = _claims_where_planned(turn, wish, pods, start=start)
    if claims is None:
        claims = _claims_at_once(turn, wish, locations, start=start)
    if claims is None:
        claims = _claims_by_group(turn, wish, locations, start=start)
    world.what_if.undo(mark)
    turn.agenda.claim(wish.run.uid, claims)


def _location_of(domain: str) -> Location:
    region, cluster, _ = domain.split("/", 2)
    return region, cluster


def _claims_where_planned(
    turn: Turn, wish: Wish, pods: tuple[tuple[str, int], ...], *, start: Instant
) -> list[Claim] | None:
    """Group by group, each at the location it was planned for; None if that is one for all, or
    somebody does not pay there any more."""
    world, want = turn.world, wish.want
    groups: dict[Location, int] = {}
    for domain, count in pods:
        location = _location_of(domain)
        groups[location] = groups.get(location, 0) + count // (want.pods + want.spares)
    if len(groups) < 2:
        return None
    claims: list[Claim] = []
    borrowed = wish.borrowed_already
    mark = world.what_if.mark()
    for location in [each for each, count in sorted(groups.items()) for _ in range(count)]:
        ask = ask_for(wish, location, want.gpus_per_group, start=start, borrowed=borrowed)
        covered = cover(world, ask, now=turn.now)
        if not isinstance(covered, Covered):
            claims = []
            break
        part = claim_on_top(world, wish, covered, start=start)
        claims.extend(part)
        borrowed += sum(each.gpus for each in part if each.borrowed)
    world.what_if.undo(mark)
    return claims or None


def _claims_at_once(
    turn: Turn, wish: Wish, locations: list[Location], *, start: Instant
) -> list[Claim] | None:
    for location in locations:
        ask = ask_for(wish, location, wish.want.gpus, start=start, borrowed=wish.borrowed_already)
        covered = cover(turn.world, ask, now=turn.now)
        if isinstance(covered, Covered):
            return claims_of(turn.world, wish, covered, start=start)
    return None


def _claims_by_group(
    turn: Turn, wish: Wish, locations: list[Location], *, start: Instant
) -> list[Claim]:
    """No one location pays for all of it: group by group, each where somebody pays."""
    world = turn.world
    claims: list[Claim] = []
    borrowed = wish.borrowed_already
    for _ in wish.want.groups:
        for location in locations:
            ask = ask_for(wish, location, wish.want.gpus_per_group, start=start, borrowed=borrowed)
            covered = cover(world, ask, now=turn.now)
            if isinstance(covered, Covered):
                part = claim_on_top(world, wish, covered, start=start)
                claims.extend(part)
                borrowed += sum(each.gpus for each in part if each.borrowed)
                break
    return claims
