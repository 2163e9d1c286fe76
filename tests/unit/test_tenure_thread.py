"""Tenure on its own thread: renewed while a decision computes, lost if the loop hangs."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread

import pytest

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.shared import SharedStore
from leasehold.app import tenure_thread
from leasehold.app.tenure_thread import TenureThread
from leasehold.core.objects.tenure import KIND, NAMESPACE, Holder, tenure_from_wire, tenure_name
from leasehold.ports.store import NotFound, Store
from leasehold.ports.tenure import Margins, Tenure

KEY = "main"
MARGINS = Margins(take=1500, hold=1000, soft_stop=800, renew=200, timeout=400, stall=60_000)
DEADLINE_S = 60


class Office:
    """Records what the tenure thread reports."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heard = asyncio.Event()

    def gained(self, tenure: Tenure) -> None:
        self._say(f"gained {tenure.epoch}")

    def unsure(self) -> None:
        self._say("unsure")

    def sure(self) -> None:
        self._say("sure")

    def lost(self, why: str) -> None:
        self._say(f"lost: {why}")

    def _say(self, words: str) -> None:
        self.said.append(words)
        self.heard.set()


class Stage:
    """One replica that contends for tenure, and a separate store to read the record."""

    def __init__(
        self,
        folder: Path,
        clock: AsyncioClock,
        tasks: AsyncioTasks,
        *,
        margins: Margins = MARGINS,
        name: str = "a",
    ) -> None:
        self.office = Office()
        self.store = SharedStore(folder / "store.sqlite", tasks, clock)
        self._path = folder / "store.sqlite"
        self.thread = TenureThread(
            self._connected, clock, tasks, key=KEY, holder=Holder(name=name, nonce="1"),
            office=self.office, epoch=_no_ledger, margins=margins, about=lambda: "team/huge",
        )  # fmt: skip
        tasks.spawn("tenure", self.thread.run())

    @asynccontextmanager
    async def _connected(self, clock: AsyncioClock, tasks: AsyncioTasks) -> AsyncIterator[Store]:
        store = SharedStore(self._path, tasks, clock)
        try:
            yield store
        finally:
            store.close()

    async def until_said(self, words: str) -> None:
        while words not in self.office.said:
            self.office.heard.clear()
            await asyncio.wait_for(self.office.heard.wait(), DEADLINE_S)


async def _no_ledger(_: Store, __: AsyncioClock, ___: AsyncioTasks) -> int:
    return 0


async def record(store: Store) -> tuple[str, int, str]:
    try:
        found = tenure_from_wire(await store.get(KIND, NAMESPACE, tenure_name(KEY)))
    except NotFound:
        return "", 0, ""
    return found.holder, found.epoch, found.write


def blocked_until(path: Path, is_reached: Callable[[tuple[str, int, str]], bool]) -> None:
    """Block this thread and its event loop until `is_reached` accepts the tenure record."""

    async def look(clock: AsyncioClock, tasks: AsyncioTasks) -> tuple[str, int, str]:
        store = SharedStore(path, tasks, clock)
        try:
            return await record(store)
        finally:
            store.close()

    found: list[tuple[str, int, str]] = []
    due = time.monotonic() + DEADLINE_S

    def work() -> None:
        while not (found and is_reached(found[-1])):
            assert time.monotonic() < due, found[-1:]
            found.append(asyncio_runtime.run(look))

    # In a thread that is joined at once: a loop cannot run inside another one.
    looking = Thread(target=work)
    looking.start()
    looking.join()


def test_tenure_is_renewed_while_a_decision_computes_for_long(
    tmp_path: Path,
) -> None:
    async def story(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        stage = Stage(tmp_path, clock, tasks)
        await stage.until_said("gained 1")
        seen: set[str] = set()

        def ten_renewals(found: tuple[str, int, str]) -> bool:
            seen.add(found[2])
            return len(seen) >= 10  # at least two seconds; without renewals tenure ends after one

        blocked_until(tmp_path / "store.sqlite", ten_renewals)

        assert stage.thread.tenure is not None
        stage.thread.stop()
        await stage.until_said("lost: stopped")
        assert stage.office.said == ["gained 1", "lost: stopped"]

    asyncio_runtime.run(story)


def test_hanging_loop_loses_its_tenure_and_the_log_names_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    margins = Margins(take=1500, hold=1000, soft_stop=800, renew=200, timeout=400, stall=8_000)
    told: list[tuple[str, dict[str, object]]] = []

    class Log:
        def warning(self, event: str, **values: object) -> None:
            told.append((event, values))

    monkeypatch.setattr(tenure_thread, "_log", Log())

    async def story(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        stage = Stage(tmp_path, clock, tasks, margins=margins)
        await stage.until_said("gained 1")
        writes: list[str] = []
        since = [0.0]

        def stands_still(found: tuple[str, int, str]) -> bool:
            if not writes or writes[-1] != found[2]:
                writes.append(found[2])
                since[0] = time.monotonic()
            # Longer than any holder may rely on it; and nothing released it for the hanging loop.
            return time.monotonic() - since[0] > margins.take / 1000 and found[0] == "a_1"

        blocked_until(tmp_path / "store.sqlite", stands_still)
        await stage.until_said("gained 2")

        assert stage.office.said[1].startswith("lost: the control loop has not responded for")
        stage.thread.stop()
        await stage.until_said("lost: stopped")

    asyncio_runtime.run(story)
    assert [values["run"] for event, values in told if event == "a decision takes long"][:1] == [
        "team/huge"
    ]
