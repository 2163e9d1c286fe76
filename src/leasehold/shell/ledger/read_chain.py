"""Reads the batches since the last checkpoint and selects the chain that leads to the head.

Called by `read_ledger` and by the reader of a data folder. The objects are scanned twice, so that
they need not be held in memory: first for numbers and digests, then to check each batch against the
digests before it. Walking back from the head along verified batches gives the chain. A batch that
is not on the chain was never committed.
"""

from collections.abc import Iterable, Sequence

import msgspec

from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Record
from leasehold.core.ledger.batch import Batch, batch_from_json, skimmed_from_json
from leasehold.core.ledger.chain import Digest, canonical, next_digest
from leasehold.core.ledger.head import Head
from leasehold.core.ledger.links import StoredBatch
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store

KIND = "LedgerBatch"


class BatchLost(msgspec.ValidationError):
    """Committed batches that lead to the head are missing, or differ from what was committed."""

    def __init__(self, numbers: Sequence[int]) -> None:
        word = "batch" if len(numbers) == 1 else "batches"
        super().__init__(f"the ledger has no {word} {spans(numbers)} that its head names")
        self.numbers = tuple(numbers)


class Link(Record):
    """A verified batch: its digest follows from its content and from `before`, the digest of the
    batch ahead of it."""

    name: str
    before: Digest
    digest: Digest
    batch: Batch


class _Spec(msgspec.Struct):
    seq: int
    digest: str
    batch: msgspec.Raw


class _Metadata(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec


_decode = msgspec.json.Decoder(_Object).decode


class Lines:
    """Selects the committed batches among all batch objects of a store. Pass every object to
    `note`, then every object to `check`; then call `chain`."""

    def __init__(self, head: Head, *, after: int, digest: Digest, whole_after: int) -> None:
        """`after` is the last batch that a checkpoint summarises, and `digest` is its digest.
        Batches after `whole_after` are decoded with their leases, earlier ones without."""
        self._head = head
        self._after = after
        self._whole_after = whole_after
        self._digests: dict[int, list[Digest]] = {after: [digest]}
        self._links: dict[tuple[int, Digest], Link] = {}
        self._names: dict[tuple[int, Digest], str] = {}
        self.ahead: list[StoredBatch] = []  # batches after the head, which a later head may confirm

    def note(self, body: bytes) -> None:
        found = _decoded(body)
        if found is not None and found.spec.seq > self._head.seq:
            self.ahead.append(_offer(found))
        elif found is not None:
            self._names[found.spec.seq, found.spec.digest] = found.metadata.name
            if found.spec.seq > self._after:
                self._digests.setdefault(found.spec.seq, []).append(found.spec.digest)

    def check(self, body: bytes) -> None:
        found = _decoded(body)
        if found is None:
            return
        number, digest, raw = found.spec.seq, found.spec.digest, bytes(found.spec.batch)
        if not self._after < number <= self._head.seq:
            return
        befores = self._digests.get(number - 1, [])
        before = _matching(befores, raw, digest)
        if before is None:
            # The store may return the members in another order than the hashed one.
            before = _matching(befores, _reordered(raw), digest)
        if before is not None:
            read = batch_from_json if number > self._whole_after else skimmed_from_json
            self._links[number, digest] = Link(
                name=found.metadata.name, before=before, digest=digest, batch=read(raw)
            )

    def chain(self) -> list[Link]:
        """Return the committed batches after the checkpoint, in order. Raise `BatchLost` if one is
        missing or damaged."""
        links = []
        wanted = self._head.digest
        for number in range(self._head.seq, self._after, -1):
            link = self._links.get((number, wanted))
            if link is None:
                raise BatchLost(self._missing(number, wanted))
            links.append(link)
            self._names.pop((number, wanted), None)
            wanted = link.before
        return links[::-1]

    def _missing(self, number: int, digest: Digest) -> list[int]:
        """Return the numbers of missing batches when batch `number` has no verified object. If the
        object of `number` exists and an earlier batch is missing, that gap is the cause and
        `number` is not listed. Otherwise `number` is listed too: it is missing or damaged."""
        found = [each for each in range(self._after + 1, number) if each not in self._digests]
        is_there = digest in self._digests.get(number, ())
        return found if found and is_there else [*found, number]

    def left_over(self) -> dict[tuple[int, Digest], str]:
        """Return the names of stored batches that are not on the chain, by number and digest. Call
        `chain` first."""
        return self._names


async def read_lines(store: Store, clock: Clock, lines: Lines) -> int:
    """Scan all batch objects twice into `lines`. Return the store's version at the first scan, from
    which a caller can watch for changes."""
    version = await until_answered(clock, lambda: store.scan(KIND, lines.note))
    await until_answered(clock, lambda: store.scan(KIND, lines.check))
    return version


def spans(numbers: Iterable[int]) -> str:
    """Format numbers as ranges, such as "3, 5 to 8"."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join(" to ".join(map(str, each)) for each in found)


def _decoded(body: bytes) -> _Object | None:
    """Decode a batch object; return None if it is not a batch. If the chain needs that object,
    `Lines.chain` raises `BatchLost`."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return None


def _offer(found: _Object) -> StoredBatch:
    return StoredBatch(
        name=found.metadata.name,
        seq=found.spec.seq,
        digest=found.spec.digest,
        encoded=_reordered(bytes(found.spec.batch)),
    )


def _reordered(raw: bytes) -> bytes:
    try:
        return canonical(msgspec.json.decode(raw))
    except AssertionError:  # no committed batch contains fractions
        return raw


def _matching(befores: list[Digest], encoded: bytes, digest: Digest) -> Digest | None:
    return next((each for each in befores if next_digest(each, encoded) == digest), None)
