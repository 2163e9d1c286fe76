"""Every scenario with a compaction after every commit: the compaction changes no result."""

from pathlib import Path

import msgspec
import pytest
from tests.archive.looks import differences
from tests.seeds import Budget

from leasehold.sim.faults.stories import story_of
from leasehold.sim.scenario.ledger import at_once
from leasehold.sim.scenario.runner import HELD, run_scenario
from leasehold.sim.scenario.stage import Stage

STORIES = sorted((Path(__file__).parents[1] / "scenarios").glob("*.yaml"))
SHARES = 8
SEEDED = STORIES[::7]
NEVER_BROKEN = ("expected every invariant", "expected ledger ok", "expected audit ok")


@pytest.mark.parametrize("share", range(SHARES))
def test_scenario_holds_with_compaction_and_restart_reads_the_same_world(
    share: int, tmp_path: Path, budget: Budget
) -> None:
    archived = 0
    for number, story in enumerate(budget.of(2, STORIES[share::SHARES])):
        folder, found = tmp_path / str(number), list[str]()
        stages: list[Stage] = []

        def look(stage: Stage, found: list[str] = found, stages: list[Stage] = stages) -> None:
            found += differences(stage)
            stages.append(stage)

        outcome = run_scenario(story, archive=folder, echo=lambda _: None, look=look)
        assert outcome.code == HELD, outcome.problems
        assert found == [], story.name
        world = stages[-1].world
        assert world is not None
        assert world.carried.seq == world.head.seq, "the last commit is archived, too"
        archived += sum(len(charges) > 0 for charges in world.carried.charges.values())
    assert archived > 0, "no lease was archived, so this tests nothing"


@pytest.mark.parametrize("seed", [3, 14, 26, 44, 58])
def test_random_story_with_compaction_reads_the_same_world_after_restart(
    seed: int, tmp_path: Path
) -> None:
    story, found = tmp_path / "story.yaml", list[str]()
    story.write_text(story_of(seed))
    outcome = run_scenario(
        story,
        archive=tmp_path / "archive",
        echo=lambda _: None,
        look=lambda stage: found.extend(differences(stage)),
    )
    broken = [each for each in outcome.problems if any(word in each for word in NEVER_BROKEN)]
    assert broken == found == []


@pytest.mark.parametrize("seed", [11, 12])
def test_scenario_with_compaction_holds_under_faults(
    seed: int, tmp_path: Path, budget: Budget
) -> None:
    lines: list[str] = []
    for number, story in enumerate(budget.of(1, SEEDED)):
        outcome = run_scenario(
            story, seed=seed, archive=tmp_path / str(number), echo=lambda line: lines.append(line)
        )
        assert outcome.code == HELD, outcome.problems
    assert [line for line in lines if "not archived" in line or "not compacted" in line] == []


def test_scenario_with_compaction_holds_with_restart_after_every_step(tmp_path: Path) -> None:
    def restart(stage: Stage) -> None:
        stage.start_controller()
        stage.settle()

    stories = [each for each in STORIES if each.name.startswith(("life", "failure", "resize"))]
    for number, story in enumerate(stories):
        outcome = run_scenario(
            story, archive=tmp_path / str(number), echo=lambda _: None, look=restart
        )
        assert outcome.code == HELD, outcome.problems


def test_archive_and_store_together_have_every_committed_batch(tmp_path: Path) -> None:
    story = next(each for each in STORIES if each.name.startswith("A5-a-checkpoint"))
    committed: list[object] = []

    def note(stage: Stage) -> None:
        """Collect every batch that was ever created from the store's own history."""
        watch = stage.store.watch("LedgerBatch", 0)
        head = at_once(stage.store.get("LedgerHead", "", "main"))["spec"]
        assert isinstance(head, dict)
        committed.clear()
        while len(committed) < head["seq"]:
            event = at_once(watch.next())
            if event.type == "ADDED":
                committed.append(event.object["spec"])
        watch.close()

    outcome = run_scenario(
        story, out=tmp_path / "out", archive=tmp_path / "archive", echo=lambda _: None, look=note
    )
    assert outcome.code == HELD
    exported = (tmp_path / "out" / "ledger.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line) for line in exported] == committed
    assert len(committed) > 3
    files = sorted((tmp_path / "archive").glob("ledger-*.jsonl"))
    assert b"".join(file.read_bytes() for file in files).splitlines() == exported
