"""`widths`: the GPUs a run has held over time, from its first lease to now."""

from leasehold.control.questions.answers.runs import WidthPoint, WidthsAnswer
from leasehold.control.questions.formats import instant
from leasehold.control.questions.subject import Subject
from leasehold.core.facts import Role
from leasehold.core.units import Instant


def widths(subject: Subject, now: Instant) -> WidthsAnswer:
    """Return a point for each instant at which the width changed; a width holds until the next
    point."""
    changes: dict[Instant, list[int]] = {}
    for lease in subject.every_lease():
        place = 1 if lease.role is Role.SPARE else 0
        changes.setdefault(lease.start, [0, 0])[place] += lease.gpus
        if lease.end is not None:
            changes.setdefault(lease.end, [0, 0])[place] -= lease.gpus
    items: list[WidthPoint] = []
    active = spare = 0
    for at in sorted(changes):
        active, spare = active + changes[at][0], spare + changes[at][1]
        assert active >= 0, "what ended had begun"
        assert spare >= 0, "what ended had begun"
        if not items or (items[-1].active, items[-1].spare) != (active, spare):
            items.append(WidthPoint(at=instant(at), active=active, spare=spare))
    return WidthsAnswer(run=subject.key, until=instant(now), items=items)
