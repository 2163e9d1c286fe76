"""INV-CALENDAR: entries of the calendar do not claim the same GPU at the same time.

Entries are compared with each other only, not with leases: the leases on a site, and the victims
under a hold, are there until they end. Checked by simulations before every commit.
"""

from leasehold.control.turn import Turn
from leasehold.core.calendar.entries import Entry
from leasehold.core.world.invariants import Violation

RULE = "INV-CALENDAR"


def double_claims(turn: Turn) -> list[Violation]:
    """Return the nodes on which entries together claim more GPUs than exist."""
    if not turn.has_walked:
        return []
    found: list[Violation] = []
    for name in turn.calendar.nodes():
        state = turn.world.fleet.nodes.get(name)
        entries = turn.calendar.entries_on(name, "", limit=0)  # without sites that may be passed
        if state is None:
            continue
        for at in sorted({max(turn.now, entry.start) for entry in entries}):
            there = [entry for entry in entries if entry.start <= at < entry.end]
            gpus = sum(entry.gpus for entry in there)
            if gpus > state.node.gpus:
                found.append(_violation(name, at, there))
                break
    return found


def _violation(node: str, at: int, entries: list[Entry]) -> Violation:
    runs = tuple(sorted({entry.uid for entry in entries}))
    claimed = ", ".join(f"{entry.uid} {entry.gpus}" for entry in entries)
    return Violation(rule=RULE, subject=node, why=f"at {at} claimed by {claimed}", runs=runs)
