"""Plays a scenario file on the shipped control loop in virtual time, and checks it.

Called by `leasehold sim scenario` and the tests. Without faults, every expectation is checked when
nothing is in progress. With faults, everything may take longer, so only general rules are checked:
the invariants at every commit; and, after the faults have stopped, ledger, audit and invariants.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.control.views import answers
from leasehold.core.units import MINUTE, Instant, Millis, format_span
from leasehold.core.world.world import World
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.expect import Judge
from leasehold.sim.scenario.ledger import digest_of_store, write_out
from leasehold.sim.scenario.parse import load_story
from leasehold.sim.scenario.stage import Observer, Stage, Violated, draw_rates
from leasehold.sim.scenario.story import Expect, RestartController, Step, Story

Echo = Callable[[str], object]
Look = Callable[[Stage], None]

HELD, MISSED, BAD_FILE = 0, 1, 2
QUIET: Millis = 10 * MINUTE  # time between the end of faults and the final checks
STORES = ("memory", "sqlite", "kube")
STORE_FILE = "store.sqlite"
SHOWS = ("explain", "who-pays", "leases", "budgets", "cover")


@dataclass
class StoryOutcome:
    """The result of playing a story. `code` is the command's exit status. `problems` has one line
    per failed check."""

    file: str
    code: int
    problems: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)  # faults that happened
    digest: str = ""  # of everything stored at the end


def run_scenario(
    path: Path | str,
    *,
    seed: int | None = None,
    faults: Mapping[str, float] | None = None,
    out: Path | None = None,
    show: Sequence[str] = (),
    echo: Echo = print,
    store: str = "memory",
    cluster: Callable[[], KubeContext] | None = None,
    archive: Path | None = None,
    look: Look | None = None,
) -> StoryOutcome:
    """Play one file and check it. With a `seed`, tasks run in a random order, and the faults are
    those that the seed draws, unless `faults` names their rates.

    - store "sqlite": everything is kept in `out`/store.sqlite or a temporary folder; a restart of
      the controller also reopens the file. Raise `BadStore` if that fails.
    - store "kube": everything is kept on an empty `cluster` and removed at the end. Raise
      `BadCluster` if that fails.
    - `archive`: compact as much as possible into this folder after every commit.
    - `look`: called after every step, when nothing is in progress.

    A story with `trouble` is played by `sim.faults` instead.
    """
    try:
        story = load_story(path)
    except BadFile as bad:
        lines = str(bad).splitlines()
        for line in lines:
            echo(line)
        return StoryOutcome(file=str(path), code=BAD_FILE, problems=lines)
    rates = faults if faults is not None else draw_rates(seed) if seed is not None else {}
    with _file_for(store, out) as file:
        stage = Stage(
            story,
            seed=seed,
            rates=rates,
            observe=_observer(story, echo),
            file=file,
            cluster=cluster if store == "kube" else None,
            archive=archive,
        )
        play = _Play(story, stage, is_faulty=bool(rates), echo=echo, look=look)
        with closing(play.stage):
            play.run()
            for line in _shown(show, play.stage):
                echo(line)
            if out is not None:
                write_out(play.stage.store, out, play.stage.archive)
            return play.outcome()


@contextmanager
def _file_for(store: str, out: Path | None) -> Iterator[Path | None]:
    assert store in STORES, store
    if store != "sqlite":
        yield None
    elif out is None:
        with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
            yield Path(folder) / STORE_FILE
    else:
        out.mkdir(parents=True, exist_ok=True)
        file = out / STORE_FILE
        if file.exists():  # it might be a real one
            raise BadStore(file, "already exists", "remove the folder, or name another one")
        yield file


class _Play:
    """One execution of a story: performs its steps and checks its expectations."""

    def __init__(
        self, story: Story, stage: Stage, *, is_faulty: bool, echo: Echo, look: Look | None
    ) -> None:
        self._story = story
        self.stage = stage
        self._is_faulty = is_faulty
        self._echo = echo
        self._look = look
        self._problems: list[str] = []
        self._actor = StoryUsers(
            self.stage.store,
            self.stage.fleet,
            admission=self.stage.admission,
            world=lambda: self.stage.world,
            now=lambda: self.stage.now,
        )

    def run(self) -> None:
        line = 1
        try:
            self.stage.settle()
            for step in self._story.steps:
                line = step.line
                self._take(step)
                if self._look is not None:
                    self._look(self.stage)
            if self._is_faulty:
                self.stage.stop_faults()
                self.stage.advance_to(self.stage.now + QUIET)
            self._judge_the_end(line)
        except Violated as violated:
            self._miss(line, [f"expected every invariant got {each}" for each in violated.problems])

    def outcome(self) -> StoryOutcome:
        faults = self.stage.faults
        return StoryOutcome(
            file=self._story.file,
            code=MISSED if self._problems else HELD,
            problems=self._problems,
            effects=Counter() if faults is None else faults.effects,
            digest=digest_of_store(self.stage.store),
        )

    def _take(self, step: Step) -> None:
        self.stage.advance_to(self._story.start + step.at)
        match step.action:
            case Expect() as expect:
                if not self._is_faulty:
                    self._judge(step, expect)
                return
            case RestartController():
                self._say(str(step.action))
                self.stage.start_controller()
            case _:
                self._say(str(step.action))
                performed = self._actor.perform(step)
                missed = self.stage.kernel.complete(performed, process=self.stage.user)
                if not self._is_faulty:
                    self._miss(step.line, missed)
        self.stage.settle()

    def _judge(self, step: Step, expect: Expect) -> None:
        world = self.stage.world
        if world is None:
            self._miss(step.line, ["expected a control loop at rest got one that has not started"])
            return
        judge = Judge(
            world,
            start=self._story.start,
            now=self.stage.now,
            ledger=self.stage.ledger,
            audit=self.stage.audit,
            archive=self.stage.archive,
        )
        missed = [each for wanted in expect.expectations for each in judge.mismatches(wanted)]
        verdict = f"{len(missed)} do not hold" if missed else "all hold"
        self._say(f"{step.action}: {verdict}")
        for line, text in missed:
            self._miss(line, [text])

    def _judge_the_end(self, line: int) -> None:
        """Check the rules that must hold at the end of every scenario."""
        self._miss(line, [f"expected ledger ok got {each}" for each in self.stage.ledger()])
        self._miss(line, [f"expected audit ok got {each}" for each in self.stage.audit()])
        self._miss(line, [f"expected every invariant got {each}" for each in self.stage.broken()])

    def _miss(self, line: int, texts: list[str]) -> None:
        for text in texts:
            problem = f"{self._story.file}:{line}: {text}"
            self._problems.append(problem)
            self._echo(problem)

    def _say(self, text: str) -> None:
        self._echo(f"{format_span(self.stage.now - self._story.start):>12}  {text}")


def _observer(story: Story, echo: Echo) -> Observer:
    echo(f"{story.file}: {story.title}")

    def observe(at: Instant, text: str) -> None:
        echo(f"{format_span(at - story.start):>12}    {text}")

    return observe


def _shown(names: Sequence[str], stage: Stage) -> list[str]:
    world = stage.world
    if world is None:
        return []
    return [line for name in names for line in _answer(name, world, stage.now)]


def _answer(name: str, world: World, now: Instant) -> list[str]:
    uids = sorted(world.runs, key=lambda uid: (world.runs[uid].created, world.runs[uid].key))
    match name:
        case "explain":
            return [line for uid in uids for line in answers.explain(world, uid, now)]
        case "who-pays":
            return [line for uid in uids for line in answers.who_pays(world, uid, now)]
        case "cover":
            return [line for uid in uids for line in answers.cover_lines(world, uid)]
        case "leases":
            return list(answers.leases(world, now))
        case _:
            assert name == "budgets", name
            return list(answers.budgets(world, now))
