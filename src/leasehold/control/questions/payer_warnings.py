"""Warns about the payers of a running run: an announced overdraft, or one that is to be expected.

Used by `explain`. The runs of an overdrawn payer are preempted after a grace. If the window or
GPU-hours of a payer end before the run does, the run is then refinanced or becomes overdrawn.
"""

from leasehold.control.questions.formats import moment
from leasehold.control.questions.subject import Subject
from leasehold.core.facts import EnvelopeKey
from leasehold.core.preemption.overdraft import next_money_event
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World


def money_ahead(world: World, subject: Subject, now: Instant) -> list[str]:
    """Return a sentence for each payer that will not, or may not, pay until the end of the run.

    An announced overdraft is named first, otherwise the end of the window or of the GPU-hours.
    """
    leases = open_leases(world, subject.uid)
    ends = [world.terms[lease.name].frees_at for lease in leases if lease.name in world.terms]
    end = max(ends, default=FOREVER)
    words = []
    for payer in sorted({lease.payer for lease in leases}):
        over = _overdrawn(world, payer)
        words += over or _ends_first(world, payer, end, now)
    return words


def _overdrawn(world: World, payer: EnvelopeKey) -> list[str]:
    subjects = [payer, *(aggregate.key for aggregate in world.aggregates.get(payer, ()))]
    words = []
    for subject in subjects:
        known = world.overdrafts.get(subject)
        if known is None:
            continue
        who = f"Its payer {payer}" if subject == payer else f"The cap {subject} of its payer"
        cuts = moment(known.since + world.policy.overdraft_grace)
        words.append(
            f"{who} has been overdrawn since {moment(known.since)}. Unless that is corrected, runs "
            f"that it pays for are preempted from {cuts} on."
        )
    return words


def _ends_first(world: World, payer: EnvelopeKey, end: Instant, now: Instant) -> list[str]:
    envelope = world.envelopes.get(payer)
    at = next_money_event(world, payer, now)
    if envelope is None or at >= min(end, FOREVER):
        return []
    what = "The window" if at == envelope.end else "The GPU-hours"
    done = "ends" if at == envelope.end else "are used up"
    limit = f"before its limit at {moment(end)}" if end < FOREVER else "and it has no limit"
    return [
        f"{what} of {payer} {done} at {moment(at)}, {limit}. leasehold then looks for another "
        "payer; if it finds none, the payer is overdrawn."
    ]
