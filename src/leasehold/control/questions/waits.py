"""`reservations`: countdown, deficit, confidence and odds of the starts that are planned."""

from collections.abc import Callable

from leasehold.control.questions.answers.runs import (
    Chance,
    Release,
    ReservationRow,
    ReservationsAnswer,
)
from leasehold.control.questions.forms import instant
from leasehold.core.facts import Reservation, State
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
    """Those that wait, by start; `past` adds the released and cancelled ones."""
    found = [
        each
        for each in world.reservations.values()
        if namespace in ("", each.namespace)
        and (past or each.state in _OPEN)
        and sees(each.namespace)
    ]
    found.sort(key=lambda each: (each.starts, each.subject))
    return ReservationsAnswer(items=[reservation_row(each, now) for each in found])


def reservation_row(reservation: Reservation, now: Instant) -> ReservationRow:
    waits = reservation.state is State.PENDING
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
    )
