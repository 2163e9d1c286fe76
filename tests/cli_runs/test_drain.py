"""`leasehold drain` reports what happens to each run, and writes the drain to the Node object."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.cli_runs.facade import Facade
from tests.cli_runs.test_golden import FORMS, assert_golden

from leasehold.cli.main import main
from leasehold.core.objects.node import DRAIN
from leasehold.core.objects.wire import part

Leasehold = Callable[..., Result]


@pytest.fixture
def leasehold(config: Path) -> Leasehold:
    def run(*words: str) -> Result:
        result = CliRunner().invoke(main, list(words), env={"KUBECONFIG": str(config)})
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def node(facade: Facade, name: str) -> tuple[object, object]:
    """Return who drains the node, and whether it is unschedulable."""
    stage = facade.played.stage
    wire = stage.kernel.complete(stage.store.get("Node", "", name), process=stage.user)
    annotations = part(part(wire, "metadata"), "annotations")
    return annotations.get(DRAIN), part(wire, "spec").get("unschedulable")


@pytest.mark.parametrize("form", FORMS)
def test_drain_requeues_run_despite_conflicts(
    facade: Facade, leasehold: Leasehold, form: str
) -> None:
    facade.conflicts = 2  # another client changes the node twice
    done = leasehold("drain", "b-01", "-o", form)
    assert (done.stderr, done.exit_code) == ("", 0)
    assert_golden(f"drain.{form}", done.stdout)
    assert node(facade, "b-01") == ("admin", True)


def test_drain_shrinks_elastic_run_and_waits_for_plain_run(
    facade: Facade, leasehold: Leasehold
) -> None:
    done = leasehold("drain", "b-00")
    assert done.stdout == (
        "audio/sweep gave up group 0 and continued\nnode b-00 is empty and takes no new work\n"
    )
    done = leasehold("drain", "a-00", "--wait", "0.01")
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "vision/train stays until it ends by itself: it has no runtime.checkpoint, and too few "
        "spares to move to",
        "error: node a-00 still runs vision/train after 0.01 s; the node gets no new work, "
        "and the drain continues",
    ]
    assert leasehold("drain", "a-00", "--wait", "0.01", "-o", "json").stderr.count("\n") == 1
    assert leasehold("drain", "a-00", "--wait", "0").exit_code == 1, "--wait 0 looks exactly once"


def test_drain_ends_when_the_last_run_has_ended(facade: Facade, leasehold: Leasehold) -> None:
    stage, world = facade.played.stage, facade.played.world
    uid = world.uid_of["vision/train"]

    def tick() -> None:
        """End the pods of the run at the third equal request."""
        if facade.asked.count(facade.asked[-1]) == 3:
            for index in range(3):
                stage.fleet.exit_pod((uid, 0, index), 0)
            stage.settle()

    facade.tick = tick
    done = leasehold("drain", "a-00")
    assert done.stdout.splitlines() == [
        "vision/train ended (Completed)", "node a-00 is empty and takes no new work",
    ]  # fmt: skip
    assert "stays until it ends by itself" in done.stderr


def test_undo_makes_node_take_work_again(facade: Facade, leasehold: Leasehold) -> None:
    leasehold("drain", "b-01")
    assert leasehold("drain", "b-01", "--undo").stdout == "node b-01 accepts work again\n"
    assert node(facade, "b-01") == (None, None)
    assert not facade.played.world.fleet.draining


def test_drain_fails_if_another_user_undoes_it(facade: Facade, leasehold: Leasehold) -> None:
    stage = facade.played.stage

    def tick() -> None:
        if facade.asked.count(facade.asked[-1]) == 3:
            wire = stage.kernel.complete(stage.store.get("Node", "", "a-00"), process=stage.user)
            del part(wire, "spec")["unschedulable"]
            stage.kernel.complete(stage.store.update(wire), process=stage.user)
            stage.settle()

    facade.tick = tick
    done = leasehold("drain", "a-00")
    assert done.exit_code == 1
    assert "the drain of node a-00 was cancelled by another client" in done.stderr


def test_drain_without_user_review_marks_node_as_asked(
    facade: Facade, leasehold: Leasehold
) -> None:
    facade.answers_reviews = False
    assert leasehold("drain", "b-01").exit_code == 0
    assert node(facade, "b-01") == ("asked", True)


def test_drain_and_fence_of_missing_node_fail_with_message(leasehold: Leasehold) -> None:
    for words in (["drain"], ["drain", "--undo"], ["fence"], ["fence", "--force"]):
        done = leasehold(*words, "z-00")
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr == "error: there is no node z-00; `kubectl get nodes` lists them\n"


@pytest.mark.parametrize("word", ["drain", "fence"])
def test_node_commands_have_context_but_no_namespace_option(
    leasehold: Leasehold, word: str
) -> None:
    assert "--namespace" not in leasehold(word, "--help").stdout
    assert "--context" in leasehold(word, "--help").stdout
