"""What the queue would do with a run now: those ahead and the run itself are considered as the
queue considers them, and nothing is applied.

What each would hold is put on the agenda of a turn that is thrown away. The indices of the World
are changed only under marks and are put back. Called by `plan` and `cover`.
"""

from typing import assert_never

from msgspec.structs import replace

from leasehold.control.line.consider import Denied, InLine, Planned, Started, Verdict, consider
from leasehold.control.line.holding import hold_places
from leasehold.control.line.made_room import hold_for_activations
from leasehold.control.line.one_pass import Line
from leasehold.control.line.places_in_line import told_place
from leasehold.control.line.planning import hold_plan, reservation_for
from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, claims_of
from leasehold.core.decisions.odds import Preview, preview
from leasehold.core.decisions.order import in_order, is_ahead
from leasehold.core.facts import Record, Run
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World


class Rehearsed(Record):
    """What would become of a run; at most one of the fields is of use for each."""

    started: tuple[Admitted, ...] = ()  # now: all of it, or the groups that live alone
    groups_waiting: int = 0
    refused: Refused | None = None
    reservation: Reservation | None = None
    preview: Preview | None = None
    obstacle: Refused | None = None  # why cutting would be no answer, as things stand


def in_front_of(world: World, run: Run, now: Instant) -> tuple[Turn, Line]:
    """The turn as the queue would have it when this run's time comes."""
    turn = Turn(world, now=max(now, world.head.instant), key=b"", time_trusted=True)
    turn.quarantined = frozenset(
        uid
        for uid, refused in world.memory.refusals.items()
        if refused.reason is Refusal.QUARANTINED
    )
    line = Line(world.policy, rehearses=True)
    hold_for_activations(turn)
    for ahead in in_order(world, world.work.pending):
        if ahead.uid == run.uid or not is_ahead(ahead, of=run):
            break
        _hold_all(turn, ahead, line)
    line.asks = True
    return turn, line


def _hold_all(turn: Turn, run: Run, line: Line) -> None:
    """What a run ahead would hold if the queue had its way."""
    _, verdict = _considered(turn, run, line)
    if isinstance(verdict, Planned) and verdict.plan is not None:
        hold_plan(turn, verdict.wish, verdict.plan)


def _considered(turn: Turn, run: Run, line: Line) -> tuple[list[Started], Verdict | None]:
    """What of it starts, which is kept from those behind; and what becomes of the rest."""
    started: list[Started] = []
    begun = 0
    verdict = consider(turn, run, line)
    while isinstance(verdict, Started):
        started.append(verdict)
        groups = verdict.wish.want.groups
        begun += len(groups)
        turn.agenda.forget(run.uid)
        # Its own others are not in its way.
        beside = replace(run, uid=f"{run.uid}#{groups[0]}")
        _keep(turn, replace(verdict.wish, run=beside), verdict.plan)
        if not verdict.left:
            return started, None
        verdict = consider(
            turn, run, line, left=verdict.left, begun=begun, one_by_one=verdict.one_by_one
        )
    return started, verdict


def _keep(turn: Turn, wish: Wish, plan: Admitted) -> None:
    """As if it had started: its places and money are gone for those behind it."""
    hold_places(turn, wish, plan.packed.gpus_by_node, start=turn.now)
    claims = [
        claim
        for _, covered in plan.covered
        for claim in claims_of(turn.world, wish, covered, start=turn.now)
    ]
    turn.agenda.claim(wish.run.uid, claims)


def rehearse(world: World, run: Run, now: Instant) -> tuple[Turn, Rehearsed]:
    """What the queue would decide about a run that waits, or that is only an idea."""
    turn, line = in_front_of(world, run, now)
    turn.agenda.forget(run.uid)
    started, verdict = _considered(turn, run, line)
    plans = tuple(each.plan for each in started)
    if verdict is None:
        return turn, Rehearsed(
            started=plans, refused=None if plans else world.memory.refusals.get(run.uid)
        )
    waiting = len(started[-1].left) if started else 0
    return turn, replace(_outcome(turn, run, verdict), started=plans, groups_waiting=waiting)


def _outcome(turn: Turn, run: Run, verdict: Verdict) -> Rehearsed:
    known = present(turn.world, run)
    match verdict:
        case Planned():
            return _planned(turn, verdict, known)
        case InLine():
            return Rehearsed(refused=told_place(verdict.refused, verdict.place, run))
        case Denied():
            is_made_room = known is not None and known.state is State.ACTIVATING
            held = known if is_made_room and verdict.wish is not None else None
            return Rehearsed(refused=verdict.refused, reservation=held)
        case Started():
            raise AssertionError("what starts was taken out before")
        case _:
            assert_never(verdict)


def _planned(turn: Turn, planned: Planned, known: Reservation | None) -> Rehearsed:
    wish, refused, plan = planned.wish, planned.refused, planned.plan
    if plan is None:
        return Rehearsed(refused=refused, reservation=known)
    reservation = reservation_for(turn, wish, refused, plan)
    hold_plan(turn, wish, plan)
    if reservation.confidence is not Confidence.CUTS:
        return Rehearsed(refused=refused, reservation=reservation)
    at = max(turn.now, reservation.starts)
    seen = preview(turn.world, wish, turn.agenda, at=at, now=turn.now, may_sample=lambda: False)
    if isinstance(seen, Refused):  # nothing that may be cut would make room
        return Rehearsed(refused=refused, reservation=reservation, obstacle=seen)
    return Rehearsed(refused=refused, reservation=reservation, preview=seen)
