"""A small process that forks shims: `python -I -S zygote.py`, with a stream socket as its input.

Started by the agent. A line is the folder of a pod; the answer is the pid of its shim and the
folder. It has little memory, no thread and no secret, so that a fork is cheap and safe, which a
fork of the server would not be. It ends when the agent does; the shims it forked do not.
"""

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections.abc import Iterator

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
_SOURCE = os.path.normpath(os.path.join(_HERE, "../../../.."))  # noqa: PTH118

_SET_NAME = 15


def main() -> None:
    """Until the agent is gone."""
    from leasehold.adapters.agent.shim.life import live

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the shims
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    gc.disable()
    gc.freeze()
    for folder in _lines(0):
        pid = os.fork()
        if pid == 0:
            _be_a_shim(folder, live, prctl)
        try:
            os.write(0, b"%d %s\n" % (pid, os.fsencode(folder)))
        except OSError:  # the agent was killed; the next one settles what it had asked for
            return


def _be_a_shim(folder: str, live: object, prctl: object) -> None:
    assert callable(live)
    assert callable(prctl)
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.close(null)
        prctl(_SET_NAME, b"leasehold-shim")
        live(folder, prctl)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _lines(fd: int) -> Iterator[str]:
    begun = b""
    while True:
        try:
            read = os.read(fd, 65536)
        except ConnectionResetError:
            return
        if not read:
            return
        *whole, begun = (begun + read).split(b"\n")
        for line in whole:
            yield os.fsdecode(line)


if __name__ == "__main__":
    sys.path.insert(0, _SOURCE)
    main()
