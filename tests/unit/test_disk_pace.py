"""Quick work is done on the calling thread, slow work on another; either may become the other."""

import asyncio
import threading

import pytest

from leasehold.adapters import disk_pace
from leasehold.adapters.disk_pace import DiskPace


def where() -> int:
    return threading.get_ident()


def test_work_runs_in_a_thread_only_if_the_work_before_it_was_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play() -> list[bool]:
        here, disk, found = where(), DiskPace(), []
        for quick_s in (3600.0, 0.0, 0.0, 3600.0, 3600.0):
            monkeypatch.setattr(disk_pace, "QUICK_S", quick_s)
            found.append(await disk.do(where) == here)
        return found

    # How long one piece of work took decides where the next one is done.
    assert asyncio.run(play()) == [True, True, False, False, True]


def test_exception_in_work_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    async def play() -> None:
        disk = DiskPace()
        for quick_s in (0.0, 0.0):
            monkeypatch.setattr(disk_pace, "QUICK_S", quick_s)
            with pytest.raises(OSError, match="No space"):
                await disk.do(fail)

    asyncio.run(play())
