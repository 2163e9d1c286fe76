"""A file's lock goes with its holder, also when a child of the holder lingers on it."""

import os
import threading
from pathlib import Path

from leasehold.adapters.exclusive import take


def test_whoever_has_it_keeps_it(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert take(first)
    assert not take(second)
    os.close(first)
    assert take(second)
    os.close(second)


def test_one_that_is_let_go_in_a_moment_is_waited_for(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert take(first)
    timer = threading.Timer(0.05, os.close, [first])
    timer.start()
    assert take(second)
    timer.join()
    os.close(second)
