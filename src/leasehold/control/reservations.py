"""The lifecycle of a Reservation: announced, released, cancelled or blocked.

Reservations are never removed, so that they can be audited. `scheduling/plans` decides which start
a reservation announces, `scheduling/holds` which places and payers it holds.
"""

from msgspec.structs import replace

from leasehold.control.reasons import NoticeReason
from leasehold.control.turn import Turn
from leasehold.core.facts import Run
from leasehold.core.objects.reservation import reservation_name
from leasehold.core.reservations import Reservation, State
from leasehold.core.verdicts import Refused
from leasehold.core.world.world import World

_OPEN = (State.PENDING, State.ACTIVATING, State.BLOCKED)


def present(world: World, run: Run) -> Reservation | None:
    """Return the reservation of the run's present wait, or None."""
    subject = world.reservation_of.get(run.uid)
    reservation = world.reservations[subject] if subject else None
    return reservation if reservation is not None and reservation.state in _OPEN else None


def release(turn: Turn, run: Run) -> None:
    """Release the run's reservation, if it has one, because the run has started."""
    reservation = present(turn.world, run)
    if reservation is not None:
        turn.reserve(replace(reservation, state=State.RELEASED, since=turn.now, reason="Started"))


def cancel_reservation(turn: Turn, run: Run, why: str) -> None:
    """Cancel the run's reservation, if it has one. `why` becomes the reservation's message."""
    reservation = present(turn.world, run)
    if reservation is not None:
        turn.reserve(
            replace(
                reservation, state=State.CANCELED, since=turn.now, reason="Canceled", message=why
            )
        )


def block(turn: Turn, run: Run, refused: Refused) -> None:
    """Block a run (Q11): its reservation holds nothing, and the run is considered at every
    change."""
    reservation = present(turn.world, run)
    turn.calendar.forget(run.uid)
    if reservation is None:
        reservation = announced(turn, run)
    if reservation.state is State.BLOCKED and reservation.reason == refused.reason:
        return  # no update if only numbers in the message differ
    if reservation.state is not State.BLOCKED:
        turn.tell("Run", run.key, NoticeReason.BLOCKED, refused.says)
        turn.again = reservation.state is State.ACTIVATING or turn.again
    turn.reserve(
        replace(
            reservation,
            state=State.BLOCKED,
            reason=str(refused.reason),
            message=refused.remedy,
            since=turn.now,
            by_cuts=0,
            by_family=0,
            held_from=0,
            held_places=(),
            held_money=(),
            is_site=False,
        )
    )


def announced(turn: Turn, run: Run) -> Reservation:
    """Return a new reservation for the run.

    Announces its subject: the commitment to its nonce goes into the ledger.
    """
    # A reservation's name has the batch and the beginning of the run's name. Two runs with the
    # same beginning are announced in two batches.
    taken = turn.world.reservations
    batch = turn.announcing_batch(
        lambda seq: f"{run.namespace}/{reservation_name(run.name, seq)}" in taken
    )
    name = reservation_name(run.name, batch)
    commitment = turn.announce(f"{run.namespace}/{name}")
    return Reservation(
        namespace=run.namespace,
        name=name,
        run=run.name,
        uid=run.uid,
        batch=batch,
        announced=turn.now,
        state=State.PENDING,
        commitment=commitment,
        since=turn.now,
    )
