"""Callers share a commit and nothing else, whether the disk is waited for here or on a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.unit.sqlite_file import hooked, name_of, thing, version

from leasehold.adapters import asyncio_runtime, disk_pace
from leasehold.adapters.objects.storage import Stored
from leasehold.adapters.sqlite import storage
from leasehold.adapters.sqlite.errors import BadStore, FileUnavailable
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.names import Wire
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import AlreadyExists, NotFound, Unavailable, WatchExpired

CALLERS = 100

Story = Callable[[GroupStore], Awaitable[None]]


@pytest.fixture(params=["slow", "quick"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the store; the parameter decides whether the disk counts as slow."""
    monkeypatch.setattr(disk_pace, "QUICK_S", 0.0 if request.param == "slow" else 3600.0)
    return tmp_path / "store.sqlite"


def play(path: Path, story: Story) -> None:
    async def main(clock: Clock, tasks: Tasks) -> None:
        store = GroupStore(path, tasks, clock)
        try:
            await story(store)
        finally:
            store.close()

    asyncio_runtime.run(main)


def test_concurrent_writes_share_commits(path: Path) -> None:
    commits: list[int] = []

    def on_commit() -> bool:
        commits.append(1)
        return False

    async def story(store: GroupStore) -> None:
        connections[0].set_commit_hook(on_commit)
        made = await asyncio.gather(*(store.create(thing(f"r{n:03d}")) for n in range(CALLERS)))
        assert [version(each) for each in made] == list(range(1, CALLERS + 1))
        assert (await store.list("Run")).items == made

    with hooked() as connections:
        play(path, story)
    assert 1 <= len(commits) < CALLERS / 2


def test_failed_commit_fails_all_its_callers_and_writes_nothing(path: Path) -> None:
    fails = [False]

    async def story(store: GroupStore) -> None:
        await store.create(thing("first"))  # after this the store knows how quick the disk is
        connections[0].set_commit_hook(lambda: fails[0])
        fails[0] = True
        answers = await asyncio.gather(
            *(store.create(thing(f"r{n}")) for n in range(5)), return_exceptions=True
        )
        assert [isinstance(each, FileUnavailable) for each in answers] == [True] * 5
        fails[0] = False
        assert version(await store.create(thing("last"))) == 2
        assert [name_of(each) for each in (await store.list("Run")).items] == ["first", "last"]

    with hooked() as connections:
        play(path, story)


def test_write_after_a_failed_commit_ignores_uncommitted_state(path: Path) -> None:
    fails = [False]

    async def story(store: GroupStore) -> None:
        known = version(await store.create(thing("a")))
        connections[0].set_commit_hook(lambda: fails[0])
        fails[0] = True
        with pytest.raises(FileUnavailable):
            await store.patch_status("Run", "team", "a", {"phase": "Lost"}, version=known)
        fails[0] = False
        await store.patch_status("Run", "team", "a", {"phase": "Running"}, version=known)
        assert (await store.get("Run", "team", "a"))["status"] == {"phase": "Running"}

    with hooked() as connections:
        play(path, story)


def test_object_no_longer_in_the_writers_cache_is_read_from_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "LATEST_MAX", 2)

    async def story(store: GroupStore) -> None:
        for name in "abcd":
            await store.create(thing(name))
        await store.delete("Run", "team", "d", uid=None)
        for name in "cba":
            await store.patch_status("Run", "team", name, {"phase": name}, version=None)
        stored = (await store.list("Run")).items
        assert [each["status"] for each in stored] == [{"phase": name} for name in "abc"]
        with pytest.raises(NotFound):
            await store.patch_status("Run", "team", "d", {"phase": "d"}, version=None)

    play(path, story)


def test_invalid_write_fails_only_its_own_caller(path: Path) -> None:
    async def story(store: GroupStore) -> None:
        names = ["a", "b", "a", "c", "Not A Name", "d"]
        answers = await asyncio.gather(
            *(store.create(thing(name)) for name in names), return_exceptions=True
        )
        assert [isinstance(each, dict) for each in answers] == [1, 1, 0, 1, 0, 1]
        assert isinstance(answers[2], AlreadyExists)
        stored = [name_of(each) for each in (await store.list("Run")).items]
        assert stored == ["a", "b", "c", "d"]

    play(path, story)


def test_full_disk_refuses_writes_and_stores_only_confirmed_ones(path: Path) -> None:
    async def story(store: GroupStore) -> None:
        connections[0].pragma("max_page_count", 40)
        answers = await asyncio.gather(
            *(store.create(thing(f"r{n:03d}", text="x" * 2000)) for n in range(CALLERS)),
            return_exceptions=True,
        )
        made = [each for each in answers if isinstance(each, dict)]
        refused = [each for each in answers if isinstance(each, FileUnavailable)]
        assert refused
        assert len(made) + len(refused) == CALLERS
        assert (await store.list("Run")).items == made
        connections[0].pragma("max_page_count", 10_000)
        last = await store.create(thing("z"))
        assert version(last) == len(made) + 1

    with hooked() as connections:
        play(path, story)


def test_exception_in_admission_reaches_only_its_own_caller(path: Path) -> None:
    def admit(_old: Wire | None, new: Wire, _stored: Stored) -> list[tuple[str, str]]:
        if name_of(new) == "b":
            raise LookupError("a defect")
        return []

    async def main(clock: Clock, tasks: Tasks) -> None:
        store = GroupStore(path, tasks, clock, admit)
        with pytest.raises(LookupError):
            await store.create(thing("b"))
        names = ["c", "c", "b", "d"]
        answers = await asyncio.gather(
            *(store.create(thing(name)) for name in names), return_exceptions=True
        )
        kinds = [type(each) for each in answers]
        assert kinds == [dict, AlreadyExists, LookupError, dict]
        assert [name_of(each) for each in (await store.list("Run")).items] == ["c", "d"]
        store.close()

    asyncio_runtime.run(main)


def test_cancelled_caller_does_not_disturb_other_writes(path: Path) -> None:
    async def story(store: GroupStore) -> None:
        impatient = asyncio.ensure_future(store.create(thing("a")))
        await asyncio.sleep(0)
        impatient.cancel()
        made = await store.create(thing("b"))
        assert version(made) in (1, 2)
        with pytest.raises(asyncio.CancelledError):
            await impatient

    play(path, story)


def test_closing_completes_pending_writes_and_refuses_later_calls(path: Path) -> None:
    async def story(store: GroupStore) -> None:
        watch = store.watch("Run", 0)
        waiting = [asyncio.ensure_future(store.create(thing(f"r{n}"))) for n in range(5)]
        await asyncio.sleep(0)
        store.close()
        assert len(await asyncio.gather(*waiting)) == 5
        with pytest.raises(Unavailable):
            await store.create(thing("late"))
        with pytest.raises(WatchExpired):
            await watch.next()
        store.reopen()
        assert len((await store.list("Run")).items) == 5

    play(path, story)


def test_second_store_on_the_same_file_is_refused(path: Path) -> None:
    async def story(store: GroupStore) -> None:
        with pytest.raises(BadStore):
            play_second()

    def play_second() -> None:
        GroupStore(path, asyncio_runtime.AsyncioTasks(), asyncio_runtime.AsyncioClock())

    play(path, story)
