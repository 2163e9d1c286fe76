"""`report`: the bill: GPU-hours of a period by owner, payer, run, node, day, week or month.

Leases are clipped to [from, to) and summed in whole GPU-ms. So the rows of a report add up to its
total, and reports of adjoining periods to the report of both.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow, Uses
from leasehold.control.questions.answers.shape import GpuAmount
from leasehold.control.questions.formats import gpu_time, instant
from leasehold.control.questions.subject import Archived, no_archive
from leasehold.control.questions.uses import Use, saved_until, starts_until, use_of
from leasehold.core.facts import Lease, Record
from leasehold.core.objects.owners import glob_admits
from leasehold.core.units import GpuMs, Instant
from leasehold.core.world.world import World


class Period(Record):
    start: Instant
    end: Instant


Keys = Callable[[Lease], str]

_KEYS: dict[str, Keys] = {
    "owner": lambda lease: lease.owner,
    "payer": lambda lease: lease.payer,
    "run": lambda lease: lease.run_key,
    "node": lambda lease: lease.node,
}
# Maps an instant to (label, start of the next bucket); the caller chooses the calendar.
Bucket = Callable[[Instant], tuple[str, Instant]]
SPANS = ("day", "week", "month")
GROUPINGS = (*_KEYS, *SPANS)


class _Part(Record):
    """The part of a lease that lies in the period."""

    lease: Lease
    start: Instant
    end: Instant
    begins: Instant  # the pod's start; before it the pod was starting
    saved: Instant  # what was done before it is work
    use: Use

    @property
    def gpu_ms(self) -> GpuMs:
        return self.lease.gpus * (self.end - self.start)

    def between(self, start: Instant, end: Instant) -> "_Part":
        return replace(self, start=start, end=end)


class _Row:
    __slots__ = ("leases", "paid_ms", "uses")

    def __init__(self) -> None:
        self.uses: dict[Use, GpuMs] = {}
        self.paid_ms: GpuMs = 0
        self.leases = 0

    @property
    def gpu_ms(self) -> GpuMs:
        return sum(self.uses.values())

    def add(self, part: _Part) -> None:
        begins = min(max(part.start, part.begins), part.end)
        saved = min(max(begins, part.saved), part.end)
        gpus = part.lease.gpus
        self._count(Use.STARTING, gpus * (begins - part.start))
        self._count(Use.WORK, gpus * (saved - begins))
        self._count(part.use, gpus * (part.end - saved))
        self.leases += 1

    def _count(self, use: Use, gpu_ms: GpuMs) -> None:
        if gpu_ms:
            self.uses[use] = self.uses.get(use, 0) + gpu_ms


def gpu_hours(
    world: World,
    now: Instant,
    period: Period,
    *,
    by: str,
    owner: str = "",
    namespace: str = "",
    archived: Archived = no_archive,
    bucket: Bucket | None = None,
) -> ReportAnswer:
    """Return the bill for the period.

    `owner` selects runs of that owner or, if by payer, what its envelopes paid. `namespace` selects
    runs of that namespace.
    By owner, a row has two amounts: `gpuMs` that the owner's runs used, whichever envelopes paid,
    and `paidGpuMs` that the owner's envelopes paid, whichever runs used it.
    """
    assert by in GROUPINGS, by
    until = min(period.end, now)
    parts = (
        each
        for each in _clipped(world, period.start, until, archived)
        if namespace in ("", each.lease.namespace)
    )
    rows: dict[str, _Row] = {}
    if by == "owner":
        _by_owner(rows, parts, owner)
    elif by in SPANS:
        assert bucket is not None, by
        _by_span(rows, parts, owner, bucket)
    else:
        whose = _payer_owner if by == "payer" else _KEYS["owner"]
        for part in parts:
            if not owner or glob_admits(owner, whose(part.lease)):
                _of(rows, _KEYS[by](part.lease)).add(part)
    return ReportAnswer(
        by=by,
        start=instant(period.start or None),
        end=instant(until),
        owner=owner,
        items=[_row(by, row, key) for key, row in sorted(rows.items())],
        total=_total(by, rows.values()),
    )


def _payer_owner(lease: Lease) -> str:
    return lease.payer_owner


def _clipped(world: World, start: Instant, end: Instant, archived: Archived) -> Iterator[_Part]:
    """Yield, for every lease with a part in the period, that part."""
    for lease in archived(start, end):
        if lease.name not in world.leases:
            yield from _part(world, lease, start, end)
    for lease in world.leases.values():
        yield from _part(world, lease, start, end)


def _part(world: World, lease: Lease, start: Instant, end: Instant) -> Iterator[_Part]:
    first = max(lease.start, start)
    last = end if lease.end is None else min(lease.end, end)
    if first < last:
        yield _Part(
            lease=lease,
            start=first,
            end=last,
            begins=starts_until(world, lease),
            saved=saved_until(lease),
            use=use_of(world, lease),
        )


def _of(rows: dict[str, _Row], key: str) -> _Row:
    return rows.get(key) or rows.setdefault(key, _Row())


def _by_owner(rows: dict[str, _Row], parts: Iterable[_Part], owner: str) -> None:
    for part in parts:
        lease = part.lease
        if not owner or glob_admits(owner, lease.owner):
            _of(rows, lease.owner).add(part)
        if not owner or glob_admits(owner, lease.payer_owner):
            _of(rows, lease.payer_owner).paid_ms += part.gpu_ms


def _by_span(rows: dict[str, _Row], parts: Iterable[_Part], owner: str, bucket: Bucket) -> None:
    """Add each lease to the row of every day, week or month in which it ran, for its part in it."""
    # cached, because many leases share these instants
    known: dict[Instant, tuple[str, Instant]] = {}
    for part in parts:
        if owner and not glob_admits(owner, part.lease.owner):
            continue
        at = part.start
        while at < part.end:
            label, following = known.get(at) or bucket(at)
            known[at] = (label, following)
            _of(rows, label).add(part.between(at, min(part.end, following)))
            at = following


def _row(by: str, row: _Row, key: str | None = None) -> ReportRow:
    """Return a row; without a key it is the total."""
    uses = Uses(**{each.value: _hours(row.uses.get(each, 0)) for each in Use})
    named = replace(
        ReportRow(leases=row.leases, uses=uses, **gpu_time(row.gpu_ms)), **_key(by, key)
    )
    if by != "owner":
        return named
    paid = gpu_time(row.paid_ms)
    return replace(named, paid_gpu_ms=paid["gpu_ms"], paid_gpu_hours=paid["gpu_hours"])


def _hours(amount: GpuMs) -> GpuAmount:
    return GpuAmount(**gpu_time(amount))


def _key(by: str, key: str | None) -> dict[str, str]:
    return {} if key is None else {by: key}


def _total(by: str, rows: Iterable[_Row]) -> ReportRow:
    total = _Row()
    for row in rows:
        for use, gpu_ms in row.uses.items():
            total.uses[use] = total.uses.get(use, 0) + gpu_ms
        total.paid_ms += row.paid_ms
        total.leases += row.leases
    found = _row(by, total)
    # a lease that spans two days is counted in both rows
    return replace(found, leases=UNSET) if by in SPANS else found
