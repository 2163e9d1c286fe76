"""A control plane for the demonstration. `Stage` types commands at it, and shows their output.

Everything shown is what the real command printed. The demonstration waits until the server's
answers show that something has happened; it never waits for a fixed time.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
PATIENCE_S = 40.0
PAUSE_S = 0.1
# The command that is shown. kubectl finds `kubectl-runs` as its plugin; without kubectl,
# `leasehold runs` does the same.
RUNS = ("kubectl", "runs") if shutil.which("kubectl") else ("leasehold", "runs")
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")


class Gone(Exception):  # noqa: N818 - it says what became of the story
    """Something that the demonstration waits for did not happen."""


def default_signals() -> None:
    """Restore the default signals in a child process. A background process of a script ignores some
    signals, and its children would ignore them too."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def open_to_jobs(folder: Path) -> bool:
    """Return whether jobs can reach the files in this folder. If the server runs as root, jobs run
    as other users."""
    here = folder.resolve()
    return os.geteuid() != 0 or all(each.stat().st_mode & 0o001 for each in (here, *here.parents))


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self._work = folder / "work"
        self.is_over = False
        self._env = {**os.environ, "KUBECONFIG": str(self.data / "kubeconfig"), "NO_COLOR": "1"}

    def open(self) -> None:
        """Start `leasehold up` on a fresh folder, and return when the server answers."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if not open_to_jobs(self.folder):  # for example in root's own home
            self._work = Path(tempfile.mkdtemp(prefix="leasehold-demo-"))
            self._work.chmod(0o755)
        self._log = (self.folder / "up.log").open("w")
        command = ["up", "--data", str(self.data), "--fleet", "demo/fleet.yaml", "--config",
                   "demo/config.yaml", "--work", str(self._work), "--port", "0",
                   "--end-jobs"]  # fmt: skip
        self.say("$ leasehold up --fleet demo/fleet.yaml --config demo/config.yaml", BOLD)
        self._up = subprocess.Popen(
            [BIN / "leasehold", *command],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            preexec_fn=default_signals,
        )
        assert self._up.stdout is not None
        while line := self._up.stdout.readline():
            if line.startswith("leasehold is up"):
                self.say(f"  {line.rstrip()}")
                return
        raise Gone(f"the server did not start; see {self._log.name}")

    def close(self) -> None:
        self._up.send_signal(signal.SIGTERM)
        self._up.wait(PATIENCE_S)
        if self._up.stdout is not None:
            self._up.stdout.close()
        self._log.close()
        if self._work.parent != self.folder:
            shutil.rmtree(self._work, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._up.pid

    def act(self, title: str, words: str) -> None:
        self.say("")
        self.say(title, BOLD)
        self.say(words, DIM)

    def runs(self, *arguments: str) -> None:
        """Run one `kubectl runs` command, and show the command and its output."""
        self.show([*RUNS, *arguments], [BIN / "kubectl-runs", *arguments])

    def leasehold(self, *arguments: str, shown: tuple[str, ...] = ()) -> None:
        command = [BIN / "leasehold", *arguments]
        self.show(["leasehold", *(shown or arguments)], command)

    def show(self, typed: list[str], command: list[str | Path]) -> None:
        self.say(f"$ {' '.join(typed)}", BOLD)
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        for line in (done.stdout + done.stderr).splitlines():
            self.say(f"  {line}")
        if done.returncode:
            raise Gone(f"{' '.join(typed)} ended with {done.returncode}")

    def printed(self, *arguments: str) -> str:
        """Run a `leasehold` command and return its output without showing it."""
        command = [BIN / "leasehold", *arguments]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Gone(f"leasehold {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def ask(self, *arguments: str) -> object:
        """Run a `kubectl runs` command and return its answer, decoded from JSON, without showing
        it."""
        command = [BIN / "kubectl-runs", *arguments, "-o", "json"]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def phase(self, run: str) -> tuple[str, int]:
        namespace, _, name = run.partition("/")
        answer = self.ask("list", "-n", namespace)
        rows = answer.get("items", []) if isinstance(answer, dict) else []
        for row in rows:
            if row["name"] == name:
                return row["phase"], row["width"]["allocated"]
        return "", 0

    def drawn(self, *runs: str) -> tuple[str, str]:
        """Return the first of these runs that was drawn in a lottery, and the name of the
        Resolution."""
        for run in runs:
            answer = self.ask("explain", run)
            for cut in answer.get("cuts", []) if isinstance(answer, dict) else []:
                if "RandomPreempt" in cut["reasons"]:
                    return run, str(cut["resolution"])
        raise Gone(f"none of {', '.join(runs)} was drawn")

    def lines(self, run: str) -> int:
        """Return how many lines the run's pods have printed."""
        command = [BIN / "kubectl-runs", "logs", run]
        done = subprocess.run(command, env=self._env, capture_output=True, text=True, check=False)
        return len(done.stdout.splitlines())

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise Gone(f"waited {PATIENCE_S:g} s for {what}")
            time.sleep(PAUSE_S)

    def say(self, text: str, style: str = "") -> None:
        print(f"{style}{text}{PLAIN}" if style and text else text, flush=True)
