"""What reservations keep from others: places and money, put on the turn's agenda.

An exact start keeps its places and money from its start on; one that needs cuts keeps the free GPUs
of its domains from everybody at once; an activation keeps the places it makes room in.
"""

from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.control.wishes import groups_short_of_minimum, waiting_groups, wish_for
from leasehold.core.accounts import Claim
from leasehold.core.admit import Wish, ask_for, claims_of
from leasehold.core.agenda import Hold
from leasehold.core.cover import cover
from leasehold.core.facts import Confidence, Relation, Run, State
from leasehold.core.forecast import Known
from leasehold.core.pack import Place
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Covered, Packed


def hold_known(turn: Turn, wish: Wish, known: Known) -> None:
    """A start that is known: its nodes and its payers, from then on."""
    turn.agenda.hold_later(_holds(wish, known.plan.packed, start=known.at))
    claims = [
        claim
        for _, covered in known.plan.covered
        for claim in claims_of(turn.world, wish, covered, start=known.at)
    ]
    turn.agenda.claim(wish.run.uid, claims)


def hold_places(turn: Turn, wish: Wish, packed: Packed) -> None:
    """An activation under way: the places it will bind on, against everyone."""
    turn.agenda.hold_firmly(wish.run.uid, _holds(wish, packed, start=turn.now))


def _holds(wish: Wish, packed: Packed, *, start: Instant) -> list[Hold]:
    by_node: dict[str, int] = {}
    for each in packed.places:
        by_node[each.node] = by_node.get(each.node, 0) + each.gpus
    end = min(FOREVER, start + wish.end_after)
    return [
        Hold(uid=wish.run.uid, node=node, gpus=gpus, start=start, end=end)
        for node, gpus in sorted(by_node.items())
    ]


def hold_needs_cuts(turn: Turn, wish: Wish, domains: tuple[str, ...], *, start: Instant) -> None:
    """The free GPUs there at once, and the money from its start on."""
    keep_free_gpus(turn, wish, domains, start=start)
    claim_money(turn, wish, domains, start=max(turn.now, start))


def keep_free_gpus(turn: Turn, wish: Wish, domains: tuple[str, ...], *, start: Instant) -> None:
    """Hold the free GPUs of these domains from everybody, but no more than the run needs."""
    world = turn.world
    mark = world.journal.mark()
    world.fleet.tolerate(wish.run.spec.tolerations)
    turn.agenda.apply(world, wish.run.uid, start=turn.now, end=FOREVER)
    left = wish.want.gpus
    end = min(FOREVER, max(turn.now, start) + wish.end_after)
    holds = []
    pools = [world.fleet.pools.get((wish.want.flavor, domain)) for domain in domains]
    free = [(-world.fleet.nodes[name].free, name) for pool in pools if pool for name in pool.nodes]
    for gpus, name in sorted(free):
        take = min(left, -gpus)
        if take:
            holds.append(Hold(uid=wish.run.uid, node=name, gpus=take, start=turn.now, end=end))
            left -= take
    world.journal.undo(mark)
    turn.agenda.hold_firmly(wish.run.uid, holds)


def claim_money(turn: Turn, wish: Wish, domains: tuple[str, ...], *, start: Instant) -> None:
    """Keep the payers' money for a run that will go to these domains, if they can pay at all."""
    places = sorted({(domain.split("/")[0], domain.split("/")[1]) for domain in domains})
    for place in places:
        ask = ask_for(wish, place, wish.want.gpus, start=start, borrowed=wish.borrowed_already)
        covered = cover(turn.world, ask, now=turn.now)
        if isinstance(covered, Covered):
            turn.agenda.claim(wish.run.uid, claims_of(turn.world, wish, covered, start=start))
            return
    turn.agenda.claim(wish.run.uid, _claims_by_group(turn, wish, places, start=start))


def _claims_by_group(turn: Turn, wish: Wish, places: list[Place], *, start: Instant) -> list[Claim]:
    """No one location pays for all of it: group by group, each where somebody pays."""
    world = turn.world
    claims: list[Claim] = []
    borrowed = wish.borrowed_already
    mark = world.journal.mark()
    for _ in wish.want.groups:
        for place in places:
            ask = ask_for(wish, place, wish.want.gpus_per_group, start=start, borrowed=borrowed)
            covered = cover(world, ask, now=turn.now)
            if isinstance(covered, Covered):
                part = claims_of(world, wish, covered, start=start)
                for claim in part:
                    world.accounts.claim(claim)
                claims.extend(part)
                borrowed += sum(
                    each.gpus for each in covered.segments if each.relation is Relation.BORROWED
                )
                break
    world.journal.undo(mark)
    return claims


def hold_for_cuts(turn: Turn, line: list[Run]) -> None:
    """Before anybody is considered: what announced needs-cuts starts keep from everybody.

    `line`: the pending runs in order. Who announced first keeps first: a run ahead in line that is
    announced later is somebody, too.
    """
    world = turn.world
    announced = [
        (reservation, run)
        for run in line
        if (reservation := present(world, run)) is not None
        and reservation.state is State.PENDING
        and reservation.confidence is Confidence.CUTS
        and reservation.domains
        and run.uid not in turn.quarantined
    ]
    for reservation, run in sorted(announced, key=lambda pair: pair[0].batch):
        waiting = waiting_groups(world, run, turn.now)
        groups = groups_short_of_minimum(world, run, waiting)
        if groups:
            wish = wish_for(world, run, groups)
            keep_free_gpus(turn, wish, reservation.domains, start=reservation.starts)
