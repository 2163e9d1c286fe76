"""A control plane over any store: the loop and everything that observes it or answers queries.

`leasehold up` creates a plane over SQLite and adds an agent and a server. On a cluster the store is
the API server, and Kubernetes does the rest. A plane is created once and may lead many times: for
as long as it runs, or from each gain of the tenure to its loss. While it does not lead, it has no
World and decides nothing.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from leasehold.adapters.containment import About, Containment, kept_up
from leasehold.control.turn import Turn
from leasehold.core.facts import Run
from leasehold.core.units import MINUTE, SECOND, Instant, Millis
from leasehold.core.world.world import World
from leasehold.ports.archive import Mirror
from leasehold.ports.runtime import Clock, Task, Tasks
from leasehold.ports.store import Store
from leasehold.ports.tenure import Tenure
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.requests import CompactionRequests
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.leadership.keeper import STOPPED
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.ledger.commit import Deposed
from leasehold.shell.loop.ended_pods import sweep_ended_pods
from leasehold.shell.loop.loop import Controller, NotCommitted
from leasehold.shell.loop.observer import LoopObserver
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.observe.drift import DriftWatch
from leasehold.shell.observe.events import EventWriter, Occurrence
from leasehold.shell.observe.logs import DecisionLog
from leasehold.shell.observe.metrics import Metrics
from leasehold.shell.queries.query import Judge, Questions

LEARN_PAUSE: Millis = SECOND // 10
LEARN_AGAIN: Millis = 10 * SECOND
FOLLOW_EVERY: Millis = 10 * MINUTE
SCRAPE_PATIENCE: Millis = SECOND  # for scrapes, which may skip a value during a commit

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Answering:
    """Settings of the query API. `judge` returns why a manifest would be rejected. Without
    `pseudonym_key`, hidden tenants get new pseudonyms with each start."""

    judge: Judge = lambda _: []
    hide_tenants: bool = False
    pseudonym_key: bytes | None = None


class Plane(LoopObserver):
    """The loop with its observers. It is also the component that its keeper starts and stops."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        terms: PlaneSettings,
        *,
        archive: Path | None = None,
        mirror: Mirror | None = None,
        answering: Answering | None = None,
        standby: Standby | None = None,
        sweeps_events: bool = True,
    ) -> None:
        """`mirror`: the bucket of which the archive folder is a copy. `standby` follows the ledger
        while another process leads; the caller has called its `begin`."""
        self._standby = standby
        self._mirror = mirror
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._log = DecisionLog()
        self._listeners: list[Callable[[Turn], None]] = []
        self._leading: Task | None = None
        self._on_deposed: Callable[[str], None] = lambda _: None
        self.metrics = Metrics(
            lambda: self.controller.settled,
            clock,
            decides=lambda: self.controller.is_deciding,
            gaps=lambda: self.controller.gaps,
        )
        self.teller = EventWriter(store, clock, tasks, sweeps=sweeps_events)
        self.containment = Containment(self._contained)
        self.compactor = Compactor(
            store,
            clock,
            folder=archive,
            keep_closed=terms.policy.keep_closed,
            max_objects=terms.policy.max_objects,
            alert=lambda words: self.alerted(clock.now(), words),
            mirror=mirror,
        )
        self.controller = Controller(
            store,
            clock,
            tasks,
            terms,
            audience=self,
            containment=self.containment,
            between_turns=self.compactor.step,
            standby=standby,
        )
        self.compactions = CompactionRequests(
            self.compactor, clock, wake=self.controller.wake, leads=lambda: self.world is not None
        )
        self._archive = None if archive is None else Archive(archive, self._why_archive_may_lack)
        self._drift = DriftWatch(clock, lambda: self.controller.world, self._drifted)
        told = answering or Answering()
        self.questions = Questions(
            self.controller.at_rest,
            clock,
            archive=self._archive,
            judge=told.judge,
            hide_tenants=told.hide_tenants,
            pseudonym_key=told.pseudonym_key,
        )

    @property
    def world(self) -> World | None:
        return self.controller.world

    @property
    def is_leading(self) -> bool:
        return self._leading is not None

    async def at_rest(self) -> World | None:
        """Return the World once everything in it is committed; None if that takes too long."""
        with suppress(NotCommitted):
            return await self.controller.at_rest(SCRAPE_PATIENCE)
        return None

    def begin(self, step: str) -> None:
        self.metrics.begin(step)

    def end(self, step: str) -> None:
        self.metrics.end(step)

    def turned(self, turn: Turn) -> None:
        self.metrics.after_turn(turn)
        self.teller.after_turn(turn)
        for hear in self._listeners:
            hear(turn)
        self._log.after_turn(turn)

    def alerted(self, at: Instant, words: str) -> None:  # noqa: ARG002 - logs have a clock
        self.metrics.note_alert()
        self._log.alert(words)

    def untried(self, run: Run, why: str) -> None:
        told = f"the API server could not check its pod template yet: {why}"
        self.teller.tell(
            Occurrence(
                kind="Run",
                namespace=run.namespace,
                name=run.name,
                uid=run.uid,
                reason="Untried",
                message=told,
                type="Warning",
            )
        )

    def listen(self, hear: Callable[[Turn], None]) -> None:
        """Call `hear` after every turn."""
        self._listeners.append(hear)

    def on_deposed(self, do: Callable[[str], None]) -> None:
        """Call `do` with the reason when the head shows that another process leads, although the
        keeper has not reported the loss of the tenure yet."""
        self._on_deposed = do

    def keep_up(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run a task for ever and restart it after each failure."""
        task = kept_up(name, work, clock=self._clock, containment=self.containment)
        self._tasks.spawn(name, task)

    def start(self) -> None:
        """Start the background tasks. Those that need a World do nothing while this process does
        not lead."""
        self.keep_up("events", self.teller.run)
        self.keep_up("ended pods", self._sweep_ended_pods)
        self.keep_up("drift", self._drift.run)
        if self._archive is not None:
            self.keep_up("archive", self._learn_archive)
        if self._mirror is not None:
            self.keep_up("mirror", self._follow_mirror)

    async def _learn_archive(self) -> None:
        """Read the archived lease times a segment at a time, so that no query has to read all of
        them."""
        assert self._archive is not None, "there is one"
        while True:
            learned = False
            with suppress(BadArchive):  # reported to queries that need the archive
                learned = self._archive.learn_one()
            await self._clock.sleep(LEARN_PAUSE if learned else LEARN_AGAIN)

    def gained(self, tenure: Tenure) -> None:
        assert self._leading is None, "a tenure is gained when there is none"
        self.controller.go_on()
        self._leading = self._tasks.spawn("controller", self._lead(tenure.epoch))

    def unsure(self) -> None:
        self.controller.hold_still()

    def sure(self) -> None:
        self.controller.go_on()

    def lost(self, why: str) -> None:
        """Stop leading and drop the World at once, because another process may lead by now. Must
        not await anything."""
        if self._leading is not None:
            self._leading.cancel()
            self._leading = None
        self.controller.drop()
        self.teller.forget()
        if self._standby is not None and why != STOPPED:
            self._standby.begin()

    async def _lead(self, epoch: int) -> None:
        try:
            await self.controller.lead(epoch)
        except Deposed:
            self.teller.forget()
            self._on_deposed("another process moved the ledger's head")

    async def _sweep_ended_pods(self) -> None:
        await sweep_ended_pods(
            self._store,
            self._clock,
            lambda: self.controller.settled,
            leads=self.controller.still_leads,
        )

    def _why_archive_may_lack(self) -> str:
        return "" if self._mirror is None else self._mirror.trouble

    async def _follow_mirror(self) -> None:
        """Copy what other processes archived into the archive folder, because queries need it even
        if this process has compacted nothing yet."""
        assert self._mirror is not None, "whoever has none does not get here"
        while True:
            try:
                await self._mirror.sync()
                pause = FOLLOW_EVERY
            except OSError as error:
                self.alerted(self._clock.now(), f"the archive cannot be read: {error}")
                pause = MINUTE
            await self._clock.sleep(pause)

    def _drifted(self, kind: str, words: str) -> None:
        self.metrics.note_drift(kind)
        self.alerted(self._clock.now(), f"drift: {words}")

    def _contained(self, about: About, why: str, error: Exception) -> None:
        """Record a contained failure as an Event on its object, and count it."""
        self.metrics.note_contained(about.kind)
        self.metrics.note_alert()
        _log.error("contained", about=about.words, message=why, exc_info=error)
        if about.kind != "Task":
            told = f"{why}; leasehold skips this object, and continues with all others"
            story = Occurrence(
                kind=about.kind,
                namespace=about.namespace,
                name=about.name,
                uid=about.uid,
                reason="Quarantined",
                message=told,
                type="Warning",
            )
            self.teller.tell(story)
