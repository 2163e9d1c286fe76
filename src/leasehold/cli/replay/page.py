"""Writes a replay's report as one self-contained HTML page with tables and charts.

The charts are SVG: curves of waiting times, and GPUs in use by team. With two settings, each chart
shows both, the first with solid lines and the second with dashed ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment

from leasehold.cli.replay.table import HEAD, LETTERS, cells_of, span_of, summary_of
from leasehold.core.names import Wire
from leasehold.core.units import DAY, HOUR, MINUTE, SECOND
from leasehold.sim.replay.figures import Figures, TeamFigures

HUES = 12  # colours of teams; the page has a class for each
CURVES_MAX = 24  # teams with their own curve, by GPU-hours
WIDE, HIGH = 1000.0, 240.0  # of the chart of GPUs in use
CURVE_WIDE, CURVE_HIGH = 320.0, 180.0

# The scale of waits: neighbouring marks are equally far apart.
_MARKS = (0, SECOND, MINUTE, 10 * MINUTE, HOUR, 6 * HOUR, DAY, 3 * DAY, 10 * DAY, 30 * DAY)
_MARK_NAMES = ("0", "1s", "1m", "10m", "1h", "6h", "1d", "3d", "10d", "30d")


@dataclass(frozen=True)
class Tick:
    at: float
    text: str


@dataclass(frozen=True)
class CurveLine:
    points: str
    look: str
    title: str


@dataclass(frozen=True)
class Curve:
    """A curve of waiting times: for each time, the percentage of a team's jobs that waited at most
    that long."""

    title: str
    hue: int
    notes: tuple[str, ...]
    lines: tuple[CurveLine, ...]
    ticks: tuple[Tick, ...]


@dataclass(frozen=True)
class Area:
    points: str
    hue: int
    title: str


@dataclass(frozen=True)
class UseChart:
    """A chart of the GPUs in use over time, with the teams on top of each other."""

    title: str
    summary: str
    areas: tuple[Area, ...]
    fleet: float  # position of the line of all GPUs
    gpus: int
    ticks: tuple[Tick, ...]


def page(document: Wire, replays: Sequence[Figures]) -> str:
    """Return the HTML page. `document` is the report as JSON values, which the page contains
    too."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = files("leasehold.cli.replay").joinpath("page.html.j2").read_text("utf-8")
    owners = [team.owner for team in replays[0].teams]
    has_two = len(replays) > 1
    return environment.from_string(text).render(
        about=document,
        settings=list(zip(LETTERS, replays)),
        has_two=has_two,
        head=HEAD,
        rows=_rows(replays),
        curves=_curves(replays, owners),
        uses=[_use(each, letter if has_two else "") for letter, each in zip(LETTERS, replays)],
        legend=[(owner, _hue(owners, owner)) for owner in owners],
        wide=WIDE,
        high=HIGH,
        curve_wide=CURVE_WIDE,
        curve_high=CURVE_HIGH,
    )


def _hue(owners: Sequence[str], owner: str) -> int:
    return owners.index(owner) % HUES


def _rows(replays: Sequence[Figures]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table: the name of the setting and the cells. The rows of one team,
    one per setting, follow each other."""
    teams = [(each.total, *each.teams) for each in replays]
    return [(letter, cells_of(row)) for rows in zip(*teams) for letter, row in zip(LETTERS, rows)]


def _curves(replays: Sequence[Figures], owners: Sequence[str]) -> list[Curve]:
    by_use = sorted(replays[0].teams, key=lambda team: -team.gpu_hours)
    shown = {team.owner for team in by_use[:CURVES_MAX]}
    found = [_curve("all teams", HUES, [each.total for each in replays])]
    for place, owner in enumerate(owners):
        if owner in shown:
            teams = [each.teams[place] for each in replays]
            found.append(_curve(owner, _hue(owners, owner), teams))
    return found


def _curve(title: str, hue: int, teams: Sequence[TeamFigures]) -> Curve:
    longest = max((each.curve[-1] for each in teams if each.curve), default=0.0)
    count = next((i for i, at in enumerate(_MARKS) if at >= longest * SECOND), len(_MARKS) - 1)
    count = max(count, 1)
    lines = [
        CurveLine(
            points=_rising(each.curve, count),
            look=("first", "second")[place],
            title=f"{title}, setting {LETTERS[place]}" if len(teams) > 1 else title,
        )
        for place, each in enumerate(teams)
        if each.curve
    ]
    ticks = [Tick(CURVE_WIDE * place / count, _MARK_NAMES[place]) for place in range(count + 1)]
    return Curve(title, hue, tuple(_notes(teams)), tuple(lines), tuple(ticks))


def _notes(teams: Sequence[TeamFigures]) -> Iterator[str]:
    """Yield a text for each setting, with the mean and the 95th percentile of the waits."""
    for letter, each in zip(LETTERS, teams):
        name = f"{letter}: " if len(teams) > 1 else ""
        if each.waits is None:
            yield f"{name}no job completed"
        else:
            yield f"{name}mean {span_of(each.waits.mean)}, p95 {span_of(each.waits.p95)}"


def _rising(curve: Sequence[float], count: int) -> str:
    """Return the points of a curve of waiting times for SVG. The curve ends at the right edge."""
    points = [
        f"{_across(seconds, count):.1f},{CURVE_HIGH * (1 - percent / 100):.1f}"
        for percent, seconds in enumerate(curve)
    ]
    return " ".join([*points, f"{CURVE_WIDE},0"])


def _across(seconds: float, count: int) -> float:
    """Return the x position of a waiting time on the chart. `count`: how many marks the axis has
    after the first one."""
    at = seconds * SECOND
    for place in range(count):
        low, high = _MARKS[place], _MARKS[place + 1]
        if at <= high:
            return CURVE_WIDE * (place + (at - low) / (high - low)) / count
    return CURVE_WIDE


def _use(replay: Figures, letter: str) -> UseChart:
    use = replay.use
    steps = len(use.gpus[0])
    totals = [sum(mine[step] for mine in use.gpus) for step in range(steps)]
    top = max(float(replay.gpus), *totals)
    below = [0.0] * steps
    areas = []
    for owner, mine in zip(use.owners, use.gpus):
        above = [low + each for low, each in zip(below, mine)]
        mean = sum(mine) / steps
        areas.append(
            Area(
                points=_outline(below, above, top),
                hue=_hue(use.owners, owner),
                title=f"{owner}: {mean:.0f} GPUs in the mean",
            )
        )
        below = above
    return UseChart(
        title=f"{letter}: {replay.setting}" if letter else replay.setting,
        summary=summary_of(replay),
        areas=tuple(areas),
        fleet=round(HIGH * (1 - replay.gpus / top), 1),
        gpus=replay.gpus,
        ticks=(
            Tick(0, replay.first_submission[:10]),
            Tick(WIDE, replay.end[:10]),
        ),
    )


def _outline(below: Sequence[float], above: Sequence[float], top: float) -> str:
    """Return the outline of one team's area for SVG: along the steps of `above`, and back along
    those of `below`."""

    def walk(levels: Sequence[float]) -> list[str]:
        width = WIDE / len(levels)
        return [
            f"{x:.1f},{HIGH * (1 - level / top):.1f}"
            for step, level in enumerate(levels)
            for x in (step * width, (step + 1) * width)
        ]

    return " ".join([*walk(above), *reversed(walk(below))])
