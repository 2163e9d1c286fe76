"""Commands that change runs: the change on the server, and the message."""

import json
from pathlib import Path

import pytest
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import Facade
from tests.cli_runs.test_golden import NEW

from leasehold.core.facts import Run


def run_of(facade: Facade, key: str) -> Run:
    world = facade.played.world
    return world.runs[world.uid_of[key]]


def test_shrink_and_grow_change_width_of_elastic_run(cli: Cli, facade: Facade) -> None:
    assert cli("shrink", "audio/sweep", "--to", "8").exit_code == 0
    malleable = run_of(facade, "audio/sweep").spec.malleable
    assert malleable is not None
    assert malleable.desired_gpus == 8
    done = cli("grow", "sweep", "-n", "audio", "--to", "16", "-o", "json")
    assert json.loads(done.stdout)["spec"]["malleable"]["desiredTotalGPUs"] == 16
    malleable = run_of(facade, "audio/sweep").spec.malleable
    assert malleable is not None
    assert malleable.desired_gpus == 16


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shrink", "train", "--to", "8"], "is not malleable"),
        (["shrink", "audio/sweep", "--to", "16"], "already has a target of 16 GPUs"),
        (["shrink", "audio/sweep", "--to", "24"], "use grow"),
        (["grow", "audio/sweep", "--to", "8"], "use shrink"),
        (["shrink", "audio/sweep", "--to", "9"], "in steps of 8"),
        (["grow", "audio/sweep", "--to", "800"], "maxTotalGPUs 16"),
        (["cancel", "nothing"], "NotFound"),
        (["sponsors", "add", "train", "lab:speech:asr"], "already"),
        (["sponsors", "add", "audio/tags", "lab:speech:asr"], "submit another one that borrows"),
        (["sponsors", "add", "text/pretrain", "lab:speech:asr"], "submit another one that borrows"),
        (["sponsors", "add", "train", "No Body"], "spec.funding.sponsors"),
        (["sponsors", "remove", "train", "org:ai:text"], "its sponsors are: lab:speech:asr"),
    ],
)
def test_impossible_change_is_refused_with_one_message(
    cli: Cli, facade: Facade, words: list[str], says: str
) -> None:
    before = facade.played.world.head
    done = cli(*words)
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert facade.played.world.head == before


def test_sponsors_are_added_in_order_and_removed_without_other_change(
    cli: Cli, facade: Facade
) -> None:
    cli("sponsors", "add", "train", "org:ai:text")
    assert run_of(facade, "vision/train").spec.funding.sponsors == ("lab:speech:asr", "org:ai:text")
    cli("sponsors", "remove", "train", "lab:speech:asr")
    assert run_of(facade, "vision/train").spec.funding.sponsors == ("org:ai:text",)
    assert run_of(facade, "vision/train").spec.funding.max_borrow_gpus == 16


def test_conflicting_change_is_retried_until_limit(cli: Cli, facade: Facade) -> None:
    facade.conflicts = 2
    assert cli("shrink", "audio/sweep", "--to", "8").exit_code == 0
    facade.conflicts = 100
    done = cli("grow", "audio/sweep", "--to", "16")
    assert done.exit_code == 1
    assert "has been modified" in done.stderr


def test_cancel_stops_run(cli: Cli, facade: Facade) -> None:
    assert cli("cancel", "train").exit_code == 0
    assert run_of(facade, "vision/train").spec.stop
    facade.played.stage.advance_to(facade.played.now + 60_000)
    assert "Canceled" in cli("explain", "train").stdout


def test_submit_reports_each_document_of_a_file(cli: Cli, facade: Facade) -> None:
    budget = (
        "apiVersion: rq.davidlangworthy.io/v1\nkind: Budget\nmetadata: {name: extra}\n"
        "spec: {owner: 'org:extra', envelopes: [{name: e, flavor: H100-80GB, concurrency: 4}]}\n"
    )
    wrong = NEW.replace("probe", "wrong").replace("totalGPUs: 8", "totalGPUs: -8")
    here = NEW.replace("probe", "here").replace("8, gpusPerPod: 8", "4")
    done = cli("submit", "-f", "-", stdin="---\n".join([budget, wrong, here]))
    assert done.exit_code == 1  # one document was refused
    assert "run vision/wrong: Run 'wrong' is invalid" in done.stderr
    assert "spec.resources.totalGPUs: " in done.stderr
    first, second = done.stdout.splitlines()
    assert first == "budget vision/extra: created"
    assert second.startswith("run vision/here: Reserved: starts ")
    assert "vision/here" in facade.played.world.uid_of
    assert "vision/wrong" not in facade.played.world.uid_of


def test_submit_reports_nodes_and_payers_of_started_run(cli: Cli, facade: Facade) -> None:
    cli("cancel", "train")
    facade.played.stage.advance_to(facade.played.now + 60_000)
    tolerant = NEW.replace("name: probe", "name: quick")
    done = cli("submit", "-f", "-", stdin=tolerant)
    assert done.stdout.startswith("run vision/quick: Running: 8 GPUs bound on ")
    assert done.stdout.rstrip().endswith("paid by vision/vision/west=8")
    twice = cli("submit", "-f", "-", stdin=tolerant)
    assert twice.exit_code == 1
    assert "AlreadyExists" in twice.stderr


def test_submit_reports_why_run_is_pending(cli: Cli) -> None:
    nobody = NEW.replace("org:ai:mm:vision", "org:nobody")
    done = cli("submit", "-f", "-", stdin=nobody)
    assert done.stdout.startswith("run vision/probe: Pending (OwnerNotAllowed): ")


def test_submit_accepts_several_files(cli: Cli, facade: Facade, tmp_path: Path) -> None:
    names = ("first", "second", "third")
    for name in names[:2]:
        (tmp_path / name).write_text(NEW.replace("probe", name))
    files = ["-f", str(tmp_path / "first"), "-f", str(tmp_path / "second"), "-f", "-"]

    done = cli("submit", *files, stdin=NEW.replace("probe", "third"))

    assert done.exit_code == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        f"run vision/{name}" for name in names
    ]
    assert {f"vision/{name}" for name in names} <= set(facade.played.world.uid_of)
    assert "once" in cli("submit", "-f", "-", "-f", "-", stdin=NEW).stderr


@pytest.mark.parametrize("question", ["plan", "cover"])
def test_plan_and_cover_accept_several_files(cli: Cli, question: str, tmp_path: Path) -> None:
    (tmp_path / "first").write_text(NEW.replace("probe", "first"))

    done = cli(question, "-f", str(tmp_path / "first"), "-f", "-", stdin=NEW)

    assert "vision/first (" in done.stdout
    assert "vision/probe (" in done.stdout


def test_cancel_of_ended_run_reports_nothing_to_stop(cli: Cli, facade: Facade) -> None:
    done = cli("cancel", "speech/decode")

    assert done.exit_code == 0
    assert done.stdout == "run speech/decode is already Completed: there is nothing to stop\n"
    assert not run_of(facade, "speech/decode").spec.stop

    cli("cancel", "train")
    facade.played.stage.advance_to(facade.played.now + 60_000)
    again = cli("cancel", "train")
    assert again.stdout == "run vision/train is already Failed: there is nothing to stop\n"


def test_each_mistake_is_reported_once(cli: Cli) -> None:
    one = NEW.replace("totalGPUs: 8", "totalGPUs: -8")
    two = one.replace("checkpoint: 10m", "checkpoint: soon")

    said = cli("submit", "-f", "-", stdin=one).stderr
    assert said.count("spec.resources.totalGPUs") == 1
    assert len(said.splitlines()) == 1
    said = cli("submit", "-f", "-", stdin=two).stderr
    head, *rest = said.splitlines()
    assert head == "error: run vision/probe: Run 'probe' is invalid"
    assert [line.split(":")[0] for line in rest] == [
        "  spec.resources.totalGPUs",
        "  spec.runtime.checkpoint",
    ]
    said = cli("leases", "--since", "yesterday").stderr
    assert said.count("use a time") == 1
