"""Reads the inputs of a replay except its jobs: fleet, Budgets, configuration, column map.

A mistake in a file ends the command with path, line and remedy.
"""

from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

import click

from leasehold.app.admission import admission_of
from leasehold.cli.config import read_config_file
from leasehold.cli.lint import lint
from leasehold.core.facts import Budget, Node
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.objects.manifests import check_manifest
from leasehold.core.objects.problems import Problem
from leasehold.core.objects.wire import part, text_at
from leasehold.core.policy import Policy
from leasehold.core.units import Instant, Millis, parse_instant, parse_span
from leasehold.shell.config.fleetfile import load_fleet, node_rows
from leasehold.shell.config.yamlfile import BadFile, load_documents
from leasehold.sim.replay.trace import PARTS
from leasehold.sim.scenario.populate import node_of

NAMESPACE = "default"  # of Budgets that name none, as for `leasehold lint`


def nodes_of(path: Path) -> tuple[Node, ...]:
    """Return the nodes of a fleet file, which has the format of `leasehold up --fleet`."""
    try:
        rows = load_fleet(path)
    except BadFile as bad:
        raise click.ClickException(str(bad)) from None
    return tuple(node_of(name, row) for name, row in node_rows(rows))


def budgets_of(paths: Sequence[Path]) -> tuple[Budget, ...]:
    """Return all Budgets in these manifests, after the checks that a server makes. Objects of other
    kinds are skipped."""
    files = [str(path) for path in paths]
    admission = admission_of(Policy())

    def judge(data: object) -> list[Problem]:
        if not isinstance(data, dict) or not isinstance(data.get("kind"), str):
            return check_manifest(data)  # a wrong file, such as the fleet's
        if data["kind"] != "Budget":
            return []
        return [Problem(path=at, value="", remedy=why) for at, why in admission(None, data)]

    report = lint(files, judge, NAMESPACE)
    if report.mistakes:
        raise click.ClickException("\n".join(report.mistakes))
    found = [
        budget_from_wire(_in_namespace(document.data))
        for file in files
        for document in load_documents(file)
        if isinstance(document.data, dict) and document.data.get("kind") == "Budget"
    ]
    if not found:
        said = f"{', '.join(files)}: no Budget found; name manifests with at least one Budget"
        raise click.ClickException(said)
    return tuple(found)


def _in_namespace(data: dict[object, object]) -> dict[object, object]:
    metadata = part(data, "metadata")
    if text_at(metadata, "namespace"):
        return data
    return {**data, "metadata": {**metadata, "namespace": NAMESPACE}}


def policy_of(path: Path | None) -> Policy:
    """Return the policy of a configuration file, or the defaults."""
    return Policy() if path is None else read_config_file(path).policy


def columns_of(text: str | None) -> tuple[tuple[str, str], ...]:
    """Parse the value of `--columns` into pairs.

    Example: `submit=when,gpus=n` gives (("submit", "when"), ("gpus", "n")).
    """
    found = []
    for pair in (text or "").split(","):
        key, equals, name = (each.strip() for each in pair.partition("="))
        if not pair.strip():
            continue
        if key not in PARTS or not equals or not name:
            said = f"{pair.strip()!r}; use PART=COLUMN, where PART is one of {', '.join(PARTS)}"
            raise click.BadParameter(said, param_hint="--columns")
        found.append((key, name))
    return tuple(found)


def span_option(text: str | None, option: str) -> Millis | None:
    if text is None:
        return None
    found = parse_span(text)
    if not found:
        said = f"{text!r} is not a duration; use 30s, 15m or 1h30m"
        raise click.BadParameter(said, param_hint=option)
    return found


def instant_option(text: str | None, option: str) -> Instant | None:
    """Parse the value of an option as a time, or as a day, which means midnight UTC."""
    if text is None:
        return None
    found = parse_instant(text)
    if found is None:
        found = parse_instant(f"{text}T00:00:00Z")
    if found is None or found < 0:
        said = f"{text!r} is not a time; use 2017-10-01 or 2017-10-01T00:00:00Z"
        raise click.BadParameter(said, param_hint=option)
    return found


def factor_option(text: str, option: str) -> Fraction:
    try:
        found = Fraction(Decimal(text))
    except (InvalidOperation, ValueError, OverflowError):
        found = Fraction(0)
    if not 0 < found <= 1_000:
        said = f"{text!r}; use a number over 0, such as 1.2"
        raise click.BadParameter(said, param_hint=option)
    return found


def without_budget(owners: Iterable[str], budgets: Iterable[Budget]) -> list[str]:
    """Return the owners that have no Budget; their runs can never start."""
    return sorted(set(owners) - {budget.owner for budget in budgets})
