"""`kubectl runs submit -f FILE`: submits manifests and reports at once what happened to them."""

import time

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.files import filename_option, manifests
from leasehold.cli.runs.listing import payers
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, local, rows
from leasehold.cli.runs.waiting import PHASES, awaited, exit_status, left_alone
from leasehold.core.names import Wire

WAIT_S = 2.0
PAUSE_S = 0.1
_KINDS = {"Run": "runs", "Budget": "budgets"}
_UNDECIDED = ("Submitted", "Binding", "Starting")


@click.command("submit")
@filename_option(required=True)
@click.option(
    "--wait",
    "until",
    type=click.Choice(PHASES),
    is_flag=False,
    flag_value=PHASES[0],
    help="Wait until the Runs run; with =Completed, until they have ended.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="How long to wait at most; 0 waits forever.",
)
@click.option("--dry-run", is_flag=True, help="Validate on the server without submitting.")
@with_session()
def submit(
    session: Session, filenames: tuple[str, ...], until: str | None, timeout_s: float, dry_run: bool
) -> None:
    """Submit Runs (and Budgets) and print what happened to each at once.

    The server validates them. For each Run the command waits for the first decision, at most two
    seconds. With --wait it waits for the start or the end, and the exit status is that of the first
    Run that failed.
    """
    failures = 0
    results: list[Wire] = []
    for manifest in manifests(filenames, session.namespace):
        try:
            if dry_run:
                rehearsed(session, manifest)
                click.echo(f"{_title(manifest)}: would be accepted")
            else:
                results.append(submitted(session, manifest))
        except Failure as failure:
            failures += 1
            told = Failure(f"{_title(manifest)}: {failure.message}", failure.causes)
            told.show()
    status = 0
    for done in results if until else ():
        if cell(done, "kind") == "Run":
            key = (cell(done, "namespace"), cell(done, "name"))
            row = awaited(session, key, until or "", timeout_s)
            done["run"] = row
            status = status or exit_status(session, row)
    answer: Wire = {"items": results}
    if results:
        session.show(answer, submission_lines)
    if failures or status:
        raise SystemExit(status or 1)


def rehearsed(session: Session, manifest: Wire) -> None:
    """Have the server validate a manifest without storing it. Raise `Failure` with the reasons if
    it would be refused."""
    path = _path(session, manifest)
    session.server.send("POST", f"{path}?fieldValidation=Strict&dryRun=All", manifest)


def _title(manifest: Wire) -> str:
    kind = cell(manifest, "kind").lower()
    return f"{kind} {cell(manifest, 'metadata.namespace')}/{cell(manifest, 'metadata.name')}"


def _path(session: Session, manifest: Wire) -> str:
    kind = cell(manifest, "kind")
    if kind == "Namespace":
        return "/api/v1/namespaces"
    if kind not in _KINDS:
        raise Failure("only Runs, Budgets and Namespaces can be submitted; check kind")
    return session.server.run_path(cell(manifest, "metadata.namespace"), kind=_KINDS[kind])


def submitted(session: Session, manifest: Wire) -> Wire:
    """Submit a manifest. Return what happened to it at once, as the row that the command prints."""
    kind = cell(manifest, "kind")
    if kind == "Namespace":
        return _namespace(session, manifest)
    path = _path(session, manifest)
    # Strict: an unknown field is a mistake.
    created = session.server.send("POST", f"{path}?fieldValidation=Strict", manifest)
    done: Wire = {
        "kind": kind,
        "namespace": cell(created, "metadata.namespace"),
        "name": cell(created, "metadata.name"),
        "run": None,
    }
    return done if kind == "Budget" else {**done, "run": _decision(session, done)}


def _namespace(session: Session, manifest: Wire) -> Wire:
    """Create a namespace unless it exists. A file may contain the namespace of its Budgets, so a
    Namespace can be submitted too."""
    name = cell(manifest, "metadata.name")
    try:
        session.server.send("POST", "/api/v1/namespaces", {**manifest, "metadata": {"name": name}})
    except Failure as failure:
        if failure.status != 409:
            raise
    return {"kind": "Namespace", "namespace": "", "name": name, "run": None}


def _decision(session: Session, done: Wire) -> Wire | None:
    """Return the run's row of the `runs` answer once a first decision about it was taken, or after
    two seconds."""
    deadline = time.monotonic() + WAIT_S
    params = {"namespace": cell(done, "namespace"), "run": cell(done, "name")}
    while True:
        found = rows(session.server.ask("runs", params))
        row = found[0] if found else None
        decided = row is not None and cell(row, "reason") not in _UNDECIDED
        if decided or time.monotonic() >= deadline:
            if row is None and (why := left_alone(session, (params["namespace"], params["run"]))):
                raise Failure(why)
            return row
        time.sleep(PAUSE_S)


def submission_lines(answer: Wire, wide: bool) -> list[str]:
    lines = []
    for each in rows(answer):
        name = f"{cell(each, 'namespace')}/{cell(each, 'name')}"
        if cell(each, "kind") == "Budget":
            lines.append(f"budget {name}: created")
        elif cell(each, "kind") == "Namespace":
            lines.append(f"namespace {cell(each, 'name')}: exists")
        else:
            lines.append(f"run {name}: {_told(each.get('run'), wide)}")
    return lines


def _told(row: object, wide: bool) -> str:
    if not isinstance(row, dict):
        return "submitted; leasehold has not decided about it yet"
    phase, message = cell(row, "phase"), cell(row, "message")
    if phase == "Running":
        on = cell(row, "nodes").replace(",", ", ")
        return f"Running: {message} on {on}, paid by {payers(row)}"
    if cell(row, "reservation.state") == "Pending" and cell(row, "reservation.starts") != "-":
        sure = cell(row, "reservation.confidence")
        start = local(cell(row, "reservation.starts"))
        why = f": {message}" if wide else f": {message.partition('; planned for')[0]}"
        return f"Reserved: starts {start} ({sure}){why}"
    return f"{phase} ({cell(row, 'reason')}): {message}"
