"""Measures the most pods per second that an API server can take, without any decisions.

Each pod costs three writes: its Lease, the pod, and its binding. Used by `bench.kubernetes`, once
with the smallest objects, and once with copies of the objects that a controller has made on that
server before.
"""

import asyncio
import json
import time
from dataclasses import dataclass

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import API

from leasehold.adapters.asyncio_runtime import AsyncioClock
from leasehold.adapters.kubernetes.client import IN_FLIGHT, Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.wire import list_at, part, text_at, version_at

GPUS = 8  # of each node, and of each pod
PODS = "/api/v1/namespaces/team/pods"
# What the server adds to a pod and its containers.
DEFAULTED = (
    "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "dnsPolicy",
    "securityContext", "priority", "enableServiceLinks", "preemptionPolicy",
)  # fmt: skip


@dataclass(frozen=True)
class Made:
    """One pod to write: its leases, the pod, and the node to which it is bound."""

    leases: list[Wire]
    pod: Wire
    node: str


def bare(nodes: int) -> list[Made]:
    """Return one pod with one lease for each node, with no fields except required ones."""
    spec: Wire = {
        "owner": "org:team", "compPath": ["SHARD[0]", "POD[0]"], "batch": 1,
        "slice": {"nodes": ["n"], "node": "n", "slots": list(range(GPUS))},
    }  # fmt: skip
    return [
        Made([{"apiVersion": API, "kind": "Lease", "metadata": {"name": f"raw-{number}"},
               "spec": spec}], plain_pod(f"raw-{number}"), f"n{number:04d}")
        for number in range(nodes)
    ]  # fmt: skip


def made_on(cluster: Cluster) -> list[Made]:
    """Return every pod on the cluster with its leases, as the controller wrote them."""
    leases: dict[str, list[Wire]] = {}
    for each in _all(cluster, f"/apis/{API}/leases"):
        labels = part(part(each, "metadata"), "labels")
        lease = _as_written({**each, "apiVersion": API, "kind": "Lease"})
        leases.setdefault(text_at(labels, f"{GROUP}/pod"), []).append(lease)
    found = []
    for pod in _all(cluster, PODS):
        spec = part(pod, "spec")
        node = str(spec.pop("nodeName"))
        for dressed in (spec, *list_at(spec, "containers")):
            assert isinstance(dressed, dict), dressed
            for field in DEFAULTED:
                dressed.pop(field, None)
        written = _as_written({**pod, "apiVersion": "v1", "kind": "Pod"})
        found.append(Made(leases[text_at(part(pod, "metadata"), "name")], written, node))
    return found


async def ceiling(cluster: Cluster, made: list[Made]) -> float:
    """Write the leases of each pod, then the pod, then its binding; return how many pods were bound
    per second. Different pods are written in parallel."""
    client = Client(cluster.context)
    store, gate = KubernetesStore(client, AsyncioClock()), asyncio.Semaphore(IN_FLIGHT)

    async def one(each: Made) -> None:
        async with gate:
            for lease in each.leases:
                await client.write("POST", f"/apis/{API}/leases", lease)
            metadata = part(json.loads(await client.write("POST", PODS, each.pod)), "metadata")
            uid, version = text_at(metadata, "uid"), version_at(metadata)
            name = text_at(metadata, "name")
            await store.bind("team", name, each.node, uid=uid, version=version)

    began = time.perf_counter()
    try:
        await asyncio.gather(*map(one, made))
        return len(made) / (time.perf_counter() - began)
    finally:
        await client.close()


def _all(cluster: Cluster, path: str) -> list[Wire]:
    found: list[Wire] = cluster.client.ask("GET", path).json["items"]
    return found


def plain_pod(name: str) -> Wire:
    amount = {"nvidia.com/gpu": str(GPUS)}
    container: Wire = {
        "name": "main", "image": "none", "resources": {"limits": amount, "requests": amount},
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [container]},
    }


def _as_written(obj: Wire) -> Wire:
    """Return the object without the fields that the server adds."""
    kept = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
    metadata = {name: value for name, value in part(obj, "metadata").items() if name in kept}
    return {name: value for name, value in obj.items() if name != "status"} | {"metadata": metadata}
