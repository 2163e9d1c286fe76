"""A reader that follows a document in its own folder and compares the output of each command.

`leasehold up` and `systemctl` are done with the server of `tests.up`, so that a document's server
listens on a free port and ends with the test. Every other command runs in bash, with kubectl and
our own programs on the path. A command that only reads is repeated until its output is as shown,
because a person would look again, too.
"""

import os
import re
import shlex
import socket
import subprocess
import time
from pathlib import Path

from tests.docs.examples import DATA_FOLDERS, MACHINE, Saved, Shown, first_difference, steps
from tests.up.server import BIN, Up

PATIENCE_S = 20.0
COMMAND_S = 60.0
PAUSE_S = 0.1
_LOOKS = re.compile(
    r"kubectl (get|describe|events|top|logs|runs (list|explain|leases|logs|pods|budgets|"
    r"reservations|who-pays|report|plan|cover|sponsors list))\b|leasehold (audit|runs list)\b"
)
_UP = "leasehold up"
_STOP, _START = "systemctl stop leasehold", "systemctl start leasehold"
_EXPORT = re.compile(r"export (\w+)=(\S+)")


class Reader:
    """Follows one document; `close` ends its server and all jobs."""

    def __init__(self, folder: Path, kubectl: Path) -> None:
        self._folder = folder
        self._here = folder / "here"
        self._here.mkdir()
        self.data = folder / "leasehold"
        self._up: Up | None = None
        self._env = {
            **{name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ},
            "PATH": f"{BIN}:{kubectl.parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "LEASEHOLD_DATA": str(self.data),
            "KUBECONFIG": str(self.data / "kubeconfig"),
            "TERM": "dumb",
        }
        self.ran = 0

    def read(self, text: str) -> None:
        for step in steps(text):
            if isinstance(step, Saved):
                (self._here / step.name).write_text(step.content, encoding="utf-8")
            else:
                self.follow(step)

    def follow(self, shown: Shown) -> None:
        """Run a command; raise `AssertionError` if the result is not as shown."""
        self.ran += 1
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status, printed = self._done(shown.command)
            wrong = None
            if status != shown.status:
                wrong = f"ends with {status}, not {shown.status}"
            elif (line := first_difference(shown.lines, printed)) is not None:
                wrong = f"does not print {line!r}" if line else "prints more than is shown"
            if wrong is None:
                return
            if not _LOOKS.match(shown.command) or time.monotonic() > deadline:
                said = "\n".join(printed)
                raise AssertionError(f"$ {shown.command}\n{wrong}; it prints\n{said}")
            time.sleep(PAUSE_S)

    def close(self) -> None:
        if self._up is not None:
            self._up.end()

    def _done(self, command: str) -> tuple[int, list[str]]:
        words = shlex.split(command, comments=True)
        exported = _EXPORT.fullmatch(command)
        if words[:2] == ["leasehold", "up"] and "--help" not in words:
            return self._start(words[2:])
        if command == _STOP:
            assert self._up is not None, "nothing was started"
            return self._up.stop(), []
        if command == _START:
            assert self._up is not None, "nothing was started"
            self._up.start()
            return 0, []
        if exported:
            self._env[exported[1]] = self._real(exported[2])
            return 0, []
        done = subprocess.run(
            ["bash", "-c", self._real(command)],
            cwd=self._here,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        return done.returncode, [self._told(line) for line in done.stdout.splitlines()]

    def _start(self, words: list[str]) -> tuple[int, list[str]]:
        """Start a server with the document's options, except for its address and data folder."""
        config = ""
        kept = []
        rest = iter(words)
        for word in rest:
            if word == "--config":
                config = (self._here / next(rest)).read_text(encoding="utf-8")
            elif word == "--fleet":
                kept += [word, str(self._here / next(rest))]
            elif word in ("--port", "--data", "--host"):
                next(rest)
            else:
                kept.append(word)
        self.close()
        self._up = Up(self._folder, *kept, config=config)
        self._up.data = self.data
        self._up.work = self.data.with_name(f"{self.data.name}.work")
        self._up.start()
        # The server prints the rest of its greeting at once; the last line is known.
        stdout = self._up.process.stdout
        assert stdout is not None
        while not self._up.said[-1].startswith("Ctrl-C"):
            self._up.said.append(stdout.readline().rstrip())
        return 0, [self._told(line) for line in self._up.said]

    def _real(self, command: str) -> str:
        for folder in DATA_FOLDERS:
            command = command.replace(folder, str(self.data))
        return command

    def _told(self, line: str) -> str:
        host = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")
        line = re.sub(rf"(?<![\w-]){re.escape(host)}(?![\w-])", MACHINE, line)
        return line.replace(str(self.data), "<data>")
