"""A file that several stores have open: access, waiting for each other, and watches."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.shared import SharedStore
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import Conflict, Unavailable, WatchExpired

T = TypeVar("T")
DEADLINE_S = 30
Story = Callable[[Callable[[], SharedStore]], Awaitable[T]]


def played(path: Path, story: Story[T], *, history_max: int = 1000) -> T:
    """Play the story, which gets a function that opens the file once more; return its result."""

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> T:
        opened: list[SharedStore] = []

        def opens() -> SharedStore:
            opened.append(SharedStore(path, tasks, clock, history_max=history_max))
            return opened[-1]

        try:
            return await asyncio.wait_for(story(opens), DEADLINE_S)
        finally:
            for each in opened:
                each.close()

    return asyncio_runtime.run(main)


def budget(name: str, words: str = "") -> Wire:
    metadata: Wire = {"name": name, "namespace": "team", "annotations": {"words": words}}
    envelope = {"name": "e", "flavor": "H", "concurrency": 1}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Budget",
        "metadata": metadata,
        "spec": {"owner": "org:a", "envelopes": [envelope]},
    }


def exclusive(path: Path, tasks: AsyncioTasks) -> SqliteStore:
    return SqliteStore(path, tasks, AsyncioClock())


def test_exclusive_store_is_refused_while_a_shared_store_is_open(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        shared = SharedStore(path, tasks, clock)
        with pytest.raises(BadStore, match="in use by the process with pid"):
            exclusive(path, tasks)
        shared.close()
        exclusive(path, tasks).close()

    asyncio_runtime.run(main)


def test_shared_store_is_refused_with_pid_while_an_exclusive_one_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    monkeypatch.setattr("leasehold.adapters.sqlite.lock.OPENING_TRIES", 2)

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        first = exclusive(path, tasks)
        with pytest.raises(BadStore, match="in use by the process with pid"):
            SharedStore(path, tasks, clock)
        first.close()

    asyncio_runtime.run(main)


def test_update_conflicts_with_a_newer_write_of_another_store(tmp_path: Path) -> None:
    async def story(opens: Callable[[], SharedStore]) -> None:
        one, other = opens(), opens()
        made = await one.create(budget("b"))
        labelled = {**part(made, "metadata"), "labels": {"a": "b"}}
        await other.update({**made, "metadata": labelled})
        with pytest.raises(Conflict):
            await one.update(made)
        read = await one.get("Budget", "team", "b")
        assert part(read, "metadata")["labels"] == {"a": "b"}
        assert one.version == other.version == 2

    played(tmp_path / "store.sqlite", story)


def test_watch_reports_writes_of_another_store(tmp_path: Path) -> None:
    async def story(opens: Callable[[], SharedStore]) -> None:
        one, other = opens(), opens()
        watch = one.watch("Budget", one.version)
        await other.create(budget("b"))
        event = await watch.next()
        assert (event.type, event.version) == ("ADDED", 1)

    played(tmp_path / "store.sqlite", story)


def test_several_stores_may_write_at_once(tmp_path: Path) -> None:
    async def story(opens: Callable[[], SharedStore]) -> None:
        stores = [opens() for _ in range(3)]
        writes = [
            stores[number % 3].create(budget(f"b{number}", "x" * number)) for number in range(30)
        ]
        made = await asyncio.gather(*writes)
        uids = {part(each, "metadata")["uid"] for each in made}
        assert len(uids) == 30
        assert {each.version for each in stores} == {30}

    played(tmp_path / "store.sqlite", story)


def test_store_blocked_from_writing_raises_unavailable_and_may_read(tmp_path: Path) -> None:
    """This happens while another process is stopped in the middle of a write."""
    path = tmp_path / "store.sqlite"

    async def story(opens: Callable[[], SharedStore]) -> None:
        store = opens()
        await store.create(budget("before"))
        stopped = apsw.Connection(str(path))
        stopped.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="another program"):
            await store.create(budget("meanwhile"))
        assert len((await store.list("Budget")).items) == 1
        stopped.execute("ROLLBACK")
        stopped.close()
        await store.create(budget("after"))
        assert len((await store.list("Budget")).items) == 2

    played(path, story)


def test_watch_from_history_that_another_store_dropped_expires(tmp_path: Path) -> None:
    """Each store counts what it writes itself; the file has the history that is left."""

    async def story(opens: Callable[[], SharedStore]) -> None:
        one, other = opens(), opens()
        for number in range(7):
            await one.create(budget(f"a{number}"))
        for number in range(7):
            await other.create(budget(f"b{number}"))
        for number in range(7, 14):
            await one.create(budget(f"a{number}"))
        with pytest.raises(WatchExpired):
            await other.watch("Budget", 0).next()
        assert len((await one.list("Budget")).items) == 21
        assert (await other.watch("Budget", 20).next()).version == 21

    played(tmp_path / "store.sqlite", story, history_max=4)
