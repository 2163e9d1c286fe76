"""Deadlines: each phase of a test has one, so that a hanging test does not stop the others.

The time to build something that all tests share does not count for the test that needs it first.
"""

import contextlib
import faulthandler
import os
import signal
from collections.abc import Iterator
from types import FrameType

PATIENCE_S = 60.0  # a process that does not handle its alarm for this long is ended

_screen: list[int] = []  # stderr before pytest captures it


class DeadlinePassed(Exception):  # noqa: N818 - it says what happened
    """A test took longer than it may."""


def keep_screen() -> None:
    """Keep stderr for reports of hanging tests; must be called before pytest captures it."""
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
    """Suspend the current deadline, if there is one, during the block."""
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
