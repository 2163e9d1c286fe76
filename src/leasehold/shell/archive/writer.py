"""Writes one archive segment, completely or not at all, and verifies it.

Each file is written under a temporary name, synced to disk and renamed; the index comes last. Then
all four files are read back and checked against the chain. Only a segment that passes counts as
archived. Called by the compactor; removes only unfinished files of earlier attempts.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from leasehold.core.facts import Lease
from leasehold.core.ledger.batch import Batch, batch_from_wire
from leasehold.core.ledger.chain import canonical, digest_of, next_digest
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_from_wire, lease_to_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.shell.archive.segments import (
    FORMAT,
    LEASES,
    LEDGER,
    PARTS,
    RESOLUTIONS,
    BadArchive,
    End,
    File,
    Index,
    file_name,
    read_indices,
    read_part,
)

_REMEDY = "check the disk; nothing was removed from the store"


def write_segment(
    folder: Path,
    before: End,
    lines: Sequence[Wire],
    *,
    leases: Sequence[Lease],
    resolutions: Sequence[Wire],
) -> Index:
    """Write a segment: the exported lines that follow `before`, with the leases that they closed
    and the Resolutions that they published.

    Raise `BadArchive` if the files do not verify afterwards, `OSError` if they cannot be written.
    """
    assert lines, "a segment has a batch"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    first, last = before.seq + 1, before.seq + len(lines)
    _remove_unfinished(folder, first)
    contents = {
        LEDGER: _encoded(lines),
        LEASES: _encoded(map(lease_to_wire, leases)),
        RESOLUTIONS: _encoded(map(_bare, resolutions)),
    }
    files = {}
    for kind in PARTS:
        name = file_name(kind, first, last)
        put_file(folder / name, contents[kind])
        files[kind] = File(name=name, sha256=_sha256(contents[kind]), bytes=len(contents[kind]))
    ends = [lease.end for lease in leases if lease.end is not None]
    index = Index(
        format=FORMAT,
        first=first,
        last=last,
        before=before.digest,
        after=text_at(lines[-1], "digest"),
        first_instant=_instant(lines[0]),
        last_instant=_instant(lines[-1]),
        files=files,
        leases=len(leases),
        leases_from=min((lease.start for lease in leases), default=0),
        leases_to=max(ends, default=0),
    ).sealed()
    path = folder / file_name("segment", first, last)
    put_file(path, msgspec.json.format(msgspec.json.encode(index), indent=1) + b"\n")
    try:
        return read_back(folder, index)
    except BadArchive:
        with suppress(OSError):
            path.unlink()  # the segment does not count; the next attempt writes it again
        raise


def read_back(folder: Path, written: Index) -> Index:
    """Read a written segment back and return its index. Raise `BadArchive` if it is damaged or does
    not continue the chain."""
    path = folder / file_name("segment", written.first, written.last)
    found = next((each for each in read_indices(folder) if each.first == written.first), None)
    if found != written:
        raise BadArchive(path, "differs from what was written when it is read back", _REMEDY)
    check_segment(folder, found)
    return found


def check_segment(folder: Path, index: Index) -> None:
    """Check all digests of a segment, and that its leases and Resolutions are those that its
    batches name. Raise `BadArchive`."""
    path = folder / file_name(LEDGER, index.first, index.last)
    digest, seq = index.before, index.first - 1
    closed: dict[str, tuple[int, int, str]] = {}
    quoted: dict[str, str] = {}
    for line in read_part(folder, index, LEDGER):
        batch = _batch(path, line)
        digest, seq = next_digest(digest, canonical(line["batch"])), seq + 1
        if batch.seq != seq or line.get("digest") != digest:
            raise BadArchive(path, f"batch {seq} does not follow the one before it", _REMEDY)
        closed.update((each.lease, (seq, each.end, each.reason)) for each in batch.closed)
        quoted.update(batch.resolutions)
    if (seq, digest) != (index.last, index.after):
        raise BadArchive(
            path, f"ends with batch {seq} and not with the batch that its index names", _REMEDY
        )
    _check_leases(folder, index, closed)
    _check_resolutions(folder, index, quoted)


def _check_leases(folder: Path, index: Index, closed: dict[str, tuple[int, int, str]]) -> None:
    path = folder / file_name(LEASES, index.first, index.last)
    seen = set()
    for wire in read_part(folder, index, LEASES):
        try:
            lease = lease_from_wire(wire)
        except msgspec.ValidationError as error:
            raise BadArchive(path, f"has a line that is not a lease ({error})", _REMEDY) from None
        known = lease.closed
        if known is None or closed.get(lease.name) != (known.batch, known.at, str(known.why)):
            raise BadArchive(path, f"{lease.name} differs from what its batch closed", _REMEDY)
        seen.add(lease.name)
    missing = sorted(set(closed) - seen)
    if missing:
        raise BadArchive(path, f"lacks {missing[0]}", _REMEDY)


def _check_resolutions(folder: Path, index: Index, quoted: dict[str, str]) -> None:
    path = folder / file_name(RESOLUTIONS, index.first, index.last)
    seen = set()
    for wire in read_part(folder, index, RESOLUTIONS):
        name = text_at(part(wire, "metadata"), "name")
        if name not in quoted or digest_of(wire.get("spec")) != quoted[name]:
            raise BadArchive(path, f"{name} differs from the one that its batch quotes", _REMEDY)
        seen.add(name)
    missing = sorted(set(quoted) - seen)
    if missing:
        raise BadArchive(path, f"lacks {missing[0]}", _REMEDY)


def _batch(path: Path, line: Wire) -> Batch:
    try:
        return batch_from_wire(part(line, "batch"))
    except msgspec.ValidationError as error:
        raise BadArchive(path, f"has a line that is not a batch ({error})", _REMEDY) from None


def put_file(path: Path, content: bytes) -> None:
    """Write a file atomically: after a crash, the path has either the complete content or what it
    had before."""
    unfinished = path.with_name(path.name + ".tmp")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder, which makes renames in it durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_unfinished(folder: Path, first: int) -> None:
    """Remove the files that an interrupted attempt left: those that begin with batch `first` and
    have no index, and temporary files."""
    start = file_name(LEDGER, first, first).removeprefix(LEDGER).partition("-")[2].split("-")[0]
    for kind in PARTS:
        for path in folder.glob(f"{kind}-{start}-*"):
            path.unlink()
    for path in folder.glob("*.tmp"):
        path.unlink()


def _encoded(wires: Iterable[Wire]) -> bytes:
    return b"".join(msgspec.json.encode(wire, order="sorted") + b"\n" for wire in wires)


def _bare(resolution: Wire) -> Wire:
    """Return the Resolution without the fields that the store added."""
    name = text_at(part(resolution, "metadata"), "name")
    return {
        "apiVersion": resolution.get("apiVersion"),
        "kind": "Resolution",
        "metadata": {"name": name},
        "spec": resolution.get("spec"),
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _instant(line: Wire) -> int:
    found = part(line, "batch").get("instant")
    assert isinstance(found, int), "the chain was followed to it"
    return found
