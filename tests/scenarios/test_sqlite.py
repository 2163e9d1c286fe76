"""A dozen stories on a real file: they pass there, byte for byte the same as in memory.

`restart: controller` also closes the file and opens it again. Not every story is played, to save
time: each write waits for the disk.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.adapters.sqlite.errors import BadStore
from leasehold.cli.main import main
from leasehold.sim.scenario.runner import run_scenario

FOLDER = Path(__file__).parent
STORIES = (
    "api-leases-answer-when-all-is-over",
    "B3-a-node-change-is-worth-another-try",
    "A5-a-checkpoint-keeps-the-place-in-the-queue",
    "A4-a-held-node-dies",
    "S2-two-nodes-fail-at-once",
    "F3-a-filler-ends-with-its-spare",
    "runs-cancelled-while-waiting-and-running",
    "R3-a-fixed-and-an-elastic-run-make-way",
    "P4-a-gang-over-two-locations",
    "Q4-a-plan-holds-hours-and-concurrency",
    "E1-several-steps-at-once",
    "G4-a-group-is-requeued-alone",
)
RESTARTS = sorted(path.stem for path in FOLDER.glob("restart-*.yaml"))


@pytest.mark.parametrize("story", STORIES)
def test_story_has_the_same_digest_on_a_file(story: str) -> None:
    told: list[str] = []
    kept = run_scenario(FOLDER / f"{story}.yaml", store="sqlite", echo=told.append)

    assert kept.code == 0, "\n".join(told)
    assert kept.digest == run_scenario(FOLDER / f"{story}.yaml", echo=lambda _: None).digest


@pytest.mark.parametrize("story", RESTARTS)
def test_story_with_restarts_passes_on_a_file(story: str) -> None:
    told: list[str] = []
    outcome = run_scenario(FOLDER / f"{story}.yaml", store="sqlite", echo=told.append)

    assert outcome.code == 0, "\n".join(told)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_story_with_restarts_passes_on_a_file_under_faults(seed: int) -> None:
    outcome = run_scenario(
        FOLDER / f"{RESTARTS[0]}.yaml", seed=seed, store="sqlite", echo=lambda _: None
    )

    assert outcome.code == 0, outcome.problems


def test_sim_scenario_writes_the_store_file_and_refuses_an_existing_one(tmp_path: Path) -> None:
    story = str(FOLDER / f"{STORIES[0]}.yaml")
    arguments = ["sim", "scenario", story, "--store", "sqlite", "--out", str(tmp_path), "--quiet"]
    first, second = (CliRunner().invoke(main, arguments) for _ in range(2))

    assert first.exit_code == 0, first.output
    assert (tmp_path / "store.sqlite").stat().st_size > 0
    assert not (tmp_path / "store.sqlite-wal").exists()
    assert second.exit_code == 2
    assert "already exists" in second.output
    with pytest.raises(BadStore):
        run_scenario(story, store="sqlite", out=tmp_path, echo=lambda _: None)
