"""Keeps a replica's tenure in a thread of its own, so that no decision delays a renewal.

Run by `replica`, the owner of the thread. The thread has its own event loop, client and keeper. It
passes the keeper's events to the owner's loop, which decides. A release is sent only after the
owner's loop has dropped everything. If the owner's loop does not respond for `tenure.stall`, it
loses the tenure (docs/decisions/0022-tenure.md).
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from threading import Thread

import structlog

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioSignal, AsyncioTasks
from leasehold.core.objects.tenure import Holder
from leasehold.core.units import SECOND, Millis
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Tenure
from leasehold.shell.leadership.keeper import Keeper, TenureListener
from leasehold.shell.leadership.tenure import StoreTenures

BEAT: Millis = SECOND // 5  # between two heartbeats of the loop that decides
LONG: Millis = 5 * SECOND  # a longer decision is logged, and again each time its duration doubles
JOIN_S = 3.0

Connect = Callable[[AsyncioClock, AsyncioTasks], AbstractAsyncContextManager[Store]]
Epoch = Callable[[Store, AsyncioClock, AsyncioTasks], Awaitable[int]]

_log = structlog.get_logger("leasehold")


class TenureThread:
    """A keeper in a thread of its own, with the methods of `Keeper`. The owner calls them, and
    reads the properties, in its own event loop."""

    def __init__(
        self,
        connect: Connect,
        clock: AsyncioClock,
        tasks: AsyncioTasks,
        *,
        key: str,
        holder: Holder,
        office: TenureListener,
        epoch: Epoch,
        margins: Margins,
        about: Callable[[], str] = lambda: "",
    ) -> None:
        """`connect` opens a store that only the thread uses. `office` is the component that leads.
        `about` returns the Run that is being decided on; the thread calls it even during a
        decision."""
        self._connect = connect
        self._clock = clock
        self._tasks = tasks
        self._key = key
        self._holder = holder
        self._office = office
        self._epoch = epoch
        self._margins = margins
        self._about = about
        self._owner: asyncio.AbstractEventLoop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the thread
        self._keeper: Keeper | None = None
        self._over: AsyncioSignal | None = None
        self._ended = asyncio.Event()
        self._failure: Exception | None = None
        self._is_stopping = False
        self._beat_at: Millis = 0

    async def run(self) -> None:
        """Run the thread until `stop`. If the thread failed, raise its error."""
        self._owner = asyncio.get_running_loop()
        self._beat_at = self._clock.monotonic()
        beating = self._tasks.spawn("pulse", self._beat())
        thread = Thread(target=self._work, name="tenure", daemon=True)
        thread.start()
        try:
            await self._ended.wait()
        finally:
            beating.cancel()
            self._call(self._give_over)
            await asyncio.to_thread(thread.join, JOIN_S)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop cleanly: release the tenure once the owner's loop has dropped everything."""
        self._is_stopping = True
        if self._keeper is not None:
            self._call(self._keeper.stop)

    def give_up(self, why: str) -> None:
        """End the tenure with the reason `why`, because the owner found that it was deposed."""
        if self._keeper is not None:
            self._call(partial(self._keeper.give_up, why))

    @property
    def tenure(self) -> Tenure | None:
        return None if self._keeper is None else self._keeper.tenure

    @property
    def trouble(self) -> str:
        return "" if self._keeper is None else self._keeper.trouble

    @property
    def vacancy(self) -> str:
        return "its state is not known yet" if self._keeper is None else self._keeper.vacancy

    @property
    def is_unsure(self) -> bool:
        return self._keeper is not None and self._keeper.is_unsure

    async def _beat(self) -> None:
        while True:
            self._beat_at = self._clock.monotonic()
            await self._clock.sleep(BEAT)

    def _call(self, what: Callable[[], object]) -> None:
        """Run `what` in the thread's event loop; do nothing if that loop has ended."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(what)

    # The part that runs in the thread.

    def _work(self) -> None:
        try:
            asyncio_runtime.run(self._keep)
        except Exception as error:
            self._failure = error
        self._loop = None
        self._tell(self._ended.set)

    async def _keep(self, clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        self._over = over = tasks.signal()
        async with self._connect(clock, tasks) as store:
            far = _ForwardingListener(
                self._office, tasks, self._tell, self._call, patience=self._margins
            )
            keeper = Keeper(
                StoreTenures(store, clock, tasks, margins=self._margins),
                clock,
                tasks,
                key=self._key,
                holder=self._holder,
                office=far,
                epoch=lambda: self._epoch(store, clock, tasks),
                margins=self._margins,
                silence=lambda: clock.monotonic() - self._beat_at,
                has_let_go=far.has_let_go,
            )
            self._keeper = keeper
            self._loop = asyncio.get_running_loop()
            if self._is_stopping:
                keeper.stop()

            async def keep() -> None:
                await keeper.run()
                over.set()

            tasks.spawn("keeper", keep())
            tasks.spawn("watch on decisions", self._watch(clock))
            await over.wait(None)

    async def _watch(self, clock: AsyncioClock) -> None:
        """While a decision takes long, log which Run it is about, each time its duration has
        doubled."""
        due = LONG
        while True:
            await clock.sleep(SECOND)
            silent = clock.monotonic() - self._beat_at
            if silent >= due:
                _log.warning("a decision takes long", seconds=silent // SECOND, run=self._about())
                due *= 2
            elif silent < LONG:
                due = LONG

    def _give_over(self) -> None:
        assert self._over is not None, "the thread has a loop once it can be told to end"
        self._over.set()

    def _tell(self, what: Callable[[], object]) -> None:
        """Run `what` in the owner's event loop. If it fails, `run` ends with its error."""

        def guarded() -> None:
            try:
                what()
            except Exception as error:
                self._failure = error
                self._ended.set()

        assert self._owner is not None, "the thread is started by its owner"
        with suppress(RuntimeError):  # the owner is gone
            self._owner.call_soon_threadsafe(guarded)


class _ForwardingListener:
    """The listener that the keeper calls in its thread; passes each call to the owner's event
    loop."""

    def __init__(
        self,
        office: TenureListener,
        tasks: AsyncioTasks,
        tell: Callable[[Callable[[], object]], None],
        answer: Callable[[Callable[[], object]], None],
        *,
        patience: Margins,
    ) -> None:
        self._office = office
        self._tasks = tasks
        self._tell = tell
        self._answer = answer
        self._patience = patience
        self._let_go: AsyncioSignal | None = None

    def gained(self, tenure: Tenure) -> None:
        self._tell(lambda: self._office.gained(tenure))

    def unsure(self) -> None:
        self._tell(self._office.unsure)

    def sure(self) -> None:
        self._tell(self._office.sure)

    def lost(self, why: str) -> None:
        self._let_go = let_go = self._tasks.signal()

        def lose() -> None:
            self._office.lost(why)
            self._answer(let_go.set)

        self._tell(lose)

    async def has_let_go(self) -> bool:
        """Wait until the owner has dropped everything, at most `margins.take`: after that time
        other replicas may take over anyway. Return whether the owner has dropped everything."""
        assert self._let_go is not None, "it was told that it lost the tenure"
        return await self._let_go.wait(self._patience.take)
