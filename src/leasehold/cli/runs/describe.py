"""`kubectl runs describe RUN`: everything about a run on one page."""

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.explain import attempt_table
from leasehold.cli.runs.leases import lease_table
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import age, cell, local, part, rows, table, words
from leasehold.cli.runs.plan import place_table, section, walk_table
from leasehold.cli.runs.pods import pod_table
from leasehold.core.names import Wire
from leasehold.core.units import plural

LEASES = "20"


@click.command("describe")
@click.argument("run")
@with_session()
def describe(session: Session, run: str) -> None:
    """Show everything about a run: its state, why, who pays, its pods, attempts and leases."""
    of_run = session.of_run(run)
    found = rows(session.server.ask("runs", of_run))
    told = session.server.ask("explain", of_run)
    leases = session.server.ask("leases", {**of_run, "limit": LEASES})
    paid = session.server.ask("who-pays", of_run)
    if not found and not rows(leases):
        raise Failure(f"there is no run {of_run['namespace']}/{of_run['run']}")
    answer: Wire = {
        "question": "describe",
        "now": told.get("now"),
        "run": found[0] if found else None,
        "explain": told,
        "whoPays": paid,
        "pods": session.server.ask("pods", of_run).get("items"),
        "leases": {"total": leases.get("total"), "items": leases.get("items")},
    }
    session.show(answer, _rendered)


def _rendered(answer: Wire, wide: bool) -> list[str]:
    run, told = part(answer, "run"), part(answer, "explain")
    lines = _head(answer, run, told)
    lines += ["", *words(told, "sentences")]
    remedies = words(told, "remedies")
    lines += section("what would help", [f"- {each}" for each in remedies])
    paid = part(answer, "whoPays")
    body = [
        [cell(each, key) for key in ("envelope", "payerOwner", "relation", "gpus", "gpuHours")]
        for each in rows(paid, "payers")
    ]
    head = ["ENVELOPE", "OWNER", "RELATION", "GPUS", "GPU-HOURS"]
    lines += section("payers", table(head, body) if body else [])
    if isinstance(told, dict):
        lines += section("walk", walk_table(told, "walk"))
        lines += section("places", place_table(told))
        lines += section("attempts", attempt_table(told))
    pods: Wire = {"now": answer.get("now"), "items": answer.get("pods")}
    lines += section("pods", pod_table(pods, wide) if rows(pods) else [])
    leases = part(answer, "leases")
    total = part(leases, "total")
    shown = len(rows(leases))
    title = "leases" if total == shown else f"leases (newest {shown} of {total})"
    held: Wire = {"now": answer.get("now"), "items": part(leases, "items")}
    return lines + section(title, lease_table(held, wide) if shown else [])


def _head(answer: Wire, run: object, told: object) -> list[str]:
    name, owner = cell(told, "run"), cell(told, "owner")
    lines = [f"{name} ({owner}): {cell(told, 'phase')}"]
    if not isinstance(run, dict):
        return [*lines, "the Run was deleted; this is from the ledger"]
    least, most = cell(run, "width.min"), cell(run, "width.max")
    elastic = "" if least == most else f", {least} to {most}"
    facts = [
        (
            "width",
            f"{cell(run, 'width.allocated')} of {plural(cell(run, 'width.desired'), 'GPU')}"
            f" {cell(run, 'flavor')}{elastic}, spares {cell(run, 'width.spares')}",
        ),
        ("attempt", cell(run, "attempt")),
        ("submitted", _since(answer, cell(run, "created"))),
        ("started", _since(answer, cell(run, "started"))),
        ("ended", _since(answer, cell(run, "ended"))),
        ("cost", f"{cell(run, 'gpuHours')} GPU-hours"),
    ]
    width = max(len(key) for key, _ in facts)
    return lines + [f"  {key.ljust(width)}  {value}" for key, value in facts]


def _since(answer: Wire, then: str) -> str:
    return then if then == "-" else f"{local(then)} ({age(answer, then)} ago)"
