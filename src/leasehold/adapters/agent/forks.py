"""The agent's end of the zygote: asks it for shims, and starts another when it dies.

Called by `agent` and `shims`. The zygote is `leasehold-shim`, a program that is compiled when
leasehold is installed. Asking twice for the same journal is harmless: one of the two shims wins it.
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
_PAUSE_S = 0.5  # before another zygote is started, so that one that cannot live costs little


class Forks:
    """`on_fork(pid, uid)` for every shim, with 0 for a request that the zygote refused;
    `on_restart()` when all must be asked again."""

    def __init__(
        self,
        errors: Path,
        *,
        on_fork: Callable[[int, str], None],
        on_restart: Callable[[], None],
    ) -> None:
        """`errors`: a file for what a shim says when it breaks.

        Raises `AgentError` when the program is not there."""
        if not os.access(PROGRAM, os.X_OK, effective_ids=True):  # as it will be started
            raise AgentError(
                f"{PROGRAM} is missing, which starts jobs and is compiled when leasehold is "
                "installed; in a checkout run `make setup`, elsewhere install a wheel of leasehold "
                "that is for this machine"
            )
        self._errors = errors
        self._on_fork = on_fork
        self._on_restart = on_restart
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None
        self._asked: deque[str] = deque()  # uids, in the order in which they are answered
        self._frames: list[bytes] = []  # those of them that are to be sent

    @property
    def pid(self) -> int | None:
        """Of the zygote."""
        return None if self._process is None else self._process.pid

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    async def open(self) -> None:
        """Raises `AgentError` when the zygote cannot be started."""
        ours, theirs = socket.socketpair()
        try:
            with self._errors.open("ab") as errors:
                self._process = subprocess.Popen(
                    [PROGRAM],
                    stdin=theirs.fileno(),
                    stdout=errors,
                    stderr=errors,
                    env={},  # whatever it had, a job could read
                    cwd="/",
                    start_new_session=True,  # an interrupt at the terminal is not for it
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
            if not self._frames:  # whatever else is asked for in this turn of the loop goes along
                asyncio.get_running_loop().call_soon(self._send)
            self._asked.append(journal.uid)
            self._frames.append(frame_of(journal))

    def _send(self) -> None:
        frames, self._frames = self._frames, []
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(b"".join(frames))

    async def serve(self) -> None:
        """Hears what was forked, for ever."""
        while True:
            with suppress(ConnectionError):
                while self._reader is not None and (line := await self._reader.readline()):
                    self._on_fork(int(line.split()[0]), self._asked.popleft())
            await self.close()
            await asyncio.sleep(_PAUSE_S)
            with suppress(AgentError):  # the program is being replaced, or there is no memory
                await self.open()
                self._on_restart()

    async def close(self) -> None:
        """The zygote ends when it hears no more; what it forked goes on."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
            self._writer = self._reader = None
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None
