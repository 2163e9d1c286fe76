"""Parses a scenario file into a Story, or reports every mistake with line and remedy.

Called by the scenario runner, `leasehold sim scenario` and the tests. It reads one file and plays
nothing. References to nodes, runs and envelopes are checked against the names in the same file.
"""

from pathlib import Path

from msgspec.structs import replace

from leasehold.core.objects import readers
from leasehold.core.objects.budget import budget_from_wire, parent_cycles
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import Problem, shown
from leasehold.core.objects.readers import WrongValue
from leasehold.core.policy import Policy
from leasehold.core.units import MINUTE, Instant, format_span
from leasehold.shell.config.config import BadConfig, Config, load_config
from leasehold.shell.config.fleetfile import mistake_at, node_rows, read_fleet
from leasehold.shell.config.yamlfile import (
    BadFile,
    Document,
    Mistake,
    load_documents,
    parse_documents,
)
from leasehold.sim.scenario.parse_actions import manifest, read_action, read_specs
from leasehold.sim.scenario.parse_expectations import Named
from leasehold.sim.scenario.parse_trouble import read_trouble
from leasehold.sim.scenario.story import Spec, Step, Story
from leasehold.sim.scenario.trouble import Attack

START_DEFAULT: Instant = 1_767_225_600_000  # 2026-01-01T00:00:00Z
START_MAX: Instant = 221_845_392_000_000  # 9000-01-01T00:00:00Z


def load_story(path: Path | str) -> Story:
    """Read and parse a scenario file. Raise `BadFile` with all mistakes."""
    return _story(load_documents(path), str(path))


def parse_story(text: str, place: str) -> Story:
    """Parse the text of a scenario file. `place` is its file's name for messages. Raise `BadFile`
    with all mistakes."""
    return _story(parse_documents(text, place), place)


def _story(documents: list[Document], place: str) -> Story:
    document = documents[0]
    if len(documents) > 1:
        problem = Problem(
            path="", value="a second document", remedy=("put one scenario in each file")
        )
        raise BadFile(place, [Mistake(line=documents[1].line, problem=problem)])
    problems: list[Problem] = []
    story = _read(document, place, problems)
    if problems:
        mistakes = [mistake_at(document, problem) for problem in problems]
        raise BadFile(place, sorted(mistakes, key=lambda mistake: mistake.line))
    return story


def _read(document: Document, place: str, problems: list[Problem]) -> Story:
    if not isinstance(document.data, dict):
        problems.append(
            Problem(path="", value=shown(document.data), remedy="add title, fleet and steps")
        )
    fields = Fields(document.data, "", problems)
    title = fields.need("title", readers.text) or ""
    start = fields.take("start", _start, START_DEFAULT)
    config = _read_config(fields)
    before = len(problems)
    fleet = read_fleet(fields, document, has_amounts=True)
    rows = node_rows(fleet) if len(problems) == before else None
    budgets = _read_budgets(fields)
    named = Named(
        runs=_submitted(fields),
        nodes=None if rows is None else {name: row.gpus for name, row in rows},
        envelopes=_funded(fields),
        line_of=document.line_of,
    )
    trouble = read_trouble(fields)
    steps = _read_steps(fields, named)
    fields.finish()
    return Story(
        file=place,
        title=title,
        start=start,
        config=config,
        fleet=fleet,
        budgets=budgets,
        steps=steps,
        trouble=trouble,
    )


# Defaults of scenarios, so that stories stay short.
DEFAULTS = Config(policy=Policy(patience=15 * MINUTE, min_tenure=0))


def _read_config(fields: Fields) -> Config:
    written = fields.inside("config")
    try:
        given = {str(key): value for key, value in written.members.items()}
        return load_config(given, DEFAULTS)
    except BadConfig as bad:
        for problem in bad.problems:
            path = f"config.{problem.path}"
            fields.problems.append(Problem(path=path, value=problem.value, remedy=problem.remedy))
        return Config()


def _read_budgets(fields: Fields) -> tuple[tuple[str, Spec], ...]:
    fields.allow("budgets")
    if not fields.has("budgets"):
        return ()
    before = len(fields.problems)
    budgets = read_specs(fields, "budgets", "Budget", check=True)
    if len(fields.problems) == before:
        read = [budget_from_wire(manifest("Budget", key, spec)) for key, spec in budgets]
        for budget, problem in parent_cycles(read):
            path = f"budgets[{budget.key}]{problem.path.removeprefix('spec')}"
            fields.problems.append(Problem(path=path, value=problem.value, remedy=problem.remedy))
    return budgets


def _submitted(fields: Fields) -> list[str]:
    """Return the name of every run that some step submits, even if that step is invalid."""
    steps = fields.raw("steps")
    names: dict[str, None] = {}
    for step in steps if isinstance(steps, list) else []:
        submit = step.get("submit") if isinstance(step, dict) else None
        if isinstance(submit, dict):
            names.update(dict.fromkeys(str(name) for name in submit))
    return list(names)


def _funded(fields: Fields) -> list[str]:
    """Return the name of every envelope that exists at some time of the story. An envelope that is
    renamed has several names."""
    steps = fields.raw("steps")
    written = [step for step in steps if isinstance(step, dict)] if isinstance(steps, list) else []
    names: dict[str, None] = {}
    for budgets in (fields.raw("budgets"), *(step.get("budget") for step in written)):
        for budget, spec in budgets.items() if isinstance(budgets, dict) else ():
            envelopes = spec.get("envelopes") if isinstance(spec, dict) else None
            for envelope in envelopes if isinstance(envelopes, list) else ():
                if isinstance(envelope, dict):
                    names[f"{budget}/{envelope.get('name')}"] = None
    for step in written:
        edit = step.get("edit")
        if isinstance(edit, dict) and "envelope" in edit and "name" in edit:
            names[f"{str(edit['envelope']).rpartition('/')[0]}/{edit['name']}"] = None
    return list(names)


def _read_steps(fields: Fields, named: Named) -> tuple[Step, ...]:
    if fields.raw("steps") is None:
        fields.need("steps", readers.text)
    steps: list[Step] = []
    latest = 0
    for each in fields.each("steps"):
        at = each.need("at", _at)
        action = read_action(each, named)
        each.finish()
        if at is not None and at < latest:
            each.note("at", f"steps must be in order of time; use at least {format_span(latest)}")
        latest = max(latest, at or 0)
        if isinstance(action, Attack):
            action = replace(action, at=latest)
            if not fields.has("trouble"):
                each.note("attack", "say what trouble there is: trouble: {seed: 1, lasts: 1h}")
        if at is not None and action is not None:
            steps.append(Step(at=at, line=named.line_of(each.path), action=action))
    return tuple(steps)


def _start(value: object) -> Instant:
    """Read the start of a story. It must not be before 1970, where the ledger's times begin, nor
    after the year 9000, so that each year of the story has four digits."""
    start = readers.instant(value)
    if not 0 <= start <= START_MAX:
        raise WrongValue("use a time from 1970 to 9000")
    return start


def _at(value: object) -> int:
    try:
        return readers.span_or_none(value)
    except WrongValue:
        remedy = "use a duration since the start of at most 3650 days, such as 0s, 30s or 1h15m"
        raise WrongValue(remedy) from None
