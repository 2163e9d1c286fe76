"""The commit protocol: one compare-and-swap on the LedgerHead commits a batch.

Before the swap nothing has happened; after it the batch is a fact, even if this process crashes.
The writes after the swap (the Lease objects) are idempotent, and the next leader repeats them. Only
the loop calls this module.
"""

from collections.abc import Sequence
from contextlib import suppress

from leasehold.adapters.retry import FIRST_MS, MOST_MS, until_answered
from leasehold.core.facts import Record
from leasehold.core.ledger.batch import Batch, line
from leasehold.core.ledger.chain import GENESIS
from leasehold.core.ledger.head import FORMAT, Head, UnknownFormat, check_format
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.objects.resolution import resolution_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutcomeUnknown,
    Store,
    Unavailable,
)

SHARD = "main"


class HeadLost(Exception):  # noqa: N818 - named for the condition
    """The store has batches of a ledger, but not the head that says which of them are committed."""

    def __init__(self, batches: int) -> None:
        super().__init__(
            f"the ledger has no head (LedgerHead {SHARD}), but the store has {batches} batches; "
            "leasehold does not start a new ledger over them"
        )


class Deposed(Exception):  # noqa: N818 - named for the condition
    """Another process moved the head: the caller must drop everything it knows and start over."""


class HeadObject(Record):
    """The stored head. `materialised`: the Lease objects of all batches up to this number are
    written."""

    head: Head
    materialised: int
    version: int


class Committed(Record):
    """A committed batch whose object is still in the store."""

    name: str  # of its object
    instant: Instant


class Ledger:
    """Reads and moves the head. Keeps the last known head, the batches that lead to it, and the
    leftovers: objects that can be deleted."""

    def __init__(self, store: Store, clock: Clock, *, is_shared: bool = False) -> None:
        """`is_shared`: other processes may lead on this store too. Then `confirm` must be called
        before each write that does not repeat a committed fact."""
        self._store = store
        self._clock = clock
        self.is_shared = is_shared
        self._known: HeadObject | None = None
        self.chain: dict[int, Committed] = {}  # by number, in order; not compacted ones only
        self.leftovers: dict[tuple[str, str], None] = {}  # (kind, [namespace/]name) to be deleted

    @property
    def known(self) -> HeadObject:
        assert self._known is not None, "the ledger is not sealed yet"
        return self._known

    async def look(self) -> HeadObject:
        """Read and return the head without sealing it. Raise `NotFound` if the store has no ledger
        yet, and `UnknownFormat` if a later version of leasehold wrote the head."""
        self._known = await self._read()
        assert self._known.materialised <= self._known.head.seq, self._known
        return self._known

    async def seal(self, epoch: int | None = None) -> HeadObject:
        """Write our epoch into the head, so that commits of older leaders fail.

        Without `epoch`, take the epoch after the head's, and raise `UnknownFormat` if a later
        version of leasehold wrote the head. With `epoch`, raise `Deposed` if the head has a newer
        epoch or was written by a later version. A head of a later version is never changed.
        """
        assert epoch is None or epoch > 0, epoch
        while True:
            try:
                found = await (self._read() if epoch is None else self._read_after_us())
            except NotFound:
                await self._begin()
                continue
            if epoch is not None and found.head.epoch > epoch:
                raise Deposed
            sealed = HeadObject(
                head=Head(
                    seq=found.head.seq,
                    digest=found.head.digest,
                    epoch=found.head.epoch + 1 if epoch is None else epoch,
                    instant=found.head.instant,
                ),
                materialised=found.materialised,
                version=found.version,
            )
            try:
                await self._swap(sealed)
            except (Conflict, OutcomeUnknown, Unavailable):
                await self._clock.sleep(FIRST_MS)
                continue
            assert self.known.head == sealed.head, self.known
            return self.known

    async def confirm(self) -> None:
        """Raise `Deposed` unless the stored head is still the one that this process knows. Do
        nothing if no other process can lead on this store."""
        if not self.is_shared:
            return
        known = self.known.head
        found = (await self._read_after_us()).head
        if (found.epoch, found.digest) != (known.epoch, known.digest):
            raise Deposed

    async def commit(self, batch: Batch, resolutions: Sequence[Resolution]) -> None:
        """Commit one batch; raise `Deposed` if another process has moved the head."""
        before = self.known
        assert batch.seq == before.head.seq + 1, (batch.seq, before.head.seq)
        assert batch.epoch == before.head.epoch, (batch.epoch, before.head.epoch)
        assert batch.instant >= before.head.instant, (batch.instant, before.head.instant)
        exported = line(batch, before.head.digest)
        digest = str(exported["digest"])
        for resolution in resolutions:
            await self._publish(resolution)
        await self._create_batch(batch.seq, digest, exported)
        head = Head(seq=batch.seq, digest=digest, epoch=batch.epoch, instant=batch.instant)
        wanted = HeadObject(head=head, materialised=before.materialised, version=before.version)
        await self._swap_for_sure(wanted, before)
        assert self.known.head.digest == digest, (self.known.head, digest)
        self.chain[batch.seq] = Committed(name=batch_name(batch.seq, digest), instant=batch.instant)

    def note_materialised(self, seq: int) -> None:
        """Note that Lease objects are written up to batch `seq`. The next commit stores this
        number."""
        known = self.known
        assert known.materialised <= seq <= known.head.seq, (known, seq)
        self._known = HeadObject(head=known.head, materialised=seq, version=known.version)

    async def _swap_for_sure(self, wanted: HeadObject, before: HeadObject) -> None:
        pause = FIRST_MS
        assert wanted.head.seq == before.head.seq + 1, (wanted.head, before.head)
        assert wanted.version == before.version, (wanted.version, before.version)
        while True:
            try:
                await self._swap(wanted)
                return
            except Unavailable:
                await self._clock.sleep(pause)
                pause = min(MOST_MS, pause * 2)
            except (Conflict, OutcomeUnknown):
                # A timeout does not mean failure, and a conflict may be our own attempt: re-read.
                found = await self._read_after_us()
                if found.head.digest == wanted.head.digest:
                    self._known = found
                    return
                if (found.head.seq, found.head.epoch) != (before.head.seq, before.head.epoch):
                    raise Deposed from None
                wanted = HeadObject(
                    head=wanted.head, materialised=wanted.materialised, version=found.version
                )

    async def _read(self) -> HeadObject:
        wire = await until_answered(self._clock, lambda: self._store.get("LedgerHead", "", SHARD))
        return head_from_wire(wire)

    async def _read_after_us(self) -> HeadObject:
        """Read a head that we have sealed. Raise `Deposed` if a later version of leasehold has
        written the head since."""
        try:
            return await self._read()
        except UnknownFormat:
            raise Deposed from None

    async def _swap(self, wanted: HeadObject) -> None:
        written = await self._store.update(_to_wire(wanted, version=wanted.version))
        self._known = head_from_wire(written)

    async def _begin(self) -> None:
        """Create the first head of a new ledger. Raise `HeadLost` if the store has batches but no
        head."""
        batches: list[bytes] = []
        await until_answered(self._clock, lambda: self._store.scan("LedgerBatch", batches.append))
        if not batches:
            await self._create_first()
            return
        try:
            await self._read()  # another process may have begun the ledger since
        except NotFound:
            raise HeadLost(len(batches)) from None

    async def _create_first(self) -> None:
        first = HeadObject(
            head=Head(seq=0, digest=GENESIS, epoch=0, instant=0),
            materialised=0,
            version=0,
        )
        try:
            await self._store.create(_to_wire(first, version=None))
        except (AlreadyExists, OutcomeUnknown, Unavailable):
            await self._clock.sleep(FIRST_MS)

    async def _create_batch(self, seq: int, digest: str, exported: Wire) -> None:
        """Store the batch object before the head names it. If the head is never moved to this
        batch, the object is harmless: no other batch can have its name, which contains its
        digest."""
        obj = batch_object(exported)
        assert obj["metadata"] == {"name": batch_name(seq, digest), "finalizers": [ARCHIVED]}
        try:
            await until_answered(self._clock, lambda: self._store.create(obj))
        except AlreadyExists:
            return

    async def _publish(self, resolution: Resolution) -> None:
        """Store the proof of a preemption before the commit, because the batch has only its
        digest."""
        wire = resolution_to_wire(resolution)
        while True:
            try:
                await until_answered(self._clock, lambda: self._store.create(wire))
                return
            except AlreadyExists:
                if await self._is_published(resolution, wire):
                    return

    async def _is_published(self, resolution: Resolution, wire: Wire) -> bool:
        """Return whether the stored Resolution of this name is the one we want to write. Otherwise
        delete the stored one, but only after `confirm`: if we no longer lead, it may be the proof
        of a preemption that the next leader has committed."""
        with suppress(NotFound):
            there = await until_answered(
                self._clock, lambda: self._store.get("Resolution", "", resolution.name)
            )
            if there["spec"] == wire["spec"]:
                return True
            await self.confirm()
            # Left by a leader that died before its swap: no committed batch names it.
            uid = text_at(part(there, "metadata"), "uid")
            with suppress(Conflict):  # it was replaced meanwhile
                await until_answered(
                    self._clock,
                    lambda: self._store.delete("Resolution", "", resolution.name, uid=uid),
                )
        return False


async def sealed_epoch(store: Store, clock: Clock) -> int:
    """Return the epoch in the head; 0 if the store has no ledger. Raise `UnknownFormat` if a later
    version of leasehold wrote the head."""
    try:
        return (await Ledger(store, clock).look()).head.epoch
    except NotFound:
        return 0


def batch_name(seq: int, digest: str) -> str:
    return f"{seq}-{digest[:8]}"


def batch_object(line: Wire) -> Wire:
    """Return the LedgerBatch object that stores an exported line. Only compaction removes the
    object's finalizer."""
    seq, digest = line["seq"], text_at(line, "digest")
    assert isinstance(seq, int), seq
    return {
        "apiVersion": API_VERSION,
        "kind": "LedgerBatch",
        "metadata": {"name": batch_name(seq, digest), "finalizers": [ARCHIVED]},
        "spec": line,
    }


def _to_wire(head: HeadObject, *, version: int | None) -> Wire:
    metadata: Wire = {"name": SHARD, "finalizers": [ARCHIVED]}
    if version is not None:
        metadata["resourceVersion"] = str(version)
    return {
        "apiVersion": API_VERSION,
        "kind": "LedgerHead",
        "metadata": metadata,
        "spec": {
            "format": FORMAT,
            "seq": head.head.seq,
            "digest": head.head.digest,
            "epoch": head.head.epoch,
            "instant": head.head.instant,
            "materialised": head.materialised,
        },
    }


def head_from_wire(wire: Wire) -> HeadObject:
    """Decode a LedgerHead object. Raise `UnknownFormat` if a later version of leasehold wrote
    it."""
    spec, metadata = wire["spec"], wire["metadata"]
    assert isinstance(spec, dict)
    assert isinstance(metadata, dict)
    check_format(spec.get("format"))
    return HeadObject(
        head=Head(
            seq=int(spec["seq"]),
            digest=str(spec["digest"]),
            epoch=int(spec["epoch"]),
            instant=int(spec["instant"]),
        ),
        materialised=int(spec["materialised"]),
        version=int(metadata["resourceVersion"]),
    )
