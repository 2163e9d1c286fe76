"""The agent's connection to the zygote, which forks shims; replaces a zygote that dies.

Called by `agent` and `shims`. The zygote is `leasehold-shim`, a program compiled when leasehold is
installed. Asking twice for the same journal is harmless: two shims may be forked, but only one of
them can start the pod.
"""

import asyncio
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leasehold.adapters.agent.journals import PodJournal
from leasehold.adapters.agent.limits import AgentError
from leasehold.adapters.agent.shim.frame import frame_of

PROGRAM = Path(__file__).parent / "shim" / "leasehold-shim"
_PAUSE_S = 0.5  # pause before a restart, so that a zygote that always fails costs little


class Forks:
    """Asks the zygote for shims.

    `on_fork(pid, uid)` is called for every forked shim, with pid 0 if the zygote refused the
    request. `on_restart()` is called when a new zygote has started and every request must be
    repeated."""

    def __init__(
        self,
        errors: Path,
        *,
        on_fork: Callable[[int, str], None],
        on_restart: Callable[[], None],
    ) -> None:
        """`errors`: the file that receives the error output of shims. Raise `AgentError` if the
        shim program is missing."""
        if not os.access(PROGRAM, os.X_OK, effective_ids=True):  # access by the effective user
            raise AgentError(
                f"{PROGRAM} is missing. This program starts jobs, and is compiled when leasehold "
                "is installed. In a checkout, run `make setup`; otherwise install a leasehold "
                "wheel for this kind of machine"
            )
        self._errors = errors
        self._on_fork = on_fork
        self._on_restart = on_restart
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._asked: deque[str] = deque()  # uids, in the order of the expected answers
        self._frames: list[bytes] = []  # the frames not sent yet

    @property
    def pid(self) -> int | None:
        """The pid of the zygote."""
        return None if self._process is None else self._process.pid

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    async def open(self) -> None:
        """Start the zygote; raise `AgentError` if it cannot be started."""
        ours, theirs = socket.socketpair()
        try:
            with self._errors.open("ab") as errors:
                self._process = subprocess.Popen(
                    [PROGRAM],
                    stdin=theirs.fileno(),
                    stdout=errors,
                    stderr=errors,
                    env={},  # a job could read its environment
                    cwd="/",
                    start_new_session=True,  # not interrupted by Ctrl-C at the terminal
                )
        except OSError as error:
            ours.close()
            why = f"{error.strerror}: {error.filename or PROGRAM}"
            raise AgentError(f"the agent cannot start jobs: {why}") from error
        finally:
            theirs.close()
        self._asked.clear()
        self._frames.clear()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)

    def ask(self, journal: PodJournal) -> None:
        if self._writer is not None and not self._writer.is_closing():
            if not self._frames:  # requests made in the same loop iteration are sent together
                asyncio.get_running_loop().call_soon(self._send)
            self._asked.append(journal.uid)
            self._frames.append(frame_of(journal))

    def _send(self) -> None:
        frames, self._frames = self._frames, []
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(b"".join(frames))

    async def serve(self) -> None:
        """Process the zygote's answers and restart it when it dies; never return."""
        while True:
            with suppress(ConnectionError):
                while self._reader is not None and (line := await self._reader.readline()):
                    self._on_fork(int(line.split()[0]), self._asked.popleft())
            await self.close()
            await asyncio.sleep(_PAUSE_S)
            with suppress(AgentError):  # the program is being replaced, or memory is short
                await self.open()
                self._on_restart()

    async def close(self) -> None:
        """Close the connection, which ends the zygote; its shims keep running."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
            self._writer = self._reader = None
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None
