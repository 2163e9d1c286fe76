"""Announces again what this controller could not prove, because its lottery key has changed.

The nonce of a lottery follows from a secret key. Its commitment is published when a reservation or
an overdraft is announced. With another key (the file was lost, or not restored) a draw could never
be proved. So no lottery is held under that announcement, and the reservation or overdraft is
announced again.
"""

from msgspec.structs import replace

from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import cancel_reservation, present
from leasehold.control.turn import Turn
from leasehold.core.ledger import lottery

WHY = (
    "the announcement was made with another lottery key, so its draw could not be proved; it is "
    "announced again"
)


def announce_anew(turn: Turn) -> None:
    """Announce again every reservation and overdraft whose commitment does not fit the present key.

    Called first after a restart. A run whose reservation is cancelled is planned again at once.
    """
    world = turn.world
    for uid in sorted(world.reservation_of):
        run = world.runs.get(uid)
        reservation = present(world, run) if run is not None else None
        if run is None or reservation is None:
            continue
        if not is_provable(turn, reservation.subject, reservation.batch, reservation.commitment):
            cancel_reservation(turn, run, WHY)
            turn.tell("Run", run.key, NoticeReason.ANNOUNCED_ANEW, WHY)
    for subject, known in sorted(world.overdrafts.items()):
        if not is_provable(turn, subject, known.batch, known.commitment):
            again = turn.announce_overdraft(subject)
            world.fold_overdraft(replace(again, since=known.since))
            turn.tell("Budget", subject.rpartition("/")[0], NoticeReason.ANNOUNCED_ANEW, WHY)


def is_provable(turn: Turn, subject: str, batch: int, commitment: str) -> bool:
    return lottery.commitment(lottery.nonce(turn.key, subject, batch)) == commitment
