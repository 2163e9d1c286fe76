"""The keeper: acquires the tenure, renews it in the background, and stops the leader in time.

Each process of the control plane runs one. When renewals are not answered, a soft stop comes first
(start nothing new, finish what is under way), then the hard stop: from then on another process may
lead. The times of both stops are measured by this process' own clock, without waiting for the
store. When the tenure is lost, the process drops everything. A commit that it still tries fails,
because the next leader has sealed the head.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from leasehold.core.ledger.head import UnknownFormat
from leasehold.core.objects.tenure import NOBODY, Holder
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import StoreError
from leasehold.ports.tenure import (
    Expired,
    HeldByOther,
    Margins,
    NotHolder,
    Tenure,
    Tenures,
    Unanswered,
)

RETRY_MS: Millis = 200  # after a request without an answer
STOPPED = "stopped"  # reason of a loss after a voluntary release
WAIT_MIN: Millis = 20  # between two attempts that lost against another contender

Epoch = Callable[[], Awaitable[int]]


async def _at_once() -> bool:
    return True


class TenureListener(Protocol):
    """Interface of the component that leads while this process holds the tenure."""

    def gained(self, tenure: Tenure) -> None:
        """Begin to lead. Before anything is decided, the epoch of `tenure` must be sealed into the
        head."""
        ...

    def unsure(self) -> None:
        """Start nothing new (soft stop), because renewals are not answered."""
        ...

    def sure(self) -> None:
        """Resume, because a renewal was answered again."""
        ...

    def lost(self, why: str) -> None:
        """Drop everything at once (hard stop). The call must not await anything."""
        ...


class Keeper:
    """Acquires and renews the tenure of one key for one process, and contends again after each
    loss."""

    def __init__(
        self,
        tenures: Tenures,
        clock: Clock,
        tasks: Tasks,
        *,
        key: str,
        holder: Holder,
        office: TenureListener,
        epoch: Epoch,
        margins: Margins | None = None,
        silence: Callable[[], Millis] = lambda: 0,
        has_let_go: Callable[[], Awaitable[bool]] = _at_once,
    ) -> None:
        """`office` is the component that leads. `epoch` returns the epoch in the ledger's head,
        which a new tenure must exceed. `silence` returns for how long `office` has shown no sign of
        life. `has_let_go` returns whether `office` has dropped everything after `lost`."""
        self._silence = silence
        self._has_let_go = has_let_go
        self._tenures = tenures
        self._clock = clock
        self._tasks = tasks
        self._key = key
        self._holder = holder
        self._office = office
        self._epoch = epoch
        self._margins = margins or Margins()
        self._changed = tasks.signal()  # set when the state of the held tenure changes
        self._maybe_free = tasks.signal()  # set when the stored record may have changed
        self._ended = ""  # why the tenure is lost; "" while it is not
        self._is_stopping = False
        self.tenure: Tenure | None = None
        self.is_stopped = False  # stopped, and the tenure released
        self._answered: Millis | None = None  # our clock at the last answered attempt
        self._held: Millis | None = None  # our clock when an answer last named a holder
        self._is_unsure = False
        self.trouble = ""  # why this process cannot even try

    async def run(self) -> None:
        """Contend for the tenure, hold it until it is lost, and contend again; return after
        `stop`."""
        while not self._is_stopping:
            tenure = await self._contend()
            if tenure is not None:
                await self._hold(tenure)
        self.is_stopped = True

    def stop(self) -> None:
        """Make `run` return: `office` drops everything at once, then the tenure is released."""
        self._is_stopping = True
        self._maybe_free.set()
        self._changed.set()

    def give_up(self, why: str) -> None:
        """End the tenure with the reason `why`, for example because the leader found that it was
        deposed."""
        self._ended = self._ended or why
        self._changed.set()

    @property
    def vacancy(self) -> str:
        """Return why no other process is known to hold the tenure; "" if one is known. A holder
        counts as known until `margins.hold` after the store last named it."""
        now = self._clock.monotonic()
        if self._held is not None and now - self._held <= self._margins.hold:
            return ""
        if self._answered is None:
            return "its state is not known yet"
        silent = now - self._answered
        if silent > self._margins.hold:
            return f"the store has not answered for {silent // SECOND} s"
        if self._held is None:
            return "no process is known to hold it"
        return f"no process has been known to hold it for {(now - self._held) // SECOND} s"

    @property
    def is_unsure(self) -> bool:
        """Whether this process holds the tenure, but the store has not answered its renewals for
        some time."""
        return self.tenure is not None and self._is_unsure

    @property
    def is_valid(self) -> bool:
        return self.tenure is not None and self._tenures.is_valid(self.tenure)

    async def _contend(self) -> Tenure | None:
        follower = self._tasks.spawn(
            "tenure follower", self._tenures.follow(self._key, self._maybe_free)
        )
        try:
            while not self._is_stopping:
                if self._silence() >= self._margins.hold:
                    # A hanging office would hold the key and decide nothing: do not contend.
                    await self._maybe_free.wait(self._margins.renew)
                    continue
                outcome = await self._try()
                if isinstance(outcome, Tenure):
                    return outcome
                await self._maybe_free.wait(self._pause(outcome))
        finally:
            follower.cancel()
        return None

    async def _try(self) -> Tenure | HeldByOther | Unanswered:
        try:
            above = await self._epoch()
        except StoreError as error:
            return Unanswered(why=str(error))
        except UnknownFormat as error:
            self.trouble = str(error)
            return Unanswered(why=self.trouble)
        self.trouble = ""
        outcome = await self._tenures.acquire(self._key, self._holder, above=above)
        match outcome:
            case Tenure():
                self._answered = self._clock.monotonic()
                if not self._tenures.is_valid(outcome):
                    return Unanswered(why="the tenure had expired before the answer arrived")
            case HeldByOther():
                self._answered = self._clock.monotonic()
                if outcome.holder != NOBODY:
                    # An unrenewed record tells less about its holder each second: subtract its age.
                    stood = self._margins.take + 1 - outcome.wait if outcome.wait else 0
                    self._held = self._answered - max(0, stood)
            case Unanswered():
                pass
        return outcome

    def _pause(self, outcome: HeldByOther | Unanswered) -> Millis:
        if isinstance(outcome, Unanswered):
            return self._margins.renew if self.trouble else RETRY_MS
        return max(WAIT_MIN, min(outcome.wait, self._margins.renew))

    async def _hold(self, tenure: Tenure) -> None:
        self._ended = ""
        self.tenure = tenure
        renewer = self._tasks.spawn("tenure renewer", self._renew(tenure))
        self._office.gained(tenure)
        try:
            why = await self._watch_the_clock(tenure)
        finally:
            renewer.cancel()
            self.tenure = None
        self._office.lost(why)
        await self._give_back(tenure)

    async def _give_back(self, tenure: Tenure) -> None:
        """Release our tenure record, unless it names another holder by now. While stopping, retry
        for half of `margins.hold`: otherwise one lost request would make the other processes wait
        for the whole tenure. After that time, return even without an answer."""
        due = self._clock.monotonic() + self._margins.hold // 2
        if not await self._has_let_go():
            return  # the others take over when the tenure has expired
        while True:
            outcome = await self._tenures.release(tenure)
            is_over = not isinstance(outcome, Unanswered) or self._clock.monotonic() >= due
            if is_over or not self._is_stopping:
                return
            await self._clock.sleep(RETRY_MS)

    async def _watch_the_clock(self, tenure: Tenure) -> str:
        """Wait until the tenure is lost and return the reason, at the latest `margins.hold` after
        the last answered renewal. Meanwhile, tell `office` when it becomes unsure or sure again."""
        self._is_unsure = False
        while True:
            age = self._tenures.age(tenure)
            if self._is_stopping:
                return STOPPED
            if self._ended or age is None:
                return self._ended or "lost"
            if age >= self._margins.hold:
                return f"no renewal was answered for {age} ms"
            if (age >= self._margins.soft_stop) != self._is_unsure:
                self._is_unsure = not self._is_unsure
                (self._office.unsure if self._is_unsure else self._office.sure)()
            deadline = self._margins.hold if self._is_unsure else self._margins.soft_stop
            await self._changed.wait(deadline - age)

    async def _renew(self, tenure: Tenure) -> None:
        while True:
            await self._clock.sleep(self._margins.renew)
            silence = self._silence()
            if silence >= self._margins.stall:
                self.give_up(f"the control loop has not responded for {silence} ms")
                return
            while True:
                outcome = await self._tenures.renew(tenure)
                if not isinstance(outcome, Unanswered):
                    break
                await self._clock.sleep(RETRY_MS)
            match outcome:
                case Tenure():
                    self._changed.set()
                case NotHolder():
                    self.give_up(f"the record now names {outcome.holder or 'no holder'}")
                    return
                case Expired():
                    self.give_up(f"the renewal came {outcome.late_by} ms too late")
                    return
