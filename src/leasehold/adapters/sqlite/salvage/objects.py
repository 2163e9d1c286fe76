"""Everything that can be had out of a store's file that SQLite refuses.

Called by `leasehold restore --salvage`. It reads the file page by page, writes nothing, and needs
no SQLite, which would change what it opens. What is recent is in the file twice (`objects` and
`history`), and the index of each table names what there must be: so it can say what it could not
find. A row counts when its body is JSON as we write it and says the same kind, name and version as
the row. Of each object the newest counts. Whether the ledger is whole is not known here.
"""

import os
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from leasehold.adapters.exclusive import take
from leasehold.adapters.objects.rules import key_of, part
from leasehold.adapters.objects.storage import Key, decode, encode
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.lock import used_by
from leasehold.adapters.sqlite.salvage.pages import (
    LEAF_TABLE,
    Cell,
    PageFile,
    TreeWalk,
    Value,
    free_pages,
    node_of,
    read_node,
    read_record,
)
from leasehold.adapters.sqlite.schema import APPLICATION, MIGRATIONS
from leasehold.core.names import Wire

DELETED = "DELETED"
EVENTS = ("ADDED", "MODIFIED", DELETED)
FORGOTTEN = "forgotten/"
# Where a file of this schema has its trees when page 1 cannot say so: a tree's root never moves,
# and `VACUUM` makes tables before indices. The last two may be the other way round.
NAMES, DATES = "sqlite_autoindex_objects_1", "history_of_kind"
ROOTS = {"objects": 2, NAMES: 3, "history": 4, DATES: 5, "meta": 6}
UNSEEN_MAX = 100_000  # changes that a counter may be ahead of all else, before it is what is wrong


@dataclass(slots=True)
class Found:
    """An object as it was last. More than one body: its copies differ, and none is known to be
    wrong."""

    version: int
    event: str
    bodies: list[bytes]


@dataclass(slots=True)
class Salvaged:
    """What a file held. `lost`: was there, and nothing of it is left; `outdated`: a newer version
    than ours was there. When not `is_sure` there may have been objects that nothing names."""

    path: Path
    prefix: str = ""
    version: int = 0
    created: int = 0
    objects: dict[Key, Found] = field(default_factory=dict)
    lost: set[Key] = field(default_factory=set)
    outdated: set[Key] = field(default_factory=set)
    is_sure: bool = True
    from_history: int = 0  # objects whose row in the table was lost
    doubtful: set[Key] = field(default_factory=set)  # only on pages that may have been given up
    damaged_pages: int = 0
    wrong_frames: int = 0  # of the log
    _forgotten: dict[str, int] = field(default_factory=dict)  # by kind, as in the file
    _missing: dict[int, str] = field(default_factory=dict)  # changes; kind "": not known
    _deleted: set[Key] = field(default_factory=set)
    _is_blind: bool = False  # nothing says which changes there must be

    def knows_since(self, kind: str, version: int) -> bool:
        """Whether every change of this kind after that version is among what was found."""
        if self._is_blind:
            return False
        return self._forgotten.get(kind, 0) <= version and not any(
            later > version and each in (kind, "") for later, each in self._missing.items()
        )

    def fill_from(self, older: "Salvaged") -> int:
        """What is lost here and is in an older copy of the same store; how much that was. Where
        two copies of one version differ, a third decides."""
        filled = 0
        for key, found in older.objects.items():
            mine = self.objects.get(key)
            if mine is not None and mine.version == found.version:
                agreed = [body for body in mine.bodies if body in found.bodies]
                mine.bodies = agreed or [*mine.bodies, *found.bodies]
            is_unknown = not self.is_sure and mine is None and key not in self._deleted
            if key in self.lost or is_unknown:
                self.objects[key] = found
                self.lost.discard(key)
                filled += 1
                if not self.knows_since(key[0], older.version):
                    self.outdated.add(key)
        kinds = {kind for kind, _, _ in (*older.objects, *self.objects)}
        if all(self.knows_since(kind, older.version) for kind in kinds):
            self.is_sure = True
        return filled


def salvage(path: Path, *, proved: Container[str] = ()) -> Salvaged:
    """Raises `BadStore` when the file is in use, another's, or holds nothing of ours. Of kinds that
    the caller can prove, also what may have been removed long ago is taken."""
    _check_free(path)
    try:
        pages = PageFile(path)
    except OSError as error:
        remedy = "name the data folder that holds it"
        raise BadStore(path, f"cannot be read: {error.strerror}", remedy) from None
    try:
        return _Reading(path, pages, proved).result()
    finally:
        pages.close()


def _check_free(path: Path) -> None:
    """Whoever has it open may be writing. The lock is looked at, and nothing is left in it."""
    with suppress(FileNotFoundError):
        file = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not take(file):
                raise BadStore(path, used_by(file), "end that one first; its jobs go on")
        finally:
            os.close(file)


class _Reading:
    def __init__(self, path: Path, pages: PageFile, proved: Container[str]) -> None:
        self._path = path
        self._proved = proved
        self._pages = pages
        self._newest: dict[Key, Found] = {}
        self._in_table: set[Key] = set()
        self._named: dict[Key, int] = {}  # by the index, with the row that has it
        self._rows: dict[int, Key] = {}  # of the table, found good
        self._bodiless: set[Key] = set()  # by a row of which no more can be read
        self._changes: dict[int, str] = {}  # found in the history: version -> kind
        self._dated: dict[int, str] = {}  # the same, as the index says
        self._meta: dict[str, Value] = {}
        self._numbers: dict[str, int] = {}  # highest of each prefix of uids
        self._prefixes: Counter[str] = Counter()
        self._doubtful: set[Key] = set()
        self._floor_before = 0  # of the history, before stray pages were looked at
        self._check_schema()
        roots = self._roots()
        self._walks = {
            name: TreeWalk(pages, roots[name], is_table=name in ("objects", "history"))
            for name in ROOTS
        }
        self._read()
        if not self._is_complete():
            self._read_stray()
        # Each list is whole when the other has nothing that it lacks.
        rows = set(self._named.values())
        self._is_index_whole = self._walks[NAMES].is_whole and all(
            row in rows or key in self._named for row, key in self._rows.items()
        )
        self._is_table_whole = self._walks["objects"].is_whole and self._has_all_named()

    def result(self) -> Salvaged:
        missing = self._missing()
        forgotten = self._forgotten()
        # That the history's tree is whole says little: pages of another place make one as well.
        is_blind = not (self._has_meta() or self._walks[DATES].is_whole)
        salvaged = Salvaged(
            path=self._path,
            prefix=self._prefix(),
            version=self._top(),
            damaged_pages=self._damaged_pages(),
            wrong_frames=len(self._pages.log.wrong_frames),
            _forgotten=forgotten,
            _missing=missing,
            _is_blind=is_blind,
        )
        # Whatever was created and is not seen was one of the changes that are not seen.
        counted = self._numbers.get(salvaged.prefix, 0) + len(missing)
        told = _number(self._meta.get("created"))
        salvaged.created = max(told if told <= salvaged.version else 0, counted)
        for key, found in self._newest.items():
            if found.event == DELETED:
                salvaged._deleted.add(key)
            elif key in self._in_table or self._is_there(key, is_whole=not missing):
                salvaged.objects[key] = found
                if key not in self._in_table:
                    salvaged.from_history += 1
                    if not salvaged.knows_since(key[0], found.version):
                        salvaged.outdated.add(key)
            elif not self._is_index_whole:
                self._doubtful.add(key)
        # A name whose row is there under another one is what is wrong itself.
        named = {key for key, row in self._named.items() if row not in self._rows}
        salvaged.lost = named - salvaged.objects.keys()
        if not self._is_index_whole:  # an index that is not whole may be an old one
            salvaged.lost |= self._bodiless - salvaged.objects.keys()
            salvaged.lost -= salvaged._deleted
        salvaged.doubtful = self._doubtful - salvaged.objects.keys() - salvaged._deleted
        is_told = self._is_table_whole and not salvaged.doubtful
        is_counted = not (missing or is_blind or any(forgotten.values()))
        salvaged.is_sure = self._is_index_whole or is_told or is_counted
        if not salvaged.objects and not self._meta and not self._named:
            raise BadStore(self._path, "holds nothing that is a store's", "use a backup")
        return salvaged

    def _damaged_pages(self) -> int:
        first = {1} if self._pages.header is None else set()
        return len(first.union(*(walk.broken for walk in self._walks.values())))

    def _is_there(self, key: Key, *, is_whole: bool) -> bool:
        """Of an object that only the history has: what it says last may be older than its end."""
        if self._is_index_whole:
            return key in self._named
        return is_whole or not self._is_table_whole

    def _is_complete(self) -> bool:
        is_reached = self._walks["history"].is_whole and self._walks["objects"].is_whole
        return is_reached and self._has_all_named() and not self._missing()

    def _has_all_named(self) -> bool:
        return all(row in self._rows or key in self._in_table for key, row in self._named.items())

    def _check_schema(self) -> None:
        header = self._pages.header
        is_ours = header is not None and header.owner == APPLICATION
        if header is not None and is_ours and header.schema > len(MIGRATIONS):
            raise BadStore(self._path, "was written by a newer leasehold", "use that newer one")

    def _roots(self) -> dict[str, int]:
        roots = dict(ROOTS)
        for record in _records(TreeWalk(self._pages, 1, is_table=True)):
            match record:
                case [_, str(name), _, int(root), _] if name in roots:
                    roots[name] = root
        first = next(_records(TreeWalk(self._pages, roots["meta"], is_table=False)), None)
        if first is None or len(first) != 2:
            roots["meta"], roots[DATES] = 5, 6
        return roots

    def _read(self) -> None:
        """The small trees first: they say what to look for in the large ones."""
        for record in _records(self._walks["meta"]):
            match record:
                case [str(key), value]:
                    self._meta[key] = value
                case _:
                    self._walks["meta"].distrust()
        for record in _records(self._walks[NAMES]):
            match record:
                case [str(kind), str(namespace), str(name), int(row)]:
                    self._named[kind, namespace, name] = row
                case _:
                    self._walks[NAMES].distrust()
        for record in _records(self._walks[DATES]):
            match record:
                case [str(kind), int(version), int(row)] if version == row:
                    self._dated[version] = kind
                case _:
                    self._walks[DATES].distrust()
        for name in ("history", "objects"):
            for cell in self._walks[name].cells():
                if self._take(cell) != name:
                    self._walks[name].distrust()
        for image in self._pages.log.loose:
            node = node_of(self._pages, image)
            for cell in node.cells if node is not None and node.kind == LEAF_TABLE else ():
                self._take(cell)

    def _read_stray(self) -> None:
        """Pages that no tree reaches, because the page that led to them is damaged. If it is not
        known which pages were given up, only what an index names is believed."""
        free, is_known = free_pages(self._pages)
        self._floor_before = self._floor()
        seen = free.union(*(walk.seen for walk in self._walks.values()))
        for number in range(2, self._pages.count + 1):
            node = None if number in seen else read_node(self._pages, number)
            if node is not None and node.kind == LEAF_TABLE:
                for cell in node.cells:
                    self._take(cell, is_trusted=is_known)

    def _take(self, cell: Cell, *, is_trusted: bool = True) -> str:
        """Which table it is a row of, by its shape; "" if of none."""
        match read_record(cell.payload):
            case [str(kind), str(namespace), str(name), int(version), bytes(body)]:
                key, obj = (kind, namespace, name), _read(body, version)
                is_live = is_trusted or key in self._named
                if obj is not None and key_of(obj) == key and not is_live:
                    self._doubtful.add(key)
                    if kind in self._proved:
                        self._offer(obj, version, "", body)
                elif obj is not None and key_of(obj) == key:
                    self._offer(obj, version, "", body)
                    self._in_table.add(key)
                    self._rows[cell.rowid] = key
                elif is_trusted:
                    self._bodiless.add(key)
                return "objects"
            case [None, str(kind), str(event), bytes(body)] if event in EVENTS:
                version, obj = cell.rowid, _read(body, cell.rowid)
                is_live = is_trusted or version in self._dated or version > self._floor_before
                if obj is not None and obj["kind"] == kind and (is_live or kind in self._proved):
                    self._offer(obj, version, event, body)
                    self._changes[version] = kind
                return "history"
        return ""

    def _offer(self, obj: Wire, version: int, event: str, body: bytes) -> None:
        key = key_of(obj)
        prefix, _, number = str(part(obj, "metadata").get("uid", "")).rpartition("-")
        if number.isdecimal():
            self._prefixes[prefix] += 1
            self._numbers[prefix] = max(self._numbers.get(prefix, 0), int(number))
        known = self._newest.get(key)
        if known is None or version > known.version:
            self._newest[key] = Found(version, event, [body])
        elif version == known.version:
            known.event = known.event or event
            if body not in known.bodies:
                known.bodies.append(body)

    def _missing(self) -> dict[int, str]:
        """Changes that the history must have and has not, and their kinds where an index says."""
        missing = {
            version: kind for version, kind in self._dated.items() if version not in self._changes
        }
        for version in range(self._floor() + 1, self._top() + 1):
            if version not in self._changes:
                missing.setdefault(version, "")
        return missing

    def _floor(self) -> int:
        """From here on the history has every change, of whatever kind."""
        if self._has_meta():
            return max(self._forgotten().values(), default=0)
        if self._walks[DATES].is_whole:
            return self._top()
        return max(self._oldest().values(), default=0)

    def _has_meta(self) -> bool:
        return self._walks["meta"].is_whole and "version" in self._meta

    def _forgotten(self) -> dict[str, int]:
        if self._has_meta():
            return {
                key.removeprefix(FORGOTTEN): _number(value)
                for key, value in self._meta.items()
                if key.startswith(FORGOTTEN)
            }
        return {kind: version - 1 for kind, version in self._oldest().items()}

    def _oldest(self) -> dict[str, int]:
        oldest: dict[str, int] = {}
        for version, kind in (*self._changes.items(), *self._dated.items()):
            oldest[kind] = min(version, oldest.get(kind, version))
        return oldest

    def _top(self) -> int:
        """The newest version; a number that nothing comes near is not one."""
        seen = max((found.version for found in self._newest.values()), default=0)
        told = (_number(self._meta.get("version")), *self._dated)
        return max(seen, *(each for each in told if each <= seen + UNSEEN_MAX), 0)

    def _prefix(self) -> str:
        told = self._meta.get("prefix")
        if isinstance(told, str):
            return told
        return max(self._prefixes, key=lambda each: self._prefixes[each], default="")


def _records(walk: TreeWalk) -> Iterator[list[Value]]:
    """One for each cell; empty where it cannot be read."""
    for cell in walk.cells():
        yield read_record(cell.payload) or []


def _number(value: Value) -> int:
    return value if isinstance(value, int) else 0


def _read(body: bytes, version: int) -> Wire | None:
    """The object, if this is the very text that was written for it under this version."""
    try:
        obj = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    is_this = part(obj, "metadata").get("resourceVersion") == str(version)
    return obj if is_this and "kind" in obj and encode(obj) == body else None
