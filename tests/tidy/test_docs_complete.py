"""Every name that a user can meet is in the document that explains it.

These are enumeration members, invariants, configuration keys and the words of scenarios. For the
server and its commands, and for the examples of the documents, see `tests/docs`.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest

from leasehold.control import reasons
from leasehold.control.running import life
from leasehold.core import facts, resolutions, verdicts
from leasehold.core.preemption import victims
from leasehold.core.verdicts import Refusal
from leasehold.core.world.invariants import REJECTED
from leasehold.shell.config.config import KEYS, Config, effective
from leasehold.sim.faults.file import plan_of
from leasehold.sim.faults.play import play
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.parse_actions import ACTIONS
from leasehold.sim.scenario.parse_expectations import CLAIMS
from leasehold.sim.scenario.parse_trouble import WHO
from leasehold.sim.scenario.runner import SHOWS, run_scenario
from leasehold.sim.scenario.trouble import Harm

ROOT = Path(__file__).resolve().parents[2]
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

ENUMS = sorted(
    {
        each
        for module in (facts, resolutions, verdicts, victims, life, reasons)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, StrEnum) and each is not StrEnum
    },
    key=lambda each: each.__name__,
)


def has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def missing_members(enum: type[StrEnum], text: str) -> list[str]:
    """Return the members that are in no block (table or paragraph) that names the enumeration."""
    blocks = [block for block in text.split("\n\n") if f"`{enum.__name__}`" in block]
    return [str(member) for member in enum if not any(has_word(b, str(member)) for b in blocks)]


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of every row of every table."""
    for line in text.splitlines():
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


@pytest.mark.parametrize("enum", ENUMS, ids=lambda enum: enum.__name__)
def test_every_enumeration_member_is_explained(enum: type[StrEnum]) -> None:
    assert missing_members(enum, DOCS["DOMAIN.md"]) == []


def test_member_explained_only_for_another_enumeration_is_missing() -> None:
    text = "`Role`: Active, Spare\n\n`Relation`: Owned, Shared, Borrowed"

    assert missing_members(facts.Role, text) == ["Borrowed"]
    assert missing_members(facts.Relation, text) == []


def test_documented_refusals_say_whether_waiting_clears_them() -> None:
    told = {cells[0]: cells[-1].rstrip(" |") for cells in rows(DOCS["DOMAIN.md"])}

    assert {str(each): told[str(each)] for each in Refusal} == {
        str(each): "yes" if each.clears_with_time else "no" for each in Refusal
    }


def test_every_invariant_is_explained_and_rejected_ones_are_listed() -> None:
    files = ("src/leasehold/core/world/invariants.py", "src/leasehold/control/double_claims.py")
    source = "".join((ROOT / file).read_text(encoding="utf-8") for file in files)
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


def test_every_word_of_the_scenario_language_is_explained() -> None:
    words = {*ACTIONS, *SHOWS, *CLAIMS, *(claim for claims in CLAIMS.values() for claim in claims)}
    words |= {*map(str, Harm), *WHO}

    assert sorted(each for each in words if not has_word(DOCS["scenarios.md"], each)) == []


def test_example_scenarios_in_the_document_hold(tmp_path: Path) -> None:
    stories = [body for language, body in FENCE.findall(DOCS["scenarios.md"]) if language == "yaml"]
    calm, troubled = stories
    file = tmp_path / "story.yaml"
    file.write_text(calm, encoding="utf-8")
    told: list[str] = []

    assert run_scenario(file, echo=told.append).code == 0, "\n".join(told)
    outcome = play(plan_of(parse_story(troubled, "the document"), troubled))
    assert outcome.problems == []
    assert outcome.effects["pause at a point"] == 1
