"""The file format of SQLite, read without SQLite: pages, cells and records.

`salvage` reads a file with it that SQLite refuses. The format is published and is kept for ever.
Nothing here writes or raises over damage: what is no page, cell or record is None or left out, and
its page is noted. The newer images of pages come from the write-ahead log, which is `wal`'s.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leasehold.adapters.sqlite.wal import Log, log_of, read_log

Value = int | float | str | bytes | None

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100  # on page 1, before what else is there
DEFAULT_PAGE_BYTES = 4096  # SQLite's own, which no store of ours ever changed
INNER_INDEX, INNER_TABLE, LEAF_INDEX, LEAF_TABLE = 0x02, 0x05, 0x0A, 0x0D
_INNER = (INNER_INDEX, INNER_TABLE)
_KINDS = (INNER_INDEX, INNER_TABLE, LEAF_INDEX, LEAF_TABLE)
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)  # of a record's value, by its serial type
_REAL, _ZERO, _ONE, _FIRST_BLOB = 7, 8, 9, 12
_ROWID_MAX = 2**63


@dataclass(frozen=True, slots=True)
class Header:
    """What the first 100 bytes say, as far as it is used."""

    page_bytes: int
    page_count: int  # 0: it does not know
    free_trunk: int
    free_count: int
    schema: int
    owner: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry of a page; an inner table's has no payload, a leaf's no child."""

    child: int
    rowid: int
    payload: bytes


@dataclass(slots=True)
class PageNode:
    """One page of a tree; `is_whole` when all its cells could be read."""

    kind: int
    cells: list[Cell] = field(default_factory=list)
    right: int = 0
    overflow: list[int] = field(default_factory=list)  # pages that its long payloads go on in
    is_whole: bool = True


class PageFile:
    """Pages by number, as of the last commit that the log can prove."""

    def __init__(self, path: Path) -> None:
        """Raises `OSError` if there is no such file to read."""
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._file).st_size
        first = read_header(self._pread(HEADER_BYTES, 0) or b"")
        known = DEFAULT_PAGE_BYTES
        if first is not None and self._has_table_at(first.page_bytes):
            known = first.page_bytes
        self.log: Log = read_log(log_of(path), known)
        self.page_bytes = self.log.page_bytes
        self.header = read_header(self.get(1) or b"")
        told = 0 if self.header is None else self.header.page_count
        # Too many does no harm: what is not there is not found.
        self.count = max(told, self.log.page_count, size // self.page_bytes)

    def close(self) -> None:
        os.close(self._file)

    def get(self, number: int) -> bytes | None:
        image = self.log.images.get(number)
        if image is not None:
            return image
        return self._pread(self.page_bytes, (number - 1) * self.page_bytes)

    def _has_table_at(self, place: int) -> bool:
        """Whether page 2, which always was a table's, can begin here."""
        return self._pread(1, place) in (bytes([INNER_TABLE]), bytes([LEAF_TABLE]))

    def _pread(self, count: int, at: int) -> bytes | None:
        try:
            found = os.pread(self._file, count, at)
        except OSError:  # the disk cannot read it any more
            return None
        return found if len(found) == count else None


def read_header(page: bytes) -> Header | None:
    """None when it is none."""
    if len(page) < HEADER_BYTES or not page.startswith(MAGIC):
        return None
    size = _whole(page, 16, 2)
    size = 65536 if size == 1 else size
    if size < 512 or size & (size - 1):
        return None
    # A program that did not know the count left another counter there than its change made.
    is_counted = _whole(page, 24) == _whole(page, 92)
    return Header(
        page_bytes=size,
        page_count=_whole(page, 28) if is_counted else 0,
        free_trunk=_whole(page, 32),
        free_count=_whole(page, 36),
        schema=_whole(page, 60),
        owner=_whole(page, 68),
    )


def free_pages(pages: PageFile) -> tuple[set[int], bool]:
    """Pages that belong to nobody, and whether these are all of them."""
    found: set[int] = set()
    if pages.header is None:
        return found, False
    trunk = pages.header.free_trunk
    while 0 < trunk <= pages.count and trunk not in found:
        found.add(trunk)
        image = pages.get(trunk)
        if image is None:
            break
        count = _whole(image, 4)
        if count > pages.page_bytes // 4 - 2:
            break
        found.update(_whole(image, 8 + 4 * place) for place in range(count))
        trunk = _whole(image, 0)
    return found, len(found) == pages.header.free_count


class TreeWalk:
    """A tree from its root on: its cells in order, which pages it has, and which were not right.

    `seen` and `broken` are complete when `cells` is through."""

    def __init__(self, pages: PageFile, root: int, *, is_table: bool) -> None:
        self._pages = pages
        self._root = root
        self._is_table = is_table
        self.seen: set[int] = set()
        self.broken: list[int] = []

    @property
    def is_whole(self) -> bool:
        return not self.broken

    def distrust(self) -> None:
        """Whoever knows what must be in it has found something else."""
        self.broken.append(self._root)

    def cells(self) -> Iterator[Cell]:
        """Those with a payload."""
        return self._below(self._root, -_ROWID_MAX, _ROWID_MAX)

    def _below(self, number: int, low: int, high: int) -> Iterator[Cell]:
        """`low` and `high`: what the page above says of a table's rows here."""
        node = None
        if 0 < number <= self._pages.count and number not in self.seen:
            node = read_node(self._pages, number)
        self.seen.add(number)
        if node is None or (node.kind in (INNER_TABLE, LEAF_TABLE)) != self._is_table:
            self.broken.append(number)
            return
        self.seen.update(node.overflow)
        is_right = node.is_whole and number not in self._pages.log.damaged
        for cell in node.cells:
            if self._is_table:
                is_right = is_right and low < cell.rowid <= high
            if cell.child:
                yield from self._below(cell.child, low, cell.rowid)
            if node.kind != INNER_TABLE:
                yield cell
            low = cell.rowid if self._is_table else low
        if node.right:
            yield from self._below(node.right, low, high)
        if not is_right:
            self.broken.append(number)


def read_node(pages: PageFile, number: int) -> PageNode | None:
    """A page as one of a tree; None when it is none."""
    image = pages.get(number)
    if image is None:
        return None
    return node_of(pages, image, HEADER_BYTES if number == 1 else 0)


def node_of(pages: PageFile, image: bytes, start: int = 0) -> PageNode | None:
    """The same for a page whose number is not known."""
    if image[start] not in _KINDS:
        return None
    node = PageNode(kind=image[start])
    first = start + (12 if node.kind in _INNER else 8)
    count = _whole(image, start + 3, 2)
    end = first + 2 * count
    if end > pages.page_bytes:
        return None
    if node.kind in _INNER:
        node.right = _whole(image, start + 8)
    for place in range(first, end, 2):
        cell = _read_cell(pages, node, image, _whole(image, place, 2))
        if cell is None:
            node.is_whole = False
        else:
            node.cells.append(cell)
    return node


def _read_cell(pages: PageFile, node: PageNode, image: bytes, at: int) -> Cell | None:
    child = rowid = 0
    try:
        if node.kind in _INNER:
            child, at = _whole(image, at), at + 4
        if node.kind == INNER_TABLE:
            rowid, _ = varint(image, at)
            return Cell(child, rowid, b"")
        size, at = varint(image, at)
        if node.kind == LEAF_TABLE:
            rowid, at = varint(image, at)
    except IndexError:
        return None
    payload = _payload(pages, node, image, (at, size))
    return None if payload is None else Cell(child, rowid, payload)


def _payload(
    pages: PageFile, node: PageNode, image: bytes, placed: tuple[int, int]
) -> bytes | None:
    """What fits on the page, and the pages that the rest is on."""
    (at, size), usable = placed, pages.page_bytes
    if size > pages.count * usable:
        return None
    most = usable - 35 if node.kind == LEAF_TABLE else (usable - 12) * 64 // 255 - 23
    local = size
    if size > most:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = least if local > most else local
    if at + local + (4 if local < size else 0) > usable:
        return None
    parts, left = [image[at : at + local]], size - local
    following = _whole(image, at + local) if left else 0
    while left:
        more = pages.get(following) if 0 < following <= pages.count else None
        if more is None:
            return None
        node.overflow.append(following)
        parts.append(more[4 : min(usable, 4 + left)])
        left -= len(parts[-1])
        following = _whole(more, 0)
    return b"".join(parts)


def read_record(payload: bytes) -> list[Value] | None:
    """The values of a row; None when its sizes do not add up or a text is none."""
    try:
        header, at = varint(payload, 0)
        types = []
        while at < header:
            kind, at = varint(payload, at)
            types.append(kind)
        values: list[Value] = []
        for kind in types:
            size = _value_bytes(kind)
            if at + size > len(payload):
                return None
            values.append(_value(kind, payload[at : at + size]))
            at += size
    except (IndexError, UnicodeDecodeError):
        return None
    return values if at == len(payload) else None


def _value_bytes(kind: int) -> int:
    if kind < len(_INTEGER_BYTES):
        return _INTEGER_BYTES[kind]
    if kind >= _FIRST_BLOB:
        return (kind - _FIRST_BLOB) // 2
    return 8 if kind == _REAL else 0


def _value(kind: int, content: bytes) -> Value:
    if kind >= _FIRST_BLOB:
        return content.decode() if kind % 2 else content
    if kind in (_ZERO, _ONE):
        return kind - _ZERO
    if kind == _REAL or kind > _ONE or not kind:
        return None  # no store of ours has a real number
    return int.from_bytes(content, "big", signed=True)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends; raises `IndexError` past the end."""
    value = 0
    for place in range(at, at + 8):
        byte = data[place]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, place + 1
    value = value << 8 | data[at + 8]
    return value - 2**64 if value >= _ROWID_MAX else value, at + 9


def _whole(data: bytes, at: int, size: int = 4) -> int:
    return int.from_bytes(data[at : at + size], "big")
