"""Runs kubectl commands and returns what they printed."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

DEADLINE_S = 30


@dataclass(frozen=True)
class Printed:
    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[list[str]]:
        """The cells of the printed table, without its header."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Kubectl:
    def __init__(self, path: Path, kubeconfig: Path, home: Path) -> None:
        """Each instance has its own empty discovery cache."""
        self._path = path
        self.home = home
        self.env = {
            "HOME": str(home),
            "KUBECACHEDIR": tempfile.mkdtemp(prefix="cache-", dir=home),
            "KUBECONFIG": str(kubeconfig),
            "PATH": os.environ["PATH"],
        }
        self._started: list[Background] = []

    def __call__(self, *words: str, **env: str) -> Printed:
        found = subprocess.run(
            [str(self._path), *words],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return Printed(found.returncode, found.stdout, found.stderr)

    def ok(self, *words: str, **env: str) -> str:
        """Run a command that must succeed, and return what it printed."""
        found = self(*words, **env)
        assert found.code == 0, f"kubectl {' '.join(words)}: {found.err}{found.out}"
        return found.out

    def start(self, *words: str) -> "Background":
        found = Background([str(self._path), *words], self.env)
        self._started.append(found)
        return found

    def stop_all(self) -> None:
        for each in self._started:
            each.stop()

    def file(self, *documents: object) -> str:
        path = self.home / f"{len(list(self.home.glob('*.yaml')))}.yaml"
        path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return str(path)


class Background:
    """A command that does not end by itself, such as a watch; its lines are collected."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        due = time.monotonic() + DEADLINE_S
        while not holds(self.lines):
            assert time.monotonic() < due, self.lines
            time.sleep(0.02)
        return list(self.lines)

    def wait(self) -> int:
        code = self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return code

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))
