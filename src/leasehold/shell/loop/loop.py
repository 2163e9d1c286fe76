"""The loop: read, decide, commit, materialise. All effects of decisions happen here.

Runs on any store, clock and task port: asyncio in production, the simulator's kernel on virtual
time. Events and timers only wake the loop; every decision is taken from the World as a whole.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from leasehold.adapters.containment import About, Containment
from leasehold.control.decide import decide
from leasehold.control.double_claims import double_claims
from leasehold.control.touched import broken_by
from leasehold.control.turn import Turn
from leasehold.core.facts import Run, Uid
from leasehold.core.ledger.batch import Batch
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import FOREVER, Instant, Millis
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock, Signal, Task, Tasks
from leasehold.ports.store import Store
from leasehold.shell.archive.checkpoints import CheckpointLost
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.ledger.commit import Deposed, HeadLost, Ledger
from leasehold.shell.ledger.gaps import Gaps
from leasehold.shell.ledger.read_chain import BatchLost
from leasehold.shell.loop.defects import Defects, InvariantBroken, about_whom, cause_of
from leasehold.shell.loop.dry_runs import DryRuns, untold
from leasehold.shell.loop.effects import RETRY_MS, Effects
from leasehold.shell.loop.folding import Fold, fold_of, fold_of_gone, fold_of_unreadable, uid_of
from leasehold.shell.loop.informer import Informer, News, hear_of_ours
from leasehold.shell.loop.materialise import materialise
from leasehold.shell.loop.observer import LoopObserver
from leasehold.shell.loop.quarantine import Quarantine
from leasehold.shell.loop.recover import WATCHED, recover, touch_unbound
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.loop.stored import Unreadable, readable
from leasehold.shell.loop.timekeeping import Timekeeper

# Work between turns that needs the World exclusively, such as compaction. Does a bounded piece and
# returns the longest time in ms until the next call.
BetweenTurns = Callable[[World, Ledger], Awaitable[Millis | None]]


class Decider(Protocol):
    """The type of the function that takes the decisions of a turn, `control.decide`."""

    def __call__(
        self,
        world: World,
        *,
        now: Instant,
        key: bytes,
        time_trusted: bool,
        quarantined: frozenset[Uid],
        left_alone: frozenset[Uid],
        is_strict: bool,
    ) -> Turn: ...


# An event passes through a few tasks before it reaches the inbox. Let it arrive before acting on
# the clock: a pod that ends exactly at its run's limit has completed.
_HOPS = 8

REST = 2  # pause between turns, as a multiple of the last decision's time
REST_MAX: Millis = 500
LOST_AGAIN_MS: Millis = 10_000  # pause before a damaged ledger is read again


class NotCommitted(Exception):  # noqa: N818 - named for the condition
    """A decision is still not committed after the time that the caller was willing to wait."""


class Controller:
    """The loop of one control plane process. `world` is None before recovery and after being
    deposed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        terms: PlaneSettings,
        *,
        audience: LoopObserver | None = None,
        containment: Containment | None = None,
        between_turns: BetweenTurns | None = None,
        standby: Standby | None = None,
        decider: Decider = decide,
    ) -> None:
        """`standby` has a copy of the ledger when this process begins to lead, so that recovery is
        fast."""
        self._store = store
        self._standby = standby
        self._clock = clock
        self._tasks = tasks
        self._terms = terms
        self._policy = terms.policy
        self._is_still = False
        self._decide = decider
        self._audience = audience or LoopObserver()
        self._between_turns = between_turns
        self._epoch: int | None = None  # the epoch in the head, once sealed
        self._thought: Millis = 0  # duration of the last decision
        self._wake = tasks.signal()
        self._rested: list[Signal] = []  # one per caller that waits for a commit
        self._is_committing = False
        self._inbox: list[News] = []
        self._informers: list[Task] = []
        self._tryouts = DryRuns(terms.rehearse, self._audience.untried)
        self._containment = containment or Containment()
        self._defects = Defects(
            self._containment, alert=self._alert, stop_starting=self.start_nothing
        )
        self._doubt: Exception | None = None  # error of an informer
        self._has_recovered = False
        self._gaps: Gaps | None = None  # set while leading on a shared store
        self._lost = ""  # why the ledger cannot be read
        self._lost_batches = 0
        self.world: World | None = None

    async def run(self) -> None:
        """Lead for ever as the only controller, without a keeper. After `Deposed`, retry with the
        same epoch: the retry fails while the head has a newer epoch, so a newer leader is never
        displaced."""
        while True:
            try:
                await self.lead(self._epoch)
            except Deposed:
                words = "deposed: another process moved the ledger's head"
                self._audience.said(self._clock.now(), words)
                await self._clock.sleep(RETRY_MS)

    async def lead(self, epoch: int | None = None) -> None:
        """Recover, then take turn after turn; recover again after failures. Raise `Deposed` if
        another process leads by now. Without `epoch`, use the one after the head's."""
        self._epoch = epoch
        while True:
            try:
                await self._recover()
                while True:
                    await self._live()
            except Deposed:
                self.drop()
                raise
            except InvariantBroken as broken:
                if self._terms.is_strict:
                    raise
                self.drop()
                self._defects.broken(broken)
            except (BatchLost, HeadLost, CheckpointLost) as lost:
                # On a single machine the operator restores a backup, with the server stopped.
                if self._terms.is_strict or not self._terms.is_shared:
                    raise
                self.drop()
                self._note_lost(lost)
                await self._clock.sleep(LOST_AGAIN_MS)
            except Exception as error:
                # A failure before the first recovery is fatal.
                if self._terms.is_strict or not self._has_recovered:
                    raise cause_of(error) from None
                known = self.world.runs if self.world is not None else {}
                pause = self._defects.failed(
                    error, known.get(about_whom(error)), self._clock.monotonic()
                )
                self.drop()
                await self._clock.sleep(pause)

    def drop(self) -> None:
        """Forget everything at once. Until the next recovery, queries get no answer."""
        for task in self._informers:
            task.cancel()
        self._informers.clear()
        self._inbox.clear()
        self._doubt = None
        self._gaps = None
        self.world = None
        self._set_committing(is_committing=False)

    @property
    def about(self) -> str:
        """The key of the Run that is being decided on right now; "" if none. Another thread may
        read it."""
        world = self.world
        run = world.runs.get(world.steps.about) if world is not None else None
        return "" if run is None else run.key

    @property
    def trouble(self) -> str:
        """Why no decisions are taken; "" while they are."""
        return self._lost or self._defects.trouble

    @property
    def is_deciding(self) -> bool:
        return self.world is not None and not self._is_still and not self.trouble

    @property
    def gaps(self) -> int:
        """How many committed batches are known to be missing in the store."""
        return self._lost_batches if self._gaps is None else len(self._gaps.missing)

    def _note_lost(self, lost: Exception) -> None:
        self._lost_batches = len(lost.numbers) if isinstance(lost, BatchLost) else 1
        if str(lost) != self._lost:
            self._lost = str(lost)
            self._alert(
                f"no decisions are taken: {lost}; run leasehold ledger verify, which names the "
                "remedy"
            )

    @property
    def has_news(self) -> bool:
        """Whether events are waiting that are not applied to the World yet."""
        return bool(self._inbox)

    @property
    def settled(self) -> World | None:
        """The World if everything in it is committed; None during a commit and before recovery."""
        return None if self._is_committing else self.world

    async def still_leads(self) -> bool:
        """Return whether this process still leads: it has a World, and the stored head is
        unchanged. The head is read only on a store where other processes may lead."""
        if self.world is None:
            return False
        try:
            await self._ledger.confirm()
        except Deposed:
            return False
        return self.world is not None

    async def at_rest(self, patience: Millis) -> World | None:
        """Wait until everything in the World is committed, and return the World; None before
        recovery. Raise `NotCommitted` if that takes longer than `patience`."""
        while self._is_committing:
            rested = self._tasks.signal()
            self._rested.append(rested)
            if not await rested.wait(patience):
                raise NotCommitted
        return self.world

    def _set_committing(self, *, is_committing: bool) -> None:
        self._is_committing = is_committing
        if not is_committing:
            waiting, self._rested = self._rested, []
            for rested in waiting:
                rested.set()

    async def _recover(self) -> None:
        self._ledger = Ledger(self._store, self._clock, is_shared=self._terms.is_shared)
        found = await recover(
            self._store,
            self._clock,
            self._ledger,
            policy=self._policy,
            labels=self._terms.labels,
            epoch=self._epoch,
            standby=self._standby,
        )
        self._epoch = self._ledger.known.head.epoch
        world = found.world
        if self._terms.is_shared:
            await touch_unbound(self._store, self._clock, world, self._epoch)
        for batch in found.unmaterialised:
            await self._materialise(world, batch)
        tell = partial(Informer, store=self._store, clock=self._clock, inbox=self._inbox)
        informers = {kind: tell(kind, wake=self._wake, hear=self._hear) for kind in WATCHED}
        contain = None if self._terms.is_strict else self._containment.failed
        self._effects = Effects(
            self._store, self._ledger, on_made=informers["Pod"].expect, contain=contain
        )
        self._effects.owe_everything(world)
        self._time = Timekeeper(self._clock, jump_max=self._policy.clock_jump_max)
        self._inbox.clear()
        for kind, informer in informers.items():
            self._inform(kind, partial(informer.run, found.versions[kind], found.listed[kind]))
        ours = partial(hear_of_ours, self._store, self._clock, "Reservation", hear=self._hear)
        self._inform("Reservation", partial(ours, found.versions["Reservation"], wake=self._wake))
        if self._terms.is_shared:
            self._gaps = gaps = Gaps(self._ledger, self._alert)
            since = found.versions["Reservation"]
            self._inform("LedgerBatch", partial(gaps.follow, self._store, self._clock, since))
        self._lost, self._lost_batches = "", 0
        self._quarantine = Quarantine(self._store, self._ledger)
        if self._terms.rehearse is not None:
            # Runs without a status, or with a refusal, are tried first.
            self._inbox += [News(kind="Run", gone=False, obj=obj) for obj in untold(found.listed)]
        for each in found.unreadable:
            self._put_aside(each)
        self.world = world
        self._has_recovered = True

    def _inform(self, kind: str, informing: Callable[[], Awaitable[None]]) -> None:
        self._informers.append(self._tasks.spawn(f"informer {kind}", self._doubting(informing)))

    async def _doubting(self, informing: Callable[[], Awaitable[None]]) -> None:
        """Run an informer. If it fails, note the error; the loop then recovers from the start."""
        try:
            await informing()
        except Exception as error:
            self._doubt = error
            self._wake.set()

    def _hear(self, kind: str, obj: Wire) -> bool:
        """Pass a status write to the component that writes this object's status. Return whether the
        status must be corrected, because another process (perhaps a deposed leader) wrote it."""
        writer = self._quarantine if self._quarantine.has(kind, obj) else self._effects
        return writer.hear(kind, obj)

    def _put_aside(self, found: Unreadable) -> None:
        metadata = part(found.obj, "metadata")
        name, namespace, uid = (text_at(metadata, key) for key in ("name", "namespace", "uid"))
        self._containment.failed(About(found.kind, name, namespace, uid), found.error)
        self._quarantine.put(found)

    async def _live(self) -> None:
        """Take one turn, then wait for the next event or timer."""
        while self._is_still:
            await self._wake.wait(None)
        for _ in range(_HOPS):
            await self._clock.sleep(0)
        world = self.world
        assert world is not None
        if self._doubt is not None:
            raise self._doubt
        now = self._clock.monotonic()
        news, self._inbox[:] = [*self._tryouts.due(now), *self._inbox], []
        self._fold_news(world, news, await self._tryouts.refused(world, news, now))
        turn, complete = await self._turn(world)
        self._defects.went_well()
        again = await self._rest(world)
        is_news = bool(turn.batches or turn.again or self._inbox)
        gather = self._terms.gather
        if (is_news or await self._has_waited(turn, again, complete=complete)) and gather:
            # With a long queue turns are slow: leave most of the time to requests.
            await self._clock.sleep(max(gather, min(REST * self._thought, REST_MAX)))

    async def _has_waited(self, turn: Turn, again: Millis | None, *, complete: bool) -> bool:
        """Wait for an event or for the next timer, whichever comes first. Return whether an event
        came."""
        wait = turn.wake_at - turn.now if turn.wake_at < FOREVER else None
        for at in (self._defects.next_try, self._tryouts.next_try):
            if at is not None:
                later = max(1, at - self._clock.monotonic())
                again = later if again is None else min(again, later)
        if not complete or not self._time.trusted:
            again = RETRY_MS if again is None else min(again, RETRY_MS)
        if again is not None:
            wait = again if wait is None else min(wait, again)
        return await self._wake.wait(wait)

    def start_nothing(self) -> None:
        """Keep running work going, but start no runs and preempt none from now on."""
        self._policy = replace(self._policy, binder_enabled=False)
        if self.world is not None:
            self.world.put_policy(self._policy)

    def hold_still(self) -> None:
        """Take no further turn until `go_on` is called; a turn under way is completed."""
        self._is_still = True

    def go_on(self) -> None:
        self._is_still = False
        self._wake.set()

    def batches_from(self, seq: int, limit: int) -> list[str]:
        """Return the object names of committed batches that are still in the store, in order: at
        most `limit`, beginning with batch number `seq`."""
        chain = self._ledger.chain if self.world is not None else {}
        names = [found.name for number, found in chain.items() if number >= seq]
        return names[:limit]

    def wake(self) -> None:
        """Wake the loop, so that it takes a turn soon."""
        self._wake.set()

    async def _rest(self, world: World) -> Millis | None:
        """Run the work between two turns, such as compaction, and return the longest time until it
        must be called again. If the work fails, the turns go on."""
        if self._between_turns is None:
            return None
        about = About("Task", "between turns")
        try:
            again = await self._between_turns(world, self._ledger)
        except Deposed:
            raise
        except Exception as error:
            if self._terms.is_strict:
                raise
            return self._containment.failed(about, error)
        self._containment.went_well(about)
        return again

    def _fold_news(self, world: World, news: list[News], refused: dict[Uid, Unreadable]) -> None:
        for each in news:
            refusal = refused.get(uid_of(each.obj)) if each.kind == "Run" else None
            if refusal is not None and refusal.obj is each.obj:
                world.drop_run(uid_of(each.obj))
                self._put_aside(refusal)
                continue
            if each.kind in ("Run", "Budget"):
                self._quarantine.release(each.kind, each.obj)
            bad: list[Unreadable] = []
            for fold in readable(each.kind, iter([each.obj]), self._reader(each, world), bad):
                fold(world)
            for found in bad:
                if self._terms.is_strict:
                    raise found.error
                # A successor could not read the object either, so its earlier state must not count.
                fold_of_unreadable(each.kind, each.obj)(world)
                self._put_aside(found)

    def _reader(self, news: News, world: World) -> Callable[[Wire], Fold]:
        if news.gone:
            return lambda obj: fold_of_gone(news.kind, obj, self._terms)
        now = self._time.look(world.head.instant)
        return lambda obj: fold_of(news.kind, obj, self._terms, world, self._put_run, now=now)

    def _put_run(self, world: World, run: Run) -> None:
        run = self._tryouts.amended(run)
        self._lift_quarantine(world, run)
        world.put_run(run)

    def _lift_quarantine(self, world: World, run: Run) -> None:
        """Lift the quarantine of `run` if its spec was edited or its deletion was requested."""
        known = world.runs.get(run.uid)
        if known is not None and (known.spec != run.spec or known.deleting != run.deleting):
            self._defects.lift(run.uid)

    async def _turn(self, world: World) -> tuple[Turn, bool]:
        trusted_before = self._time.trusted
        now = self._time.read(world.head.instant)
        if trusted_before and not self._time.trusted:
            said = (
                f"the clock jumped by {self._time.jump} ms; nothing that depends on the time is "
                "done until "
            )
            self._audience.alerted(now, f"{said}the clock agrees again")
        self._defects.try_again(self._clock.monotonic(), world)
        self._audience.begin("decide")
        began = self._clock.monotonic()
        try:
            turn = self._decide(
                world,
                now=now,
                key=self._terms.lottery_key,
                time_trusted=self._time.trusted,
                quarantined=self._defects.quarantined,
                left_alone=self._defects.left_alone,
                is_strict=self._terms.is_strict,
            )
            self._check(turn)
        finally:
            self._audience.end("decide")
        self._thought = self._clock.monotonic() - began
        batches = turn.batches
        self._set_committing(is_committing=bool(batches))
        for batch in batches:
            mine = [each for each in turn.resolutions if each.batch == batch.seq]
            self._audience.begin("commit")
            await self._ledger.commit(batch, mine)
            self._audience.end("commit")
            world.fold_head(self._ledger.known.head)
            if batch is batches[-1]:
                self._set_committing(is_committing=False)
            await self._materialise(world, batch, turn if batch is batches[-1] else None)
        self._effects.owe(turn)
        complete = await self._effects.perform(turn) if self._effects.are_owed else True
        if not self._quarantine.is_empty:
            complete &= await self._quarantine.perform(world)
        for notice in turn.notices:
            words = f"{notice.kind} {notice.subject} {notice.reason}: {notice.message}"
            self._audience.said(now, words)
        if batches:
            self._audience.committed(world, now)
        self._report(turn)
        return turn, complete

    def _report(self, turn: Turn) -> None:
        """Report the turn to the observers. If that fails, the turns go on."""
        try:
            self._audience.turned(turn)
        except Exception as error:
            if self._terms.is_strict:
                raise
            self._containment.failed(About("Task", "report of a turn"), error)

    def _check(self, turn: Turn) -> None:
        violations = broken_by(turn)
        if self._terms.is_strict:
            violations += double_claims(turn)
        if violations:
            raise InvariantBroken(violations)

    async def _materialise(self, world: World, batch: Batch, turn: Turn | None = None) -> None:
        """Write the Lease objects of a committed batch. If `turn` is given, this is the turn's last
        batch: pods for leases that the turn opened are created in the same round, without a
        node."""
        along = [] if turn is None else self._effects.begin(turn)
        writes = [order.write for order in along]
        done = await materialise(self._store, self._clock, world, batch, along=writes)
        for name in done.refused:
            world.put_refused_lease(name)
        self._ledger.note_materialised(batch.seq)
        if along:
            self._effects.settle(along, done.answers)

    def _alert(self, words: str) -> None:
        self._audience.alerted(self._clock.now(), words)
