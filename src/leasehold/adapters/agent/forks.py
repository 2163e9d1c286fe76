"""The agent's end of the zygote: asks it for shims, and starts another when it dies.

Called by `agent`. Asking twice for the same folder is harmless: one of the two shims wins it.
"""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leasehold.adapters.agent.shim import zygote

_PAUSE_S = 0.5  # before another zygote is started, so that one that cannot live costs little


class Forks:
    """`on_fork(pid, uid)` for every shim; `on_restart()` when all must be asked again."""

    def __init__(
        self,
        errors: Path,
        *,
        on_fork: Callable[[int, str], None],
        on_restart: Callable[[], None],
    ) -> None:
        """`errors`: a file for what a shim says when it breaks."""
        self._errors = errors
        self._on_fork = on_fork
        self._on_restart = on_restart
        self._process: subprocess.Popen[bytes] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    @property
    def pid(self) -> int | None:
        """Of the zygote."""
        return None if self._process is None else self._process.pid

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    async def open(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            with self._errors.open("ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(Path(zygote.__file__))],
                    stdin=theirs.fileno(),
                    stdout=errors,
                    stderr=errors,
                    env={},  # whatever it had, a job could read
                    cwd="/",
                    start_new_session=True,  # an interrupt at the terminal is not for it
                )
        finally:
            theirs.close()
        self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)

    def ask(self, folder: Path) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(os.fsencode(folder) + b"\n")

    async def serve(self) -> None:
        """Hears what was forked, for ever."""
        while True:
            assert self._reader is not None
            with suppress(ConnectionError):
                while line := await self._reader.readline():
                    pid, _, folder = line.rstrip(b"\n").partition(b" ")
                    self._on_fork(int(pid), Path(os.fsdecode(folder)).name)
            await self.close()
            await asyncio.sleep(_PAUSE_S)
            await self.open()
            self._on_restart()

    async def close(self) -> None:
        """The zygote ends when it hears no more; what it forked goes on."""
        if self._writer is not None:
            self._writer.close()
            with suppress(ConnectionError):
                await self._writer.wait_closed()
            self._writer = None
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None
