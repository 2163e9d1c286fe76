"""Finds the leases that a turn changed, and the invariants that it would break.

Called before every commit, by the loop and by replays of a workload.
"""

from leasehold.control.turn import Turn
from leasehold.core.world.invariants import Touched, Violation, check_delta


def touched_by(turn: Turn) -> Touched:
    """Return the leases that this turn opens, marks and closes, as they are after the turn."""
    leases, batches = turn.world.leases, turn.batches
    changed = dict.fromkeys(
        name
        for batch in batches
        for name in ([e[0] for e in batch.ending] + [c.lease for c in batch.closed])
    )
    return Touched(
        opened=tuple(leases[lease.name] for batch in batches for lease in batch.opened),
        changed=tuple(leases[name] for name in changed),
    )


def broken_by(turn: Turn) -> list[Violation]:
    """Return the invariants that the World would break if the turn's batches were committed."""
    return check_delta(turn.world, touched_by(turn), turn.now)
