"""What a store in a file promises beyond the conformance suite: its objects survive."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest
from tests.unit.sqlite_file import hooked, name_of, thing, version

from leasehold.adapters.sqlite import schema
from leasehold.adapters.sqlite.errors import BadStore, CommitUnknown, FileUnavailable, sentence
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.core.names import Wire
from leasehold.ports.store import Conflict, OutcomeUnknown, Unavailable, WatchExpired
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once

START = 1_763_164_810_000
SYSTEM = apsw.vfs_names()[0]

Open = Callable[..., SqliteStore]


def folded(store: SqliteStore) -> list[Wire]:
    """Return all runs, computed from the events of a watch."""
    objects: dict[str, Wire] = {}
    now, watch = at_once(store.list("Run")).version, store.watch("Run", 0)
    seen = 0
    while seen < now:
        event = at_once(watch.next())
        seen = version(event.object)
        objects[name_of(event.object)] = event.object
        if event.type == "DELETED":
            del objects[name_of(event.object)]
    return [objects[name] for name in sorted(objects)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def opened(path: Path) -> Iterator[Open]:
    stores: list[SqliteStore] = []

    def opener(**settings: int) -> SqliteStore:
        process = Kernel(START).process("us")
        stores.append(SqliteStore(path, process.tasks, process.clock, **settings))
        return stores[-1]

    yield opener
    for store in stores:
        store.close()


def test_reopened_store_has_all_objects_and_continues_its_versions(opened: Open) -> None:
    store = opened()
    made = at_once(store.create(thing("a")))
    at_once(store.create(thing("b")))
    at_once(store.delete("Run", "team", "b", uid=None))
    before = at_once(store.list("Run"))
    store.close()
    again = opened()

    assert at_once(again.list("Run")) == before
    assert at_once(again.get("Run", "team", "a")) == made
    newer = at_once(again.create(thing("b")))
    assert version(newer) == before.version + 1
    with pytest.raises(Conflict):
        at_once(again.delete("Run", "team", "a", uid=str(newer["metadata"]["uid"])))  # type: ignore[index]


def test_watch_continues_from_its_version_after_a_reopen(opened: Open) -> None:
    store = opened()
    made = at_once(store.create(thing("a")))
    at_once(store.create(thing("b")))
    old = store.watch("Run", version(made))
    store.reopen()
    at_once(store.create(thing("c")))

    with pytest.raises(WatchExpired):
        at_once(old.next())
    watch = store.watch("Run", version(made))
    assert [name_of(at_once(watch.next()).object) for _ in range(2)] == ["b", "c"]


def test_reopen_expires_a_waiting_watch(path: Path) -> None:
    kernel = Kernel(START)
    process = kernel.process("us")
    store = SqliteStore(path, process.tasks, process.clock)
    said: list[str] = []

    async def follow() -> None:
        try:
            await store.watch("Run", 0).next()
        except WatchExpired:
            said.append("list again")

    process.tasks.spawn("follow", follow())
    kernel.settle()
    store.reopen()
    kernel.settle()
    store.close()

    assert said == ["list again"]


def test_closed_store_raises_unavailable(opened: Open) -> None:
    store = opened()
    store.close()
    store.close()

    with pytest.raises(Unavailable):
        at_once(store.get("Run", "team", "a"))
    with pytest.raises(Unavailable):
        at_once(store.create(thing()))


def test_two_files_have_no_uid_in_common(tmp_path: Path) -> None:
    process = Kernel(START).process("us")
    uids = set()
    for name in ("one", "two"):
        store = SqliteStore(tmp_path / name, process.tasks, process.clock)
        made = at_once(store.create(thing()))["metadata"]
        assert isinstance(made, dict)
        uids.add(made["uid"])
        store.close()

    assert len(uids) == 2


def test_old_history_is_dropped_even_across_a_reopen(opened: Open, path: Path) -> None:
    store = opened(history_max=4)
    for number in range(20):
        at_once(store.create(thing(f"r{number:02d}")))
    store.close()
    again = opened(history_max=4)
    for number in range(20, 23):
        at_once(again.create(thing(f"r{number:02d}")))
    last = at_once(again.list("Run")).version

    with pytest.raises(WatchExpired):
        at_once(again.watch("Run", 1).next())
    assert name_of(at_once(again.watch("Run", last - 1).next()).object) == "r22"
    assert len(at_once(again.list("Run")).items) == 23
    again.close()
    kept = apsw.Connection(str(path)).execute("SELECT count(*) FROM history").get
    assert 4 <= kept < 8


WRITER = """
import os, sys
from pathlib import Path
from leasehold.adapters.asyncio_runtime import AsyncioClock
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.sim.scenario.ledger import at_once

store = SqliteStore(Path(sys.argv[1]), None, AsyncioClock(), history_max=1_000_000)
for number in range(1_000_000):
    metadata = {"name": f"{sys.argv[2]}-{number:06d}", "namespace": "team"}
    made = at_once(store.create(
        {"apiVersion": "v1", "kind": "Run", "metadata": metadata, "spec": {"text": "x" * 3000}}
    ))
    if number % 3 == 1:
        made = at_once(store.update({**made, "spec": {"text": "y"}}))
    if number % 3 == 2:
        at_once(store.delete("Run", "team", metadata["name"], uid=None))
        made = None
    os.write(1, f"{metadata['name']} {made and made['metadata']['resourceVersion']}\\n".encode())
"""


GROUP_WRITER = """
import asyncio, os, sys
from pathlib import Path
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.group import GroupStore

async def write(store, caller):
    for number in range(1_000_000):
        metadata = {"name": f"{sys.argv[2]}-{caller}-{number:06d}", "namespace": "team"}
        made = await store.create(
            {"apiVersion": "v1", "kind": "Run", "metadata": metadata, "spec": {"text": "x" * 300}}
        )
        os.write(1, f"{metadata['name']} {made['metadata']['resourceVersion']}\\n".encode())

async def main():
    path = Path(sys.argv[1])
    store = GroupStore(path, AsyncioTasks(), AsyncioClock(), history_max=1_000_000)
    await asyncio.gather(*(write(store, caller) for caller in range(8)))

asyncio.run(main())
"""


def write_until_killed(path: Path, *, writer: str, name: str, after_s: float) -> dict[str, str]:
    """Return what a process reported as written, with version or `None`, until it was killed."""
    command = [sys.executable, "-c", writer, str(path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(after_s)
        os.kill(process.pid, signal.SIGKILL)
        lines = (first + process.stdout.read()).decode().splitlines()
    return dict(line.split() for line in lines)


@pytest.mark.parametrize(("writer", "kills"), [(WRITER, 30), (GROUP_WRITER, 10)])
def test_killed_writer_loses_no_acknowledged_write_and_leaves_no_partial_one(
    path: Path, opened: Open, writer: str, kills: int
) -> None:
    moments = random.Random(7)
    for number in range(kills):
        after_s = moments.random() * 0.03
        said = write_until_killed(path, writer=writer, name=f"r{number}", after_s=after_s)
        store = opened(history_max=1_000_000)  # takes over the lock of the killed process
        listing = at_once(store.list("Run"))
        there = {name_of(each): str(version(each)) for each in listing.items}
        assert {name: there.get(name, "None") for name in said} == said
        assert folded(store) == listing.items
        store.close()


def test_a_damaged_file_is_refused_with_a_remedy(path: Path, opened: Open) -> None:
    store = opened()
    for number in range(200):
        at_once(store.create(thing(f"r{number}", text="x" * 500)))
    store.close()
    damaged = bytearray(path.read_bytes())
    for place in range(4096 * 3, len(damaged), 4096):
        damaged[place : place + 64] = b"\xff" * 64
    path.write_bytes(damaged)

    with pytest.raises(BadStore) as refused:
        opened()
    assert refused.value.path == path
    assert "damaged" in refused.value.why
    assert "backup" in refused.value.remedy
    assert len(str(refused.value).splitlines()) == 1


def test_damage_found_later_stops_every_write(path: Path, opened: Open) -> None:
    store = opened()
    for number in range(100):
        at_once(store.create(thing(f"r{number}", text="x" * 500)))
    store.close()
    with hooked() as connections:
        store = opened()
    with path.open("r+b") as file:
        for place in range(4096, path.stat().st_size, 4096):
            file.seek(place)
            file.write(b"\xff" * 64)
    connections[0].pragma("shrink_memory")  # otherwise it would not read cached pages again

    for name in ("r1", "r2"):
        with pytest.raises(FileUnavailable) as refused:
            at_once(store.patch_status("Run", "team", name, {"x": 1}, version=None))
        assert "damaged" in refused.value.why
    with pytest.raises(Unavailable):
        at_once(store.create(thing("new")))


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"title: no database\n" * 100, "cannot be used"), (b"SQLite format 3\0" + bytes(90), "")],
)
def test_file_that_is_no_database_is_refused_and_left_unchanged(
    path: Path, opened: Open, content: bytes, why: str
) -> None:
    path.write_bytes(content)

    with pytest.raises(BadStore) as refused:
        opened()
    assert why in refused.value.why
    assert path.read_bytes() == content


def test_database_of_another_program_is_refused(path: Path, opened: Open) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE mail(body)")
    other.close()

    with pytest.raises(BadStore) as refused:
        opened()
    assert "another program" in refused.value.why


def test_a_file_of_a_newer_schema_is_refused(path: Path, opened: Open) -> None:
    opened().close()
    newer = apsw.Connection(str(path))
    newer.pragma("user_version", len(schema.MIGRATIONS) + 1)
    newer.close()

    with pytest.raises(BadStore) as refused:
        opened()
    assert "newer leasehold" in refused.value.why


def test_failed_migration_leaves_the_file_unchanged(
    path: Path, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    made = at_once(store.create(thing()))
    store.close()

    def fails(connection: apsw.Connection) -> None:
        connection.execute("DROP TABLE objects")
        raise apsw.FullError("half way")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, fails))
        with pytest.raises(BadStore):
            opened()
    assert at_once(opened().get("Run", "team", "a")) == made


def test_a_second_opening_is_refused_with_the_pid_of_the_first(path: Path, opened: Open) -> None:
    store = opened()
    command = [sys.executable, "-c", WRITER, str(path), "second"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)

    assert second.returncode != 0
    assert f"in use by the process with pid {os.getpid()}" in second.stderr
    with pytest.raises(BadStore):
        opened()
    store.close()
    opened()


def test_missing_folder_is_reported_with_a_remedy(tmp_path: Path) -> None:
    process = Kernel(START).process("us")

    with pytest.raises(BadStore) as refused:
        SqliteStore(tmp_path / "no" / "store.sqlite", process.tasks, process.clock)
    assert "folder" in refused.value.remedy


def test_full_disk_refuses_writes_until_there_is_room(opened: Open) -> None:
    with hooked() as connections:
        store = opened()
    connections[0].pragma("max_page_count", 40)
    made: list[Wire] = []

    def fill() -> None:
        for number in range(1000):
            made.append(at_once(store.create(thing(f"r{number:03d}", text="x" * 2000))))

    with pytest.raises(Unavailable) as refused:
        fill()
    assert isinstance(refused.value, FileUnavailable)
    assert "disk is full" in refused.value.why
    assert at_once(store.list("Run")).items == made == folded(store)
    connections[0].pragma("max_page_count", 10_000)
    after = at_once(store.create(thing("z")))
    assert version(after) == len(made) + 1


def test_write_of_another_program_to_the_file_is_noticed(path: Path, opened: Open) -> None:
    store = opened()
    at_once(store.create(thing()))
    other = apsw.Connection(str(path))
    other.execute("UPDATE meta SET value = 77 WHERE key = 'version'")
    other.close()

    with pytest.raises(Unavailable):
        at_once(store.create(thing("b")))
    assert [name_of(each) for each in at_once(store.list("Run")).items] == ["a"]


class FailingDisk(apsw.VFS):
    """The system's own VFS, whose syncs fail while `is_failing` is set."""

    is_failing = False

    def __init__(self) -> None:
        super().__init__("failing", SYSTEM, makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(
        self, disk: FailingDisk, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__(SYSTEM, name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.is_failing:
            raise apsw.IOError("no longer")
        super().xSync(flags)


def test_a_commit_that_the_disk_cannot_confirm_has_an_unknown_outcome(opened: Open) -> None:
    disk = FailingDisk()
    try:
        store = opened()
        at_once(store.create(thing("a")))
        disk.is_failing = True
        with pytest.raises(OutcomeUnknown) as unknown:
            at_once(store.create(thing("b")))
        assert isinstance(unknown.value, CommitUnknown)
        disk.is_failing = False
        with pytest.raises(Unavailable):  # until the store is reopened
            at_once(store.create(thing("c")))
        store.reopen()
        at_once(store.create(thing("c")))
        names = [name_of(each) for each in at_once(store.list("Run")).items]
        assert names in (["a", "c"], ["a", "b", "c"])
        store.close()
    finally:
        disk.unregister()


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (apsw.ReadOnlyError(), "permissions"),
        (apsw.BusyError(), "another program"),
        (apsw.NotADBError(), "backup"),
        (apsw.SchemaChangeError("moved"), "moved"),
    ],
)
def test_sqlite_error_is_explained_in_a_sentence(error: apsw.Error, word: str) -> None:
    assert word in sentence(error)
