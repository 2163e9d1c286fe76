"""`kubectl runs shrink`, `grow` and `cancel`: small edits of a Run's spec."""

from collections.abc import Callable

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, part
from leasehold.core.names import Wire
from leasehold.core.units import plural

TRIES = 5
OVER = ("Completed", "Failed")
Change = Callable[[Wire], Wire | None]  # current Run -> merge patch, or None for no change


@click.command("shrink")
@click.argument("run")
@click.option(
    "--to", "width", type=click.IntRange(min=1), required=True, help="The new number of GPUs."
)
@with_session()
def shrink(session: Session, run: str, width: int) -> None:
    """Request fewer GPUs for an elastic run."""
    _resize(session, run, width, grows=False)


@click.command("grow")
@click.argument("run")
@click.option(
    "--to", "width", type=click.IntRange(min=1), required=True, help="The new number of GPUs."
)
@with_session()
def grow(session: Session, run: str, width: int) -> None:
    """Request more GPUs for an elastic run; the run gets them when GPUs and budget are free."""
    _resize(session, run, width, grows=True)


@click.command("cancel")
@click.argument("run")
@with_session()
def cancel(session: Session, run: str) -> None:
    """Stop a run. Its pods get their grace period, its leases close, and its record stays."""
    namespace, name = session.run(run)

    def stopped(found: Wire) -> Wire | None:
        is_over = cell(found, "status.phase") in OVER
        return None if is_over or part(found, "spec.stop") is True else {"spec": {"stop": True}}

    _, after = changed(session, namespace, name, stopped)
    phase = cell(after, "status.phase")
    line = f"run {namespace}/{name} is being stopped"
    if phase in OVER:
        line = f"run {namespace}/{name} is already {phase}: there is nothing to stop"
    session.show(after, lambda _found, _wide: [line])


def _resize(session: Session, run: str, width: int, *, grows: bool) -> None:
    namespace, name = session.run(run)
    word = "grow" if grows else "shrink"

    def resized(found: Wire) -> Wire:
        malleable = part(found, "spec.malleable")
        if not isinstance(malleable, dict):
            raise Failure(
                f"run {namespace}/{name} is not malleable, so its number of GPUs is fixed; "
                "submit the run with spec.malleable to change the number while it runs"
            )
        wish = _desired(found)
        if width == wish:
            raise Failure(f"run {namespace}/{name} already has a target of {plural(width, 'GPU')}")
        if (width > wish) != grows:
            other = "shrink" if grows else "grow"
            raise Failure(
                f"cannot {word} to {plural(width, 'GPU')}: the target of the run is "
                f"already {plural(wish, 'GPU')}; use {other}"
            )
        return {"spec": {"malleable": {"desiredTotalGPUs": width}}}

    before, after = changed(session, namespace, name, resized)
    line = f"run {namespace}/{name}: desired width {_desired(before)} -> {plural(width, 'GPU')}"
    hint = (
        f"a run is resized at most once per resize.interval; `kubectl runs explain {name}` "
        "shows when"
    )
    session.show(after, lambda _found, _wide: [line, hint])


def _desired(found: Wire) -> int:
    wish = part(found, "spec.malleable.desiredTotalGPUs")
    total = part(found, "spec.resources.totalGPUs")
    chosen = wish if isinstance(wish, int) else total
    return chosen if isinstance(chosen, int) else 0


def changed(session: Session, namespace: str, name: str, change: Change) -> tuple[Wire, Wire]:
    """Patch a Run with what `change` returns for it; retry if another client changed it meanwhile.
    Return the Run before and after the patch."""
    path = session.server.run_path(namespace, name)
    for attempt in range(TRIES):
        before = session.server.send("GET", path)
        patch = change(before)
        if patch is None:
            return before, before
        version = cell(before, "metadata.resourceVersion")
        try:
            after = session.server.patch(path, {**patch, "metadata": {"resourceVersion": version}})
        except Failure as failure:
            if failure.status != 409 or attempt == TRIES - 1:
                raise
            continue
        return before, after
    raise AssertionError("the last try returns or raises")
