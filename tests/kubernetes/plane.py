"""A cluster with leasehold installed: simulated nodes, and controllers as real processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

from tests.apiserver.server import program
from tests.kubectl.command import Kubectl
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.kubelets import Kubelets

API = "rq.davidlangworthy.io/v1"
RUNS = f"/apis/{API}/namespaces/team/runs"
QUERY_SERVICES = "/api/v1/namespaces/leasehold-system/services"
QUERY_API = "/apis/apiregistration.k8s.io/v1/apiservices/v1.query.rq.davidlangworthy.io"
DEADLINE_S = 120  # on a machine with other things to do


class Plane:
    patience_s = DEADLINE_S  # the longest that `until` waits

    def __init__(self, cluster: Cluster, folder: Path, settings: str = "") -> None:
        self.cluster = cluster
        self._folder = folder
        self._controllers: list[Controller] = []
        (folder / "config.yaml").write_text(settings, encoding="utf-8")
        self.kubectl = Kubectl(Path(program("kubectl")), cluster.kubeconfig(), folder)

    @cached_property
    def kubelets(self) -> Kubelets:
        """Simulated kubelets, started at first use; tests add nodes to them."""
        return Kubelets(self.cluster)

    def controller(self, name: str = "a", *more: str, server: str = "") -> "Controller":
        """Start a controller with exactly the rights that an installation gives it.

        `more` are further options of the command; `server` is another address of the API server.
        """
        token = self.cluster.service_account("leasehold-system", "leasehold-controller")
        kubeconfig = self.cluster.kubeconfig("leasehold-controller", server=server, token=token)
        made = Controller(kubeconfig, self._folder, name, more)
        self._controllers.append(made)
        return made

    def answering(self, name: str = "a", *more: str) -> "Controller":
        """Start a controller that answers queries through the API server, as `kubectl runs` sends.

        The Service leads to this machine. A test that then uses the cluster for something else
        must call `stop_answering`.
        """
        port, ask = free_port(), self.cluster.client.ask
        ask("DELETE", f"{QUERY_SERVICES}/leasehold-query")
        made = ask("POST", QUERY_SERVICES, {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "leasehold-query"},
            "spec": {"type": "ExternalName", "externalName": "localhost",
                     "ports": [{"name": "here", "port": port}]},
        })  # fmt: skip
        assert made.status == 201, made.body
        controller = self.controller(name, "--questions", f"127.0.0.1:{port}", *more)
        self.until(self._is_answering)
        return controller

    def stop_answering(self) -> None:
        self.cluster.client.ask("DELETE", QUERY_API)
        self.cluster.client.ask("DELETE", f"{QUERY_SERVICES}/leasehold-query")

    def _is_answering(self) -> bool:
        answer = self.cluster.client.ask("GET", QUERY_API)
        found = answer.json.get("status", {}).get("conditions", []) if answer.status == 200 else []
        return any(each["type"] == "Available" and each["status"] == "True" for each in found)

    def leasehold(self, *words: str, user: str = "system") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "leasehold", *words],
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig(user))},
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    def get(self, path: str) -> Any:
        return self.cluster.client.ask("GET", path).json

    def all(self, plural: str) -> list[Any]:
        found: list[Any] = self.get(f"/apis/{API}/{plural}")["items"]
        return found

    def pods(self, namespace: str = "team") -> list[Any]:
        found: list[Any] = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def run(self, name: str) -> Any:
        return self.get(f"{RUNS}/{name}")

    def until_phase(self, name: str, phase: str) -> Any:
        self.until(lambda: self.run(name).get("status", {}).get("phase") == phase)
        return self.run(name)

    def until(self, holds: Callable[[], bool]) -> None:
        due = time.monotonic() + self.patience_s
        while not holds():
            assert time.monotonic() < due, self.story()
            time.sleep(0.05)

    def story(self) -> object:
        """Return the end of each controller's log; it is shown when a wait fails."""
        return [each.log()[-4000:] for each in self._controllers]

    def exit_all(self, uid: str, code: int = 0) -> None:
        """Let every pod of a run exit with `code`."""
        for pod in self.pods():
            labels = pod["metadata"]["labels"]
            if labels.get("rq.davidlangworthy.io/run-uid") == uid:
                place = [int(labels[f"rq.davidlangworthy.io/{each}"])
                         for each in ("group-index", "pod-index")]  # fmt: skip
                rank = (uid, place[0], place[1])
                self.kubelets.to_machines(methodcaller("exit_pod", rank, code))

    def stop_controllers(self) -> None:
        for each in self._controllers:
            each.stop()

    def kill_controllers(self) -> None:
        for each in self._controllers:
            each.process.kill()
            each.process.wait()

    def stop(self) -> None:
        self.stop_controllers()
        if "kubelets" in vars(self):
            self.kubelets.stop()


class Controller:
    def __init__(self, kubeconfig: Path, folder: Path, name: str, more: Sequence[str]) -> None:
        self._log = folder / f"controller-{name}.log"
        self.port = free_port()
        with self._log.open("w") as out:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "leasehold", "controller", "--name", name,
                    "--kubeconfig", str(kubeconfig), "--config", str(folder / "config.yaml"),
                    "--probes", f"127.0.0.1:{self.port}", *more,
                ],
                stderr=out,
                stdout=out,
            )  # fmt: skip

    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(DEADLINE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def budget(owner: str = "org:team", namespace: str = "team", gpus: int = 64) -> dict[str, object]:
    envelope = {"name": "west", "flavor": "H100-80GB", "concurrency": gpus}
    return {
        "apiVersion": API,
        "kind": "Budget",
        "metadata": {"name": "money", "namespace": namespace},
        "spec": {"owner": owner, "envelopes": [envelope]},
    }


def job(name: str, gpus: int, **spec: object) -> dict[str, object]:
    container = {"name": "main", "image": "none", "command": ["train"]}
    return {
        "apiVersion": API,
        "kind": "Run",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "owner": "org:team",
            "resources": {"gpuType": "H100-80GB", "totalGPUs": gpus, "gpusPerPod": min(8, gpus)},
            "template": {"spec": {"containers": [container]}},
            **spec,
        },
    }


@contextmanager
def plane_on(cluster: Cluster, folder: Path, settings: str = "") -> Iterator[Plane]:
    plane = Plane(cluster, folder, settings)
    try:
        yield plane
    finally:
        plane.stop()
        cluster.wipe()
