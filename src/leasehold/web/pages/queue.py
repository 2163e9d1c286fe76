"""The page Queue: queued runs in order, planned starts, possible victims, backfilled runs."""

from dataclasses import dataclass

from leasehold.control.questions.answers.runs import (
    ReservationRow,
    ReservationsAnswer,
    RunRow,
    RunsAnswer,
)
from leasehold.web import formats
from leasehold.web.charts import Axis, ChartLane, Lanes
from leasehold.web.pages.view import Page, PageView

SHOWN = 200
LANES = 40
_AHEAD_LEAST = 60_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """One waiting run. `planned` None: no start is planned; `row` then has the reason."""

    run: str
    submitted: str
    row: RunRow | None
    planned: ReservationRow | None


async def show(look: PageView) -> Page:
    _, palette = await look.usage()
    runs = await look.ask(RunsAnswer, "runs", phase="Pending")
    planned = await look.ask(ReservationsAnswer, "reservations")
    queue = _in_order(runs.items, planned.items)
    return Page(
        title="Queue",
        template="queue.html",
        menu="queue",
        context={
            "queue": queue[:SHOWN],
            "total": len(queue),
            "lanes": _lanes([each.planned for each in queue if each.planned][:LANES], look.now),
            "palette": palette,
        },
    )


def _in_order(runs: list[RunRow], planned: list[ReservationRow]) -> list[Waiting]:
    """Return the runs in the order of the queue, which is the order of submission."""
    rows = {f"{each.namespace}/{each.name}": each for each in runs}
    plans = {each.run: each for each in planned}
    found = []
    for run in rows.keys() | plans.keys():
        row, plan = rows.get(run), plans.get(run)
        submitted = plan.submitted if plan is not None else row.created if row is not None else ""
        found.append(Waiting(run, submitted or "", row, plan))
    return sorted(found, key=lambda each: (each.submitted, each.run))


def _lanes(planned: list[ReservationRow], now: int) -> Lanes:
    starts = [(each, formats.millis(each.starts)) for each in planned]
    dated = [(each, at) for each, at in starts if at is not None and each.starts_in_ms is not None]
    if not dated:
        return Lanes((), ())
    last = max(at for _, at in dated)
    axis = Axis(now, max(now + _AHEAD_LEAST, last + (last - now) // 8))
    lanes = []
    for each, at in dated:
        waits = axis.bar(now, at, "waits", f"waits {formats.span(at - now)}")
        look = f"starts {each.confidence.lower()}"
        runs = axis.bar(at, axis.end, look, f"starts {each.starts}, {each.confidence}")
        lanes.append(ChartLane(each.run, each.confidence, (waits, runs)))
    return Lanes(tuple(lanes), tuple(axis.ticks()))
