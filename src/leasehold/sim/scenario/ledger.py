"""Reads ledger and objects from a simulated store, to verify them or write them to files.

Called by the scenario runner. The chain is followed backwards from the head, because a store may
also have batches that were never committed. The store is not changed.
"""

import hashlib
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from leasehold.core.ledger.chain import canonical, next_digest
from leasehold.core.ledger.verify import verify_objects
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.ports.store import NotFound, Store
from leasehold.shell.archive.checkpoints import read_checkpoint
from leasehold.shell.archive.reader import Archive

HEAD = "main"
KINDS = (
    "Budget",
    "ConfigMap",
    "Event",
    "Lease",
    "LedgerBatch",
    "LedgerCheckpoint",
    "LedgerHead",
    "Node",
    "Pod",
    "Reservation",
    "Resolution",
    "Run",
    "Secret",
)

T = TypeVar("T")


def at_once(coroutine: Coroutine[object, object, T]) -> T:
    """Return the result of a coroutine that never suspends. Calls of a simulated store are such
    coroutines."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("a simulated store does not wait")


def key_of(obj: Wire) -> str:
    """Return the object's `namespace/name`."""
    metadata = part(obj, "metadata")
    return f"{text_at(metadata, 'namespace')}/{text_at(metadata, 'name')}"


def objects_of(store: Store, kind: str) -> list[Wire]:
    return at_once(store.list(kind)).items


def ledger_lines(store: Store, archive: Archive | None = None) -> list[Wire]:
    """Return every committed batch as its exported line, in order, including archived ones."""
    live = _live_lines(store)
    first = (whole_at(live[0], "seq") or 1) if live else (whole_at(_head(store), "seq") or 0) + 1
    archived = [] if archive is None else archive.lines()
    return [*(line for line in archived if (whole_at(line, "seq") or 0) < first), *live]


def _live_lines(store: Store) -> list[Wire]:
    head = _head(store)
    by_seq: dict[int, list[Wire]] = {}
    for stored in objects_of(store, "LedgerBatch"):
        line = part(stored, "spec")
        by_seq.setdefault(whole_at(line, "seq") or 0, []).append(line)
    digest = text_at(head, "digest")
    lines: list[Wire] = []
    for seq in range(whole_at(head, "seq") or 0, 0, -1):
        found = [line for line in by_seq.get(seq, []) if line.get("digest") == digest]
        if not found:
            break
        lines.append(found[0])
        digest = _digest_before(found[0], by_seq.get(seq - 1, []))
    return lines[::-1]


def lines_after(store: Store, seq: int, digest: str, archive: Archive | None = None) -> list[Wire]:
    """Return the exported lines of the committed batches after batch `seq`, whose digest is
    `digest`. If there is only one, it is read by its name, which is fast."""
    head = _head(store)
    newest, after = whole_at(head, "seq") or 0, text_at(head, "digest")
    if newest == seq + 1:
        return [part(at_once(store.get("LedgerBatch", "", f"{newest}-{after[:8]}")), "spec")]
    if (newest, after) == (seq, digest):
        return []
    assert newest > seq, "the head went back"
    return ledger_lines(store, archive)[seq:]


def ledger_problems(store: Store, archive: Archive | None = None) -> list[str]:
    """Return the first inconsistency of the ledger, if any: in its chain, in what its batches add
    up to, or in the objects."""
    head = _head(store)
    lines = ledger_lines(store, archive)
    seq = whole_at(head, "seq") or 0
    if len(lines) != seq:
        return [f"the head is at batch {seq}, and {len(lines)} batches lead to it"]
    # Called at rest, when all objects must be up to date whatever `materialised` says.
    leases, resolutions = objects_of(store, "Lease"), objects_of(store, "Resolution")
    carried, _ = at_once(read_checkpoint(store, _NoClock()))
    found = verify_objects(lines, leases, resolutions, carried=carried)
    return [] if found is None else [str(found)]


class _NoClock:
    """A clock for calls that are answered at once; it raises if it is ever used."""

    def now(self) -> int:
        raise AssertionError("nobody waits here")

    monotonic = now

    async def sleep(self, ms: int) -> None:
        raise AssertionError(f"a simulated store does not keep anybody waiting {ms} ms")


def every_object(store: Store) -> list[Wire]:
    """Return all objects in the store, sorted by kind, namespace and name."""
    return [wire for kind in KINDS for wire in objects_of(store, kind)]


def digest_of_store(store: Store) -> str:
    """Return a digest of everything stored. Two equal histories give the same digest."""
    return hashlib.sha256(_lines(every_object(store))).hexdigest()


def write_out(store: Store, folder: Path, archive: Archive | None = None) -> None:
    """Write `objects.jsonl` and `ledger.jsonl` for independent checks."""
    write_ledger(store, folder, archive)
    (folder / "objects.jsonl").write_bytes(_lines(every_object(store)))


def write_ledger(store: Store, folder: Path, archive: Archive | None = None) -> None:
    """Write `ledger.jsonl` in the format of `leasehold ledger export`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ledger.jsonl").write_bytes(_lines(ledger_lines(store, archive)))


def _lines(wires: Iterable[Wire]) -> bytes:
    return b"".join(msgspec.json.encode(wire, order="sorted") + b"\n" for wire in wires)


def _head(store: Store) -> Wire:
    try:
        return part(at_once(store.get("LedgerHead", "", HEAD)), "spec")
    except NotFound:
        return {}


def _digest_before(line: Wire, candidates: list[Wire]) -> str:
    encoded = canonical(line.get("batch"))
    for candidate in candidates:
        digest = text_at(candidate, "digest")
        if next_digest(digest, encoded) == line.get("digest"):
            return digest
    return ""
