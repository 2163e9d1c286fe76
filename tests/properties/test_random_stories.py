"""Random stories: no invariant breaks while they are played, and no run is left behind at the end.

RANDOM_STORY=17 plays that seed alone; `python -m leasehold.sim.faults.stories 17` prints it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seeds import Budget

from leasehold.control.reservations import present
from leasehold.control.running.life import UnitStanding, is_over, units_of
from leasehold.control.scheduling.holds import ends_at, hold_of
from leasehold.control.scheduling.requests import (
    groups_short_of_minimum,
    start_request_for,
    waiting_groups,
)
from leasehold.core.admission.admit import admit, owner_allowed
from leasehold.core.admission.order import in_order
from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Lease, Role, Run
from leasehold.core.placement.drain import (
    DrainAction,
    how_to_leave,
    places_to_leave,
    spares_to_drop,
)
from leasehold.core.reservations import Confidence, State
from leasehold.core.units import HOUR, MINUTE, Instant
from leasehold.core.verdicts import Admitted
from leasehold.core.world.width import starting_gpus
from leasehold.core.world.world import World
from leasehold.sim.faults.stories import story_of
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.runner import BAD_FILE, run_scenario
from leasehold.sim.scenario.stage import Stage
from leasehold.sim.scenario.story import RestartController

SEEDS = [int(os.environ["RANDOM_STORY"])] if "RANDOM_STORY" in os.environ else range(40)
SHARES = 4
FAULTY_SEEDS = SEEDS if "RANDOM_STORY" in os.environ else range(100, 108)
REST = 30 * HOUR  # longer than any limit, grace or tenure in the stories
NEVER_BROKEN = ("expected every invariant", "expected ledger ok", "expected audit ok")


@pytest.mark.parametrize("share", range(SHARES))
def test_every_promise_about_the_final_state_is_kept_after_a_random_story(
    share: int, budget: Budget
) -> None:
    for seed in budget.of(3, SEEDS[share::SHARES]):
        _leaves_no_run_behind(seed)


def _leaves_no_run_behind(seed: int) -> None:
    stage = _played(seed)
    stage.advance_to(stage.now + REST)
    world = stage.world
    assert world is not None
    found = [*stage.ledger(), *stage.audit(), *stage.broken(), *left_behind(world, stage.now)]
    assert not found, "\n".join([f"RANDOM_STORY={seed}", *found])
    before = _standing_state(world)
    stage.start_controller()
    stage.settle()
    assert stage.world is not None
    assert _standing_state(stage.world) == before, f"RANDOM_STORY={seed}: a restart changed it"


def test_invariants_hold_in_random_stories_under_faults(tmp_path: Path, budget: Budget) -> None:
    for seed in budget.of(3, FAULTY_SEEDS):
        _holds_under_faults(seed, tmp_path)


def _holds_under_faults(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    file.write_text(story_of(seed))
    first, second = (run_scenario(file, seed=seed, echo=lambda _: None) for _ in range(2))
    assert first.code != BAD_FILE
    broken = [each for each in first.problems if any(word in each for word in NEVER_BROKEN)]
    assert not broken, "\n".join([f"RANDOM_STORY={seed}", *broken])
    assert first.digest == second.digest


def test_hash_seed_does_not_change_random_stories(tmp_path: Path) -> None:
    code = (
        "import sys; from leasehold.sim.scenario.runner import run_scenario\n"
        "for file in sys.argv[1:]: print(run_scenario(file, echo=lambda _: None).digest)"
    )
    files = [tmp_path / f"{seed}.yaml" for seed in range(4)]
    for seed, file in enumerate(files):
        file.write_text(story_of(seed))
    said = [
        subprocess.run(
            [sys.executable, "-c", code, *map(str, files)],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert said[0] == said[1]


def _played(seed: int) -> Stage:
    """Return the stage after the last step, whether or not the server accepted the steps."""
    story = parse_story(story_of(seed), f"seed {seed}")
    stage = Stage(story, seed=None, rates={}, observe=lambda *_: None)
    actor = StoryUsers(
        stage.store,
        stage.fleet,
        admission=stage.admission,
        world=lambda: stage.world,
        now=lambda: stage.now,
    )
    stage.settle()
    for step in story.steps:
        stage.advance_to(story.start + step.at)
        if isinstance(step.action, RestartController):
            stage.start_controller()
        else:
            stage.kernel.complete(actor.perform(step), process=stage.user)
        stage.settle()
    return stage


def left_behind(world: World, now: Instant) -> Iterator[str]:
    """Yield every promise about the final state that was not kept."""
    for uid in world.runs:
        run = world.runs[uid]
        if is_over(world, run):
            yield from _holds_something(world, run)
    for uid in world.work.pending:
        yield from _waits_in_vain(world, world.runs[uid], now)
    for name in world.ending:
        yield from _will_not_end(world, world.leases[name], now)
    for payer, names in world.open_by_payer.items():
        envelope = world.envelopes.get(payer)
        standing = [each for name in names if (each := world.leases[name]).ending is None]
        gpus = sum(lease.gpus for lease in standing)
        within = envelope is not None and envelope.in_window(now) and gpus <= envelope.concurrency
        if gpus and not within:
            yield f"{payer} still pays for {gpus} GPUs that it may not pay for"
    for name in world.fleet.draining:
        yield from _could_have_left(world, name)
    yield from _first_could_start(world, now)


def _could_have_left(world: World, name: str) -> Iterator[str]:
    for uid in sorted({world.leases[each].uid for each in world.open_by_node.get(name, ())}):
        run = world.runs.get(uid)
        for node, unit in places_to_leave(world, uid) if run is not None else ():
            assert run is not None
            leaving = how_to_leave(world, run, node, unit)
            spares = [spare.node for each in leaving.takeovers for spare in each.spares]
            waits = any(world.leases[each].role is Role.BORROWED and each in world.ending
                        for spare in spares for each in world.open_by_node[spare])  # fmt: skip
            if leaving.way is not DrainAction.WAIT and not waits:
                yield f"{run.key} could leave {node} ({leaving.way}) and is still there"
        for spare in spares_to_drop(world, uid):
            yield f"spare {spare.name} holds GPUs of {name}, which is drained"


def _holds_something(world: World, run: Run) -> Iterator[str]:
    if world.open_by_run.get(run.uid):
        yield f"{run.key} is over and has leases {sorted(world.open_by_run[run.uid])}"
    if present(world, run) is not None:
        yield f"{run.key} is over and has a reservation"


def _waits_in_vain(world: World, run: Run, now: Instant) -> Iterator[str]:
    reservation = present(world, run)
    live = sum(where.standing is UnitStanding.LIVE for where in units_of(world, run).values())
    is_wide = live * run.spec.group_gpus >= starting_gpus(run.spec)  # no more run at once (G2)
    if run.uid not in world.memory.refusals and not is_wide:
        yield f"{run.key} waits without a stated reason"
    if reservation is None:
        return
    hold = hold_of(world, run)
    if hold is not None and now > ends_at(world, hold):
        yield f"{run.key} does not start, and its place is held after the timeout"
    # From its start on, a run that lacks budget claims what comes free (Q6): no other start.
    is_planned = reservation.confidence is not Confidence.MONEY
    if reservation.state is State.PENDING and is_planned and reservation.starts < now - MINUTE:
        yield f"{run.key} was to start {(now - reservation.starts) // MINUTE} minutes ago"


def _will_not_end(world: World, lease: Lease, now: Instant) -> Iterator[str]:
    """Only a stuck pod or a silent node may keep a lease past its deadline."""
    state = world.fleet.nodes.get(lease.node)
    pod = world.pods.get(f"{lease.namespace}/{lease.pod}")
    assert lease.ending is not None
    stuck = state is not None and (not state.node.ready or (pod is not None and pod.deleting))
    if lease.ending.deadline < now and not stuck:
        yield f"{lease.name} was to end at {lease.ending.deadline}"


def _first_could_start(world: World, now: Instant) -> Iterator[str]:
    """The first run in the queue must start if it fits and is funded, unless GPUs are held."""
    line = [run for run in in_order(world, world.work.pending) if owner_allowed(world, run) is None]
    firm = [
        each
        for run in line
        if (each := present(world, run)) is not None
        and (each.state is State.ACTIVATING or each.confidence is Confidence.CUTS)
    ]
    for run in line:
        groups = groups_short_of_minimum(world, run, waiting_groups(world, run, now))
        if groups:
            answer = admit(
                world, start_request_for(world, run, groups), Calendar(), start=now, now=now
            )
            if isinstance(answer, Admitted) and not firm:
                yield f"{run.key} is first in the queue, funded and placed, and does not start"
            return


def _standing_state(world: World) -> tuple[object, ...]:
    """Return what a controller without memory must find again."""
    leases = sorted((name, each.ending) for name, each in world.leases.items() if each.is_open)
    plans = sorted(
        (each.run_key, each.state)
        for run in world.runs.values()
        if (each := present(world, run)) is not None
    )
    return leases, plans, sorted(world.work.pending), sorted(world.overdrafts)
