"""The jobs of a workload, wherever they were read from, and which of them are replayed."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from msgspec.structs import replace

from leasehold.core.facts import Record
from leasehold.core.objects.problems import Problem
from leasehold.core.units import Instant, Millis
from leasehold.shell.yamlfile import BadFile, Mistake

MISTAKES_MAX = 10  # of one file; the rest is not looked at
INSTANT_MAX: Instant = 32_503_680_000_000  # the year 3000: every instant of a replay can be written

NO_GPU = "without a GPU, left out"
NEVER_RAN = "without a duration, left out"
ROUNDED = "with a part of a GPU, which get a whole one"
UNFINISHED = "not over when the ledger was exported, replayed for as long as they had run"


class Job(Record):
    """One submission: what was asked for, when, and how long the work takes if undisturbed."""

    line: int
    name: str
    owner: str
    gpus: int
    submit: Instant
    duration: Millis
    limit: Millis | None = None  # what its submitter said it would take at most
    flavor: str = ""


@dataclass
class Workload:
    """Jobs in the order of submission, and remarks on rows that were left out or changed."""

    path: str
    jobs: list[Job] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)

    def sort(self) -> None:
        """Order the jobs as a server would have seen them."""
        self.jobs.sort(key=lambda job: (job.submit, job.line))


class Mistakes:
    """Collects what is wrong with the lines of one file, and raises `BadFile` with it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[Mistake] = []

    def note(self, line: int, value: str, remedy: str) -> None:
        problem = Problem(path="", value=value, remedy=remedy)
        self._found.append(Mistake(line=line, problem=problem))
        if len(self._found) == MISTAKES_MAX:
            self.settle()

    def settle(self) -> None:
        if self._found:
            raise BadFile(self._path, self._found)


def bad_file(path: str, line: int, value: str, remedy: str) -> BadFile:
    """A file that cannot be used for one reason."""
    return BadFile(path, [Mistake(line=line, problem=Problem(path="", value=value, remedy=remedy))])


def within(jobs: Iterable[Job], since: Instant | None, until: Instant | None) -> list[Job]:
    """The jobs submitted in [since, until)."""
    return [
        job
        for job in jobs
        if (since is None or job.submit >= since) and (until is None or job.submit < until)
    ]


def hurried(jobs: list[Job], factor: Fraction) -> list[Job]:
    """The same jobs, submitted `factor` times as fast after the first of them."""
    assert factor > 0, factor
    if factor == 1 or not jobs:
        return jobs
    first = jobs[0].submit
    return [replace(job, submit=first + int((job.submit - first) / factor)) for job in jobs]


Known = Callable[[Job], Millis | None]


def none_known(_: Job) -> Millis | None:
    """No run declares a limit."""
    return None


def all_known(resume: Millis = 0) -> Known:
    """Every run declares how long it takes, and what loading a checkpoint takes if it has to."""
    return lambda job: job.duration + resume


def limits_known(job: Job) -> Millis | None:
    """A run declares the limit that its row names, if any; it is ended when that is reached."""
    return job.limit
