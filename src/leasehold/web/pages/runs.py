"""The page Runs, and the page of one run: timeline, reasons, payers and output."""

from collections.abc import Callable
from urllib.parse import quote

from leasehold.control.questions.answers.leases import LeaseRow, LeasesAnswer, PodsAnswer
from leasehold.control.questions.answers.money import WhoPaysAnswer
from leasehold.control.questions.answers.reasons import ExplainAnswer
from leasehold.control.questions.answers.runs import RunRow, RunsAnswer, WidthsAnswer
from leasehold.web.charts import lease_lanes, width_over_time
from leasehold.web.dependencies import NotShown
from leasehold.web.formats import run_path
from leasehold.web.pages.view import Page, PageView

SHOWN = 200
PHASES = ("Pending", "Running", "Completed", "Failed")
SORTS: dict[str, Callable[[RunRow], tuple[object, ...]]] = {
    "name": lambda run: (run.namespace, run.name),
    "owner": lambda run: (run.owner, run.namespace, run.name),
    "gpus": lambda run: (-run.width.allocated, run.namespace, run.name),
    "cost": lambda run: (-run.gpu_ms, run.namespace, run.name),
    "created": lambda run: (run.created or "", run.namespace, run.name),
}


async def show(look: PageView) -> Page:
    _, palette = await look.usage()
    found = await look.ask(
        RunsAnswer, "runs", owner=look.filter("owner"), phase=look.filter("phase")
    )
    find = look.filter("find").lower()
    rows = [each for each in found.items if find in f"{each.namespace}/{each.name}".lower()]
    sort = look.filter("sort") or "name"
    if sort not in SORTS:
        raise NotShown(400, f"sort={sort[:40]!r}: use {', '.join(SORTS)}")
    rows.sort(key=SORTS[sort])
    return Page(
        title="Runs",
        template="runs.html",
        menu="runs",
        context={
            "rows": rows[:SHOWN],
            "total": len(rows),
            "sort": sort,
            "phases": PHASES,
            "palette": palette,
        },
    )


async def show_one(look: PageView) -> Page:
    names = {"namespace": look.names["namespace"], "run": look.names["name"]}
    explained = await look.ask(ExplainAnswer, "explain", **names)
    _, palette = await look.usage()
    leases = await look.ask(LeasesAnswer, "leases", **names)
    pods = await look.ask(PodsAnswer, "pods", **names)
    found = await look.ask(RunsAnswer, "runs", **names)
    return Page(
        title=explained.run,
        template="run.html",
        menu="runs",
        context={
            "run": found.items[0] if found.items else None,
            "explained": explained,
            "paid": await look.ask(WhoPaysAnswer, "who-pays", **names),
            "leases": leases.items,
            "lanes": lease_lanes(leases.items, look.now, palette),
            "width": width_over_time(await look.ask(WidthsAnswer, "widths", **names)),
            "pods": pods.items,
            "addresses": _addresses(explained, leases.items),
            "palette": palette,
        },
    )


def _addresses(explained: ExplainAnswer, leases: list[LeaseRow]) -> dict[str, str]:
    """Return the address of the page for each name in the run's explanations."""
    nodes = {each.node for each in leases} | {each.node for each in explained.places}
    runs = {cut.beneficiary for cut in explained.cuts}
    found = {node: f"/ui/nodes/{quote(node, safe='')}" for node in nodes}
    if explained.reservation is not None:
        runs |= {each.run for each in explained.reservation.odds}
        runs |= {each.run for each in explained.reservation.passed_by}
    found |= {run: run_path(run) for run in runs if run and run != explained.run}
    for cut in explained.cuts:
        if cut.resolution:
            found[cut.resolution] = f"/ui/decisions/{quote(cut.resolution, safe='')}"
    return found


async def show_log(look: PageView) -> Page:
    """Show the end of a pod's output."""
    namespace, name, pod = (look.names[key] for key in ("namespace", "name", "pod"))
    pods = await look.ask(PodsAnswer, "pods", namespace=namespace, run=name)
    if pod not in [each.name for each in pods.items]:
        raise NotShown(404, f"{namespace}/{name} has no pod {pod!r} now")
    return Page(
        title=f"{namespace}/{name} · {pod}",
        template="log.html",
        menu="runs",
        context={
            "run": f"{namespace}/{name}",
            "pod": pod,
            "text": await look.house.logs(look.visitor, namespace, pod),
        },
    )
