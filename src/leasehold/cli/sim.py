"""`leasehold sim …`: scenarios and simulations on virtual time.

No real clock is used, and no cluster or network unless requested. `sim --seed` and `--seeds` run
three controllers under the faults of a seed (in `sim_faults`). `sim scenario FILE…` plays scenario
files; `sim replay` replays a workload trace (in `replay`).

Exit status: 0 everything held, 1 something did not (`FILE:LINE: expected … got …`), 2 a file is
wrong, 3 a defect of leasehold. With several files it is the worst of them.
"""

from collections.abc import Callable
from pathlib import Path

import click

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.cli import sim_faults
from leasehold.cli.kube_options import kube_options, loader
from leasehold.cli.replay.command import replay
from leasehold.cli.sim_faults import PROFILES
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.on_cluster import BadCluster
from leasehold.sim.scenario.parse import load_story
from leasehold.sim.scenario.runner import SHOWS, STORES, run_scenario
from leasehold.sim.scenario.story import Story

DEFECT = 3


@click.group("sim", invoke_without_command=True)
@click.option("--seed", type=int, help="Run this seed and print its trace.")
@click.option("--seeds", metavar="A..B", help="Run these seeds and print the results.")
@click.option("--fresh", metavar="TEXT", help="Also run seeds that are derived from this text.")
@click.option(
    "--plan", type=click.Path(dir_okay=False, path_type=Path), help="Run the plan in this file."
)
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    help="Simulate only this kind of fault, instead of a mix.",
)
@click.option("--workers", type=click.IntRange(1), default=1, help="Number of processors to use.")
@click.option("--digest", is_flag=True, help="Print each seed with the digest of its history.")
@click.option("--twice", is_flag=True, help="Run each seed twice; both runs must be identical.")
@click.option("--marks", is_flag=True, help="Fail if a rare event never happened.")
@click.option("--first", is_flag=True, help="Stop at the first seed that fails.")
@click.option(
    "--shrink",
    is_flag=True,
    help="With --seed: make a smaller failing plan, and write it to a file.",
)
@click.option(
    "--keep",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/faults"),
    show_default=True,
    help="Folder for plans that failed.",
)
@click.pass_context
def command(context: click.Context, /, **asked: object) -> None:
    """Simulate: what the shipped control plane does, on virtual time.

    With --seed or --seeds, three controllers, a network, nodes and users under the faults that the
    seed draws. Exit status: 0 everything held, 1 something did not, 2 wrong use.
    """
    if context.invoked_subcommand is None:
        raise SystemExit(sim_faults.run(sim_faults.SimOptions(**asked)))  # type: ignore[arg-type]


command.add_command(replay)


@command.command("scenario")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write objects.jsonl and ledger.jsonl to this folder (for several files, to one folder "
    "in it per file).",
)
@click.option(
    "--show",
    type=click.Choice(SHOWS),
    multiple=True,
    help="What to print at the end of the scenario.",
)
@click.option(
    "--store",
    type=click.Choice(STORES),
    default=STORES[0],
    show_default=True,
    help="Where to store objects. sqlite: in store.sqlite of --out, or of a temporary folder. "
    "kube: on an API server that has the definitions of `leasehold crds`, and no other "
    "objects.",
)
@click.option("--quiet", is_flag=True, help="Print only expectations that did not hold.")
@kube_options
def scenario(
    files: tuple[str, ...],
    out: Path | None,
    show: tuple[str, ...],
    store: str,
    quiet: bool,
    kubeconfig: str,
    context: str,
) -> None:
    """Run scenario files and check every expectation in them."""
    worst = max(
        _play(
            file,
            out=out if out is None or len(files) == 1 else out / Path(file).stem,
            show=show,
            store=store,
            cluster=loader(kubeconfig, context),
            quiet=quiet,
        )
        for file in files
    )
    raise SystemExit(worst)


def _play(
    file: str,
    *,
    out: Path | None,
    show: tuple[str, ...],
    store: str,
    cluster: Callable[[], KubeContext],
    quiet: bool,
) -> int:
    troubled = _troubled(file)
    try:
        if troubled is not None:
            if out is not None or show or store != STORES[0]:
                click.echo(
                    f"{file} simulates faults; leave out --out, --show and --store", err=True
                )
                return 2
            return sim_faults.play_scenario(file, troubled, quiet=quiet)
        outcome = run_scenario(
            file,
            out=out,
            show=show,
            store=store,
            cluster=cluster,
            echo=(lambda _: None) if quiet else click.echo,
        )
    except (BadStore, BadCluster, BadKubeconfig) as bad:
        click.echo(str(bad), err=True)
        return 2
    except BrokenPipeError:
        raise  # the reader has seen enough; click ends quietly
    except OSError as error:
        click.echo(f"{out}: cannot write there: {error.strerror}", err=True)
        return 2
    except Exception as error:  # the only place where a defect is shown to a user
        said = " ".join(str(error).split()) or type(error).__name__
        click.echo(f"{file}: defect in leasehold ({type(error).__name__}): {said}", err=True)
        return DEFECT
    if quiet:
        for problem in outcome.problems:
            click.echo(problem)
    if outcome.code != 2:
        missed = len(outcome.problems)
        click.echo(f"{file}: {f'{missed} did not hold' if missed else 'everything held'}")
    return outcome.code


def _troubled(file: str) -> Story | None:
    """Return the story in a file if it has faults; None otherwise. A file with mistakes is reported
    later, when it is played."""
    try:
        story = load_story(file)
    except BadFile:
        return None
    return story if story.trouble is not None else None
