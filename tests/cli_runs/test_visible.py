"""Text from users is printed safely: it cannot move the cursor or forge a line."""

import json
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import Facade, Refused

from leasehold.app.visible import visible
from leasehold.cli import audit, lint
from leasehold.core.units import parse_instant

EVIL = "\x1b[2J\nforged"
SHOWN = r"\x1b[2J\nforged"
QUESTIONS = [
    ["list", "-A"], ["list", "-A", "-o", "wide"], ["explain", "train"],
    ["explain", "train", "-o", "wide"], ["pods", "train", "-o", "wide"],
    ["leases", "-o", "wide"], ["budgets", "usage"], ["budgets", "balance"], ["budgets", "tree"],
    ["who-pays", "train"], ["reservations", "-A", "-o", "wide"],
    ["report", "gpu-hours", "--by", "owner"],
    ["cover", "train", "--explain"], ["sponsors", "list", "train"],
    ["watch", "train", "--interval", "1"],
]  # fmt: skip


def spoiled(found: Any) -> Any:
    """Return an answer with hostile text appended to every string except instants and phases."""
    if isinstance(found, dict):
        return {
            key: value if key in ("phase", "now", "by") else spoiled(value)
            for key, value in found.items()
        }
    if isinstance(found, list):
        return [spoiled(each) for each in found]
    if isinstance(found, str) and parse_instant(found) is None:
        return found + EVIL
    return found


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_answers_are_printed_without_control_characters(
    cli: Cli, facade: Facade, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    def question(*args: Any) -> Any:
        answer = spoiled(asked(*args))
        if words[0] == "watch":
            answer["items"][0]["phase"] = "Completed"
        return answer

    asked = facade._question
    monkeypatch.setattr(facade, "_question", question)
    done = cli(*words)
    assert done.exit_code == 0, done.output
    assert SHOWN in done.stdout
    assert "\x1b" not in done.output
    assert not [line for line in done.output.splitlines() if line.startswith("forged")]


def test_refusals_are_printed_without_control_characters(
    cli: Cli, facade: Facade, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise Refused(422, "Invalid", EVIL, [{"field": EVIL, "message": EVIL}])

    monkeypatch.setattr(facade, "_question", refuse)
    done = cli("explain", "train")
    assert done.stderr == f"error: {SHOWN}\n  {SHOWN}: {SHOWN}\n"


def test_json_and_yaml_output_keeps_text_unchanged(
    cli: Cli, facade: Facade, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = facade._question
    monkeypatch.setattr(facade, "_question", lambda *args: spoiled(asked(*args)))
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        told = read(cli("explain", "train", "-o", form).stdout)
        assert told["sentences"][0].endswith(EVIL)


def test_audit_and_lint_print_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_look", lambda *_: (0, [EVIL]))
    monkeypatch.setattr(audit, "read_config", lambda *_: None)
    monkeypatch.setattr(audit, "PAUSE_S", 0)
    assert CliRunner().invoke(audit.command, []).stdout == f"{SHOWN}\n"
    monkeypatch.setattr(lint, "lint", lambda *_: lint.Report(1, [EVIL], [EVIL]))
    assert CliRunner().invoke(lint.command, ["x"]).stdout == f"{SHOWN}\nwarning: {SHOWN}\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é 漢 ok", "é 漢 ok"),
        ("a\tb\r\n", r"a\tb\r\n"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("\u202eabc\u2028", r"\u202eabc\u2028"),
        ("\udc80", r"\udc80"),
        (r"\x1b", r"\x1b"),
    ],
)  # fmt: skip
def test_visible_escapes_control_characters_and_is_idempotent(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown
