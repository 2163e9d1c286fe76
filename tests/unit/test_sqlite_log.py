"""SQLite's write-ahead log: ordinary ends of the log, and damage that SQLite would hide."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.unit.sqlite_file import thing

from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.adapters.sqlite.wal import hidden_commits, log_of
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once

START = 1_763_164_810_000
PAGE = 4096
HEADER, FRAME = 32, 24 + PAGE

Copy = Callable[[], Path]


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[SqliteStore, Copy]]:
    """Yield a store with a past, and a function that copies its files like a kill."""
    (tmp_path / "busy").mkdir()
    store = opened(tmp_path / "busy" / "store.sqlite")
    chance = random.Random(2)
    for number in range(200):
        at_once(store.create(thing(f"r{number:03d}", text="x" * chance.randrange(9000))))
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


def opened(path: Path) -> SqliteStore:
    process = Kernel(START).process("us")
    return SqliteStore(path, process.tasks, process.clock)


def written(store: SqliteStore, *, count: int) -> None:
    """Make `count` commits."""
    for number in range(count):
        at_once(store.create(thing(f"n{number:02d}", text=f"{number}" * 50)))


def runs_in(path: Path) -> int:
    store = opened(path)
    found = len(at_once(store.list("Run")).items)
    store.close()
    return found


def used_frames(log: bytes | bytearray) -> int:
    """Count the frames of the last round; frames of the round before may follow them."""
    places = range(HEADER, len(log) - FRAME + 1, FRAME)
    return sum(log[at + 8 : at + 16] == log[16:24] for at in places)


@pytest.mark.parametrize("where", ["header", "frame", "frames", "number", "salt"])
def test_log_damaged_before_further_commits_is_refused_and_left_unchanged(
    busy: tuple[SqliteStore, Copy], where: str
) -> None:
    """SQLite would take the damage for the end of the log and write the next commit there."""
    store, copy = busy
    written(store, count=30)
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
    assert "leasehold restore FROM.tar" in refused.value.remedy
    for name, content in before.items():
        assert (path.parent / name).read_bytes() == content, name


@pytest.mark.parametrize("before_last", [1, 2, 3])
def test_log_damaged_only_in_its_last_commit_opens_without_that_commit(
    busy: tuple[SqliteStore, Copy], before_last: int
) -> None:
    """A power cut leaves the same, and the commit may never have been acknowledged: so it opens."""
    store, copy = busy
    written(store, count=5)
    path = copy()
    log = bytearray(log_of(path).read_bytes())
    log[HEADER + (used_frames(log) - before_last) * FRAME + 100] ^= 0x01
    log_of(path).write_bytes(log)
    assert runs_in(path) == 204


def test_truncated_log_is_not_treated_as_damage(busy: tuple[SqliteStore, Copy]) -> None:
    store, copy = busy
    written(store, count=20)
    size = log_of(copy()).stat().st_size
    chance = random.Random(4)
    seen = set()
    for _ in range(10):
        path = copy()
        with log_of(path).open("r+b") as log:
            log.truncate(chance.randrange(HEADER, size))
        seen.add(runs_in(path))
    assert len(seen) > 3  # the cuts did cut something off


def test_frames_of_an_earlier_round_of_the_log_are_ignored(busy: tuple[SqliteStore, Copy]) -> None:
    """After it was emptied, the log begins again at its start and overwrites what was there."""
    store, copy = busy
    store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    written(store, count=3)
    path = copy()
    log = log_of(path).read_bytes()
    assert 0 < used_frames(log) < (len(log) - HEADER) // FRAME
    assert runs_in(path) == 203


def test_hidden_commits_counts_all_commits_after_the_first_damage(
    busy: tuple[SqliteStore, Copy],
) -> None:
    store, copy = busy
    store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    written(store, count=20)
    log = log_of(copy())
    assert hidden_commits(log, PAGE, frames=0) == 0  # every checksum equals SQLite's
    content = bytearray(log.read_bytes())
    content[HEADER + 100] ^= 0x01
    log.write_bytes(content)
    assert hidden_commits(log, PAGE, frames=0) == 20


def test_damaged_file_and_its_log_are_left_unchanged(busy: tuple[SqliteStore, Copy]) -> None:
    """The last connection to close a file empties the log into it; not if the file was refused."""
    store, copy = busy
    store._connection.execute("PRAGMA wal_checkpoint(RESTART)")
    written(store, count=3)
    path = copy()
    log, content = log_of(path).read_bytes(), bytearray(path.read_bytes())
    in_log = {int.from_bytes(log[at : at + 4]) for at in range(HEADER, len(log), FRAME)}
    page = next(n for n in range(7, len(content) // PAGE) if n not in in_log and
                content[(n - 1) * PAGE] == 0x0D)  # fmt: skip
    content[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    path.write_bytes(content)

    with pytest.raises(BadStore, match="is damaged"):
        opened(path)
    assert (path.read_bytes(), log_of(path).read_bytes()) == (content, log)
