"""Reservations whose time has come: resolved when everybody in line has been considered.

An instant is one: whoever starts in it, behind as well, is there before anybody is cut. Those that
are due are resolved in order of their starts, each on top of what those ahead of it hold. The first
that changes something for others ends the turn for them: all are thought over again.
"""

from collections.abc import Callable

from leasehold.control.line.activation import activate, uids_underway
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish
from leasehold.core.decisions.order import is_ahead
from leasehold.core.facts import Record
from leasehold.core.reservations import Reservation, State
from leasehold.core.units import Instant
from leasehold.core.verdicts import Refused


class Due(Record):
    """One that does not fit, and what else there is to do for it if cuts are no help."""

    wish: Wish
    reservation: Reservation
    refused: Refused
    otherwise: Callable[[], object] | None = None

    @property
    def turn_to_come(self) -> tuple[bool, Instant]:
        """Who has its envelope back, and lacks GPUs, is at it already."""
        return self.reservation.state is not State.ACTIVATING, self.reservation.starts


def resolve_due(turn: Turn, due: list[Due]) -> None:
    """`due`: in order of line."""
    world, whole = turn.world, turn.agenda
    underway = set(uids_underway(world)) if due else set()
    for each in sorted(due, key=lambda one: one.turn_to_come):
        run = each.wish.run
        turn.about = run.uid
        turn.agenda = whole.only(
            uid
            for uid in whole.uids
            if uid == run.uid or uid in underway or is_ahead(world.runs[uid], of=run)
        )
        if activate(turn, each.wish, each.reservation, each.refused, otherwise=each.otherwise):
            # What those behind planned with may be gone: they are planned anew in the next turn.
            turn.planned = {
                subject: None
                for subject in turn.planned
                if is_ahead(world.runs[world.reservations[subject].uid], of=run)
            }
            turn.line_is_cut_short = turn.again = True
            return
        turn.agenda = whole
