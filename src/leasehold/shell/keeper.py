"""Keeps one tenure: contends for it, renews it in the background, says when it can no longer be
sure.

The control plane runs one per process. A soft stop comes first (start nothing new, end what is
under way), then the hard one: from there on somebody else may decide. Both come from the holder's
own clock and wait for no answer of the store. Whoever is told that it was lost drops everything;
what it commits by mistake is refused by the head, which the next owner has sealed.
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

RETRY_MS: Millis = 200  # after an answer that did not come
STOPPED = "stopped"  # why a tenure is lost that was given back
WAIT_MIN: Millis = 20  # between two tries that were refused by somebody who was quicker

Epoch = Callable[[], Awaitable[int]]


async def _at_once() -> bool:
    return True


class Office(Protocol):
    """Whoever decides while the tenure is held."""

    def gained(self, tenure: Tenure) -> None:
        """It may decide, after it has sealed the head with the tenure's epoch."""
        ...

    def unsure(self) -> None:
        """Soft stop: no renewal was answered for some time; start nothing new."""
        ...

    def sure(self) -> None:
        """A renewal was answered after all."""
        ...

    def lost(self, why: str) -> None:
        """Hard stop: drop everything at once, without an await."""
        ...


class Keeper:
    """One key, one process, for as long as it runs."""

    def __init__(
        self,
        tenures: Tenures,
        clock: Clock,
        tasks: Tasks,
        *,
        key: str,
        holder: Holder,
        office: Office,
        epoch: Epoch,
        margins: Margins | None = None,
        silence: Callable[[], Millis] = lambda: 0,
        has_let_go: Callable[[], Awaitable[bool]] = _at_once,
    ) -> None:
        """`epoch` tells the one in the ledger's head, which a new one must be above. `silence`: for
        how long the office has not shown that it is alive. `has_let_go`: whether the office has
        dropped everything since it was told that the tenure is lost."""
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
        self._changed = tasks.signal()  # something about the tenure that is held
        self._maybe_free = tasks.signal()  # something about the record
        self._ended = ""  # why the tenure is no longer ours, once that is known
        self._is_stopping = False
        self.tenure: Tenure | None = None
        self.is_stopped = False  # and has given back what it held
        self._answered: Millis | None = None  # when a try was last answered, by our clock
        self._held: Millis | None = None  # when an answer last named a holder
        self._is_unsure = False
        self.trouble = ""  # why we may not even try

    async def run(self) -> None:
        """Until `stop`: contend, hold, lose, contend again."""
        while not self._is_stopping:
            tenure = await self._contend()
            if tenure is not None:
                await self._hold(tenure)
        self.is_stopped = True

    def stop(self) -> None:
        """Clean: what is held is given back at once, once the office has let go of it."""
        self._is_stopping = True
        self._maybe_free.set()
        self._changed.set()

    def give_up(self, why: str) -> None:
        """The office found out by itself that it was deposed."""
        self._ended = self._ended or why
        self._changed.set()

    @property
    def vacancy(self) -> str:
        """Return why it is not known that another process holds the tenure; "" if one does, as far
        as this process has seen within the time that a holder may go on without a renewal."""
        now = self._clock.monotonic()
        if self._held is not None and now - self._held <= self._margins.hold:
            return ""
        if self._answered is None:
            return "nothing is known of it yet"
        silent = now - self._answered
        if silent > self._margins.hold:
            return f"the store has not answered for {silent // SECOND} s"
        if self._held is None:
            return "nobody is known to hold it"
        return f"nobody has been known to hold it for {(now - self._held) // SECOND} s"

    @property
    def is_unsure(self) -> bool:
        """Whether the tenure is held, and its renewals have not been answered for some time."""
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
                    # An office that cannot answer would hold the key and decide nothing.
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
                    return Unanswered(why="it was over when we heard of it")
            case HeldByOther():
                self._answered = self._clock.monotonic()
                if outcome.holder != NOBODY:
                    # A record that was not renewed says less each second about its holder.
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
        """Ours or not, by then nobody here believes in it; a stranger's is left as it is. A keeper
        that stops asks for half of `tenure.hold`: otherwise one request that a busy server loses
        costs the others the whole tenure. A server that refuses it keeps nobody here for longer."""
        due = self._clock.monotonic() + self._margins.hold // 2
        if not await self._has_let_go():
            return  # the record stands still, and the others wait until nobody can believe in it
        while True:
            outcome = await self._tenures.release(tenure)
            is_over = not isinstance(outcome, Unanswered) or self._clock.monotonic() >= due
            if is_over or not self._is_stopping:
                return
            await self._clock.sleep(RETRY_MS)

    async def _watch_the_clock(self, tenure: Tenure) -> str:
        """Returns why it is over, at the latest at the very instant of our clock."""
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
                self.give_up(f"nothing was heard of the loop that decides for {silence} ms")
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
                    self.give_up(f"the record names {outcome.holder or 'nobody'}")
                    return
                case Expired():
                    self.give_up(f"it was renewed {outcome.late_by} ms too late")
                    return
