"""The page line: who waits, in order, when each is planned to start, and who would be cut."""

from leasehold.control.questions.answers.runs import ReservationRow, ReservationsAnswer, RunsAnswer
from leasehold.web import words
from leasehold.web.charts import Axis, ChartLane, Lanes
from leasehold.web.pages.look import Look, Page

_AHEAD_LEAST = 60_000


async def show(look: Look) -> Page:
    _, palette = await look.usage()
    runs = await look.ask(RunsAnswer, "runs", phase="Pending")
    planned = await look.ask(ReservationsAnswer, "reservations")
    owners = {f"{each.namespace}/{each.name}": each.owner for each in runs.items}
    known = {each.run for each in planned.items}
    return Page(
        title="Line",
        template="line.html",
        menu="line",
        context={
            "planned": planned.items,
            "others": [each for each in runs.items if f"{each.namespace}/{each.name}" not in known],
            "owners": owners,
            "lanes": _lanes(planned.items, look.now),
            "palette": palette,
        },
    )


def _lanes(planned: list[ReservationRow], now: int) -> Lanes:
    starts = [(each, words.millis(each.starts)) for each in planned]
    dated = [(each, at) for each, at in starts if at is not None and each.starts_in_ms is not None]
    if not dated:
        return Lanes((), ())
    last = max(at for _, at in dated)
    axis = Axis(now, max(now + _AHEAD_LEAST, last + (last - now) // 8))
    lanes = []
    for each, at in dated:
        waits = axis.bar(now, at, "waits", f"waits {words.span(at - now)}")
        look = f"starts {each.confidence.lower()}"
        runs = axis.bar(at, axis.end, look, f"starts {each.starts}")
        lanes.append(ChartLane(each.run, each.confidence, (waits, runs)))
    return Lanes(tuple(lanes), tuple(axis.ticks()))
