"""Objects for the stores' suite, and what it looks at in them."""

from leasehold.ports.store import Store, WatchEvent, Wire

OURS = "rq.davidlangworthy.io/v1"


def thing(name: str = "a", *, kind: str = "Run", namespace: str = "team", **parts: object) -> Wire:
    metadata: Wire = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": {"n": 1}, **parts}


def pod(name: str = "p", *, node: str = "n1") -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": node} if node else {},
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
