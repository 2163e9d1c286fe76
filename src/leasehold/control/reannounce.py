"""Announcements that this controller's key does not prove are made anew, before anything is drawn.

The nonce of a lottery follows from a secret key, and its commitment was published when the
reservation or the overdraft was announced. With another key (the file was lost, or restored without
it) a draw could never be proved: so it is not made, and its subject is announced again.
"""

from msgspec.structs import replace

from leasehold.control.reservations import cancel_reservation, present
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.ledger import lottery

WHY = "it was announced under another lottery key, and is announced anew: no draw could be proved"


def announce_anew(turn: Turn) -> None:
    """Called first of all after a restart. A run whose reservation goes is planned anew at once."""
    world = turn.world
    for uid in sorted(world.reservation_of):
        run = world.runs.get(uid)
        reservation = present(world, run) if run is not None else None
        if run is None or reservation is None:
            continue
        if not is_provable(turn, reservation.subject, reservation.batch, reservation.commitment):
            cancel_reservation(turn, run, WHY)
            turn.tell("Run", run.key, Told.ANNOUNCED_ANEW, WHY)
    for subject, known in sorted(world.overdrafts.items()):
        if not is_provable(turn, subject, known.batch, known.commitment):
            again = turn.announce_overdraft(subject)
            world.fold_overdraft(replace(again, since=known.since))
            turn.tell("Budget", subject.rpartition("/")[0], Told.ANNOUNCED_ANEW, WHY)


def is_provable(turn: Turn, subject: str, batch: int, commitment: str) -> bool:
    return lottery.commitment(lottery.nonce(turn.key, subject, batch)) == commitment
