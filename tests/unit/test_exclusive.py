"""A file's lock: one holder at a time, and a short wait for a holder that is about to let go."""

import os
import threading
from pathlib import Path

from leasehold.adapters.exclusive import take


def test_lock_is_refused_until_its_holder_closes_the_file(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert take(first)
    assert not take(second)
    os.close(first)
    assert take(second)
    os.close(second)


def test_take_waits_for_a_lock_that_is_released_soon(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert take(first)
    timer = threading.Timer(0.05, os.close, [first])
    timer.start()
    assert take(second)
    timer.join()
    os.close(second)
