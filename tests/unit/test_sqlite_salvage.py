"""SQLite's files read without SQLite: what is in them, and what a damaged log still proves."""

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.unit.sqlite_file import thing
from tests.unit.sqlite_file import version as of

from leasehold.adapters.objects.storage import Key
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.salvage.objects import ROOTS, Salvaged, salvage
from leasehold.adapters.sqlite.salvage.pages import (
    PageFile,
    TreeWalk,
    free_pages,
    read_node,
    read_record,
)
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.adapters.sqlite.wal import log_of, read_log
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once

START = 1_763_164_810_000
PAGE = 4096
HEADER, FRAME = 32, 24 + PAGE

Copy = Callable[[], Path]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[SqliteStore, Copy]]:
    """A store with a past, and copies of its files as a kill at this moment would leave them."""
    process = Kernel(START).process("us")
    (tmp_path / "busy").mkdir()
    store = SqliteStore(tmp_path / "busy" / "store.sqlite", process.tasks, process.clock)
    chance = random.Random(2)
    for number in range(200):
        at_once(store.create(thing(f"r{number:03d}", text="x" * chance.randrange(9000))))
    for number in range(0, 200, 3):
        at_once(store.delete("Run", "team", f"r{number:03d}", uid=None))
    copies = 0

    def copy() -> Path:
        nonlocal copies
        copies += 1
        to = tmp_path / f"copy{copies}"
        to.mkdir()
        for name in ("store.sqlite", "store.sqlite-wal"):
            shutil.copy(store.path.with_name(name), to)
        return to / "store.sqlite"

    yield store, copy
    store.close()


def written(store: SqliteStore, *, first: int, count: int) -> None:
    """So many commits."""
    for number in range(first, first + count):
        at_once(store.create(thing(f"n{number:02d}", text=f"{number}" * 50)))


def bodies(salvaged: Salvaged) -> dict[Key, bytes]:
    return {key: found.bodies[0] for key, found in salvaged.objects.items()}


def as_sqlite_reads(path: Path) -> dict[Key, bytes]:
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    found = connection.execute("SELECT kind, namespace, name, body FROM objects")
    objects = {(kind, namespace, name): body for kind, namespace, name, body in found}
    connection.close()
    return objects


def used_frames(log: bytes | bytearray) -> int:
    """Those of the last round; behind them may be some of the one before."""
    places = range(HEADER, len(log) - FRAME + 1, FRAME)
    return sum(log[at + 8 : at + 16] == log[16:24] for at in places)


def emptied(path: Path) -> bytearray:
    """The file, after SQLite has put its log into it."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return bytearray(path.read_bytes())


def opened(path: Path) -> SqliteStore:
    process = Kernel(START).process("us")
    return SqliteStore(path, process.tasks, process.clock)


def test_every_table_reads_as_sqlite_reads_it(busy: tuple[SqliteStore, Copy]) -> None:
    """Long rows, empty ones, inner pages, an index, and pages that only the log has."""
    _, copy = busy
    path = copy()
    pages = PageFile(path)
    connection = apsw.Connection(str(path))
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema"))

    def mine(name: str, *, is_table: bool) -> list[tuple[object, ...]]:
        walk = TreeWalk(pages, roots[name], is_table=is_table)
        found = [(cell.rowid, *(read_record(cell.payload) or ())) for cell in walk.cells()]
        assert walk.is_whole
        return found

    def theirs(sql: str) -> list[tuple[object, ...]]:
        return list(connection.execute(sql))

    assert len(pages.log.images) > 10
    assert mine("objects", is_table=True) == theirs("SELECT rowid, * FROM objects ORDER BY rowid")
    sql = "SELECT version, NULL, kind, event, body FROM history ORDER BY version"
    assert mine("history", is_table=True) == theirs(sql)
    sql = "SELECT 0, kind, namespace, name, rowid FROM objects ORDER BY 2, 3, 4"
    assert mine("sqlite_autoindex_objects_1", is_table=False) == theirs(sql)
    assert mine("meta", is_table=False) == theirs("SELECT 0, * FROM meta ORDER BY key")
    free, is_known = free_pages(pages)
    assert (len(free), is_known) == (connection.pragma("freelist_count"), True)
    connection.close()
    pages.close()


def test_a_log_that_is_cut_off_counts_to_its_last_whole_commit(
    busy: tuple[SqliteStore, Copy],
) -> None:
    store, copy = busy
    written(store, first=0, count=20)
    size = log_of(copy()).stat().st_size
    chance = random.Random(4)
    seen = set()
    for _ in range(25):
        path = copy()
        with log_of(path).open("r+b") as log:
            log.truncate(chance.randrange(HEADER, size))
        found = salvage(path)
        assert bodies(found) == as_sqlite_reads(path)
        assert not found.lost
        seen.add(len(found.objects))
    assert len(seen) > 3  # the cuts did cut something off


@pytest.mark.parametrize("where", ["header", "frame", "frames", "number", "salt"])
def test_commits_behind_a_damaged_place_are_neither_lost_nor_dropped_in_silence(
    busy: tuple[SqliteStore, Copy], where: str
) -> None:
    """SQLite would take the place for the end of the log, and the next commit would write there."""
    store, copy = busy
    written(store, first=0, count=30)
    path = copy()
    log = bytearray(log_of(path).read_bytes())
    frame = HEADER + used_frames(log) // 2 * FRAME
    match where:
        case "header":
            log[0:HEADER] = bytes(HEADER)
        case "frame":
            log[frame + 24 + 2000] ^= 0x10
        case "frames":
            log[frame : frame + 2 * FRAME] = random.Random(1).randbytes(2 * FRAME)
        case "number":
            log[frame + 3] ^= 0x01
        case "salt":
            log[frame + 9] ^= 0x01
    log_of(path).write_bytes(log)
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}

    with pytest.raises(BadStore) as refused:
        opened(path)
    assert "its log has" in refused.value.why
    assert "leasehold restore --salvage" in refused.value.remedy
    for name, content in before.items():
        assert (path.parent / name).read_bytes() == content, name
    found = salvage(path)
    assert bodies(found) == as_sqlite_reads(copy())
    assert (found.lost, found.outdated, found.is_sure) == (set(), set(), True)


@pytest.mark.parametrize("before_last", [1, 2, 3])
def test_the_last_commit_alone_is_as_a_power_cut_leaves_it(
    busy: tuple[SqliteStore, Copy], before_last: int
) -> None:
    """Nobody can tell whether it was ever acknowledged; so it is no reason not to start."""
    store, copy = busy
    written(store, first=0, count=5)
    path = copy()
    log = bytearray(log_of(path).read_bytes())
    log[HEADER + (used_frames(log) - before_last) * FRAME + 100] ^= 0x01
    log_of(path).write_bytes(log)
    expected = as_sqlite_reads(path)
    assert len(expected) == len(as_sqlite_reads(copy())) - 1

    assert bodies(salvage(path)) == expected
    again = opened(path)
    assert len(at_once(again.list("Run")).items) == len(expected)
    again.close()


def test_a_log_of_an_earlier_round_is_none_of_ours(busy: tuple[SqliteStore, Copy]) -> None:
    """After it was emptied the log begins again at its start, over what was there."""
    store, copy = busy
    store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    written(store, first=0, count=3)
    path = copy()
    used = len(read_log(log_of(path), PAGE).images)
    assert 0 < used < (log_of(path).stat().st_size - HEADER) // FRAME
    assert bodies(salvage(path)) == as_sqlite_reads(path)
    opened(path).close()


def test_a_damaged_file_is_left_alone_with_its_log(busy: tuple[SqliteStore, Copy]) -> None:
    """Whoever closes a file last empties the log into it; not into one that was refused."""
    store, copy = busy
    store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    written(store, first=0, count=3)
    path = copy()
    in_log = read_log(log_of(path), PAGE).images
    content = bytearray(path.read_bytes())
    page = next(n for n in range(7, len(content) // PAGE) if n not in in_log and
                content[(n - 1) * PAGE] == 0x0D)  # fmt: skip
    content[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    before = path.read_bytes(), log_of(path).read_bytes()

    with pytest.raises(BadStore, match="is damaged"):
        opened(path)
    assert (path.read_bytes(), log_of(path).read_bytes()) == before
    assert bodies(salvage(path)) == as_sqlite_reads(copy())


@pytest.mark.parametrize("lists", [True, False])
def test_an_old_version_is_called_one(busy: tuple[SqliteStore, Copy], lists: bool) -> None:
    """The object's row and the newest of its changes are gone; an older change is there. Also when
    nothing says which changes there were."""
    store, copy = busy
    made = at_once(store.create(thing("twice", text="first")))
    version = of(at_once(store.update({**made, "spec": {"text": "second"}})))
    path = copy()
    content = emptied(path)
    assert content.count(b'"second"') == 2
    content = content.replace(b'"second"', bytes(8))
    if not lists:
        content[3 * PAGE : 6 * PAGE] = bytes(3 * PAGE)
    path.write_bytes(content)
    found = salvage(path)
    key = ("Run", "team", "twice")
    assert found.outdated == {key}
    assert b'"first"' in found.objects[key].bodies[0]
    assert not found.knows_since("Run", version - 1)
    assert found.knows_since("Run", version) == lists


def test_two_texts_of_one_version_are_both_kept(busy: tuple[SqliteStore, Copy]) -> None:
    store, copy = busy
    at_once(store.create(thing("same", text="abcdefgh")))
    path = copy()
    content = emptied(path)
    content[content.index(b"abcdefgh")] ^= 0x01
    path.write_bytes(content)
    found = salvage(path).objects["Run", "team", "same"]
    assert len(found.bodies) == 2
    older = salvage(copy())
    hurt = salvage(path)
    hurt.fill_from(older)
    [body] = hurt.objects["Run", "team", "same"].bodies  # two against one
    assert b"abcdefgh" in body


def test_an_index_entry_that_turned_into_another_names_nothing(
    busy: tuple[SqliteStore, Copy],
) -> None:
    _, copy = busy
    path = copy()
    content = emptied(path)
    pages = PageFile(path)
    walk = TreeWalk(pages, 3, is_table=False)
    payload = next(cell.payload for cell in walk.cells())
    pages.close()
    content[content.index(payload) + 6] ^= 0x01
    path.write_bytes(content)
    found = salvage(path)
    assert found.lost == set()
    assert bodies(found) == as_sqlite_reads(path)


def test_the_checksum_is_sqlites(busy: tuple[SqliteStore, Copy]) -> None:
    """A log of a machine that writes the high byte first has another beginning."""
    _, copy = busy
    path = copy()
    log = bytearray(log_of(path).read_bytes())
    assert struct.unpack_from(">I", log)[0] == 0x377F0682
    whole = read_log(log_of(path), PAGE)
    assert whole.wrong_frames == []
    log[3] ^= 0x01  # which this one is not
    log_of(path).write_bytes(log)
    again = read_log(log_of(path), PAGE)
    assert again.wrong_frames == [0]
    assert again.images == whole.images


def test_rows_of_no_object_are_passed_over(busy: tuple[SqliteStore, Copy]) -> None:
    _, copy = busy
    path = copy()
    connection = apsw.Connection(str(path))
    connection.execute(
        "INSERT INTO objects VALUES ('Run', 'team', 'bad', 1, x'7b7d'),"
        " ('Run', 'team', 'list', 1, x'5b5d'), ('Run', 'team', 'deep', 1, ?)",
        (b"[" * 100_000,),
    )
    connection.close()
    found = salvage(path)
    assert found.lost == {("Run", "team", name) for name in ("bad", "list", "deep")}
    assert len(found.objects) == len(as_sqlite_reads(path)) - 3


def test_a_text_that_we_would_not_write_is_not_taken(busy: tuple[SqliteStore, Copy]) -> None:
    """It is JSON, and of the right name and version; but members are sorted when we write them."""
    store, copy = busy
    at_once(store.create(thing("same", text="abcdefgh")))
    path = copy()
    content = emptied(path)
    place = content.index(b"abcdefgh")
    member = content.rindex(b'"spec"', 0, place)
    content[member + 1 : member + 2] = b"a"
    path.write_bytes(content)
    [body] = salvage(path).objects["Run", "team", "same"].bodies
    assert body == as_sqlite_reads(copy())["Run", "team", "same"]


def test_a_leaf_in_the_wrong_place_is_noticed(busy: tuple[SqliteStore, Copy]) -> None:
    _, copy = busy
    path = copy()
    content = emptied(path)
    pages = PageFile(path)
    root = read_node(pages, 2)
    assert root is not None
    one, other = (cell.child for cell in root.cells[:2])
    pages.close()
    leaf = content[(one - 1) * PAGE : one * PAGE]
    content[(other - 1) * PAGE : other * PAGE] = leaf
    path.write_bytes(content)
    pages = PageFile(path)
    walk = TreeWalk(pages, 2, is_table=True)
    assert sum(1 for _ in walk.cells()) > 0
    assert other in walk.broken
    pages.close()


def test_a_vacuumed_file_has_its_trees_elsewhere(tmp_path: Path) -> None:
    """As one has that came out of a backup; without page 1 it is known all the same."""
    process = Kernel(START).process("us")
    store = SqliteStore(tmp_path / "a.sqlite", process.tasks, process.clock, history_max=10)
    written(store, first=0, count=60)
    at_once(store.create(thing("brief")))  # of which only a counter knows any more
    at_once(store.delete("Run", "team", "brief", uid=None))
    for number in range(30):
        at_once(store.patch_status("Run", "team", "n00", {"x": number}, version=None))
    store.close()
    connection = apsw.Connection(str(store.path))
    connection.execute("VACUUM INTO ?", (str(tmp_path / "b.sqlite"),))
    connection.close()
    for name in ("a.sqlite", "b.sqlite"):
        path = tmp_path / name
        whole = salvage(path)
        path.write_bytes(bytes(PAGE) + path.read_bytes()[PAGE:])
        found = salvage(path)
        assert found.knows_since("Run", 90)
        assert not found.knows_since("Run", 62)
        assert found.created == 61
        assert (found.damaged_pages, whole.damaged_pages) == (1, 0)
        found.damaged_pages = 0
        assert found == whole


def test_what_was_deleted_stays_so_although_nothing_says_it_any_more(
    busy: tuple[SqliteStore, Copy],
) -> None:
    """Its deletion cannot be read, nor the index; the table is whole, and has it not."""
    _, copy = busy
    path = copy()
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE history SET body = x'00' WHERE event = 'DELETED'")
    connection.close()
    expected = as_sqlite_reads(path)
    content = emptied(path)
    content[2 * PAGE : 3 * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    found = salvage(path)
    assert bodies(found) == expected
    assert not found.outdated


def with_page(content: bytearray, number: int, image: bytes) -> None:
    content[(number - 1) * PAGE : number * PAGE] = image


def first_leaf(path: Path, root: int) -> bytes:
    pages = PageFile(path)
    node = read_node(pages, root)
    assert node is not None
    image = pages.get(node.cells[0].child)
    assert image is not None
    pages.close()
    return image


@pytest.mark.parametrize("of", ["objects", "history"])
def test_a_leaf_where_the_root_was_is_not_all_there_is(
    busy: tuple[SqliteStore, Copy], of: str
) -> None:
    """Every page that is reached is sound; what is not reached is found all the same."""
    _, copy = busy
    path = copy()
    content = emptied(path)
    with_page(content, 2, first_leaf(path, ROOTS[of]))
    if of == "history":
        with_page(content, 3, bytes(PAGE))
    expected = as_sqlite_reads(copy())
    path.write_bytes(content)
    found = salvage(path)
    assert bodies(found) == expected
    assert (found.lost, found.from_history) == (set(), 0)


def test_it_does_not_call_a_few_rows_everything(busy: tuple[SqliteStore, Copy]) -> None:
    """With a leaf for a root, no index, a gap in the history, and no list of free pages."""
    _, copy = busy
    path = copy()
    content = emptied(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE history SET body = x'00' WHERE version = 7")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    with_page(content, 2, first_leaf(path, 2))
    for page in (1, 3):
        with_page(content, page, bytes(PAGE))
    path.write_bytes(content)
    found = salvage(path)
    assert not found.is_sure
    assert found.doubtful


def test_a_counter_that_nothing_comes_near_is_wrong(busy: tuple[SqliteStore, Copy]) -> None:
    _, copy = busy
    path = copy()
    whole = salvage(path)
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE meta SET value = 9000000 WHERE key IN ('version', 'created')")
    connection.close()
    found = salvage(path)
    assert (found.version, found.created) == (whole.version, whole.created)
