"""Shared by the tests of stores in files: small objects, and access to their connections."""

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from leasehold.core.names import Wire


def thing(name: str = "a", *, text: str = "") -> Wire:
    metadata: Wire = {"name": name, "namespace": "team"}
    return {"apiVersion": "v1", "kind": "Run", "metadata": metadata, "spec": {"text": text}}


def version(obj: Wire) -> int:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return int(metadata["resourceVersion"])


def name_of(obj: Wire) -> str:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["name"])


@contextmanager
def hooked() -> Iterator[list[apsw.Connection]]:
    """Yield the connections made meanwhile, so that a test can make them fail like a disk."""
    connections: list[apsw.Connection] = []
    hook = connections.append
    apsw.connection_hooks.append(hook)
    try:
        yield connections
    finally:
        apsw.connection_hooks.remove(hook)
