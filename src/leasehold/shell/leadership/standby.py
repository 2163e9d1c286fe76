"""A standby: follows the ledger while another process leads, for a fast take-over.

A standby watches the head and the batches, and applies each batch to its own copy of the leases. A
new leader then need not read every lease and batch, which are most of what a store holds.
`hand_over` returns only batches whose digests lead to the sealed head; otherwise it returns
nothing. A standby writes nothing.
"""

from contextlib import suppress

from msgspec import DecodeError

from leasehold.adapters.following import follow
from leasehold.adapters.retry import until_answered
from leasehold.core.ledger.chain import canonical
from leasehold.core.ledger.head import Head, UnknownFormat
from leasehold.core.ledger.links import StoredBatch
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock, Task, Tasks
from leasehold.ports.store import Listing, NotFound, Store, WatchEvent
from leasehold.shell.archive.checkpoints import CheckpointLost, read_checkpoint
from leasehold.shell.ledger.commit import Ledger, head_from_wire
from leasehold.shell.ledger.known_ledger import ChainMismatch, KnownLedger
from leasehold.shell.ledger.read_chain import KIND as BATCHES
from leasehold.shell.ledger.read_chain import BatchLost
from leasehold.shell.ledger.read_ledger import read_ledger

HEAD = "LedgerHead"
PATIENCE: Millis = SECOND  # maximum wait for a batch that the head names
AGAIN: Millis = SECOND  # pause before everything is read again


class Standby:
    """Keeps a copy of the ledger up to date while another process leads. Call `begin` to start it,
    and `hand_over` when this process begins to lead."""

    def __init__(self, store: Store, clock: Clock, tasks: Tasks) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._wake = tasks.signal()  # a watch event arrived
        self._moved = tasks.signal()  # events were processed
        self._main: Task | None = None
        self._followers: list[Task] = []
        self._heads: list[Wire] = []  # received but not processed
        self._known: KnownLedger | None = None
        self.trouble = ""  # why the ledger cannot be followed

    def begin(self) -> None:
        if self._main is None:
            self._main = self._tasks.spawn("standby", self._stand_by())

    def end(self) -> None:
        """Stop following at once and drop the copy of the ledger."""
        if self._main is not None:
            self._main.cancel()
            self._main = None
        self._forget()

    @property
    def is_in_step(self) -> bool:
        """Whether the copy of the ledger has reached the last head that the watch reported."""
        return self._known is not None and self._known.is_in_step

    async def hand_over(self, head: Head) -> KnownLedger | None:
        """Stop following, and return the ledger up to `head`. Return None if the batches up to
        `head` do not arrive within `PATIENCE`."""
        until = self._clock.monotonic() + PATIENCE
        while self._known is not None and not self._known.is_at(head):
            left = until - self._clock.monotonic()
            if left <= 0 or not await self._moved.wait(left):
                break
        known = self._known
        self.end()
        return known if known is not None and known.is_at(head) else None

    def _forget(self) -> None:
        for task in self._followers:
            task.cancel()
        self._followers = []
        self._heads = []
        self._known = None

    async def _stand_by(self) -> None:
        while True:
            # The ledger does not exist yet, was compacted while being read, was restored, or was
            # written by a newer version of leasehold.
            with suppress(NotFound, CheckpointLost, ChainMismatch, DecodeError, UnknownFormat):
                try:
                    await self._read()
                    self.trouble = ""
                except (BatchLost, CheckpointLost) as lost:
                    self.trouble = str(lost)
                    raise
                while True:
                    await self._wake.wait(None)
                    await self._take_in()
                    self._moved.set()
            self._forget()
            self._moved.set()
            await self._clock.sleep(AGAIN)

    async def _read(self) -> None:
        """Read head, checkpoint, batches and leases as a new leader would, then follow changes.
        Batches that the leader commits during the read are applied afterwards."""
        head = await until_answered(self._clock, Ledger(self._store, self._clock).look)
        carried, _ = await read_checkpoint(self._store, self._clock)
        if carried.seq > head.head.seq:
            raise ChainMismatch
        known, version = await read_ledger(self._store, self._clock, head, carried)
        self._known = known
        self._follow(version)

    def _follow(self, version: int) -> None:
        batches = follow(
            self._store,
            self._clock,
            BATCHES,
            since=version,
            listed=self._batches_listed,
            changed=self._batch_changed,
        )
        heads = follow(
            self._store, self._clock, HEAD, listed=self._heads_listed, changed=self._head_changed
        )
        self._followers = [
            self._tasks.spawn("standby's batches", batches),
            self._tasks.spawn("standby's head", heads),
        ]

    def _batches_listed(self, listing: Listing) -> None:
        assert self._known is not None, "they are followed as long as they are known"
        offers = [offer for each in listing.items if (offer := _offer(each))]
        there = {(each.seq, each.digest) for each in offers}
        for seq, digest in sorted(self._known.present - there):
            self._known.withdraw(seq, digest)
        for each in offers:
            self._known.offer(each)
        self._wake.set()

    def _batch_changed(self, event: WatchEvent) -> None:
        assert self._known is not None, "they are followed as long as they are known"
        offer = _offer(event.object)
        if offer is None:
            return
        if event.type == "DELETED":
            self._known.withdraw(offer.seq, offer.digest)
        else:
            self._known.offer(offer)
        self._wake.set()

    def _heads_listed(self, listing: Listing) -> None:
        self._heads += listing.items
        self._wake.set()

    def _head_changed(self, event: WatchEvent) -> None:
        self._heads.append(event.object)
        self._wake.set()

    async def _take_in(self) -> None:
        known = self._known
        assert known is not None, "it was read"
        heads, self._heads = self._heads, []
        for each in heads:
            known.hear(head_from_wire(each))
        known.go_on()
        if known.is_compacted and known.is_in_step:
            carried, _ = await read_checkpoint(self._store, self._clock)
            if self._known is known:  # otherwise it was handed over meanwhile
                known.let_go(carried)


def _offer(wire: Wire) -> StoredBatch | None:
    """Decode a stored batch object; return None if the object is not a valid batch. The standby
    never reaches a head whose chain needs such an object."""
    spec = part(wire, "spec")
    seq = spec.get("seq")
    if not isinstance(seq, int):
        return None
    with suppress(AssertionError):  # no committed batch contains fractions
        return StoredBatch(
            name=text_at(part(wire, "metadata"), "name"),
            seq=seq,
            digest=text_at(spec, "digest"),
            encoded=canonical(part(spec, "batch")),
        )
    return None
