"""`ports.tenure.Tenures` over the Store port: one object per key, changed by conditional writes.

Called by the keeper. Every write has a unique name (`write`). After a lost answer, that name in the
record shows whether the write was ours. Whether a tenure is valid is known only in this process,
not from the record: a tenure is valid from before the request was sent, and ends before a release
is sent.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec.structs import replace

from leasehold.adapters.following import follow
from leasehold.core.facts import Record
from leasehold.core.names import Wire
from leasehold.core.objects.tenure import (
    KIND,
    NAMESPACE,
    NOBODY,
    Holder,
    TenureRecord,
    tenure_from_wire,
    tenure_name,
    tenure_to_wire,
)
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Millis
from leasehold.ports.runtime import Clock, Signal, Tasks
from leasehold.ports.store import AlreadyExists, Conflict, NotFound, Store, StoreError, WatchEvent
from leasehold.ports.tenure import (
    Acquired,
    BadMargins,
    Expired,
    HeldByOther,
    Margins,
    NotHolder,
    Released,
    Renewed,
    Tenure,
    Unanswered,
    margin_problems,
)
from leasehold.shell.leadership.time_limit import answered_within

T = TypeVar("T")
_ABSENT = ("", -1, "")
RETRY_MS: Millis = 50
TRIES_MAX = 4  # attempts per operation, while others change the object


class _Found(Record, frozen=True):
    """A tenure record and the stored object that it was read from."""

    record: TenureRecord
    wire: Wire


class _Observed(Record, frozen=True):
    """The last write seen in a record, and since when (by our own clock) the record is
    unchanged."""

    write: tuple[str, int, str]
    since: Millis


class StoreTenures:
    """Acquires, renews and releases tenures for one process, from its start to its end."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        margins: Margins | None = None,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: only one process at a time can open the store, such as a locked file. A
        holder in the record is then dead, so `acquire` does not wait for its tenure to expire."""
        self._is_alone = is_alone
        self._margins = margins or Margins()
        problems = margin_problems(self._margins)
        if problems:
            raise BadMargins(problems)
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._believed: dict[str, Tenure] = {}  # tenures considered valid, by key
        self._stored: dict[str, _Found] = {}  # the result of our last write
        self._observed: dict[str, _Observed] = {}
        self._highest: dict[str, int] = {}  # highest epoch seen, by key
        self._writes = 0

    async def acquire(self, key: str, holder: Holder, *, above: int = 0) -> Acquired:
        assert holder.identity, "whoever acquires has a name"
        assert above >= 0, above
        believed = self._believed.get(key)
        if believed is not None and believed.holder == holder and self.is_valid(believed):
            return believed
        try:
            found = await self._read(key)
            refusal = self._refusal(key, found, holder, is_used=above > 0)
            return refusal or await self._take(key, holder, found, above)
        except StoreError as error:
            return Unanswered(why=str(error))

    async def renew(self, tenure: Tenure) -> Renewed:
        try:
            for _ in range(TRIES_MAX):
                age = self.age(tenure)
                if age is None or age >= self._margins.hold:
                    return self._stopped(tenure, age)
                renewed = await self._extend(tenure)
                if renewed is not None:
                    return renewed
        except StoreError as error:
            return Unanswered(why=str(error))
        return Unanswered(why=_touched(tenure))

    async def release(self, tenure: Tenure) -> Released:
        believed = self._believed.get(tenure.key)
        if believed is not None and _is_same(believed, tenure):
            del self._believed[tenure.key]
        try:
            for _ in range(TRIES_MAX):
                found = await self._read(tenure.key)
                if found is None or not _is_mine(found.record, tenure):
                    return _not_holder(found)
                freed = replace(found.record, holder=NOBODY, write=self._new_write(tenure.holder))
                assert freed.epoch == tenure.epoch, "an epoch outlives its holder"
                try:
                    await self._update(freed, found.wire)
                except (Conflict, NotFound):
                    continue  # changed by another process: check again whether it is ours
                return None
        except StoreError as error:
            return Unanswered(why=str(error))
        return Unanswered(why=_touched(tenure))

    def is_valid(self, tenure: Tenure) -> bool:
        age = self.age(tenure)
        return age is not None and age < self._margins.hold

    def age(self, tenure: Tenure) -> Millis | None:
        believed = self._believed.get(tenure.key)
        if believed is None or not _is_same(believed, tenure):
            return None
        age = self._clock.monotonic() - believed.since
        assert age >= 0, "a monotonic clock does not go back"
        return age

    async def inspect(self, key: str) -> TenureRecord | None:
        """Return the stored record of `key`; None if there is none. Errors of the store are
        raised."""
        try:
            return tenure_from_wire(await self._store.get(KIND, NAMESPACE, tenure_name(key)))
        except NotFound:
            return None

    async def follow(self, key: str, wake: Signal) -> None:
        name = tenure_name(key)

        def hear(event: WatchEvent) -> None:
            if text_at(part(event.object, "metadata"), "name") == name:
                wake.set()

        await follow(
            self._store,
            self._clock,
            KIND,
            listed=lambda _: None,  # a contender reads the record itself
            changed=hear,
            pause=self._margins.renew,
        )

    def _refusal(
        self, key: str, found: _Found | None, holder: Holder, *, is_used: bool
    ) -> HeldByOther | None:
        """Return why `holder` may not replace the record of `key` yet; None if it may.

        A record of another holder may be replaced once it has been unchanged for `margins.take`. A
        record that names `holder` may be replaced at once: it is our own write, whose answer was
        lost. If there is a ledger (`is_used`) but no record, the record was deleted. Its holder may
        not know yet, so the same time must pass.
        """
        record = found.record if found else None
        if self._is_alone or (record is None and not is_used):
            return None
        if record is not None and (record.is_free or record.holder == holder.identity):
            return None
        stood = self._clock.monotonic() - self._observed[key].since
        if stood > self._margins.take:
            return None
        wait = self._margins.take + 1 - stood
        if record is None:
            return HeldByOther(holder=NOBODY, epoch=self._highest.get(key, 0), wait=wait)
        return HeldByOther(holder=record.holder, epoch=record.epoch, wait=wait)

    async def _take(self, key: str, holder: Holder, found: _Found | None, above: int) -> Acquired:
        now = self._clock.now()
        before = found.record if found else TenureRecord(key=key, holder=NOBODY, epoch=0, write="")
        wanted = replace(
            before,
            holder=holder.identity,
            epoch=max(before.epoch, above, self._highest.get(key, 0)) + 1,
            write=self._new_write(holder),
            duration=self._margins.take,
            acquired=now,
            renewed=now,
            transitions=before.transitions + (found is not None),
        )
        assert wanted.epoch > before.epoch, (wanted, before)
        assert before.write != wanted.write, wanted.write
        sent = self._clock.monotonic()
        try:
            stored = await self._put(wanted, found)
        except (Conflict, AlreadyExists, NotFound):
            # Another process was first, or a duplicate of our own request was.
            there = await self._read(key)
            if there is not None and there.record.write != wanted.write:
                return HeldByOther(holder=there.record.holder, epoch=there.record.epoch, wait=0)
            why = f"{tenure_name(key)} was deleted in the meantime"
        except StoreError as error:
            there, why = await self._read(key), str(error)
        else:
            return self._granted(stored, holder, sent)
        # A timeout does not mean failure, but only our own write proves success.
        if there is not None and there.record.write == wanted.write:
            return self._granted(there, holder, sent)
        return Unanswered(why=why)

    async def _extend(self, tenure: Tenure) -> Renewed | None:
        """Try to renew once. Return None if the object was changed by others but still names us;
        the caller then tries again."""
        known = self._stored[tenure.key]
        assert _is_mine(known.record, tenure), (known.record, tenure)
        wanted = replace(
            known.record, write=self._new_write(tenure.holder), renewed=self._clock.now()
        )
        assert wanted.epoch == tenure.epoch, "a renewal keeps its epoch"
        sent = self._clock.monotonic()
        why = ""
        try:
            stored = await self._update(wanted, known.wire)
        except (Conflict, NotFound):
            there = await self._read(tenure.key)
        except StoreError as error:
            there, why = await self._read(tenure.key), str(error)
        else:
            return self._renewed(stored, tenure, sent)
        if there is not None and there.record.epoch < tenure.epoch:
            return Unanswered(why="the answer is older than what we wrote")
        if there is None or not _is_mine(there.record, tenure):
            self._believed.pop(tenure.key, None)
            return _not_holder(there)
        if there.record.write == wanted.write:
            return self._renewed(there, tenure, sent)
        self._stored[tenure.key] = there
        return Unanswered(why=why) if why else None

    def _stopped(self, tenure: Tenure, age: Millis | None) -> NotHolder | Expired:
        if age is None:
            return NotHolder(holder=NOBODY, epoch=self._highest.get(tenure.key, 0))
        assert age >= self._margins.hold, age
        assert _is_same(self._believed[tenure.key], tenure), tenure
        del self._believed[tenure.key]
        return Expired(late_by=age - self._margins.hold)

    def _renewed(self, found: _Found, tenure: Tenure, sent: Millis) -> Renewed:
        """Return the renewed tenure. Return `Expired` if the answer came after the hard stop, and
        `NotHolder` if the tenure was released meanwhile."""
        age = self.age(tenure)
        if age is None or age >= self._margins.hold:
            return self._stopped(tenure, age)
        return self._granted(found, tenure.holder, sent)

    def _granted(self, found: _Found, holder: Holder, sent: Millis) -> Tenure | Unanswered:
        """Return the tenure, which is valid from `sent`, the time before the request was sent.
        Return `Unanswered` if the tenure has expired since."""
        record = found.record
        assert record.holder == holder.identity, (record, holder)
        assert record.epoch >= self._highest.get(record.key, 0), record
        self._stored[record.key] = found
        if self._clock.monotonic() - sent >= self._margins.hold:
            return Unanswered(why="the answer came after the tenure had expired")
        tenure = Tenure(
            key=record.key, holder=holder, epoch=record.epoch, version=record.version, since=sent
        )
        self._believed[record.key] = tenure
        return tenure

    async def _read(self, key: str) -> _Found | None:
        """Read the record, and note since when its content is unchanged. New content counts from
        the arrival of the answer: when exactly it was written is not known."""
        try:
            wire = await self._in_time(lambda: self._store.get(KIND, NAMESPACE, tenure_name(key)))
        except NotFound:
            self._observe(key, _ABSENT)
            return None
        record = tenure_from_wire(wire)
        self._observe(key, (record.holder, record.epoch, record.write))
        self._highest[key] = max(record.epoch, self._highest.get(key, 0))
        return _Found(record=record, wire=wire)

    def _observe(self, key: str, write: tuple[str, int, str]) -> None:
        seen = self._observed.get(key)
        if seen is None or seen.write != write:
            self._observed[key] = _Observed(write=write, since=self._clock.monotonic())

    async def _put(self, wanted: TenureRecord, found: _Found | None) -> _Found:
        if found is not None:
            return await self._update(wanted, found.wire)
        wire = tenure_to_wire(wanted)
        return _found(await self._in_time(lambda: self._store.create(wire)))

    async def _update(self, wanted: TenureRecord, kept: Wire) -> _Found:
        wire = tenure_to_wire(wanted, kept=kept)
        return _found(await self._in_time(lambda: self._store.update(wire)))

    async def _in_time(self, call: Callable[[], Awaitable[T]]) -> T:
        return await answered_within(self._clock, self._tasks, self._margins.timeout, call)

    def _new_write(self, holder: Holder) -> str:
        self._writes += 1
        return f"{holder.identity}.{self._writes}"


async def take_alone(
    tenures: StoreTenures, clock: Clock, key: str, holder: Holder, above: int
) -> Tenure:
    """Acquire the tenure of a store that only this process can open; retry until it is granted."""
    while True:
        outcome = await tenures.acquire(key, holder, above=above)
        if isinstance(outcome, Tenure):
            return outcome
        await clock.sleep(RETRY_MS)


def _found(wire: Wire) -> _Found:
    return _Found(record=tenure_from_wire(wire), wire=wire)


def _touched(tenure: Tenure) -> str:
    return f"{tenure_name(tenure.key)} was changed by other processes {TRIES_MAX} times"


def _is_same(believed: Tenure, tenure: Tenure) -> bool:
    return (believed.epoch, believed.holder) == (tenure.epoch, tenure.holder)


def _is_mine(record: TenureRecord, tenure: Tenure) -> bool:
    return (record.holder, record.epoch) == (tenure.holder.identity, tenure.epoch)


def _not_holder(found: _Found | None) -> NotHolder:
    if found is None:
        return NotHolder(holder=NOBODY, epoch=0)
    return NotHolder(holder=found.record.holder, epoch=found.record.epoch)
