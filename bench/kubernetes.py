"""Measures pods bound per second on a real API server, compared with the most that this server
takes.

`make bench-kube` starts etcd, kube-apiserver and controllers on this machine, once for each size of
fleet, and writes `build/bench-kube.json` after each part. Nodes are objects without kubelets: only
the control plane is measured. The most that the server takes, the ceiling, is measured with the
same three writes per pod (Lease, pod, binding) of the same objects. The same client sends them, at
the same concurrency, but nothing is decided. The ceiling is measured once more with the smallest
objects that the server takes, to see what the other fields cost. kube-scheduler is measured on as
many plain pods. Then the smallest fleet loses its leader. The largest fleet is filled with leases
and with other schedulers' pods, to measure memory.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.apiserver.server import program
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.delaying import Delaying
from tests.kubernetes.plane import budget, free_port, job

from bench.kube_ceiling import GPUS, PODS, bare, ceiling, made_on, plain_pod
from leasehold.adapters.asyncio_runtime import AsyncioClock
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.core.facts import Node
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels, node_to_wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import Create, PatchStatus, StoreError, Update, Write

OUT = Path("build/bench-kube.json")
GANGS = (1, 2, 4, 8, 16, 32, 64)  # pods
ENDED = json.dumps({"status": {"phase": "Failed"}}).encode()
MERGE = {"Content-Type": "application/merge-patch+json"}
DEADLINE_S = 300
DEADLINE_S_PER_POD = 0.1
FAIL_OVERS = 3
FAR_ROUND_TRIP_S = 0.6
FAR_RUNS = 6  # the first of them is not measured
SMALL_GANG = 64  # pods of one GPU, when memory is measured
# What a controller's requests name, and requests of the API server itself hardly ever do.
_OURS = ("davidlangworthy", "coordination.k8s.io", 'resource="pods"', 'resource="nodes"')
RUNS = "/apis/rq.davidlangworthy.io/v1/namespaces/team/runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="500,2000", help="of fleets, in nodes")
    parser.add_argument("--latency-runs", type=int, default=30)
    parser.add_argument("--leases", type=int, default=20_000, help="that are open at once")
    parser.add_argument("--foreign", type=int, default=20_000, help="pods of other people")
    asked = parser.parse_args()
    sizes = sorted(int(each) for each in asked.sizes.split(","))
    figures: dict[str, object] = {"load_average_1m": os.getloadavg()[0]}
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
            bench = Bench(Path(folder), size)
            # One node each, and some for the standby that takes over.
            runs = min(asked.latency_runs, size - FAIL_OVERS) if size == sizes[0] else 0
            _tell(figures, bench.all(runs))
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        _tell(figures, Bench(Path(folder), FAR_RUNS).far())
    for name in ("ceiling_pods_per_s", "ceiling_ratio", "kube_scheduler_ratio"):
        figures[name] = figures[f"{name}_{sizes[-1]}"]
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-") as folder:
        per_node = -(-asked.leases // sizes[-1])
        bench = Bench(Path(folder), sizes[-1], gpus=max(GPUS, per_node))
        _tell(figures, bench.weight(asked.leases, asked.foreign))
    print(json.dumps(figures, indent=1))


def _tell(figures: dict[str, object], more: dict[str, object]) -> None:
    """Add `more` to the figures and write all of them, so that a run that is interrupted leaves a
    result."""
    figures |= more
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


@dataclass
class Replica:
    process: "subprocess.Popen[bytes]"
    port: int  # of its probes

    @property
    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Bench:
    def __init__(self, folder: Path, nodes: int, gpus: int = GPUS) -> None:
        """`gpus`: GPUs of one node."""
        self._folder = folder
        self._nodes = nodes
        self._gpus = gpus
        self._cluster = Cluster(folder / "cluster")
        self._cluster.install()
        self._replica: Replica | None = None  # the leader

    def all(self, latency_runs: int) -> dict[str, object]:
        """Measure the speed at this size of fleet. If `latency_runs` is not 0, measure an idle
        cluster too, with as many runs."""
        size = self._nodes
        found: dict[str, object] = {}
        try:
            asyncio.run(self._make_nodes())
            smallest = asyncio.run(ceiling(self._cluster, bare(self._nodes)))
            self._empty()
            scheduler = self._nodes / self._scheduler()
            self._empty()
            self._replica = self._controller("bench")
            self._make_budget()
            self._until(self._is_deciding)
            if latency_runs:
                found |= self._at_leisure(latency_runs)
                self._empty_runs()
            bound = self._gangs()
            memory = _resident_mib(self._replica.process.pid)
            made = made_on(self._cluster)
            assert len(made) == self._nodes, len(made)
            self._replica.kill()
            self._empty()
            most = asyncio.run(ceiling(self._cluster, made))
        finally:
            self._stop()
        speed: dict[str, object] = {
            "pods_bound_per_s": round(bound, 1),
            "ceiling_pods_per_s": round(most, 1),
            "ceiling_ratio": round(bound / most, 2),
            "bare_ceiling_pods_per_s": round(smallest, 1),
            "kube_scheduler_pods_per_s": round(scheduler, 1),
            "kube_scheduler_ratio": round(bound / scheduler, 2),
            "controller_mib_busy": round(memory),
        }
        return {**found, **{f"{name}_{size}": value for name, value in speed.items()}}

    def _at_leisure(self, latency_runs: int) -> dict[str, object]:
        latencies = self._latencies(latency_runs)
        idle = self._idle()
        losses = self._fail_overs(latency_runs)
        return {
            "start_latency_ms_p50": round(statistics.median(latencies)),
            "start_latency_ms_p99": round(max(latencies)),
            "idle_requests_per_s": round(idle, 2),
            "failover_s": round(statistics.median(losses), 1),
            "failover_worst_s": round(max(losses), 1),
        }

    def far(self) -> dict[str, object]:
        """Measure how long a start takes if the API server is far away, so that each round trip
        takes long."""
        way = Delaying(self._cluster, FAR_ROUND_TRIP_S)
        try:
            asyncio.run(self._make_nodes())
            self._replica = self._controller("bench", server=way.server)
            self._make_budget()
            self._until(self._is_deciding)
            latencies = self._latencies(self._nodes)
        finally:
            self._stop()
            way.stop()
        return {
            "far_round_trip_ms": round(1000 * FAR_ROUND_TRIP_S),
            "far_start_latency_ms_p50": round(statistics.median(latencies)),
        }

    def weight(self, leases: int, foreign: int) -> dict[str, object]:
        """Measure the controller's memory with this many open leases and other schedulers' pods."""
        try:
            asyncio.run(self._make_nodes())
            asyncio.run(self._make_foreign(foreign))
            self._replica = self._controller("bench")
            self._make_budget()
            self._until(self._is_deciding)
            before, began = self._cluster.weights(), time.perf_counter()
            asyncio.run(self._fill(leases))
            took = time.perf_counter() - began
            memory = _resident_mib(self._replica.process.pid)
            after = self._cluster.weights()
        finally:
            self._stop()
        return {
            f"controller_mib_{self._nodes}": round(memory),
            "open_leases": leases,
            "foreign_pods": foreign,
            "leases_filled_per_s": round(leases / took, 1),
            **{
                f"{name}_mib_per_1000_leases": round(
                    (after[name] - before[name]) * 1000 / leases, 1
                )
                for name in before
            },
        }

    async def _make_foreign(self, count: int) -> None:
        amount = {"cpu": "100m", "memory": "128Mi"}
        container: Wire = {"name": "main", "image": "none", "resources": {"requests": amount}}
        async with _store(self._cluster) as store:
            pods: list[Write] = []
            for number in range(count):
                spec: Wire = {
                    "nodeName": f"n{number % self._nodes:04d}", "containers": [container],
                }  # fmt: skip
                metadata: Wire = {"name": f"theirs-{number}", "namespace": "other"}
                pods.append(Create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                                    "spec": spec}))  # fmt: skip
            _sound(await store.write_all(pods))

    async def _fill(self, leases: int) -> None:
        """Submit gangs of one-GPU pods with `leases` pods in all, and wait until all pods are
        bound."""
        jobs: list[Wire] = []
        left = leases
        while left:
            pods = min(SMALL_GANG, left)
            made = job(f"gang-{len(jobs)}", pods, locality={"groupGPUs": pods})
            part(part(made, "spec"), "resources")["gpusPerPod"] = 1
            jobs.append(made)
            left -= pods
        async with _store(self._cluster) as store:
            _sound(await store.write_all([Create(each) for each in jobs]))
        self._until(lambda: self._are_bound(leases), pods=leases, pause_s=0.5)

    def _is_deciding(self) -> bool:
        return self._replica is not None and self._replica.is_ready

    def _stop(self) -> None:
        if self._replica is not None:
            self._replica.kill()
        self._cluster.stop()

    async def _make_nodes(self) -> None:
        async with _store(self._cluster) as store:
            made: list[Write] = []
            for number in range(self._nodes):
                node = Node(name=f"n{number:04d}", flavor="H100-80GB", region="r", cluster="c",
                            fabric=f"f{number // 512}", gpus=self._gpus, cpu_milli=64_000,
                            memory_bytes=1 << 40)  # fmt: skip
                wire = node_to_wire(node, labels=Labels())
                made += [Create(wire), PatchStatus("Node", "", node.name, part(wire, "status"))]
            answers = await store.write_all(made)
            _sound(answers)
            # The server taints new nodes, and there is no controller that would remove the taint.
            ready = [each for each in answers[1::2] if isinstance(each, dict)]
            _sound(await store.write_all([Update({**each, "spec": {}}) for each in ready]))

    def _scheduler(self) -> float:
        """Return the seconds that kube-scheduler takes for one plain pod per node, from the first
        creation of a pod to the last binding."""
        config = self._folder / "scheduler.yaml"
        connection = {"kubeconfig": str(self._cluster.kubeconfig()), "qps": 5000, "burst": 5000}
        kind = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }
        leader = {"leaderElect": False}
        text = json.dumps({**kind, "clientConnection": connection, "leaderElection": leader})
        config.write_text(text, encoding="utf-8")
        with (self._folder / "scheduler.log").open("w") as log:
            process = subprocess.Popen(
                [program("kube-scheduler"), f"--config={config}", "--secure-port=0"],
                stderr=log,
            )
        try:
            time.sleep(5)  # until it has listed the nodes

            async def make() -> None:
                async with _store(self._cluster) as store:
                    pods = [plain_pod(f"plain-{number}") for number in range(self._nodes)]
                    _sound(await store.write_all([Create(pod) for pod in pods]))

            began = time.perf_counter()
            asyncio.run(make())
            self._until(lambda: self._are_bound(self._nodes))
            return time.perf_counter() - began
        finally:
            process.kill()
            process.wait()

    def _controller(self, name: str, *, server: str = "") -> Replica:
        port = free_port()
        words = ["controller", "--name", name, "--probes", f"127.0.0.1:{port}"]
        with (self._folder / "controller.log").open("a") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "leasehold", *words, "--log-level", "warning",
                 "--kubeconfig", str(self._cluster.kubeconfig(server=server))],
                stderr=log,
            )  # fmt: skip
        return Replica(process, port)

    def _make_budget(self) -> None:
        made: Any = budget(gpus=self._nodes * self._gpus)
        self._cluster.client.ask(
            "POST", "/apis/rq.davidlangworthy.io/v1/namespaces/team/budgets", made
        )

    def _fail_overs(self, pods: int) -> list[float]:
        """Return, for each of several losses, the seconds from the death of the leader until its
        successor has bound a pod.

        `pods`: number of pods that exist already."""
        found = []
        for number in range(FAIL_OVERS):
            assert self._replica is not None
            standby = self._controller(f"standby-{number}")
            self._until(lambda standby=standby: standby.is_ready)  # type: ignore[misc]
            began = time.perf_counter()
            self._replica.kill()
            self._replica = standby
            self._cluster.client.ask("POST", RUNS, job(f"after-{number}", GPUS))
            self._until(partial(self._are_bound, pods + number + 1))
            found.append(time.perf_counter() - began)
        return found

    def _latencies(self, count: int) -> list[float]:
        """Return for each Run the milliseconds from the answer to its creation until its pod has a
        node."""
        found = []
        for number in range(count):
            name = f"one-{number}"
            self._cluster.client.ask("POST", RUNS, job(name, GPUS))
            began = time.perf_counter()
            wanted = number + 1
            self._until(partial(self._are_bound, wanted), pause_s=0.002)
            if number:  # the first Run may have waited until the controller was ready
                found.append(1000 * (time.perf_counter() - began))
            self._until(partial(self._is_told, name))  # so that nothing is in progress at the next
        return found

    def _is_told(self, name: str) -> bool:
        status = self._cluster.client.ask("GET", f"{RUNS}/{name}").json.get("status", {})
        return "phase" in status

    def _gangs(self) -> float:
        """Return the pods bound per second, from the creation of the first Run to the last binding.

        The last tenth of the pods are Runs of one pod. They fill what is left of domains in which
        no gang fits any more."""
        jobs, left, size = [], self._nodes, 0
        while left:
            pods = GANGS[size % len(GANGS)]
            if left - pods < self._nodes // 10:
                pods = 1
            jobs.append(job(f"gang-{size}", GPUS * pods, locality={"groupGPUs": GPUS * pods}))
            left, size = left - pods, size + 1

        async def submit() -> None:
            async with _store(self._cluster) as store:
                _sound(await store.write_all([Create(each) for each in jobs]))

        began = time.perf_counter()
        asyncio.run(submit())
        self._until(lambda: self._are_bound(self._nodes), pods=self._nodes)
        return self._nodes / (time.perf_counter() - began)

    def _idle(self) -> float:
        """Return how many requests per second the idle controller sends, counted by the API
        server."""
        before, began = self._requests(), time.perf_counter()
        time.sleep(20)
        return (self._requests() - before) / (time.perf_counter() - began)

    def _requests(self) -> float:
        text = self._cluster.client.ask("GET", "/metrics").body.decode()
        return sum(
            float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("apiserver_request_total")
            and any(each in line for each in _OURS)
            and 'verb="WATCH"' not in line
        )

    def _are_bound(self, wanted: int) -> bool:
        """Return whether at least `wanted` pods exist and all pods have a node."""
        ask = self._cluster.client.ask
        found: Any = ask("GET", f"{PODS}?limit=1").json
        there = len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))
        if there < wanted:
            return False
        unbound: Any = ask("GET", f"{PODS}?fieldSelector=spec.nodeName%3D&limit=1").json
        return not unbound["items"]

    def _empty_runs(self) -> None:
        for run in self._cluster.client.ask("GET", RUNS).json["items"]:
            self._cluster.client.ask("DELETE", f"{RUNS}/{run['metadata']['name']}")

        def is_empty() -> bool:
            for pod in self._cluster.client.ask("GET", PODS).json["items"]:
                # There are no kubelets that report the end of a pod, so this does it for them.
                if "deletionTimestamp" in pod["metadata"]:
                    path = f"{PODS}/{pod['metadata']['name']}"
                    self._cluster.client.ask("PATCH", f"{path}/status", ENDED, headers=MERGE)
                    self._cluster.client.ask("DELETE", path, {"gracePeriodSeconds": 0})
            return not self._cluster.client.ask("GET", RUNS).json["items"]

        self._until(is_empty)

    def _empty(self) -> None:
        self._cluster.wipe(but=("Node",))

    def _until(self, holds: Callable[[], bool], *, pods: int = 0, pause_s: float = 0.02) -> None:
        due = time.monotonic() + DEADLINE_S + DEADLINE_S_PER_POD * pods
        while not holds():
            log = self._folder / "controller.log"
            said = log.read_text(encoding="utf-8")[-3000:] if log.exists() else ""
            assert time.monotonic() < due, f"it takes too long\n{said}"
            time.sleep(pause_s)


class _store:  # noqa: N801 - it reads as one
    def __init__(self, cluster: Cluster) -> None:
        self._client = Client(cluster.context)

    async def __aenter__(self) -> KubernetesStore:
        return KubernetesStore(self._client, AsyncioClock())

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


def _sound(answers: list[Any]) -> None:
    for each in answers:
        if isinstance(each, StoreError):
            raise each


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
