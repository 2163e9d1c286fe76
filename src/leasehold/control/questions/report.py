"""`report`: GPU-hours of a period by owner, payer, run, node, day, week or month: the bill.

Leases are clipped to [from, to) and summed as whole GPU-milliseconds, so that the rows of any
report add up to its total, and reports of adjoining periods to that of both.
"""

from collections.abc import Callable, Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow
from leasehold.control.questions.forms import gpu_time, instant
from leasehold.control.questions.subject import Archived, no_archive
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
# What an instant is in, and where the next begins; whose calendar that is, the caller knows.
Bucket = Callable[[Instant], tuple[str, Instant]]
SPANS = ("day", "week", "month")
GROUPINGS = (*_KEYS, *SPANS)


class _Row:
    __slots__ = ("gpu_ms", "leases", "paid_ms")

    def __init__(self) -> None:
        self.gpu_ms: GpuMs = 0
        self.paid_ms: GpuMs = 0
        self.leases = 0


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
    """`owner` keeps what runs of that owner used; with `by` payer, what its envelopes paid.
    `namespace` keeps what runs of that namespace used.

    By owner each row has both: `gpuMs` its own runs used, whoever paid, and `paidGpuMs` its
    envelopes paid, whoever used it.
    """
    assert by in GROUPINGS, by
    until = min(period.end, now)
    leases = (
        each
        for each in _clipped(world, period.start, until, archived)
        if namespace in ("", each[0].namespace)
    )
    rows: dict[str, _Row] = {}
    if by == "owner":
        _by_owner(rows, leases, owner)
    elif by in SPANS:
        assert bucket is not None, by
        _by_span(rows, leases, owner, bucket)
    else:
        whose = _payer_owner if by == "payer" else _KEYS["owner"]
        for lease, start, end in leases:
            if not owner or glob_admits(owner, whose(lease)):
                _add(rows, _KEYS[by](lease), lease.gpus * (end - start))
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


def _clipped(
    world: World, start: Instant, end: Instant, archived: Archived
) -> Iterator[tuple[Lease, Instant, Instant]]:
    """Every lease that has a part in the period, with that part."""
    for lease in archived(start, end):
        if lease.name not in world.leases:
            yield from _part(lease, start, end)
    for lease in world.leases.values():
        yield from _part(lease, start, end)


def _part(lease: Lease, start: Instant, end: Instant) -> Iterator[tuple[Lease, Instant, Instant]]:
    first = max(lease.start, start)
    last = end if lease.end is None else min(lease.end, end)
    if first < last:
        yield lease, first, last


def _add(rows: dict[str, _Row], key: str, gpu_ms: GpuMs) -> None:
    row = rows.setdefault(key, _Row())
    row.gpu_ms += gpu_ms
    row.leases += 1


def _by_owner(
    rows: dict[str, _Row], leases: Iterable[tuple[Lease, Instant, Instant]], owner: str
) -> None:
    for lease, start, end in leases:
        amount = lease.gpus * (end - start)
        if not owner or glob_admits(owner, lease.owner):
            _add(rows, lease.owner, amount)
        if not owner or glob_admits(owner, lease.payer_owner):
            rows.setdefault(lease.payer_owner, _Row()).paid_ms += amount


def _by_span(
    rows: dict[str, _Row],
    leases: Iterable[tuple[Lease, Instant, Instant]],
    owner: str,
    bucket: Bucket,
) -> None:
    """A lease counts in each day, week or month for what it ran in it."""
    known: dict[Instant, tuple[str, Instant]] = {}  # leases begin together, and go on together
    for lease, start, end in leases:
        if owner and not glob_admits(owner, lease.owner):
            continue
        at = start
        while at < end:
            label, following = known.get(at) or bucket(at)
            known[at] = (label, following)
            _add(rows, label, lease.gpus * (min(end, following) - at))
            at = following


def _row(by: str, row: _Row, key: str | None = None) -> ReportRow:
    """Without a key it is the total."""
    named = replace(ReportRow(leases=row.leases, **gpu_time(row.gpu_ms)), **_key(by, key))
    if by != "owner":
        return named
    paid = gpu_time(row.paid_ms)
    return replace(named, paid_gpu_ms=paid["gpu_ms"], paid_gpu_hours=paid["gpu_hours"])


def _key(by: str, key: str | None) -> dict[str, str]:
    return {} if key is None else {by: key}


def _total(by: str, rows: Iterable[_Row]) -> ReportRow:
    total = _Row()
    for row in rows:
        total.gpu_ms += row.gpu_ms
        total.paid_ms += row.paid_ms
        total.leases += row.leases
    found = _row(by, total)
    # A lease of two days is counted in both.
    return replace(found, leases=UNSET) if by in SPANS else found
