"""`leasehold lint`: every mistake on its own line, and never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leasehold import __version__
from leasehold.cli.lazy import LazyGroup
from leasehold.cli.main import COMMANDS, main

HEAD = "apiVersion: rq.davidlangworthy.io/v1\n"
BUDGET = HEAD + "kind: Budget\nmetadata: {name: b, namespace: t}\nspec: {owner: t}\n"
RUN = HEAD + (
    "kind: Run\nmetadata: {name: r, namespace: t}\n"
    "spec: {owner: t, resources: {gpuType: H100, totalGPUs: 8}, template: {spec: {containers: "
    "[{name: m, command: [w]}]}}}\n"
)


def leasehold(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lint(here: Path, *texts: str) -> tuple[int, list[str]]:
    names = []
    for index, text in enumerate(texts):
        names.append(f"{index}.yaml")
        (here / names[-1]).write_text(text, encoding="utf-8")
    result = leasehold("lint", *names)
    return result.exit_code, result.output.splitlines()


def test_lint_counts_the_objects_of_correct_files(here: Path) -> None:
    assert lint(here, f"{BUDGET}---\n{RUN}---\n") == (0, ["2 objects ok"])
    assert lint(here, BUDGET) == (0, ["1 object ok"])


def test_lint_reports_every_mistake_of_every_file_with_its_line(here: Path) -> None:
    bad_run = RUN.replace("totalGPUs", "totalGPU").replace("kind: Run", "kind: Run\nspecs: 1")
    bad_budget = BUDGET.replace(
        "spec: {owner: t}", "spec:\n  owner: t\n  envelopes:\n  - {name: e}"
    )

    assert lint(here, bad_run, bad_budget) == (
        1,
        [
            "0.yaml:3: Run t/r: specs: 1: there is no such field; did you mean spec?",
            "0.yaml:5: Run t/r: spec.resources.totalGPUs: (missing): this field is required",
            "0.yaml:5: Run t/r: spec.resources.totalGPU: 8: "
            "there is no such field; did you mean totalGPUs?",
            "1.yaml:7: Budget t/b: spec.envelopes[0].flavor: (missing): this field is required",
            "1.yaml:7: Budget t/b: spec.envelopes[0].concurrency: (missing): this field is "
            "required",
        ],
    )


def test_lint_reports_files_that_are_no_manifests(here: Path) -> None:
    code, lines = lint(here, "", "a: 1\na: 2\n", "[1]\n", "text\n", "kind: [1]\n")

    assert code == 1
    assert lines[:4] == [
        "0.yaml:1: an empty file: add at least one document",
        "1.yaml:2: a: 'a': the key is given twice, first on line 1; keep one",
        "2.yaml:1: a list of 1: use an object with kind and spec",
        "3.yaml:1: 'text': use an object with kind and spec",
    ]
    assert "4.yaml:1: a list of 1: kind: a list of 1: use Budget or Run" in lines


def test_lint_refuses_yaml_tags_on_lists_and_mappings(here: Path) -> None:
    code, lines = lint(here, RUN.replace("owner: t", "owner: !!python/tuple [a]"))

    assert code == 1
    assert lines == ["0.yaml:4: spec.owner: 'tag:yaml.org,2002:python/tuple': leave the tag out"]


def test_remedy_names_only_a_few_of_many_choices(here: Path) -> None:
    names = [f"{{name: e{index}, flavor: H, concurrency: 1}}" for index in range(100)]
    cap = "{name: a, flavor: H, envelopes: [q], maxConcurrency: 1}"
    spec = f"{{owner: t, envelopes: [{', '.join(names)}], aggregateCaps: [{cap}]}}"
    code, lines = lint(here, BUDGET.replace("{owner: t}", spec))

    assert code == 1
    assert lines[0].endswith("use one of: e0, e1, e2, e3, e4, e5, e6, e7")


def test_lint_refuses_a_budget_with_more_bytes_than_a_ledger_batch_may_have(here: Path) -> None:
    owners = ", ".join(f"t:{'x' * 200}{index}" for index in range(64))
    names = [
        f"{{name: e{index}, flavor: H, concurrency: 1, lending: {{allow: true, to: [{owners}]}}}}"
        for index in range(40)
    ]
    code, lines = lint(
        here, BUDGET.replace("{owner: t}", f"{{owner: t, envelopes: [{', '.join(names)}]}}")
    )

    assert code == 1
    assert len(lines) == 1
    assert lines[0].endswith("bytes: use at most 491520; an owner may have several Budgets")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_an_error(here: Path, unbuffered: str) -> None:
    (here / "0.yaml").write_text(RUN, encoding="utf-8")
    command = [sys.executable, "-m", "leasehold", "lint", "0.yaml"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(
            command,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )

    assert done.returncode == 1
    assert done.stderr == "Error: cannot write the answer: No space left on device\n"


def test_lint_reports_missing_files_and_directories(here: Path) -> None:
    result = leasehold("lint", "none.yaml", ".")

    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "none.yaml:1: no such file: name a file that exists",
        ".:1: a directory: name a file",
    ]


def test_lint_reports_an_object_written_in_two_files(here: Path) -> None:
    assert lint(here, RUN, f"{BUDGET}---\n{RUN}") == (
        1,
        [
            "1.yaml:8: Run t/r: metadata.name: 'r': "
            "the same object is at 0.yaml:1; remove or rename one of them"
        ],
    )


def test_lint_reports_a_parent_cycle_across_two_files(here: Path) -> None:
    one = BUDGET.replace("{owner: t}", "{owner: a, parents: [b]}")
    two = BUDGET.replace("name: b", "name: c").replace("{owner: t}", "{owner: b, parents: [a]}")

    code, lines = lint(here, one, two)

    assert code == 1
    assert [line.split(": parents")[0] for line in lines] == [
        "0.yaml:4: Budget t/b: spec.parents[0]: 'a -> b -> a'",
        "1.yaml:4: Budget t/c: spec.parents[0]: 'b -> a -> b'",
    ]


def test_lint_warning_is_not_a_failure(here: Path) -> None:
    envelope = (
        "{name: e, flavor: H, concurrency: 1, maxGPUHours: 9, "
        'start: "2026-01-01T00:00:00Z", end: "2026-01-01T01:00:00Z"}'
    )
    code, lines = lint(here, BUDGET.replace("{owner: t}", f"{{owner: t, envelopes: [{envelope}]}}"))

    assert code == 0
    assert lines[0].startswith("warning: 0.yaml:4: Budget t/b: spec.envelopes[0].maxGPUHours: 9: ")
    assert lines[1] == "1 object ok"


def test_unprintable_name_is_reported_on_one_line(here: Path) -> None:
    _, lines = lint(here, RUN.replace("name: r,", 'name: "a\\nb",'))

    assert len(lines) == 1
    assert lines[0].startswith("0.yaml:3: Run t/'a\\nb': metadata.name: ")


def test_lint_without_a_file_reports_the_missing_argument() -> None:
    result = leasehold("lint")

    assert result.exit_code == 2
    assert "Missing argument" in result.output


def test_leasehold_help_lists_subcommands_and_unknown_ones_fail() -> None:
    listed = leasehold("--help").output

    assert all(name in listed for name in COMMANDS)
    assert leasehold("--version").output == f"leasehold, version {__version__}\n"
    assert leasehold("nonsense").exit_code == 2


def test_completion_lists_the_subcommands() -> None:
    context = main.make_context("leasehold", [], resilient_parsing=True)

    assert isinstance(main, LazyGroup)
    assert main.list_commands(context) == sorted(COMMANDS)
