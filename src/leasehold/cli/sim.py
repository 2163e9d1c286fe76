"""`leasehold sim …`: stories and simulations on virtual time; no cluster, no clock, no network.

`sim scenario FILE…` plays scenario files. Exit status: 0 everything held, 1 something did not
(`FILE:LINE: expected … got …`), 2 a file is wrong, 3 a defect of ours; the worst of several files.
"""

from pathlib import Path

import click

from leasehold.adapters.sqlite.errors import BadStore
from leasehold.sim.scenario.runner import SHOWS, STORES, run_scenario

DEFECT = 3


@click.group("sim")
def command() -> None:
    """Simulate: what the shipped control loop does, on virtual time."""


@command.command("scenario")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Leave objects.jsonl and ledger.jsonl there (in a folder per file, if there are several).",
)
@click.option(
    "--show",
    type=click.Choice(SHOWS),
    multiple=True,
    help="What to print when the story is over.",
)
@click.option(
    "--store",
    type=click.Choice(STORES),
    default=STORES[0],
    show_default=True,
    help="Where objects are kept; sqlite: in store.sqlite of --out, or of a temporary folder.",
)
@click.option("--quiet", is_flag=True, help="Print only what did not hold.")
def scenario(
    files: tuple[str, ...], out: Path | None, show: tuple[str, ...], store: str, quiet: bool
) -> None:
    """Play scenario files and check every expectation in them."""
    worst = max(
        _play(
            file,
            out=out if out is None or len(files) == 1 else out / Path(file).stem,
            show=show,
            store=store,
            quiet=quiet,
        )
        for file in files
    )
    raise SystemExit(worst)


def _play(file: str, *, out: Path | None, show: tuple[str, ...], store: str, quiet: bool) -> int:
    try:
        outcome = run_scenario(
            file,
            out=out,
            show=show,
            store=store,
            echo=(lambda _: None) if quiet else click.echo,
        )
    except BadStore as bad:
        click.echo(str(bad), err=True)
        return 2
    except BrokenPipeError:
        raise  # the reader has seen enough; click ends quietly
    except OSError as error:
        click.echo(f"{out}: cannot write there: {error.strerror}", err=True)
        return 2
    except Exception as error:  # the only place where a defect meets a person
        said = " ".join(str(error).split()) or type(error).__name__
        click.echo(f"{file}: a defect in leasehold ({type(error).__name__}): {said}", err=True)
        return DEFECT
    if quiet:
        for problem in outcome.problems:
            click.echo(problem)
    if outcome.code != 2:
        missed = len(outcome.problems)
        click.echo(f"{file}: {f'{missed} did not hold' if missed else 'everything held'}")
    return outcome.code
