"""Objects for the suite of stores, and functions that read them."""

from leasehold.core.names import Wire
from leasehold.ports.store import Store, WatchEvent

OURS = "rq.davidlangworthy.io/v1"


def spec(n: int = 1, *, kind: str = "Run") -> Wire:
    """Return a spec of the kind that contains `n` and that a server with schemas accepts."""
    match kind:
        case "Run":
            resources = {"gpuType": "H100", "totalGPUs": 1}
            limit = {"maxDuration": f"{n}h"}  # a field that can be edited
            return {"owner": "org:team", "resources": resources, "runtime": limit}
        case "Budget":
            envelope = {"name": "e", "flavor": "H100", "concurrency": n}
            return {"owner": "org:team", "envelopes": [envelope]}
        case "Lease":
            return {"batch": n}
        case "Resolution":
            return {"deficitGPUs": n}
        case _:
            return {"n": n}


def thing(name: str = "a", *, kind: str = "Run", namespace: str = "team", **parts: object) -> Wire:
    metadata: Wire = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    head: Wire = {"apiVersion": OURS, "kind": kind, "metadata": metadata}
    return {**head, "spec": spec(kind=kind), **parts}


def pod(name: str = "p", *, node: str = "n1", **more: object) -> Wire:
    placed: Wire = {"nodeName": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"containers": [{"name": "main", "image": "none"}], **placed, **more},
    }


def meta(obj: Wire) -> Wire:
    found = obj["metadata"]
    assert isinstance(found, dict)
    return found


def version(obj: Wire) -> int:
    return int(str(meta(obj)["resourceVersion"]))


async def take(store: Store, kind: str, since: int, count: int) -> list[WatchEvent]:
    watch = store.watch(kind, since)
    events = [await watch.next() for _ in range(count)]
    watch.close()
    return events
