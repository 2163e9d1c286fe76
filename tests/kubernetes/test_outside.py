"""The guide to a controller outside the cluster, followed step by step on an empty API server
without an image."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.server import ROOT, program
from tests.docs.reader import Reader
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import free_port

GUIDE = ROOT / "docs" / "operator-guide" / "outside.md"
DEADLINE_S = 60
_MACHINE, _LISTENS = "controller.example.com:8443", "0.0.0.0:8443"


class Administrator(Reader):
    """A reader with an administrator's kubeconfig; all commands run on this one machine."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        super().__init__(folder, Path(program("kubectl")))
        (folder / ".kube").mkdir()
        shutil.copy(cluster.kubeconfig(), folder / ".kube" / "config")
        del self._env["KUBECONFIG"], self._env["LEASEHOLD_DATA"]
        self._port, self._probes = free_port(), free_port()
        self._log = folder / "controller.log"
        self.controller: subprocess.Popen[bytes] | None = None

    def _done(self, command: str) -> tuple[int, list[str]]:
        command = command.replace(_MACHINE, f"localhost:{self._port}")
        command = command.replace(_LISTENS, f"127.0.0.1:{self._port}")
        if command.startswith("leasehold controller "):
            with self._log.open("wb") as log:
                self.controller = subprocess.Popen(
                    ["bash", "-c", f"exec {command} --probes 127.0.0.1:{self._probes}"],
                    cwd=self._here, env=self._env, stdout=log, stderr=log,
                )  # fmt: skip
            return 0, ["it goes on"]
        if command == "systemctl stop leasehold-controller":
            return self.stop(), []
        return super()._done(command)

    def stop(self) -> int:
        if self.controller is None:
            return 0
        if self.controller.poll() is None:
            self.controller.terminate()
        return self.controller.wait(DEADLINE_S)


@pytest.fixture
def reader(tmp_path: Path, own_cluster: Cluster) -> Iterator[Administrator]:
    found = Administrator(tmp_path, own_cluster)
    yield found
    found.stop()


@pytest.mark.deadline(600)
def test_guide_to_controller_outside_cluster_works_as_written(reader: Administrator) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    reader.read(text)
    assert reader.ran == text.count("\n$ ") > 5
    assert reader.controller is not None
    log = (reader._folder / "controller.log").read_text(encoding="utf-8")
    assert "the API server does not allow this" not in log  # its rights are enough
    kubeconfig = reader._here / "controller.kubeconfig"
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    assert re.search(r"token: ey", kubeconfig.read_text(encoding="utf-8"))


@pytest.mark.parametrize("place", ["10.0.0.1:8443", "host", "host:0", "host:99999", "Ho_st:1"])
def test_install_refuses_query_address_without_dns_name_and_valid_port(place: str) -> None:
    words = ["install", "--dry-run", "--questions-at", place]
    done = subprocess.run(
        [sys.executable, "-m", "leasehold", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "use HOST:PORT with a DNS name" in done.stderr
