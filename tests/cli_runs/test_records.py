"""Commands read the same answer records as the web pages, and no other fields.

Commands take answers as plain JSON values, because a conversion into records would make each of
them slower. These tests do the conversion instead: every answer must equal the record of its
question exactly, and reading a field that is not in the record fails.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from msgspec.structs import fields
from tests.cli_runs.conftest import Cli
from tests.cli_runs.test_golden import COMMANDS, GOLDEN, NEW

from leasehold.cli.runs.server import Server
from leasehold.control.questions.answers import ANSWERS
from leasehold.control.questions.answers.books import ReportRow
from leasehold.control.questions.answers.shape import wire
from leasehold.core.names import Wire

# The fields that a row may omit; every answer has all others.
OPTIONAL = {each.encode_name for each in fields(ReportRow) if each.default is UNSET}


class Checked(dict[str, Any]):
    """An object of an answer; reading a key that it does not have fails."""

    def get(self, key: str, default: object = None) -> Any:  # type: ignore[override]
        assert key in self or key in OPTIONAL, (
            f"a command reads {key!r}; this answer has {', '.join(self)}"
        )
        return super().get(key, default)


def checked(value: Any) -> Any:
    if isinstance(value, dict):
        return Checked({key: checked(each) for key, each in value.items()})
    return [checked(each) for each in value] if isinstance(value, list) else value


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set of questions asked; every answer is checked against its record and guarded."""
    found: set[str] = set()
    ask = Server.ask

    def asked(
        self: Server, question: str, params: Mapping[str, str | None], body: Wire | None = None
    ) -> Wire:
        answer = ask(self, question, params, body)
        found.add(question)
        kinds = {each.__struct_config__.tag: each for each in ANSWERS[question]}
        kind = kinds.get(str(answer.get("form"))) or ANSWERS[question][0]
        own = {key: each for key, each in answer.items() if key not in ("question", "now")}
        assert wire(msgspec.convert(own, kind)) == own
        guarded = checked(answer)
        assert isinstance(guarded, dict)
        return guarded

    monkeypatch.setattr(Server, "ask", asked)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_command_reads_only_fields_of_answer_records(cli: Cli, seen: set[str], name: str) -> None:
    words = COMMANDS[name]
    stdin = NEW if words[-1] == "-" else None
    for form in ("table", "wide"):
        done = cli(*words, "-o", form, stdin=stdin)
        assert (done.stderr, done.exit_code) == ("", 0)
        assert done.stdout == (GOLDEN / f"{name}.{form}.txt").read_text()
    assert seen


def test_reading_an_unknown_field_fails() -> None:
    with pytest.raises(AssertionError, match="'gpuHour'"):
        checked({"items": [{"gpuHours": "1"}]})["items"][0].get("gpuHour")
