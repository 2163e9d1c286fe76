"""Geometry of the drawings: bars, lanes and flows in SVG units.

Numbers come from answers; this module only converts them to positions. Strips are 1000 units wide
and stretched by the page, so they contain no text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leasehold.control.questions.answers.leases import LeaseRow
from leasehold.control.questions.answers.money import BurnRow, EnvelopeBalance, EnvelopeUsage
from leasehold.control.questions.answers.runs import WidthsAnswer
from leasehold.web import formats
from leasehold.web.formats import Millis
from leasehold.web.palette import Palette

WIDE = 1000
_TICKS = 4
_LEAST = 3  # minimum width of a visible bar


@dataclass(frozen=True, slots=True)
class Bar:
    x: float
    width: float
    look: str  # CSS classes
    title: str
    href: str = ""
    y: float = 0
    height: float = 10


@dataclass(frozen=True, slots=True)
class ChartLane:
    label: str
    note: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Lanes:
    lanes: Sequence[ChartLane]
    ticks: Sequence[str]  # evenly from the left edge to the right


def stacked(parts: Iterable[tuple[str, int, str]], whole: int = 0) -> list[Bar]:
    """Return the bars of (classes, count, title) parts, side by side. Their widths are proportional
    to their counts, and `whole`, or else the sum of the counts, is the full width."""
    shown = [each for each in parts if each[1]]
    total = whole or sum(count for _, count, _ in shown) or 1
    bars, x = [], 0.0
    for look, count, title in shown:
        width = WIDE * count / total
        bars.append(Bar(round(x, 2), round(width, 2), look, title))
        x += width
    return bars


class Axis:
    """A time axis over the width of a strip."""

    def __init__(self, start: Millis, end: Millis) -> None:
        self.start = start
        self.end = max(end, start + 1000)

    def place(self, at: Millis) -> float:
        share = (at - self.start) / (self.end - self.start)
        return round(WIDE * min(1.0, max(0.0, share)), 2)

    def bar(self, start: Millis, end: Millis, look: str, title: str, href: str = "") -> Bar:
        x = self.place(start)
        width = max(_LEAST, self.place(end) - x)
        return Bar(min(x, WIDE - width), width, look, title, href)

    def ticks(self) -> list[str]:
        """Return the axis' labels; they have the date if the axis spans several days."""
        step = (self.end - self.start) / _TICKS
        found = [formats.instant(round(self.start + step * place)) for place in range(_TICKS + 1)]
        if len({each[:10] for each in found}) == 1:
            return [formats.clock(each) for each in found]
        return [f"{each[5:10]} {each[11:16]}" for each in found]


def lease_lanes(leases: Sequence[LeaseRow], now: Millis, palette: Palette) -> Lanes:
    """Return one lane for each rank of a run. A lane shows which payer paid where, from when to
    when."""
    if not leases:
        return Lanes((), ())
    starts = [formats.millis(each.start) or now for each in leases]
    ends = [formats.millis(each.end) or now for each in leases]
    axis = Axis(min(starts), max(ends))
    found: dict[tuple[int, str, int], list[Bar]] = {}
    for lease, start, end in zip(leases, starts, ends):
        role = "spare" if lease.role == "Spare" else "filler" if lease.role == "Borrowed" else ""
        open_look = "" if lease.end else " open"
        look = f"o{palette.hue(lease.payer_owner)} {role}{open_look}".strip()
        key = (lease.group, "spare" if role == "spare" else "pod", lease.index)
        bars = found.setdefault(key, [])
        bars.append(axis.bar(start, end, look, lease_title(lease)))
        began = formats.millis(lease.began)
        if began is not None and axis.place(began) - axis.place(start) >= _LEAST:
            bars.append(axis.bar(start, began, "starting", lease_title(lease)))
    lanes = [
        ChartLane(f"group {group}", f"{kind} {index}", tuple(bars))
        for (group, kind, index), bars in sorted(found.items())
    ]
    return Lanes(tuple(lanes), tuple(axis.ticks()))


@dataclass(frozen=True, slots=True)
class Width:
    """GPUs over time, as SVG areas of height 100."""

    active: str
    both: str  # including spares
    most: int


def width_over_time(found: WidthsAnswer) -> Width | None:
    """Return a run's width over time as areas. They span the same time as the lanes of
    `lease_lanes`, so that both can be shown one above the other."""
    points = [(formats.millis(each.at) or 0, each) for each in found.items]
    if not points:
        return None
    open_until = formats.millis(found.until) or points[-1][0]
    goes_on = points[-1][1].active + points[-1][1].spare > 0
    axis = Axis(points[0][0], open_until if goes_on else points[-1][0])
    most = max(each.active + each.spare for _, each in points) or 1
    starts = [axis.place(at) for at, _ in points] + [axis.place(axis.end)]
    return Width(
        active=_steps(starts, [each.active / most for _, each in points]),
        both=_steps(starts, [(each.active + each.spare) / most for _, each in points]),
        most=most,
    )


def _steps(starts: Sequence[float], heights: Sequence[float]) -> str:
    """Return the SVG path of a step function, closed at the bottom."""
    path = [f"M{starts[0]} 100"]
    for left, right, height in zip(starts, starts[1:], heights):
        level = round(100 - 96 * height, 2)
        path.append(f"L{left} {level} L{right} {level}")
    return " ".join([*path, f"L{starts[-1]} 100 Z"])


def lease_title(lease: LeaseRow) -> str:
    until = f"to {formats.clock(lease.end)} ({lease.closed})" if lease.end else "and still open"
    begun = f", running since {formats.clock(lease.began)}" if lease.began else ""
    return (
        f"{formats.plural(lease.gpus, 'GPU')} on {lease.node}, {lease.role}, paid by {lease.payer} "
        f"({lease.relation}); from {formats.clock(lease.start)} ({lease.opened}){begun} {until}"
    )


@dataclass(frozen=True, slots=True)
class Ribbon:
    path: str
    look: str
    title: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Loans between owners: lenders on the left, borrowers on the right."""

    height: int
    lenders: Sequence[tuple[str, float, float, int]]  # (owner, y, height, GPUs)
    borrowers: Sequence[tuple[str, float, float, int]]
    ribbons: Sequence[Ribbon]


_UNIT, _GAP, _LEFT, _RIGHT = 9.0, 22.0, 170.0, 430.0


def loans(usage: Iterable[EnvelopeUsage], palette: Palette) -> Flow | None:
    lent: dict[tuple[str, str], int] = {}
    for row in usage:
        for each in row.lent_to:
            key = (row.owner, each.owner)
            lent[key] = lent.get(key, 0) + each.gpus
    if not lent:
        return None
    sides = []
    for side in (0, 1):
        sums: dict[str, int] = {}
        for pair, gpus in lent.items():
            sums[pair[side]] = sums.get(pair[side], 0) + gpus
        y, found = 8.0, []
        for owner, gpus in sorted(sums.items()):
            found.append((owner, y, gpus * _UNIT, gpus))
            y += gpus * _UNIT + _GAP
        sides.append((found, y))
    at = [{owner: y for owner, y, _, _ in found} for found, _ in sides]
    ribbons = []
    for (lender, borrower), gpus in sorted(lent.items()):
        a, b, thick = at[0][lender], at[1][borrower], gpus * _UNIT
        at[0][lender] += thick
        at[1][borrower] += thick
        middle = (_LEFT + _RIGHT) / 2
        path = (
            f"M{_LEFT} {a} C{middle} {a} {middle} {b} {_RIGHT} {b} L{_RIGHT} {b + thick} "
            f"C{middle} {b + thick} {middle} {a + thick} {_LEFT} {a + thick} Z"
        )
        title = f"{lender} lends {formats.plural(gpus, 'GPU')} to {borrower}"
        ribbons.append(Ribbon(path, f"o{palette.hue(lender)}", title))
    height = round(max(sides[0][1], sides[1][1]))
    return Flow(height, tuple(sides[0][0]), tuple(sides[1][0]), tuple(ribbons))


@dataclass(frozen=True, slots=True)
class Burn:
    """How an envelope's GPU-hours are spent, from the opening of its window to the window's end."""

    spent: str  # points of a polyline
    ahead: str
    now: float
    ticks: Sequence[str]
    ends_early: bool


def burn(row: EnvelopeBalance, course: BurnRow | None, now: Millis) -> Burn | None:
    """Return the chart of an envelope's GPU-hours: the hours spent so far, and when the limit will
    be reached if that is before the window ends. Return None if the envelope has no limit of
    GPU-hours, or its window has no end."""
    opens, until, pays = map(formats.millis, (row.opens, row.until, row.pays_until))
    if row.limit is None or row.left is None or until is None or not row.limit.gpu_ms:
        return None
    limit = row.limit.gpu_ms
    known = [
        (at, each.gpu_ms)
        for each in (course.points if course is not None else ())
        if (at := formats.millis(each.at)) is not None and at <= now
    ]
    start = opens if opens is not None else known[0][0] if known else now
    axis = Axis(start, until)

    def point(at: Millis, spent: int) -> str:
        return f"{axis.place(at)},{100 * min(1.0, max(0, spent) / limit):.2f}"

    here = point(now, row.used.gpu_ms)
    points = [*([point(at, spent) for at, spent in known] or ["0,0"]), here]
    dry = until if pays is None else min(pays, until)
    ends_early = dry < until
    last = "100.00" if ends_early else here.partition(",")[2]
    return Burn(
        spent=" ".join(points),
        ahead=f"{here} {axis.place(dry)},{last}",
        now=axis.place(now),
        ticks=tuple(axis.ticks()),
        ends_early=ends_early,
    )
