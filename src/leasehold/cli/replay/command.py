"""`leasehold sim replay`: reads the options, replays the jobs in each setting, and writes the
report.

Exit status: 0 the report is written, 1 a file is wrong, 2 wrong use, 3 a defect of leasehold.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from leasehold.cli.replay import inputs
from leasehold.cli.replay.table import lines_of
from leasehold.cli.runs.output import as_json
from leasehold.core.facts import Budget, Node
from leasehold.core.units import format_span, plural
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.replay.figures import Figures, figures_of
from leasehold.sim.replay.jobs import (
    INSTANT_MAX,
    Job,
    Known,
    Workload,
    all_known,
    hurried,
    limits_known,
    none_known,
    within,
)
from leasehold.sim.replay.past import PastJobs, read_past
from leasehold.sim.replay.player import Defect, JobBehaviour, Progress, Setting, play
from leasehold.sim.replay.runs import UnknownFlavor, check_flavors
from leasehold.sim.replay.trace import TraceFormat, read_trace
from leasehold.sim.scenario.ledger import write_ledger

DEFECT = 3
FILE = click.Path(dir_okay=False, path_type=Path)
DURATIONS = ("none", "all", "column")


@dataclass(frozen=True)
class ReplayOptions:
    """The options of `leasehold sim replay`, by their names on the command line."""

    trace: Path | None
    ledger: tuple[Path, ...]
    fleet: Path | None
    budgets: tuple[Path, ...]
    config: Path | None
    against_fleet: Path | None
    against_budgets: tuple[Path, ...]
    against_config: Path | None
    columns: str | None
    owner: str
    team: tuple[str, ...]
    flavor: str
    epoch: str
    since: str | None
    until: str | None
    scale: str
    durations: str
    checkpoint: str | None
    checkpoint_on_stop: bool
    resume: str | None
    seed: int
    html: Path | None
    out: Path | None
    form: str

    @property
    def has_against(self) -> bool:
        return bool(self.against_fleet or self.against_budgets or self.against_config)


@click.command("replay")
@click.argument("trace", required=False, type=FILE)
@click.option(
    "--ledger",
    multiple=True,
    type=FILE,
    help="Replay the jobs of an exported ledger (`leasehold ledger export`) instead of a trace; "
    "may be given several times, in order.",
)
@click.option(
    "--fleet",
    type=FILE,
    help="The fleet file, as for `leasehold up`.  [default with --ledger: its nodes]",
)
@click.option(
    "--budgets",
    multiple=True,
    type=FILE,
    help="Manifests of Budgets; may be given several times.  [default with --ledger: its Budgets]",
)
@click.option("--config", type=FILE, help="A configuration file, as for `leasehold up`.")
@click.option("--against-fleet", type=FILE, help="Compare with a replay on this fleet.")
@click.option(
    "--against-budgets", multiple=True, type=FILE, help="Compare with a replay on these Budgets."
)
@click.option("--against-config", type=FILE, help="Compare with a replay under this configuration.")
@click.option(
    "--columns",
    metavar="PART=COLUMN,...",
    help="Names of the columns for submit, duration (or start and end), gpus, owner, limit, "
    "flavor. Not needed for columns with these names, nor for the published Philly and "
    "openb traces.",
)
@click.option(
    "--owner",
    default="{}",
    show_default=True,
    metavar="PATTERN",
    help="The owner of a job; {} stands for the value of its owner column.",
)
@click.option("--team", multiple=True, help="Only jobs with this value in the owner column.")
@click.option("--flavor", default="", help="The GPU type of jobs that name none.")
@click.option(
    "--epoch",
    default="1970-01-01",
    show_default=True,
    metavar="INSTANT",
    help="The start time of submissions that are given in seconds.",
)
@click.option("--from", "since", metavar="INSTANT", help="Only jobs submitted from this time on.")
@click.option("--to", "until", metavar="INSTANT", help="Only jobs submitted before this time.")
@click.option(
    "--scale",
    default="1",
    show_default=True,
    metavar="FACTOR",
    help="Submit the jobs this many times faster.",
)
@click.option(
    "--durations",
    type=click.Choice(DURATIONS),
    default="none",
    show_default=True,
    help="Which runs declare a maxDuration: none, all (exactly their duration), or those with a "
    "value in the limit column.",
)
@click.option(
    "--checkpoint",
    metavar="SPAN",
    help="Jobs save their work after every SPAN of work. Without this and the next option, a "
    "preempted job fails.",
)
@click.option(
    "--checkpoint-on-stop",
    is_flag=True,
    help="Jobs save their work when they get the signal to stop.",
)
@click.option(
    "--resume",
    metavar="SPAN",
    help="How long a restarted job needs to load its checkpoint.  [default: 0s]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="The seed of the lotteries.")
@click.option("--html", type=FILE, help="Also write the report as one page with charts.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the ledger.jsonl of each replay to this folder (two replays: to folders A and B "
    "in it).",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(("table", "json")),
    default="table",
    show_default=True,
)
def replay(**options: object) -> None:
    """Replay a recorded workload on a fleet and Budgets, and report waits, use and lost work.

    TRACE is a file in Standard Workload Format or CSV with a heading, also gzipped. Its jobs are
    submitted and decided on by the shipped scheduler, on virtual time.
    """
    asked = ReplayOptions(**options)  # type: ignore[arg-type]
    try:
        _replay(asked)
    except (BadFile, UnknownFlavor) as bad:
        raise click.ClickException(str(bad)) from None
    except Defect as defect:
        click.echo(f"defect in leasehold: {defect}", err=True)
        raise SystemExit(DEFECT) from None
    except OSError as error:
        said = f"{error.filename}: {error.strerror}; name a file or folder that can be written"
        raise click.ClickException(said) from None


def _replay(asked: ReplayOptions) -> None:
    _check_use(asked)
    workload, past = _workload(asked)
    jobs = _chosen(workload, asked)
    settings = _settings(asked, past)
    _warn(jobs, settings)
    for setting in settings:
        check_flavors(setting.nodes, jobs)
    replays = []
    for letter, setting in zip("AB", settings):
        with _bar(f"{letter}: {setting.name}", len(jobs)) as progress:
            played = play(setting, jobs, _habits(asked), seed=asked.seed, progress=progress)
        if asked.out is not None:
            write_ledger(played.store, asked.out / letter if len(settings) > 1 else asked.out)
        replays.append(figures_of(played))
        del played
    _report(asked, workload, jobs, replays)


def _check_use(asked: ReplayOptions) -> None:
    if (asked.trace is None) is (not asked.ledger):
        raise click.UsageError("name a TRACE, or an exported ledger with --ledger")
    if asked.trace is not None and (asked.fleet is None or not asked.budgets):
        raise click.UsageError("a trace needs a fleet and Budgets: use --fleet F --budgets B")
    if asked.ledger and (asked.columns or asked.owner != "{}"):
        raise click.UsageError(
            "--columns and --owner are only for traces; a ledger already names its owners"
        )


def _workload(asked: ReplayOptions) -> tuple[Workload, PastJobs | None]:
    epoch = inputs.instant_option(asked.epoch, "--epoch")
    if asked.trace is None:
        past = read_past(asked.ledger, teams=asked.team)
        return past.workload, past
    reading = TraceFormat(
        columns=inputs.columns_of(asked.columns),
        owner=asked.owner,
        teams=asked.team,
        epoch=epoch or 0,
    )
    return read_trace(asked.trace, reading), None


def _chosen(workload: Workload, asked: ReplayOptions) -> list[Job]:
    """Return the jobs that the options select, each with its flavor."""
    since = inputs.instant_option(asked.since, "--from")
    until = inputs.instant_option(asked.until, "--to")
    jobs = within(workload.jobs, since, until)
    if not jobs:
        found = plural(len(workload.jobs), "job")
        said = (
            f"{workload.path}: nothing to replay: none of {found} is within --from, --to and --team"
        )
        raise click.ClickException(said)
    jobs = hurried(jobs, inputs.factor_option(asked.scale, "--scale"))
    if jobs[-1].submit >= INSTANT_MAX:
        raise click.ClickException("--scale: the last job would come after the year 3000")
    return [replace(job, flavor=job.flavor or asked.flavor) for job in jobs]


def _habits(asked: ReplayOptions) -> JobBehaviour:
    resume = inputs.span_option(asked.resume, "--resume") or 0
    known: dict[str, Known] = {
        "none": none_known,
        "all": all_known(resume),
        "column": limits_known,
    }
    return JobBehaviour(
        known=known[asked.durations],
        checkpoint=inputs.span_option(asked.checkpoint, "--checkpoint"),
        saves_on_stop=asked.checkpoint_on_stop,
        resume=resume,
    )


def _settings(asked: ReplayOptions, past: PastJobs | None) -> list[Setting]:
    """Return the setting to replay, and the one to compare it with, if the options name one."""
    nodes = _nodes(asked.fleet, past)
    budgets = _budgets(asked.budgets, past)
    policy = inputs.policy_of(asked.config)
    first = Setting(_name(asked.fleet, asked.budgets, asked.config), nodes, budgets, policy)
    if not asked.has_against:
        return [first]
    fleet = asked.against_fleet or asked.fleet
    files = asked.against_budgets or asked.budgets
    config = asked.against_config or asked.config
    second = Setting(
        _name(fleet, files, config),
        nodes if fleet == asked.fleet else _nodes(fleet, past),
        budgets if files == asked.budgets else _budgets(files, past),
        policy if config == asked.config else inputs.policy_of(config),
    )
    return [first, second]


def _nodes(fleet: Path | None, past: PastJobs | None) -> tuple[Node, ...]:
    if fleet is not None:
        return inputs.nodes_of(fleet)
    assert past is not None, "a trace has a fleet file"
    return past.nodes()


def _budgets(files: Sequence[Path], past: PastJobs | None) -> tuple[Budget, ...]:
    if files:
        return inputs.budgets_of(files)
    assert past is not None, "a trace has Budgets"
    return past.budgets()


def _name(fleet: Path | None, budgets: Sequence[Path], config: Path | None) -> str:
    """Return a name for a setting, made from the names of its files."""
    files = [fleet.name if fleet is not None else "the ledger's nodes"]
    files += [path.name for path in budgets] or ["the ledger's Budgets"]
    files += [config.name] if config is not None else []
    return ", ".join(files)


def _warn(jobs: Sequence[Job], settings: Sequence[Setting]) -> None:
    for setting in settings:
        for owner in inputs.without_budget((job.owner for job in jobs), setting.budgets):
            count = sum(job.owner == owner for job in jobs)
            said = f"warning: {setting.name}: no Budget of {owner}; {plural(count, 'job')} of it"
            click.echo(f"{said} can never start", err=True)


@contextmanager
def _bar(title: str, jobs: int) -> Iterator[Progress]:
    """Show a progress bar while the `with` block runs, if the output is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # only needed on terminals
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import (
        Progress as RichProgress,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs over"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=jobs)
        yield lambda over: bar.update(task, completed=over)


def _report(
    asked: ReplayOptions, workload: Workload, jobs: Sequence[Job], replays: Sequence[Figures]
) -> None:
    document = {
        "source": workload.path,
        "jobs": len(jobs),
        "remarks": {words: count for words, count in workload.remarks.items() if count},
        "durations": asked.durations,
        "checkpoint": asked.checkpoint,
        "checkpointOnStop": asked.checkpoint_on_stop,
        "resume": asked.resume,
        "scale": asked.scale,
        "seed": asked.seed,
        "replays": msgspec.to_builtins(replays),
    }
    if asked.html is not None:
        from leasehold.cli.replay.page import page  # only needed for the page

        asked.html.write_text(page(document, replays), "utf-8")
    if asked.form == "json":
        click.echo(as_json(document))
        return
    span = format_span(jobs[-1].submit - jobs[0].submit)
    click.echo(f"{plural(len(jobs), 'job')} of {workload.path}, submitted within {span}")
    for words, count in workload.remarks.items():
        if count:
            click.echo(f"{plural(count, 'row')} {words}")
    click.echo()
    click.echo("\n".join(lines_of(replays)))
    if asked.html is not None:
        click.echo(f"charts: {asked.html}")
