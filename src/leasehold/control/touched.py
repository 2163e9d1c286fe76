"""Which leases a turn changed, and whether an invariant of theirs is broken.

Called before every commit, by the loop and by a replay of a workload.
"""

from leasehold.control.turn import Turn
from leasehold.core.world.invariants import Touched, Violation, check_delta


def touched_by(turn: Turn) -> Touched:
    """The leases that the batches of this turn open, mark and close, as they are now."""
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
    """What the turn would break if its batches were committed."""
    return check_delta(turn.world, touched_by(turn), turn.now)
