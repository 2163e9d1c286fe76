"""The documents say all there is to say, and what they show really happens.

Every name that a person can meet (enumeration members, invariants, configuration keys, commands,
the words of scenarios) is in the document that explains it; commands and stories are run as shown.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import click
import pytest

from leasehold.cli.main import main
from leasehold.control import life
from leasehold.core import cuts, facts, verdicts
from leasehold.core.invariants import REJECTED
from leasehold.core.verdicts import Refusal
from leasehold.shell.config import KEYS, Config, effective
from leasehold.sim.scenario.parse_actions import ACTIONS
from leasehold.sim.scenario.parse_expectations import CLAIMS
from leasehold.sim.scenario.runner import SHOWS, run_scenario

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_SECONDS_MAX = 60
ELLIPSIS = "…"

ENUMS = sorted(
    {
        each
        for module in (facts, verdicts, cuts, life)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, StrEnum) and each is not StrEnum
    },
    key=lambda each: each.__name__,
)


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def missing_members(enum: type[StrEnum], text: str) -> list[str]:
    """Members that no block (a table, a paragraph) which names the enumeration explains."""
    blocks = [block for block in text.split("\n\n") if f"`{enum.__name__}`" in block]
    return [str(member) for member in enum if not any(has_word(b, str(member)) for b in blocks)]


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_every_member_is_explained(enum: type[StrEnum]) -> None:
    assert missing_members(enum, DOCS["DOMAIN.md"]) == []


def test_a_member_that_another_enumeration_explains_is_missing() -> None:
    text = "`Role`: Active, Spare\n\n`Relation`: Owned, Shared, Borrowed"

    assert missing_members(facts.Role, text) == ["Borrowed"]
    assert missing_members(facts.Relation, text) == []


def test_refusals_say_rightly_whether_waiting_clears_them() -> None:
    told = {cells[0]: cells[-1].rstrip(" |") for cells in rows(DOCS["DOMAIN.md"])}

    assert {str(each): told[str(each)] for each in Refusal} == {
        str(each): "yes" if each.clears_with_time else "no" for each in Refusal
    }


def test_every_invariant_is_explained_and_every_rejected_one_is_among_the_rejected() -> None:
    source = (ROOT / "src/leasehold/core/invariants.py").read_text(encoding="utf-8")
    names = set(re.findall(r"INV-[A-Z-]+[A-Z]", source))
    kept, rejected = DOCS["invariants.md"].split("## Rejected")

    assert set(re.findall(r"`(INV-[A-Z-]+)`", kept)) == names - set(REJECTED)
    assert set(re.findall(r"`(INV-[A-Z-]+)`", rejected)) == set(REJECTED)


def test_every_configuration_key_is_explained_with_its_default() -> None:
    told = {
        cells[0].strip("`"): cells[1]
        for cells in rows(DOCS["configuration.md"])
        if cells[0].startswith("`")
    }
    defaults = effective(Config())
    shown = {name: str(value).lower() or "none" for name, value in defaults.items()}

    assert {key.name for key in KEYS} == set(told)
    assert {name: default.lower() for name, default in told.items()} == shown


def test_every_command_is_shown() -> None:
    text = "\n".join([README, *DOCS.values()])
    lacking = [path for path in commands(main, "leasehold") if not has_word(text, path)]

    assert lacking == []


def commands(group: click.Command, path: str) -> Iterator[str]:
    """The full path of every command that does something."""
    if not isinstance(group, click.Group):
        yield path
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        yield from commands(command, f"{path} {name}")


def test_every_word_of_scenarios_is_explained() -> None:
    words = {*ACTIONS, *SHOWS, *CLAIMS, *(claim for claims in CLAIMS.values() for claim in claims)}

    assert sorted(each for each in words if not has_word(DOCS["scenarios.md"], each)) == []


def test_the_story_that_explains_scenarios_holds(tmp_path: Path) -> None:
    stories = [body for language, body in FENCE.findall(DOCS["scenarios.md"]) if language == "yaml"]
    assert len(stories) == 1
    file = tmp_path / "story.yaml"
    file.write_text(stories[0], encoding="utf-8")
    told: list[str] = []

    assert run_scenario(file, echo=told.append).code == 0, "\n".join(told)


@dataclass
class Shown:
    """A command of the tour, with what the reader is told that it prints."""

    command: str
    lines: list[str] = field(default_factory=list)
    status: int = 0


def tour(text: str) -> Iterator[tuple[str, str] | Shown]:
    """The files to save (name, content) and the commands to run, in the order of the text."""
    for language, body in FENCE.findall(text):
        first, _, _ = body.partition("\n")
        if language == "yaml" and first.startswith("# "):
            yield first.removeprefix("# "), body
        if language == "console":
            yield from _commands(body)


def _commands(body: str) -> Iterator[Shown]:
    shown: list[Shown] = []
    for line in body.splitlines():
        if line.startswith("$ "):
            shown.append(Shown(line.removeprefix("$ ")))
        elif line.startswith("# exit status "):
            shown[-1].status = int(line.rpartition(" ")[2])
        else:
            shown[-1].lines.append(line)
    yield from shown


def first_unprinted(lines: list[str], printed: list[str]) -> str | None:
    """The first line that was not printed after those before it; `…` stands for anything."""
    left = iter(printed)
    for line in lines:
        if line != ELLIPSIS:
            pattern = re.compile(".*".join(map(re.escape, line.split(ELLIPSIS))))
            if not any(pattern.fullmatch(each.rstrip()) for each in left):
                return line
    return None


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command of ours, as a person with the environment on the path would run it."""
    words = command.split()
    assert words[0] == "leasehold", f"{command}; show commands of leasehold instead"
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_SECONDS_MAX,
    )


def test_the_tour_of_the_readme_runs_as_shown(tmp_path: Path) -> None:
    ran = 0
    for each in tour(README):
        if isinstance(each, tuple):
            (tmp_path / each[0]).write_text(each[1], encoding="utf-8")
            continue
        done = run(each.command, tmp_path)
        ran += 1
        assert done.returncode == each.status, f"{each.command}\n{done.stdout}{done.stderr}"
        lacking = first_unprinted(each.lines, done.stdout.splitlines())
        assert lacking is None, f"{each.command} does not print\n{lacking}\nbut\n{done.stdout}"
    assert ran >= 5


def test_the_demo_prints_what_the_readme_says(tmp_path: Path) -> None:
    (shown,) = [body for language, body in FENCE.findall(README) if language == "text"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndemo:")[2].partition("\n\n")[0]
    printed: list[str] = []
    for line in recipe.splitlines()[1:]:
        command = line.strip().removeprefix("$(BIN)/").replace("build/demo", str(tmp_path))
        done = run(command, ROOT)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        printed += done.stdout.splitlines()

    assert printed
    assert first_unprinted(shown.splitlines(), printed) is None


def test_a_tour_that_shows_something_else_is_found_out() -> None:
    (saved, command) = tour("```yaml\n# a.yaml\nx: 1\n```\n```console\n$ leasehold x\none …\n```\n")

    assert saved == ("a.yaml", "# a.yaml\nx: 1\n")
    assert command == Shown("leasehold x", ["one …"])
    assert first_unprinted(["one …", "two"], ["zero", "one 1", "two"]) is None
    assert first_unprinted(["two", "one …"], ["zero", "one 1", "two"]) == "one …"
    assert first_unprinted(["one"], ["one 1"]) == "one"
