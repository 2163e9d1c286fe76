"""An answer at any moment, under faults, contains nothing that is not in the ledger."""

from pathlib import Path
from random import Random

import pytest
from tests.questions.played import ADMIN

from leasehold.control.questions.answers.leases import LeasesAnswer
from leasehold.core.ledger.batch import batch_from_wire
from leasehold.core.ledger.chain import GENESIS
from leasehold.core.objects.wire import part
from leasehold.core.units import MINUTE
from leasehold.shell.queries.query import BadQuestion, Questions
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.ledger import lines_after
from leasehold.sim.scenario.parse import load_story
from leasehold.sim.scenario.stage import Stage

STORY = """\
title: Runs come and go on a fleet that is always full
fleet: [{domain: a, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}]
budgets: {t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 16}]}}
steps:
  - {at: 0s, submit: {t/a: &run {owner: "t:one", resources: {gpuType: H, totalGPUs: 8}}},
     work: {lasts: 2m}}
  - {at: 10s, submit: {t/b: *run}, work: {lasts: 2m}}
  - {at: 20s, submit: {t/c: *run}, work: {lasts: 2m}}
  - {at: 30s, submit: {t/d: *run}, work: {lasts: 2m}}
  - {at: 3m, submit: {t/e: *run}, work: {lasts: 1m}}
"""
SLOW = {"slow": 0.9, "lose-answer": 0.1, "refuse": 0.1, "kill-before": 0.01, "kill-after": 0.01}


class Asker:
    """Asks for all leases again and again, and compares each answer with the ledger."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self._stage = stage
        self._random = Random(f"{seed}/asker")
        self._process = stage.kernel.process("asker")
        self._process.tasks.spawn("asker", self._run())
        self.answers = 0
        self.waits = 0  # questions that came while a decision was being committed
        self.phantoms: list[str] = []
        self.refusals: set[int] = set()

    async def _run(self) -> None:
        while True:
            await self._process.clock.sleep(self._random.randrange(1, 200))
            controller = self._stage.controller
            self.waits += controller.settled is not controller.world
            questions = Questions(controller.at_rest, self._process.clock)
            try:
                answered = await questions.answer(ADMIN, "leases", {"closed": "true"})
            except BadQuestion as bad:
                self.refusals.add(bad.status)
                continue
            found = answered.found
            assert isinstance(found, LeasesAnswer)
            opened, closed = self._committed()
            self.answers += 1
            self.phantoms += [each.lease for each in found.items if each.lease not in opened]
            self.phantoms += [
                f"{each.lease} closed"
                for each in found.items
                if each.closed and each.lease not in closed
            ]

    def _committed(self) -> tuple[set[str], set[str]]:
        opened: set[str] = set()
        closed: set[str] = set()
        for line in lines_after(self._stage.store, 0, GENESIS):
            batch = batch_from_wire(part(line, "batch"))
            opened |= {each.name for each in batch.opened}
            closed |= {each.lease for each in batch.closed}
        return opened, closed


@pytest.mark.parametrize("seed", range(4))
def test_answers_under_faults_contain_only_committed_leases(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    file.write_text(STORY)
    story = load_story(file)
    stage = Stage(story, seed=seed, rates=SLOW, observe=lambda _at, _text: None)
    asker = Asker(stage, seed)
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
        stage.kernel.complete(actor.perform(step), process=stage.user)
        stage.settle()
    stage.advance_to(story.start + 8 * MINUTE)

    assert asker.phantoms == []
    assert asker.refusals <= {503}
    assert asker.answers > 1000
    assert asker.waits > 5, "nobody ever asked at the wrong moment"
