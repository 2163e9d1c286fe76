"""`leasehold lint FILE…`: report every mistake in manifests, with line, path and remedy, offline.

Each object is checked as the server would check it. In addition, the files are checked together for
duplicate names and for cycles of parents. Which objects a server already has is not known here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from leasehold.adapters.objects.admission import Admission
from leasehold.app.admission import admission_of
from leasehold.app.visible import say
from leasehold.cli.config import read_config_file
from leasehold.core.facts import Budget
from leasehold.core.objects import readers
from leasehold.core.objects.budget import budget_from_wire, budget_warnings, parent_cycles
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.manifests import USER_KINDS, check_manifest
from leasehold.core.objects.problems import Problem, show, shown
from leasehold.core.objects.wire import part, text_at
from leasehold.shell.config.config import Config
from leasehold.shell.config.yamlfile import BadFile, Document, Mistake, load_documents

Judge = Callable[[object], list[Problem]]
WHERE = ("up", "cluster")


@click.command("lint")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--for",
    "where",
    type=click.Choice(WHERE),
    default=WHERE[0],
    show_default=True,
    help="What would run the objects: `leasehold up` rejects fields that processes cannot support.",
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    help="The namespace of objects that do not name one.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration of the server, whose limits apply.",
)
def command(files: tuple[str, ...], where: str, namespace: str, config_file: Path | None) -> None:
    """Validate manifests without a server; exit 1 with every mistake, its path and a remedy.

    The command rejects exactly what submit would reject.
    """
    judge = _judge(where, config_file)
    report = lint(files, judge, namespace)
    for line in report.mistakes:
        say(line)
    for line in report.warnings:
        say(f"warning: {line}")
    if report.mistakes:
        raise SystemExit(1)
    click.echo(f"{report.objects} object{'' if report.objects == 1 else 's'} ok")


@dataclass
class Report:
    """The outcome of a lint: the number of objects, and the lines to print."""

    objects: int
    mistakes: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class Written:
    """One object in a file, with the file's name and the document it is in."""

    file: str
    document: Document

    @property
    def title(self) -> str:
        """A title such as `Run team/train`. Parts that the object does not have are left out."""
        metadata = part(self.document.data, "metadata")
        kind = self.document.data.get("kind") if isinstance(self.document.data, dict) else None
        name = "/".join(
            _word(metadata.get(key)) for key in ("namespace", "name") if metadata.get(key)
        )
        return f"{_word(kind)} {name}".strip()

    @property
    def is_namespace(self) -> bool:
        """Whether the object is a Namespace. As for `submit`, a file may contain the namespace of
        its objects."""
        data = self.document.data
        return isinstance(data, dict) and data.get("kind") == "Namespace"

    def named(self, namespace: str) -> object:
        """Return the object's data. If the object names no namespace, `namespace` is added."""
        data = self.document.data
        metadata = data.get("metadata") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            return data
        if metadata.get("namespace") not in (None, ""):
            return data
        return {**data, "metadata": {**metadata, "namespace": namespace}}

    @property
    def identity(self) -> tuple[str, str, str] | None:
        metadata = part(self.document.data, "metadata")
        data = self.document.data
        kind = data.get("kind") if isinstance(data, dict) else None
        name = text_at(metadata, "name")
        if not isinstance(kind, str) or not name:
            return None
        return kind, text_at(metadata, "namespace"), name

    def line(self, problem: Problem) -> str:
        where = f"{self.file}:{self.document.line_of(problem.path)}"
        title = self.title
        said = " ".join(f"{each}:" for each in (problem.path, problem.value) if each)
        said = f"{said} {problem.remedy}"
        return f"{where}: {title}: {said}" if title else f"{where}: {said}"


def _judge(where: str, config_file: Path | None) -> Judge:
    """Return the function that checks one object: with the rules of `leasehold up`, or with those
    of a cluster."""
    config = Config() if config_file is None else read_config_file(config_file)
    admission = admission_of(config.policy) if where == "up" else Admission()

    def judge(data: object) -> list[Problem]:
        if not isinstance(data, dict) or data.get("kind") not in USER_KINDS:
            return check_manifest(data)
        found = admission(None, data)
        return [Problem(path=path, value="", remedy=why) for path, why in found]

    return judge


def lint(files: Iterable[str], judge: Judge, namespace: str) -> Report:
    """Check the files, one by one and together, and return all mistakes and warnings."""
    report = Report(objects=0, mistakes=[], warnings=[])
    written: list[Written] = []
    for file in files:
        try:
            written += [Written(file, document) for document in load_documents(file)]
        except BadFile as bad:
            report.mistakes += [_bad_line(file, mistake) for mistake in bad.mistakes]
    budgets: dict[str, tuple[Written, Budget]] = {}
    seen: dict[tuple[str, str, str], Written] = {}
    for each in written:
        problems = _namespace_problems(each) if each.is_namespace else judge(each.named(namespace))
        problems += _named_twice(each, seen)
        report.mistakes += [each.line(problem) for problem in problems]
        if not problems and each.identity is not None and each.identity[0] == "Budget":
            budget = budget_from_wire(each.named(namespace))
            budgets[budget.key] = (each, budget)
            report.warnings += [each.line(found) for found in budget_warnings(each.document.data)]
    for budget, problem in parent_cycles(budget for _, budget in budgets.values()):
        report.mistakes.append(budgets[budget.key][0].line(problem))
    report.objects = len(written)
    return report


def _namespace_problems(each: Written) -> list[Problem]:
    problems: list[Problem] = []
    manifest = Fields(each.document.data, "", problems)
    manifest.need("apiVersion", _core_version)
    manifest.allow("kind", "spec", "status")
    metadata = manifest.inside("metadata", required=True)
    metadata.need("name", readers.namespace)
    manifest.finish()
    return problems


def _core_version(value: object) -> str:
    if value != "v1":
        raise readers.WrongValue("use v1")
    return "v1"


def _named_twice(each: Written, seen: dict[tuple[str, str, str], Written]) -> list[Problem]:
    if each.identity is None:
        return []
    first = seen.setdefault(each.identity, each)
    if first is each:
        return []
    where = f"{first.file}:{first.document.line}"
    remedy = f"the same object is at {where}; remove or rename one of them"
    return [Problem(path="metadata.name", value=shown(each.identity[2]), remedy=remedy)]


def _bad_line(file: str, mistake: Mistake) -> str:
    problem = mistake.problem
    said = show(problem) if problem.path else f"{problem.value}: {problem.remedy}"
    return f"{file}:{mistake.line}: {said}"


def _word(value: object) -> str:
    """Return a name as it is written if it is safe to print. Otherwise return it quoted and
    shortened."""
    if isinstance(value, str) and value.isprintable() and len(value) <= 253:
        return value
    return "" if value is None else shown(value)
