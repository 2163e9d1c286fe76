"""A `leasehold up` for one browser test, which can be stopped and started again."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from demo.stage import BIN, default_signals

PATIENCE_S = 60


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Up:
    def __init__(self, folder: Path, *options: str) -> None:
        self.data = folder / "data"
        self.port = free_port()
        self.base = f"https://127.0.0.1:{self.port}"
        # Jobs run as other users, who cannot enter a test's own folder.
        self._work = Path(tempfile.mkdtemp(prefix="leasehold-web-"))
        self._work.chmod(0o755)
        self._options = ("--work", str(self._work), *options)
        self._log = folder / "up.log"
        self.env = {**os.environ, "KUBECONFIG": str(self.data / "kubeconfig"), "NO_COLOR": "1"}
        self.greeting = ""
        self.start()

    def start(self) -> None:
        command = [BIN / "leasehold", "up", "--data", self.data, "--port", str(self.port),
                   "--end-jobs", *self._options]  # fmt: skip
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=default_signals,
            )
        assert self._process.stdout is not None
        self.greeting = ""
        while line := self._process.stdout.readline():
            self.greeting += line
            if line.startswith("Ctrl-C"):
                return
        self._end()
        raise AssertionError(self._log.read_text())

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._end()

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._work, ignore_errors=True)

    def _end(self) -> None:
        self._process.wait(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, *command: str, stdin: str = "") -> str:
        """Run a leasehold command with the administrator's kubeconfig; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "leasehold", *command],
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def link(self, kubeconfig: Path | None = None) -> str:
        options = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
        return self.run("ui", *options).strip()
