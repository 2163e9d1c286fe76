"""Fixtures: a facade for each worker, and one real API server for all workers."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.client import Client
from tests.apiserver.server import NAMESPACES, shared_server
from tests.rest.facade import SYSTEM, Facade

from leasehold.core.objects.access import Caller, CallerRole

CALLERS = {
    "system": SYSTEM,
    "ann": Caller(user="ann", namespaces=("vision",), spend=("*",), fund=("*",)),
    "vic": Caller(user="vic", role=CallerRole.VIEWER, namespaces=("vision",)),
}


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Client]:
    folder = tmp_path_factory.getbasetemp()
    shared = folder if worker_id == "master" else folder.parent
    with shared_server(shared / "apiserver") as client:
        yield client


@pytest.fixture(scope="session")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Facade(Path(tmp_path_factory.mktemp("facade"))) as facade:
        tokens = {name: facade.token(caller) for name, caller in CALLERS.items()}
        client = Client(facade.port, facade.certificates.ca_pem.decode(), tokens)
        for name in ("default", *NAMESPACES):
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            client.ask("POST", "/api/v1/namespaces", namespace)
        yield client
        client.close()
