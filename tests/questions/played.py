"""A scenario played on the product's control loop, with questions asked about its World.

The scenario can stop at an instant, so that a question can be asked in the middle of it.
"""

import asyncio
from pathlib import Path

from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.units import Instant, Millis, parse_span
from leasehold.core.world.world import World
from leasehold.ports.archive import ArchivedLeases
from leasehold.shell.queries.query import Questions
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.parse import load_story
from leasehold.sim.scenario.stage import Stage
from leasehold.sim.scenario.story import Expect, RestartController

ROOT = Path(__file__).parents[2]
FIRST_DAY = ROOT / "demo" / "first-day.yaml"
SCENARIOS = ROOT / "tests" / "scenarios"
ADMIN = Caller(user="admin", role=CallerRole.ADMIN)


class Played:
    """A story played up to an instant; `ask` returns what the query API would answer then."""

    def __init__(self, file: Path, until: str | None = None) -> None:
        story = load_story(file)
        self.start = story.start
        self.stage = Stage(story, seed=7, rates={}, observe=lambda _at, _text: None)
        self._actor = StoryUsers(
            self.stage.store,
            self.stage.fleet,
            admission=self.stage.admission,
            world=lambda: self.stage.world,
            now=lambda: self.stage.now,
        )
        last = None if until is None else parse_span(until)
        self.stage.settle()
        for step in story.steps:
            if last is not None and step.at > last:
                break
            self.stage.advance_to(story.start + step.at)
            if isinstance(step.action, RestartController):
                self.stage.start_controller()
                self.stage.settle()
            elif not isinstance(step.action, Expect):
                self.stage.kernel.complete(self._actor.perform(step), process=self.stage.user)
                self.stage.settle()
        if last is not None:
            self.stage.advance_to(story.start + last)

    @property
    def world(self) -> World:
        assert self.stage.world is not None
        return self.stage.world

    @property
    def now(self) -> Instant:
        return self.stage.now

    def questions(
        self, *, archive: ArchivedLeases | None = None, hide_tenants: bool = False
    ) -> Questions:
        return Questions(
            self._at_rest,
            self.stage.user.clock,
            archive=archive,
            hide_tenants=hide_tenants,
            pseudonym_key=b"tests",
        )

    async def _at_rest(self, _: Millis) -> World | None:
        return self.stage.controller.settled

    def ask(
        self,
        question: str,
        body: Wire | None = None,
        *,
        caller: Caller = ADMIN,
        archive: ArchivedLeases | None = None,
        hide_tenants: bool = False,
        **params: str,
    ) -> Wire:
        questions = self.questions(archive=archive, hide_tenants=hide_tenants)
        named = {name.rstrip("_"): value for name, value in params.items()}
        return asyncio.run(questions.ask(caller, question, named, body))
