"""What was made for somebody by a Resolution, and what that was planned with, until it sits there.

Held against everyone, those ahead in line too: the slots, while its victims go and through rejected
binds, and the money. Its beneficiary, if it finds no better place, takes the very one.
"""

from msgspec.structs import replace

from leasehold.control.line.activation import (
    Underway,
    domains_open_to,
    drain_timeout,
    not_gone,
    uids_underway,
    underway,
)
from leasehold.control.line.holding import claim_money, hold_places, put_off
from leasehold.control.line.wishes import groups_short_of_minimum, waiting_groups, wish_for
from leasehold.control.running.life import units_of
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, as_found_by, claims_of
from leasehold.core.decisions.funded import paid_there
from leasehold.core.decisions.pack import try_pack
from leasehold.core.facts import Gang, Lease, Relation, Run
from leasehold.core.reservations import State
from leasehold.core.resolutions import CutCause
from leasehold.core.verdicts import Admitted, Covered, Packed, Segment
from leasehold.core.world.width import group_count, locations_for, open_leases, starting_gpus
from leasehold.core.world.world import World


def hold_for_activations(turn: Turn) -> None:
    """Before anybody is considered: slots and money of activations under way."""
    world = turn.world
    waiting = {uid for uid in world.work.pending if uid in world.reservation_of}
    ending = {world.leases[name].uid for name in world.ending}  # a start may be taken back
    for uid in sorted(waiting | ending):
        run = world.runs.get(uid)
        found = underway(world, run) if run is not None else None
        if run is None or found is None:
            continue
        going = _taken_back(world, run)
        groups = _groups_to_seat(turn, run, going)
        if groups:
            wish = wish_for(world, run, groups)
            domains = found.resolution.domains
            if domains:
                wish = replace(wish, want=replace(wish.want, within=domains))
            _hold_while_draining(turn, wish, found, going)


def _taken_back(world: World, run: Run) -> list[Lease]:
    """What has not gone yet of starts that room was made for, and that a node rejected."""
    units = world.book(run.uid).units if run.uid in world.books else {}
    return [
        lease
        for lease in open_leases(world, run.uid)
        if (unit := units[world.unit_of(run.uid, lease.group)]).is_of_a_resolution()
        and unit.last is not None
        and unit.last.is_taken_back
    ]


def _groups_to_seat(turn: Turn, run: Run, going: list[Lease]) -> tuple[int, ...]:
    """Those that wait, or will when their pause is over; what is taken back has not started."""
    world = turn.world
    waiting = waiting_groups(world, run, turn.now) or _backing_off(world, run)
    if not going:
        return groups_short_of_minimum(world, run, waiting)
    if run.spec.gang is Gang.RUN:
        return tuple(range(group_count(run.spec, starting_gpus(run.spec))))
    rejected = {lease.group for lease in going}
    return groups_short_of_minimum(
        world, run, tuple(sorted(rejected.union(waiting))), begun=-len(rejected)
    )


def _backing_off(world: World, run: Run) -> tuple[int, ...]:
    """What it will ask for once it may try again."""
    retry = max((where.retry_at for where in units_of(world, run).values()), default=0)
    return waiting_groups(world, run, retry)


def _hold_while_draining(turn: Turn, wish: Wish, found: Underway, going: list[Lease]) -> None:
    world = turn.world
    still_there = not_gone(world, found.reservation, found.resolution, turn.now)
    for name in still_there:
        ending = world.leases[name].ending
        assert ending is not None, name
        turn.wake(ending.deadline + world.policy.victim_timeout)
    timeout = drain_timeout(world, found)
    was_given_up = found.reservation.reason == Told.DRAIN_TIMEOUT
    if turn.now >= timeout and (still_there or was_given_up):
        is_activating = found.reservation.state is State.ACTIVATING
        is_first_look = is_activating and not was_given_up
        if is_first_look:
            turn.reserve(replace(found.reservation, reason=str(Told.DRAIN_TIMEOUT)))
            turn.tell(
                "Run",
                wish.run.key,
                Told.DRAIN_TIMEOUT,
                f"{len(still_there)} victims have not gone; their places are open to "
                "others meanwhile",
            )
        # Once it may take what is free there, before those ahead; then it stands in line.
        if not is_first_look or _packed_without(world, wish, []) is None:
            return
        still_there = []
    turn.wake(timeout)
    places = _places_kept(world, wish, found, [*still_there, *(lease.name for lease in going)])
    if places:
        hold_places(turn, wish, places, start=turn.now, going=going)
    _claim(turn, wish, found, places, going)


def _places_kept(
    world: World, wish: Wish, found: Underway, still_there: list[str]
) -> tuple[tuple[str, int], ...]:
    """Where the Resolution planned it, while that can be; else where it fits in the scope. If it
    fits nowhere, as while a node is silent, what is left of the plan: nobody was cut in vain. What
    a reclaim was planned with may need cuts besides; elsewhere it might be in the way of others."""
    held = found.reservation.held_places
    is_reclaim = found.resolution.cause is CutCause.OVERDRAFT
    if is_reclaim and found.reservation.held_money:
        return held  # nothing, if those ahead left it none
    if held and _can_have(world, wish, held, still_there):
        return held
    packed = _packed_without(world, wish, still_there)
    return packed.gpus_by_node if packed is not None else held


def _can_have(
    world: World, wish: Wish, places: tuple[tuple[str, int], ...], still_there: list[str]
) -> bool:
    mark = world.what_if.mark()
    world.fleet.tolerate(wish.run.spec.tolerations)
    for name in still_there:
        world.fleet.give(world.leases[name])
    nodes = world.fleet.nodes
    answer = all(name in nodes and nodes[name].free >= gpus for name, gpus in places)
    world.what_if.undo(mark)
    return answer and sum(gpus for _, gpus in places) == wish.want.gpus


def _claim(
    turn: Turn,
    wish: Wish,
    found: Underway,
    places: tuple[tuple[str, int], ...],
    going: list[Lease],
) -> None:
    """The money it was planned with, or what pays for it where it goes."""
    world = turn.world
    held = found.reservation.held_money
    if held and all(payer in world.envelopes for payer, _, _ in held):
        segments = tuple(
            Segment(
                envelope=payer,
                owner=world.envelopes[payer].owner,
                gpus=gpus,
                relation=Relation.BORROWED if borrowed else Relation.OWNED,
            )
            for payer, gpus, borrowed in held
        )
        covered = Covered(segments=segments, trace=())
        claims = claims_of(world, wish, covered, start=turn.now)
        turn.agenda.claim(wish.run.uid, put_off(turn, claims, going))
        return
    domains = sorted({world.fleet.nodes[name].node.domain for name, _ in places})
    if not places and found.resolution.cause is CutCause.OVERDRAFT:
        domains = sorted(domains_open_to(world, wish))
    if domains:
        claim_money(turn, wish, tuple(domains), start=turn.now)


def where_held(turn: Turn, wish: Wish) -> Admitted | None:
    """A beneficiary that finds no better place takes the very one that was made for it."""
    world = turn.world
    found = underway(world, wish.run)
    held = dict(found.reservation.held_places) if found is not None else {}
    if found is None or sum(held.values()) != wish.want.gpus:
        return None
    if not _was_made_for(world, found, wish.want.groups):
        return None
    mark = world.what_if.mark()
    as_found_by(world, wish, turn.agenda.only(uids_underway(world)), start=turn.now)
    nodes = world.fleet.nodes
    domains = sorted({nodes[name].node.domain for name in held if name in nodes})
    for domain in domains:
        for name in world.fleet.pools[(wish.want.flavor, domain)].nodes:
            world.fleet.plan(name, max(0, nodes[name].free - held.get(name, 0)))
    want = replace(wish.want, within=tuple(domains), own_domains=())
    packed = try_pack(world, want, locations_for(world, wish.run.spec))
    plan = None
    if packed is not None:
        plan = paid_there(world, wish, packed, at=turn.now, now=turn.now)
    world.what_if.undo(mark)
    return plan


def _was_made_for(world: World, found: Underway, groups: tuple[int, ...]) -> bool:
    """Once some have sat down there, it is kept for them alone, in case they are rejected: other
    groups of a sweep stand in line like anybody. That it was released may not have been written."""
    if groups_short_of_minimum(world, found.run, groups) != groups:
        return False
    if found.reservation.state is State.ACTIVATING:
        return True
    units = world.book(found.run.uid).units
    own = [units.get(world.unit_of(found.run.uid, group)) for group in groups]
    return all(unit is not None and unit.is_of_a_resolution() for unit in own)


def _packed_without(world: World, wish: Wish, victims: list[str]) -> Packed | None:
    """Where the beneficiary goes once these leases are gone."""
    mark = world.what_if.mark()
    world.fleet.tolerate(wish.run.spec.tolerations)
    for name in victims:
        world.fleet.give(world.leases[name])
    packed = try_pack(world, wish.want, locations_for(world, wish.run.spec))
    world.what_if.undo(mark)
    return packed
