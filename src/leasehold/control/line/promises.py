"""Whether every announced plan can still be kept after what was decided behind it.

Asked by simulations before every commit: each plan that holds something is tried once more, on the
World as the turn leaves it, on top of those ahead of it alone. If it could be made in the turn and
cannot be kept at its end, somebody behind it took what it was promised.
"""

from collections.abc import Iterator

from leasehold.control.line.activation import domains_open_to, is_sitting_down, underway
from leasehold.control.line.wishes import groups_short_of_minimum, waiting_groups, wish_for
from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, admit
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.odds import preview
from leasehold.core.decisions.order import in_order
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import candidate_pools
from leasehold.core.decisions.resolve import count_money_back, is_going
from leasehold.core.facts import Opened, Run, Uid
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.invariants import Violation
from leasehold.core.world.width import locations_for

RULE = "INV-LINE-IS-KEPT"


def broken_promises(turn: Turn) -> list[Violation]:
    """Plans that were made in this turn and are no longer possible at its end."""
    world = turn.world
    began = {
        lease.uid
        for batch in turn.batches
        for lease in batch.opened
        if lease.reason in (Opened.START, Opened.GROW)
    }
    began.update(each.beneficiary_uid for each in turn.resolutions)
    if not began:
        return []
    found: list[Violation] = []
    kept_from_all = {
        uid
        for uid, run in world.runs.items()
        if uid in world.reservation_of and underway(world, run)
    }
    ahead: set[Uid] = set()
    for run in in_order(world, world.work.pending):
        reservation = present(world, run)
        if reservation is not None and reservation.state is State.PENDING:
            agenda = turn.agenda.only(ahead | kept_from_all)
            for why in _harm(turn, run, reservation, agenda):
                found.append(
                    Violation(rule=RULE, subject=run.key, why=why, runs=tuple(sorted(began)))
                )
        ahead.add(run.uid)
    return found


def _harm(turn: Turn, run: Run, reservation: Reservation, agenda: Agenda) -> Iterator[str]:
    world = turn.world
    groups = groups_short_of_minimum(world, run, waiting_groups(world, run, turn.now))
    if not groups or reservation.subject not in turn.planned:
        return
    wish = wish_for(world, run, groups)
    at = max(turn.now, reservation.starts)
    if reservation.confidence in (Confidence.EXACT, Confidence.WINDOW):
        if reservation.starts > turn.now and not _can_start(turn, wish, agenda, reservation):
            yield f"its {reservation.confidence} start at {reservation.starts} is gone"
    elif reservation.confidence is Confidence.CUTS and turn.agenda.holds_of(run.uid):
        # While it is not known whether somebody sits where it could go, its plan stands as it was.
        if not is_sitting_down(world, domains_open_to(world, wish)):
            seen = preview(world, wish, agenda, at=at, now=turn.now, may_sample=lambda: False)
            if isinstance(seen, Refused):
                yield f"cuts at {at} would no longer make room for it"
        for hold in turn.agenda.holds_of(run.uid):
            state = world.fleet.nodes.get(hold.node)
            if hold.start <= turn.now and state is not None and state.free < hold.gpus:
                yield f"{hold.gpus} GPUs that it kept on {hold.node} are gone"


def _can_start(turn: Turn, wish: Wish, agenda: Agenda, reservation: Reservation) -> bool:
    world, at = turn.world, reservation.starts
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    nodes = [name for pool in pools for name in pool.nodes]
    mark = world.what_if.mark()
    # What was told to end is gone by then, though its deadline may be now, or over: cuts count on
    # that; and so is what it costs. Who has not gone for long may stay for ever.
    going = {name for name in world.ending if is_going(world, world.leases[name], turn.now)}
    ended = going.union(leases_ended_by(world, nodes, at, turn.now))
    for name in sorted(ended):
        world.fleet.give(world.leases[name])
    count_money_back(world, turn.now)
    plan = admit(world, wish, agenda, start=at, now=turn.now, gone=frozenset(ended))
    world.what_if.undo(mark)
    return isinstance(plan, Admitted)
