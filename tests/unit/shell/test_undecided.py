"""A decision that fails about one run sets that run aside; one that fails otherwise is retried."""

import pytest
from tests.unit.shell.plant import START, Plant, followed

from leasehold.adapters.containment import About
from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.control.undecided import DecisionFailed
from leasehold.core.facts import Uid
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.units import MINUTE, SECOND, Instant
from leasehold.core.world.world import World
from leasehold.ports.store import NotFound, Watch
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.loop import Decider
from leasehold.sim.scenario.ledger import at_once


def failing(*names: str, tends: bool = False) -> Decider:
    """Return a decider that fails about these runs until they are quarantined or left alone.

    With `tends`, only leaving them alone helps.
    """

    def deciding(
        world: World,
        *,
        now: Instant,
        key: bytes,
        time_trusted: bool,
        quarantined: frozenset[Uid],
        left_alone: frozenset[Uid],
        is_strict: bool,
    ) -> Turn:
        apart = left_alone if tends else quarantined | left_alone
        for uid, run in world.runs.items():
            if run.name in names and uid not in apart:
                raise DecisionFailed(uid) from ZeroDivisionError("nobody thought of this")
        return decide(
            world,
            now=now,
            key=key,
            time_trusted=time_trusted,
            quarantined=quarantined,
            left_alone=left_alone,
            is_strict=is_strict,
        )

    return deciding


@pytest.mark.parametrize("tends", [False, True])
def test_run_whose_decision_fails_is_contained_and_others_go_on(tends: bool) -> None:
    plant = Plant(nodes=3, strict=False, decider=failing("bad", tends=tends))
    plant.submit("b/first", lasts=5 * MINUTE)
    plant.wait(MINUTE)
    plant.submit("a/bad")
    plant.submit("b/second")
    plant.wait(10 * MINUTE)
    assert plant.views()["b/first"] == ("Completed", "Completed", 0)
    assert plant.views()["b/second"] == ("Running", "Running", 8)
    assert plant.views()["a/bad"][2] == 0
    uid = plant.world.uid_of["a/bad"]
    assert plant.contained == [
        (About("Run", "bad", "a", uid), "ZeroDivisionError: nobody thought of this")
    ]
    assert not [each for each in plant.told if "stopped" in each]
    assert plant.problems() == []


def with_steps(most: list[int], failed: list[Instant] | None = None) -> Decider:
    """Return a decider whose step limit is the last of `most`; note in `failed` when it fails."""

    def deciding(
        world: World,
        *,
        now: Instant,
        key: bytes,
        time_trusted: bool,
        quarantined: frozenset[Uid],
        left_alone: frozenset[Uid],
        is_strict: bool,
    ) -> Turn:
        world.steps.most = most[-1]
        try:
            return decide(
                world,
                now=now,
                key=key,
                time_trusted=time_trusted,
                quarantined=quarantined,
                left_alone=left_alone,
                is_strict=is_strict,
            )
        except DecisionFailed:
            if failed is not None:
                failed.append(now - START)
            raise

    return deciding


SWEEP: Wire = {
    "gang": "Group",
    "resources": {"gpuType": "H", "totalGPUs": 400, "gpusPerPod": 1},
    "locality": {"groupGPUs": 1},
}


def test_run_that_takes_too_many_steps_is_quarantined_with_the_reason() -> None:
    plant = Plant(nodes=3, strict=False, decider=with_steps([300]))
    plant.submit("b/first")
    plant.submit("a/costly", **SWEEP)
    plant.submit("b/second")
    plant.wait(10 * MINUTE)

    assert plant.views()["b/first"] == ("Running", "Running", 8)
    assert plant.views()["b/second"] == ("Running", "Running", 8)
    assert plant.views()["a/costly"] == ("Pending", "Quarantined", 0)
    status = at_once(plant.store.get("Run", "a", "costly"))["status"]
    assert "takes more than 300 steps; use fewer groups" in str(status)
    assert "tried again after an edit" in str(status)
    [(about, why)] = plant.contained
    assert (about.kind, about.name, about.namespace) == ("Run", "costly", "a")
    assert why.startswith("a decision about this run takes more than 300 steps")
    assert plant.controller.trouble == ""
    assert plant.problems() == []


def test_run_that_took_too_many_steps_is_retried_when_it_is_edited() -> None:
    most = [300]
    plant = Plant(strict=False, decider=with_steps(most))
    plant.submit("a/costly", **SWEEP)
    plant.wait(MINUTE // 2)
    run = at_once(plant.store.get("Run", "a", "costly"))
    most.append(1_000_000)
    plant.wait(SECOND)
    before = plant.views()["a/costly"]

    spec = {**part(run, "spec"), "runtime": {"maxDuration": "1h"}}
    at_once(plant.store.update({**run, "spec": spec}))
    plant.wait(5 * SECOND)

    assert before == ("Pending", "Quarantined", 0)
    assert plant.views()["a/costly"] == ("Running", "Running", 16)


def test_run_that_took_too_many_steps_is_retried_after_growing_pauses() -> None:
    most, failed = [300], list[Instant]()
    plant = Plant(strict=False, decider=with_steps(most, failed))
    plant.submit("a/costly", **SWEEP)
    plant.wait(16 * MINUTE)
    most.append(1_000_000)
    plant.wait(16 * MINUTE)

    assert [round(at / MINUTE) for at in failed] == [0, 0, 1, 1, 3, 3, 7, 7, 15, 15]
    assert plant.views()["a/costly"] == ("Running", "Running", 16)
    assert len(plant.contained) == 1, "what is known already is not told again"


def test_elastic_run_with_thousands_of_widths_grows_to_limit_in_few_steps() -> None:
    """Once, each width was tried, widest first: a turn with two hundred such runs took 15 s."""
    taken: list[int] = []

    def count(world: World, _: Turn) -> None:
        taken.append(max(world.steps.by_run.values(), default=0))

    plant = Plant(nodes=3, decider=followed(decide, count))
    plant.submit("b/first")
    plant.wait(MINUTE)
    plant.submit(
        "a/elastic",
        resources={"gpuType": "H", "totalGPUs": 1, "gpusPerPod": 1},
        locality={"groupGPUs": 1},
        malleable={"minTotalGPUs": 1, "maxTotalGPUs": 4096, "desiredTotalGPUs": 4096},
    )
    plant.wait(MINUTE)

    assert plant.views()["a/elastic"] == ("Running", "Running", 16)
    assert 0 < max(taken) < 2_000


def test_sweep_that_never_started_takes_few_steps_each_turn() -> None:
    """Once, each turn checked each of 4,096 waiting groups, and thousands of sweeps may wait."""
    taken: list[dict[Uid, int]] = []
    plant = Plant(
        nodes=3, decider=followed(decide, lambda world, _: taken.append(dict(world.steps.by_run)))
    )
    resources = {"gpuType": "H", "totalGPUs": 4096, "gpusPerPod": 1}
    for number in range(4):
        plant.submit(f"a/sweep-{number}", **{**SWEEP, "resources": resources})
    plant.wait(MINUTE)
    waiting = [plant.world.uid_of[f"a/sweep-{number}"] for number in range(1, 4)]
    taken.clear()
    plant.submit("b/next")
    plant.wait(SECOND)

    assert [plant.views()[f"a/sweep-{number}"][2] for number in range(4)] == [24, 0, 0, 0]
    assert taken
    assert all(steps.get(uid, 0) < 1_000 for steps in taken for uid in waiting), taken


def test_run_whose_decision_fails_can_be_deleted() -> None:
    plant = Plant(strict=False, decider=failing("bad"))
    plant.submit("a/bad")
    plant.wait(MINUTE)
    at_once(plant.store.delete("Run", "a", "bad", uid=None))
    plant.wait(MINUTE)
    with pytest.raises(NotFound):
        at_once(plant.store.get("Run", "a", "bad"))


def test_decision_failure_without_a_run_stops_binding_and_is_retried() -> None:
    broken = [True]

    def fail_if_broken(_: World, __: Turn) -> None:
        if broken:
            raise ZeroDivisionError("nobody thought of this")

    plant = Plant(strict=False, decider=followed(decide, fail_if_broken))
    plant.wait(10 * MINUTE)
    assert plant.controller.trouble.startswith("no decision can be taken (ZeroDivisionError)")
    assert [about for about, _ in plant.contained] == [About("Task", "controller")]
    assert "alert: binding and preemption are stopped" in plant.told
    broken.clear()
    plant.wait(2 * MINUTE)
    assert plant.controller.trouble == ""


def test_failed_decision_stops_everything_in_strict_mode() -> None:
    plant = Plant(decider=failing("bad"))
    plant.submit("a/bad")
    with pytest.raises(ZeroDivisionError):
        plant.wait(MINUTE)


def test_one_failure_of_a_watch_does_not_stop_the_controller() -> None:
    plant = Plant(nodes=2, strict=False)
    plant.submit("a/one")
    plant.wait(MINUTE)
    watch, failures = plant.doomed.watch, [ZeroDivisionError("nobody thought of this")]

    def watched(kind: str, version: int) -> Watch:
        if kind == "Run" and failures:
            raise failures.pop()
        return watch(kind, version)

    plant.doomed.watch = watched  # type: ignore[method-assign]
    plant.control.crash()
    plant.wait(MINUTE)
    plant.submit("b/two")
    plant.wait(MINUTE)
    assert plant.views() == {
        "a/one": ("Running", "Running", 8),
        "b/two": ("Running", "Running", 8),
    }
    assert plant.contained == [
        (About("Task", "controller"), "ZeroDivisionError: nobody thought of this")
    ]
    assert "alert: binding and preemption are stopped" not in plant.told
    assert plant.controller.trouble == ""


def test_failing_work_between_turns_does_not_stop_the_controller() -> None:
    plant = Plant(nodes=2, strict=False)
    tries: list[int] = []

    async def between(_: World, __: Ledger) -> int:
        tries.append(plant.kernel.now)
        raise OSError("the archive is gone")

    plant.controller._between_turns = between
    plant.submit("a/one", lasts=MINUTE)
    plant.wait(10 * MINUTE)
    assert plant.views()["a/one"] == ("Completed", "Completed", 0)
    assert [about for about, _ in plant.contained] == [About("Task", "between turns")]
    assert len(tries) > 5
