"""Every field of every answer is in the documented list of stable fields."""

import pytest
from tests.questions.played import SCENARIOS, Played
from tests.questions.test_rights import RUN
from tests.questions.test_the_past import STORY

from leasehold.control import questions
from leasehold.shell.queries.query import QUESTIONS

RUN_PARAMS = {"namespace": "vision", "run": "train"}
ASKED: dict[str, list[dict[str, str]]] = {
    "plan": [RUN_PARAMS, {"namespace": "speech", "run": "rescore"}],
    "explain": [RUN_PARAMS, {"namespace": "speech", "run": "rescore"},
                {"namespace": "text", "run": "pretrain"}],
    "budgets": [{"form": "usage"}, {"form": "balance"}, {"form": "tree"}],
    "leases": [{"since": "12h"}],
    "drain": [{"node": "a-00", "since": "12h"}],
    "reservations": [{"past": "true"}],
    "report": [{"by": by} for by in ("owner", "payer", "run", "node", "day")],
    "pods": [RUN_PARAMS],
    "cover": [RUN_PARAMS],
    "who-pays": [RUN_PARAMS],
    "sponsors": [RUN_PARAMS],
    "widths": [RUN_PARAMS],
}  # fmt: skip


def documented() -> dict[str, set[str]]:
    """Return the words about each question; a line indented by four spaces begins a question."""
    assert questions.__doc__ is not None
    found: dict[str, set[str]] = {}
    name = ""
    for line in questions.__doc__.splitlines():
        if line.startswith("    ") and line[4:5].strip():
            name = line.split()[0]
            found[name] = set()
        if name:
            words = "".join(each if each.isalnum() else " " for each in line)
            found[name].update(words.split())
    return found


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return {*map(str, value), *(key for each in value.values() for key in keys(each))}
    if isinstance(value, list):
        return {key for each in value for key in keys(each)}
    return set()


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_field_of_an_answer_is_documented(question: str) -> None:
    played = Played(STORY)
    # Parts of explain and plan are described with the other questions that show them.
    known = documented()
    listed = known[question] | known["plan"] | known["cover"] | known["reservations"]
    if question not in ("plan", "explain"):
        listed = known[question] | known["cover"]
    seen: set[str] = set()
    for params in ASKED.get(question, [{}]):
        seen |= keys(played.ask(question, **params))
    if question in ("plan", "cover"):
        seen |= keys(played.ask(question, RUN))
    assert seen - {"question", "now"} <= listed


def test_fields_of_ending_leases_are_documented() -> None:
    played = Played(SCENARIOS / "A4-a-hold-ends-at-the-drain-timeout.yaml", "1h16m")
    assert keys(played.ask("leases")) - {"question", "now"} <= documented()["leases"]
    assert "deadline" in keys(played.ask("leases"))
