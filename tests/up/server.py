"""A real `leasehold up` in a separate process, and a person who uses it on the command line."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BIN = Path(sys.executable).parent
PATIENCE_S = 60.0
QUICK = """
activationLead: 2s
reservation.patience: 2s
resolver.minTenure: 0s
resize.interval: 0s
retry.backoff: 200ms
bind.backoff: 200ms
"""


class Up:
    """A server; `start` starts it, and `end` ends it with all its jobs after any test."""

    def __init__(self, folder: Path, *arguments: str, config: str = QUICK) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.work = folder / "work"
        self._arguments = arguments
        self._config = folder / "config.yaml"
        self._config.write_text(config)
        self._process: subprocess.Popen[str] | None = None
        self._before: tuple[str, ...] = ()
        self.said: list[str] = []

    @property
    def process(self) -> "subprocess.Popen[str]":
        assert self._process is not None
        return self._process

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    def as_user(self, uid: int) -> "Up":
        """Run as a user who may enter all folders, because Python may be in root's home folder."""
        os.chown(self.folder, uid, uid)
        may = "+dac_read_search"
        self._before = (
            "setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups",
            "--inh-caps", may, "--ambient-caps", may, "--",
        )  # fmt: skip
        return self

    def command(self, *more: str) -> list[str]:
        return [
            *self._before,
            str(BIN / "leasehold"), "up", "--data", str(self.data), "--config", str(self._config),
            "--work", str(self.work), "--port", "0", *self._arguments, *more,
        ]  # fmt: skip

    def start(self, *more: str, env: dict[str, str] | None = None) -> "Up":
        """Start the server and return when it prints that it is up."""
        with (self.folder / "up.log").open("a") as log:
            self._process = subprocess.Popen(
                self.command(*more),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **(env or {})},
            )
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            self.said.append(line.rstrip())
            if line.startswith("leasehold is up"):
                return self
        self._process.stdout.close()
        raise AssertionError(f"it did not start: {(self.folder / 'up.log').read_text()[-2000:]}")

    def kill(self) -> None:
        self.process.kill()
        self._gone()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def end(self) -> None:
        """End the server with all its jobs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        if self.data.exists():
            end_jobs(self.data)

    def _gone(self) -> int:
        code = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.said += [line.rstrip() for line in self.process.stdout]
            self.process.stdout.close()
        return code

    # The actions of a person.

    def runs(self, *arguments: str, ok: bool = True) -> "subprocess.CompletedProcess[str]":
        return self.cli("kubectl-runs", *arguments, ok=ok)

    def cli(
        self, program: str, *arguments: str, ok: bool = True
    ) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [str(BIN / program), *arguments],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert not ok or done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done

    def ask(self, *arguments: str) -> dict[str, object]:
        found = json.loads(self.runs(*arguments, "-o", "json").stdout)
        assert isinstance(found, dict)
        return found

    def submit(self, *manifests: dict[str, object]) -> None:
        path = self.folder / "manifests.yaml"
        path.write_text("\n---\n".join(json.dumps(each) for each in manifests))
        self.runs("submit", "-f", str(path))

    def rows(self, *arguments: str) -> list[dict[str, object]]:
        items = self.ask(*arguments)["items"]
        assert isinstance(items, list)
        return items

    def run(self, name: str, namespace: str = "team") -> dict[str, object]:
        found = [row for row in self.rows("list", "-n", namespace) if row["name"] == name]
        return found[0] if found else {}

    def wait(self, what: str, holds: Callable[[], bool], *, for_s: float = PATIENCE_S) -> None:
        deadline = time.monotonic() + for_s
        while not holds():
            assert time.monotonic() < deadline, f"waited for {what}: {self.rows('list', '-A')}"
            time.sleep(0.05)

    def wait_phase(self, name: str, *phases: str) -> dict[str, object]:
        self.wait(f"{name} to be {phases}", lambda: self.run(name).get("phase") in phases)
        return self.run(name)


def end_jobs(data: Path) -> None:
    """Kill every process that still has the mark of a pod of this data folder."""
    for pid in marked(data):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def marked(data: Path) -> list[int]:
    pods = {path.name for path in (data / "agent" / "pods").glob("*")}
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environ = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in environ:
            name, _, value = variable.decode(errors="replace").partition("=")
            if name == "LEASEHOLD_POD_UID" and value in pods:
                found.append(int(entry.name))
    return found


OWNER = "org:team"


def team(*, concurrency: int = 64, flavor: str = "virtual") -> Sequence[dict[str, object]]:
    """Return the namespace `team` and a Budget in it."""
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {
            "apiVersion": "rq.davidlangworthy.io/v1",
            "kind": "Budget",
            "metadata": {"name": "team", "namespace": "team"},
            "spec": {
                "owner": OWNER,
                "envelopes": [{"name": "e", "flavor": flavor, "concurrency": concurrency}],
            },
        },
    )


def job(
    name: str,
    script: str,
    *,
    gpus: int = 1,
    pods: int = 1,
    container: dict[str, object] | None = None,
    **spec: object,
) -> dict[str, object]:
    """Return a Run that runs a shell script in `pods` pods of `gpus` GPUs each."""
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "owner": OWNER,
            "resources": {
                "gpuType": "virtual", "totalGPUs": gpus * pods, "gpusPerPod": gpus,
            },
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "none",
                            "command": ["sh", "-c", script],
                            **(container or {}),
                        }
                    ]
                }
            },
            **spec,
        },
    }  # fmt: skip
