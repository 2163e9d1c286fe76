"""`reservations`: countdown, deficit, confidence and odds of the planned starts."""

from collections.abc import Callable

from leasehold.control.questions.answers.runs import (
    Chance,
    Release,
    ReservationRow,
    ReservationsAnswer,
)
from leasehold.control.questions.formats import instant
from leasehold.control.questions.passed_by import Passing
from leasehold.core.reservations import Reservation, State
from leasehold.core.units import Instant
from leasehold.core.world.world import World

_OPEN = (State.PENDING, State.ACTIVATING, State.BLOCKED)


def reservations(
    world: World,
    now: Instant,
    *,
    sees: Callable[[str], bool],
    namespace: str = "",
    past: bool = False,
) -> ReservationsAnswer:
    """Return the open reservations by start; `past` adds released and cancelled ones."""
    found = [
        each
        for each in world.reservations.values()
        if namespace in ("", each.namespace)
        and (past or each.state in _OPEN)
        and sees(each.namespace)
    ]
    found.sort(key=lambda each: (each.starts, each.subject))
    passing = Passing(world)
    return ReservationsAnswer(items=[reservation_row(world, each, now, passing) for each in found])


def reservation_row(
    world: World, reservation: Reservation, now: Instant, passing: Passing
) -> ReservationRow:
    waits = reservation.state is State.PENDING
    run = world.runs.get(reservation.uid)
    return ReservationRow(
        namespace=reservation.namespace,
        name=reservation.name,
        run=reservation.run_key,
        state=str(reservation.state),
        starts=instant(reservation.starts or None),
        starts_in_ms=max(0, reservation.starts - now) if waits else None,
        confidence=str(reservation.confidence),
        deficit=reservation.deficit,
        reason=reservation.reason,
        message=reservation.message,
        payers=list(reservation.payers),
        domains=list(reservation.domains),
        nodes=list(reservation.nodes),
        releases=[Release(lease=lease, at=instant(at)) for lease, at in reservation.releases],
        remedies=list(reservation.remedies),
        odds=[Chance(run=run, percent=percent) for run, percent in reservation.odds],
        announced=instant(reservation.announced),
        since=instant(reservation.since),
        submitted=None if run is None else instant(run.created),
        passed_by=passing.of(reservation) if reservation.state in _OPEN else [],
    )
