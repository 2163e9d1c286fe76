"""A cluster with real kubelets and with leasehold installed."""

import subprocess
from pathlib import Path
from typing import Any

from tests.apiserver.client import Client
from tests.apiserver.server import USERS, program
from tests.kubelets.image import JOB, write_image
from tests.kubelets.machine import NAMES_AT, Machine
from tests.kubelets.names import Names
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import Plane, free_port, job

GPUS = 4  # of each machine
SHARED = "/run/leasehold/shared"  # stands for the fleet's shared file system
CONTROLLERS = (
    "node-lifecycle-controller", "garbage-collector-controller", "endpointslice-controller",
    "disruption-controller", "pod-garbage-collector-controller", "namespace-controller",
)  # fmt: skip


class Site(Plane):
    """Kubelets, Kubernetes' controllers for nodes and pods, a DNS server, and one controller of
    leasehold."""

    patience_s = 180

    def __init__(self, folder: Path, *names: str, settings: str = "") -> None:
        super().__init__(
            Cluster(
                folder / "cluster",
                "--kubelet-preferred-address-types=InternalIP",
                f"--advertise-address={NAMES_AT}",
            ),
            folder,
            settings,
        )
        self.cluster.install()
        self._logs = Path("build/kubelets").resolve()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._image = folder / "image.tar"
        write_image(self._image)
        self._manager = self._start_manager()
        self._asker = Client(self.cluster.port, self.cluster.ca, {name: name for name in USERS})
        self.names = Names(NAMES_AT, lambda path: self._asker.ask("GET", path).json)
        self.machines = {
            name: Machine(name, number, gpus=GPUS, logs=self._logs)
            for number, name in enumerate(names, start=1)
        }
        for name in names:
            self.power_on(name)
        for name in names:
            self.until(lambda name=name: self.is_ready(name))
        self.decider = self.answering()

    def is_ready(self, name: str) -> bool:
        """Return whether the node is Ready and reports its GPUs."""
        nodes = {each["metadata"]["name"]: each for each in self.get("/api/v1/nodes")["items"]}
        status = nodes[name]["status"] if name in nodes else {}
        said = [each["status"] for each in status.get("conditions", []) if each["type"] == "Ready"]
        gpus = status.get("allocatable", {}).get("nvidia.com/gpu", "0")
        return said == ["True"] and gpus == str(GPUS)

    def power_on(self, name: str) -> None:
        self.machines[name].start(self.cluster.kubeconfig(), self._image)

    def runs(self, *words: str) -> str:
        return self.kubectl.ok("runs", *words)

    def pods_of(self, run: str) -> list[Any]:
        """Return the pods of a run by rank, including those that are being deleted."""
        mine = [pod for pod in self.pods()
                if pod["metadata"]["labels"].get("rq.davidlangworthy.io/run") == run]  # fmt: skip
        return sorted(mine, key=lambda pod: str(pod["metadata"]["name"]))

    def leases_of(self, run: str) -> list[Any]:
        return [each for each in self.all("leases") if each["spec"]["runRef"]["name"] == run]

    def closings(self, run: str) -> list[str]:
        """Return the closure reasons of the run's closed leases, sorted."""
        states = [each.get("status", {}) for each in self.leases_of(run)]
        return sorted(each["closureReason"] for each in states if each.get("closed"))

    def story(self) -> object:
        """Return also the log of each container and the DNS names that were asked for."""
        said = [self.kubectl("logs", "-n", "team", pod["metadata"]["name"]) for pod in self.pods()]
        states = self.kubectl("get", "pods,nodes", "-A", "-o", "wide").out
        return "\n".join([str(super().story()), states, *map(str, said), *self.names.asked[-20:]])

    def check_consistency(self) -> None:
        for words, said in ((("ledger", "verify"), "ledger verify: ok"), (("audit",), "audit: ok")):
            found = self.leasehold(*words, "--kubeconfig", str(self.cluster.kubeconfig()))
            assert found.stdout.startswith(said), found.stdout + found.stderr

    def close(self) -> None:
        self.stop()
        for machine in self.machines.values():
            machine.lose_power()
        self.names.stop()
        self._asker.close()
        self._manager.kill()
        self._manager.wait()
        self.cluster.stop()

    def _start_manager(self) -> "subprocess.Popen[bytes]":
        with (self._logs / "controller-manager.log").open("wb") as log:
            return subprocess.Popen(
                [
                    program("kube-controller-manager"),
                    f"--kubeconfig={self.cluster.kubeconfig()}",
                    f"--controllers={','.join(CONTROLLERS)}",
                    "--leader-elect=false",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={free_port()}",
                    "--node-monitor-period=1s",
                    "--node-monitor-grace-period=10s",
                ],
                stdout=log,
                stderr=log,
            )


def shell_job(
    name: str, gpus: int, script: str, *, image: str = JOB, before: str = "", **spec: object
) -> dict[str, object]:
    """Return a Run whose pods run a shell script, with the shared file system at /shared.

    `before` is the script of an init container, if there should be one.
    """
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    volume = {"name": "shared", "hostPath": {"path": SHARED, "type": "DirectoryOrCreate"}}
    pod: dict[str, object] = {"containers": [container], "volumes": [volume]}
    if before:
        command = ["sh", "-c", before]
        pod["initContainers"] = [{**container, "name": "before", "command": command}]
    template = {"spec": pod}
    made = job(name, gpus, template=template, **spec)
    resources = {"gpuType": "H100-80GB", "totalGPUs": gpus, "gpusPerPod": min(GPUS, gpus)}
    made["spec"]["resources"] = resources  # type: ignore[index]
    return made


def foreign_pod(name: str, node: str, gpus: int) -> dict[str, object]:
    """Return a pod that another scheduler has placed on a node."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {
        "name": "main", "image": JOB, "imagePullPolicy": "IfNotPresent", "resources": resources,
        "command": ["/bin/sh", "-c", "sleep 1000000"],
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "other"},
        "spec": {"nodeName": node, "containers": [container], "restartPolicy": "Never"},
    }
