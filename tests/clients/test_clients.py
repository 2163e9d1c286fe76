"""Third-party clients list, watch, create, patch and delete every kind.

`pytest -s` prints the table of each client.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.python_asyncio import KubernetesAsyncio
from tests.clients.python_kr8s import Kr8s
from tests.clients.python_kubernetes import Kubernetes
from tests.clients.python_lightkube import Lightkube
from tests.clients.rows import NAMESPACE, Client, expected, manifest, played, shown
from tests.up.server import Up

from leasehold.adapters.api.resources import RESOURCES

DEADLINE_S = 120
CLIENTS: dict[str, Callable[[Path], Client]] = {
    "kubernetes": Kubernetes,
    "kubernetes-asyncio": KubernetesAsyncio,
    "kr8s": Kr8s,
    "lightkube": Lightkube,
}


@pytest.mark.filterwarnings(
    # Resources that these libraries leave open, and their warnings about our version.
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:Kubernetes version:UserWarning",
    "ignore::DeprecationWarning",
)
@pytest.mark.parametrize("name", CLIENTS)
def test_python_client_gets_expected_result_for_every_kind_and_verb(
    name: str, server: Up, existing: dict[str, str]
) -> None:
    client = CLIENTS[name](server.kubeconfig)

    table = played(client, name, existing)

    print(f"\n{shown(name, table)}")
    assert table == {each.kind: expected(each) for each in RESOURCES}


def test_go_informer_gets_expected_result_for_every_kind_and_verb(
    go_client: Path, server: Up, existing: dict[str, str]
) -> None:
    rows = [
        {
            "kind": each.kind,
            "group": each.group,
            "version": each.version,
            "plural": each.plural,
            "namespaced": each.is_namespaced,
            "object": manifest(each, f"go-{each.kind.lower()}"),
            "existing": existing.get(each.kind, ""),
            "victim": existing.get(f"{each.kind} to go", ""),
        }
        for each in RESOURCES
    ]
    task = {"kubeconfig": str(server.kubeconfig), "namespace": NAMESPACE, "rows": rows}

    done = subprocess.run(
        [str(go_client)],
        input=json.dumps(task),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    table = json.loads(done.stdout)
    print(f"\n{shown('go informer', {each.kind: table[each.kind] for each in RESOURCES})}")
    assert table == {each.kind: expected(each) for each in RESOURCES}
