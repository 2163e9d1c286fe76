"""The files of an archive: names, a segment's index, and verified reads.

    ledger-FIRST-LAST.jsonl         the exported lines of these batches, unchanged
    leases-FIRST-LAST.jsonl         the leases that these batches closed, as objects
    resolutions-FIRST-LAST.jsonl    the Resolutions that these batches published, as objects
    segment-FIRST-LAST.json         digests, sizes and times of the three; written last

A segment counts only once its index exists. Numbers are padded, so that sorting the names sorts the
batches. Used by the writer and the reader; nothing here writes.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from leasehold.adapters.unusable import Unusable
from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest
from leasehold.core.names import Wire
from leasehold.core.units import Instant

FORMAT = 1
LEDGER, LEASES, RESOLUTIONS = "ledger", "leases", "resolutions"
PARTS = (LEDGER, LEASES, RESOLUTIONS)
_DIGITS = 12

line_of = msgspec.json.Decoder(dict[str, object]).decode


class BadArchive(Unusable):
    """A file of the archive is damaged or missing; the message names the file, the reason and a
    remedy."""


class File(Record):
    name: str
    sha256: str
    bytes: int


class Index(Record, rename="camel"):
    """The index of a segment. All leases that its batches closed lie between `leases_from` and
    `leases_to`."""

    format: int
    first: int
    last: int
    before: Digest  # the chain's digest before the first batch
    after: Digest
    first_instant: Instant
    last_instant: Instant
    files: dict[str, File]  # by kind: ledger, leases, resolutions
    leases: int
    leases_from: Instant
    leases_to: Instant
    checksum: str = ""  # of all other fields

    def sealed(self) -> "Index":
        return replace(self, checksum=self._sum())

    def is_sound(self) -> bool:
        return self.checksum == self._sum()

    def _sum(self) -> str:
        content = msgspec.json.encode(replace(self, checksum=""), order="sorted")
        return hashlib.sha256(content).hexdigest()


class End(Record):
    """Where an archive ends: the number of its last batch, and the chain's digest after that
    batch."""

    seq: int = 0
    digest: Digest = GENESIS


def file_name(part: str, first: int, last: int) -> str:
    suffix = "json" if part == "segment" else "jsonl"
    return f"{part}-{first:0{_DIGITS}d}-{last:0{_DIGITS}d}.{suffix}"


def read_indices(folder: Path) -> list[Index]:
    """Return the indices of all segments, in order. Raise `BadArchive` if a segment is missing: the
    first one, or one between two others."""
    found: list[Index] = []
    try:
        paths = sorted(folder.glob("segment-*.json"))
    except OSError as error:
        raise BadArchive(
            folder, f"cannot be read: {error.strerror}", "check its permissions"
        ) from None
    end = End()
    for path in paths:
        index = _read_index(path)
        if (index.first, index.before) != (end.seq + 1, end.digest):
            why = f"begins with batch {index.first}, and the archive before it ends with {end.seq}"
            raise BadArchive(path, why, "put the files that are missing back into the folder")
        end = End(seq=index.last, digest=index.after)
        found.append(index)
    return found


def end_of(indices: list[Index]) -> End:
    return End(seq=indices[-1].last, digest=indices[-1].after) if indices else End()


def read_part(folder: Path, index: Index, part: str) -> Iterator[Wire]:
    """Yield the objects in one file of a segment, after checking the file's digest."""
    content = read_file(folder, index, part)
    for line in content.splitlines():
        yield line_of(line)  # cannot fail: the digest matches what was written


def part_path(folder: Path, index: Index, part: str) -> Path:
    file = index.files.get(part)
    if file is None or Path(file.name).name != file.name:
        path = folder / file_name("segment", index.first, index.last)
        raise BadArchive(path, f"names no file for {part}", "restore it from a backup")
    return folder / file.name


def read_file(folder: Path, index: Index, part: str, *, is_known: bool = False) -> bytes:
    """Return the content of one file of a segment. Its digest is checked, unless `is_known`: the
    caller has checked this content before."""
    path = part_path(folder, index, part)
    try:
        content = path.read_bytes()
    except OSError as error:
        said = error.strerror or str(error)
        raise BadArchive(path, f"cannot be read: {said}", "restore it from a backup") from None
    if not is_known and hashlib.sha256(content).hexdigest() != index.files[part].sha256:
        raise BadArchive(path, "does not match its index", "restore it from a backup")
    return content


def _read_index(path: Path) -> Index:
    try:
        index = msgspec.json.decode(path.read_bytes(), type=Index)
    except OSError as error:
        said = error.strerror or str(error)
        raise BadArchive(path, f"cannot be read: {said}", "check its permissions") from None
    except msgspec.DecodeError as error:
        raise BadArchive(
            path, f"is not the index of a segment ({error})", "restore it from a backup"
        ) from None
    if index.format != FORMAT:
        why = (
            f"was written by a newer leasehold (format {index.format}; this version supports "
            f"{FORMAT})"
        )
        raise BadArchive(path, why, "use that newer leasehold")
    if not index.is_sound():
        raise BadArchive(path, "differs from what was written", "restore it from a backup")
    if path.name != file_name("segment", index.first, index.last):
        raise BadArchive(path, "is the index of other batches", "restore its own name")
    return index
