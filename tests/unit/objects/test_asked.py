"""The resources that a pod requests from its node, as Kubernetes counts them."""

import json

import pytest

from leasehold.core.objects.quantity import CPU, MEMORY, asked, milli, units

# CPUs of containers, of init containers (a + marks a sidecar), overhead, of the pod itself.
TABLE = """
# containers  initialisers  overhead  of the pod  CPU in thousandths
1             -             -         -           1000
1,2           -             -         -           3000
1             4             -         -           4000
3             2             -         -           3000
1             2+            -         -           3000
1             2+,2          -         -           4000
1             2,1+          -         -           2000
1             1+,1+,5       -         -           7000
1             -             500m      -           1500
1             4             500m      -           4500
1,2           -             -         2           2000
1             -             500m      2           2500
"""


def _container(cpu: str, **more: str) -> dict[str, object]:
    return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **more}


@pytest.mark.parametrize("row", [each for each in TABLE.splitlines() if each and each[0] != "#"])
def test_pod_cpu_request_is_counted_as_kubernetes_counts_it(row: str) -> None:
    containers, before, overhead, whole, wanted = row.split()
    spec: dict[str, object] = {"containers": [_container(each) for each in containers.split(",")]}
    if before != "-":
        spec["initContainers"] = [
            _container(each.rstrip("+"), **({"restartPolicy": "Always"} if "+" in each else {}))
            for each in before.split(",")
        ]
    if overhead != "-":
        spec["overhead"] = {"cpu": overhead}
    if whole != "-":
        spec["resources"] = {"requests": {"cpu": whole}}
    assert asked(json.loads(json.dumps(spec)), (CPU, milli), (MEMORY, units)) == [int(wanted), 0]
