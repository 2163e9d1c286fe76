"""The Containerfile, executed instruction by instruction in a folder that stands for the image.

A builder would pull the base image first, but a test cannot rely on a registry, so this machine's
Python stands for it. All else is done as the file says: files are copied, commands download and
compile, and finally the entry point runs without any file of the checkout, as the user it names.
"""

import json
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml
from tests.apiserver.server import ROOT

from leasehold.adapters.kubernetes.install.documents import Settings, documents
from leasehold.core.objects.wire import part

FILE = ROOT / "Containerfile"
PATH = "/usr/local/bin:/usr/bin:/bin"
PATIENCE_S = 1200


@dataclass
class Stage:
    """A file system that is being built, and the environment of commands in it."""

    root: Path
    folder: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    entry: list[str] = field(default_factory=list)

    def place(self, path: str) -> Path:
        return self.root / str(PurePosixPath(self.folder, path)).lstrip("/")


class Builder:
    """Executes the instructions of a Containerfile; an unknown instruction is an error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._named: dict[str, Stage] = {}
        self._given: dict[str, str] = {}
        self.stages: list[Stage] = []
        self.commands: list[str] = []

    def build(self, text: str) -> Stage:
        lines = [each for each in text.splitlines() if not each.lstrip().startswith("#")]
        for line in "\n".join(lines).replace("\\\n", " ").splitlines():
            word, _, rest = line.strip().partition(" ")
            if word:
                getattr(self, f"_{word.lower()}")(rest.strip())
        return self.stages[-1]

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self._given[name] = value

    def _from(self, rest: str) -> None:
        words = rest.split()
        assert words[0] == "${BASE}", rest
        assert self._given["BASE"].startswith("python:3."), self._given
        stage = Stage(self._folder / f"stage-{len(self.stages)}")
        stage.root.mkdir()
        self.stages.append(stage)
        if len(words) == 3:
            self._named[words[2]] = stage

    def _workdir(self, rest: str) -> None:
        self.stages[-1].folder = rest
        self.stages[-1].place(".").mkdir(parents=True)

    def _copy(self, rest: str) -> None:
        *froms, to = rest.split()
        stage, source = self.stages[-1], ROOT
        if froms[0].startswith("--from="):
            there = self._named[froms.pop(0).partition("=")[2]]
            source = there.root
        for each in froms:
            found = source / each.lstrip("/")
            target = stage.place(to)
            if found.is_dir():
                shutil.copytree(found, target, symlinks=True, ignore=_ours)
            else:
                shutil.copy(found, target / found.name if to.endswith("/") else target)

    def _run(self, rest: str) -> None:
        """Run a command with the image's absolute paths replaced by those of its folder, because
        a virtual environment contains its own path."""
        stage = self.stages[-1]
        self.commands.append(rest)
        command = rest.replace("/build/", f"{stage.root}/build/")
        command = command.replace("/opt/", f"{stage.root}/opt/")
        env = {"PATH": PATH, "HOME": str(stage.root)} | _of_pip()
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=stage.place("."), env=env, capture_output=True,
            text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (rest, done.stdout[-2000:], done.stderr[-4000:])

    def _env(self, rest: str) -> None:
        stage = self.stages[-1]
        for each in shlex.split(rest):
            name, _, value = each.partition("=")
            stage.env[name] = value.replace("$PATH", PATH)

    def _user(self, rest: str) -> None:
        self.stages[-1].user = rest

    def _entrypoint(self, rest: str) -> None:
        self.stages[-1].entry = json.loads(rest)


def _ours(_folder: str, names: list[str]) -> set[str]:
    """Return the names that a checkout has but its commit does not."""
    return {name for name in names if name in ("__pycache__", "leasehold-shim")}


def _of_pip() -> dict[str, str]:
    """Return the environment variables that say where this machine gets packages from."""
    ours = ("PIP_", "SSL_", "REQUESTS_")
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith(ours) or name.lower().endswith("_proxy")
    }


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside pytest's own: as root, another user needs access to it."""
    with tempfile.TemporaryDirectory(prefix="leasehold-image-") as root:
        Path(root).chmod(0o755)
        yield Path(root)


@pytest.mark.deadline(2400)
def test_containerfile_builds_and_entry_point_starts(folder: Path) -> None:
    builder = Builder(folder)
    image = builder.build(FILE.read_text(encoding="utf-8"))
    fetching = [each for each in " && ".join(builder.commands).split("&&") if "install" in each]
    assert all("--require-hashes" in each or "--no-index" in each for each in fetching), fetching
    assert all("--no-deps" in each for each in fetching), fetching  # only the listed packages
    # The environment was made in the first stage and copied; the image has nothing else of it.
    first = builder.stages[0].root
    assert sorted(each.name for each in image.root.iterdir()) == ["opt"]
    shutil.rmtree(first / "opt")
    (first / "opt").symlink_to(image.root / "opt")
    shutil.rmtree(first / "build")
    assert image.env["PATH"].startswith("/opt/leasehold/bin:")
    for path in (image.root / "opt").rglob("*"):
        assert path.is_symlink() or not path.stat().st_mode & stat.S_IWOTH, path
    program = image.root / "opt" / "leasehold" / "bin" / image.entry[0]
    told = _started(image, program, "install", "--dry-run", "--image", "x")
    wanted = documents(Settings(image="x"))
    assert list(yaml.safe_load_all(told)) == json.loads(json.dumps(wanted))
    assert "--questions HOST:PORT" in _started(image, program, "controller", "--help")
    for package in ("obstore", "duckdb"):  # archives in buckets, reports as Parquet
        python = program.with_name("python")
        _started(image, python, "-c", f"import {package}")


def _started(image: Stage, program: Path, *words: str) -> str:
    """Run a program of the image and return its output.

    If the test runs as root, the program runs as the image's user. It cannot write anything and
    does not know the checkout.
    """
    user, _, group = image.user.partition(":")
    [deployment] = [each for each in documents(Settings(image="x")) if each["kind"] == "Deployment"]
    pod = part(part(part(deployment, "spec"), "template"), "spec")
    asked = part(pod, "securityContext")["runAsUser"]
    assert int(user) == asked != 0
    other: dict[str, Any] = {"user": int(user), "group": int(group), "extra_groups": []}
    done = subprocess.run(
        [str(program), *words], cwd="/", env=dict(image.env), capture_output=True, text=True,
        timeout=60, check=False, **(other if os.geteuid() == 0 else {}),
    )  # fmt: skip
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout
