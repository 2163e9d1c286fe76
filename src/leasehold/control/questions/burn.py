"""`burn`: the GPU-hours that each limited envelope used, from the start of its window to now.

Computed backwards: each point is the present total minus what was used after that point. The leases
in the World (one pass for all envelopes) and the sums of archived leases tell how much that was.
"""

from bisect import bisect_right

from leasehold.control.questions.answers.money import BurnAnswer, BurnPoint, BurnRow
from leasehold.control.questions.formats import gpu_time, instant
from leasehold.core.facts import Envelope, EnvelopeKey
from leasehold.core.ledger.charges import Charges
from leasehold.core.objects.owners import glob_admits
from leasehold.core.units import FOREVER, GpuMs, Instant
from leasehold.core.world.world import World

STEPS = 48


class _Spending:
    """The GPU-time that an envelope uses in each of STEPS equal intervals."""

    def __init__(self, start: Instant, end: Instant) -> None:
        self.at = [start + (end - start) * step // STEPS for step in range(STEPS + 1)]
        self._spent: list[GpuMs] = [0] * STEPS
        # change in the GPUs that are paid for throughout an interval
        self._change = [0] * (STEPS + 1)

    def add(self, gpus: int, start: Instant, end: Instant) -> None:
        """Add GPUs in use during [start, end), clipped to the whole period."""
        start, end = max(start, self.at[0]), min(end, self.at[-1])
        if start >= end:
            return
        first = min(bisect_right(self.at, start) - 1, STEPS - 1)
        last = min(bisect_right(self.at, end) - 1, STEPS - 1)
        if first == last:
            self._spent[first] += gpus * (end - start)
            return
        self._spent[first] += gpus * (self.at[first + 1] - start)
        self._spent[last] += gpus * (end - self.at[last])
        self._change[first + 1] += gpus
        self._change[last] -= gpus

    def back_from(self, now: GpuMs, archived: Charges) -> list[tuple[Instant, GpuMs]]:
        """Return (instant, total used up to that instant) for each boundary between intervals.

        Computed backwards from `now`, the total used up to the end of the last interval.
        `archived`: the use by archived leases, which `add` was not called for.
        """
        steps, gpus = [], 0
        for step in range(STEPS):
            gpus += self._change[step]
            steps.append(self._spent[step] + gpus * (self.at[step + 1] - self.at[step]))
        found = [(self.at[-1], now)]
        for step in reversed(range(STEPS)):
            now -= steps[step]
            found.append((self.at[step], now))
        return [(at, spent - archived.used_since(at)[0]) for at, spent in reversed(found)]


def burn(world: World, now: Instant, *, owner: str = "", namespace: str = "") -> BurnAnswer:
    earliest = _earliest(world)
    courses = {
        key: _Spending(envelope.start or earliest, now)
        for key, envelope in sorted(world.envelopes.items())
        if _is_limited(envelope)
        and namespace in ("", key.partition("/")[0])
        and (not owner or glob_admits(owner, envelope.owner))
        and envelope.start < now
    }
    if courses:
        for lease in world.leases.values():
            course = courses.get(lease.payer)
            if course is not None:
                course.add(lease.gpus, lease.start, now if lease.end is None else lease.end)
    return BurnAnswer(items=[_row(world, key, course, now) for key, course in courses.items()])


def _is_limited(envelope: Envelope) -> bool:
    return envelope.max_gpu_ms is not None and envelope.end < FOREVER


def _earliest(world: World) -> Instant:
    """Return the start of the first known lease; the curves of envelopes without a start begin
    there."""
    first = [each.begin for each in world.carried.charges.values()]
    return min(first + [lease.start for lease in world.leases.values()], default=0)


def _row(world: World, key: EnvelopeKey, course: _Spending, now: Instant) -> BurnRow:
    archived = world.carried.charges.get(key, Charges())
    spent = course.back_from(world.accounts.of(key).used_ms(now), archived)
    return BurnRow(
        envelope=key,
        points=[BurnPoint(at=instant(at), **gpu_time(amount)) for at, amount in spent],
    )
