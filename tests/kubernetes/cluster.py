"""A real Kubernetes API server for one worker of a test session, emptied after each test.

Each worker has its own, because most of these tests list whole kinds.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.apiserver.client import Client
from tests.apiserver.server import STOP_S, USERS, program, restart, start, stop

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.places import place_of

NAMESPACES = ("team", "other", "a", "b", "leasehold-system")
_MADE = ("Node", "Pod", "Tenure", *(each.kind for each in RESOURCES if each.is_ours))


class Cluster:
    """An API server with namespaces. `client` can act as any user; `context` is an
    administrator's."""

    def __init__(self, folder: Path, *options: str, accounts: bool = False) -> None:
        """`options` are further options of the API server; for `accounts` see `start`."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._running = start(folder / "state", *options, accounts=accounts)
        self.port, self.ca = self._running.ports[-1], self._running.ca
        self.client = self.connect()
        for name in NAMESPACES:
            self.namespace(name)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def context(self, user: str = "system") -> KubeContext:
        return KubeContext(
            name="test",
            server=self.server,
            user=user,
            namespace="default",
            ca_data=self.ca.encode(),
            token=user,
        )

    def connect(self) -> Client:
        """Open another connection, for use in another thread."""
        return Client(self.port, self.ca, {name: name for name in USERS})

    def service_account(self, namespace: str, name: str) -> str:
        """Return a token of a service account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        made = self.client.ask("POST", path, request)
        assert made.status == 201, made.body
        return str(made.json["status"]["token"])

    def kubeconfig(self, user: str = "system", *, server: str = "", token: str = "") -> Path:
        """Write a kubeconfig for commands; `server` is another address of the API server."""
        path = self.folder / f"{user}{'-detour' if server else ''}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "users": [{"name": user, "user": {"token": token or user}}],
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": server or self.server,
                        "certificate-authority-data": base64.b64encode(self.ca.encode()).decode(),
                    },
                }
            ],
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def install(self) -> None:
        """Run `leasehold install`."""
        words = [sys.executable, "-m", "leasehold", "install", "--kubeconfig"]
        subprocess.run([*words, str(self.kubeconfig())], check=True, capture_output=True)

    def namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.client.ask("POST", "/api/v1/namespaces", body)

    def wipe(self, but: tuple[str, ...] = ()) -> None:
        """Delete all that a test has made; namespaces and definitions stay."""
        self._wipe_companions()
        for kind in _MADE:
            if kind in but:
                continue
            place = place_of(kind)
            for each in self.client.ask("GET", place.all()).json["items"]:
                metadata = each["metadata"]
                if metadata.get("namespace") == "kube-system":
                    continue
                path = place.one(metadata.get("namespace", ""), metadata["name"])
                self.client.ask("DELETE", path, {"gracePeriodSeconds": 0})
                if metadata.get("finalizers"):
                    patch = {"Content-Type": "application/merge-patch+json"}
                    body = json.dumps({"metadata": {"finalizers": None}}).encode()
                    self.client.ask("PATCH", path, body, headers=patch)

    def _wipe_companions(self) -> None:
        """Delete what a garbage collector would delete; this cluster has none."""
        for path in ("/api/v1/namespaces/team/services",
                     "/apis/policy/v1/namespaces/team/poddisruptionbudgets"):  # fmt: skip
            for each in self.client.ask("GET", path).json["items"]:
                self.client.ask("DELETE", f"{path}/{each['metadata']['name']}")

    def weights(self) -> dict[str, float]:
        """Return the API server's resident memory and the size of etcd's file, in MiB."""
        status = Path(f"/proc/{self._running.pids[-1]}/status").read_text(encoding="ascii")
        [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
        files = (self.folder / "state").rglob("snap/db")
        stored = sum(path.stat().st_size for path in files)
        return {"apiserver": int(resident) / 1024, "etcd": stored / (1 << 20)}

    def restart(self, name: str) -> None:
        """Kill `etcd` or `kube-apiserver` and start it again on the data that it has written."""
        self.client.close()
        restart(self._running, ("etcd", "kube-apiserver").index(name))
        self.client = self.connect()

    @contextmanager
    def managers(self, *controllers: str) -> Iterator[int]:
        """Run some of Kubernetes' own controllers in one process, and yield its id."""
        with (self.folder / "controller-manager.log").open("w") as log:
            process = subprocess.Popen(
                [
                    program("kube-controller-manager"),
                    f"--kubeconfig={self.kubeconfig()}",
                    f"--controllers={','.join(controllers)}",
                    "--leader-elect=false",
                    "--secure-port=0",
                ],
                stderr=log,
                stdout=log,
            )
        try:
            yield process.pid
        finally:
            process.kill()
            process.wait(STOP_S)

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Pause the API server: its connections stay open, but it does not answer."""
        os.kill(self._running.pids[-1], signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._running.pids[-1], signal.SIGCONT)

    def stop(self) -> None:
        """Kill the servers at once: no test uses them any more."""
        self.client.close()
        for pid in reversed(self._running.pids):
            os.kill(pid, signal.SIGKILL)
        stop(self._running)
