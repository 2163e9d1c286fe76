"""One test that hangs must not take the others with it: each phase of it has a deadline.

What is built once for all tests is no part of whichever asks for it first.
"""

import contextlib
import faulthandler
import os
import signal
from collections.abc import Iterator
from types import FrameType

PATIENCE_S = 60.0  # after which the process ends that does not hear its alarm

_screen: list[int] = []  # stderr as it was before anybody captured it


class DeadlinePassed(Exception):  # noqa: N818 - it says what happened
    """A test took longer than it may."""


def keep_screen() -> None:
    """Called before anybody captures stderr: where it is told what hangs."""
    _screen.append(os.dup(2))


@contextlib.contextmanager
def deadline(limit: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _on_alarm)
    _set(limit)
    try:
        yield
    finally:
        _clear()
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def off_the_clock() -> Iterator[None]:
    """The deadline that counts now, if there is one, goes on afterwards."""
    left = _clear()
    try:
        yield
    finally:
        if left > 0:
            _set(left)


def _set(limit: float) -> None:
    faulthandler.dump_traceback_later(limit + PATIENCE_S, exit=True, file=_screen[0])
    signal.setitimer(signal.ITIMER_REAL, limit)


def _clear() -> float:
    left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    faulthandler.cancel_dump_traceback_later()
    return left


def _on_alarm(_number: int, _frame: FrameType | None) -> None:
    raise DeadlinePassed("it hangs, or needs a mark with a longer deadline; this is where it is")
