"""The informer keeps only those fields of foreign pods and of nodes that leasehold reads."""

import json
from typing import Any

from leasehold.adapters.kubernetes.projection import reader_of, substance
from leasehold.core.objects.node import Labels, node_from_wire
from leasehold.core.objects.pod import RUN_UID, pod_from_wire

CONTAINER = {
    "name": "main",
    "image": "registry/image",
    "env": [{"name": f"V{number}", "value": "x" * 100} for number in range(50)],
    "resources": {"requests": {"nvidia.com/gpu": "4", "cpu": "2"}},
}


def _pod(labels: dict[str, str], version: str = "7", **status: Any) -> bytes:
    return json.dumps(
        {
            "metadata": {
                "name": "p", "namespace": "t", "uid": "u", "resourceVersion": version,
                "labels": labels, "managedFields": [{"x": "y" * 1000}],
            },
            "spec": {"nodeName": "n1", "containers": [CONTAINER]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", **status},
        }
    ).encode()  # fmt: skip


def test_foreign_pod_is_reduced_to_the_fields_that_are_read() -> None:
    raw = _pod({"app": "web"})
    shown = reader_of("Pod", "v1")(raw)
    assert pod_from_wire(shown) == pod_from_wire(json.loads(raw))
    assert len(json.dumps(shown)) < 400 < len(raw) // 10


def test_own_pod_keeps_all_fields_that_are_read() -> None:
    ended = {"exitCode": 3, "finishedAt": "2026-11-15T00:00:00Z"}
    statuses = [{"name": "main", "state": {"terminated": ended}}]
    raw = _pod({RUN_UID: "r"}, phase="Failed", containerStatuses=statuses)
    assert pod_from_wire(reader_of("Pod", "v1")(raw)) == pod_from_wire(json.loads(raw))


def test_change_of_unread_fields_of_a_foreign_pod_is_skipped() -> None:
    read = reader_of("Pod", "v1")
    before, after = read(_pod({}, "7")), read(_pod({}, "8", podIP="10.0.0.2"))
    assert substance("Pod", before) == substance("Pod", after)
    ended = read(_pod({}, "9", phase="Succeeded"))
    assert substance("Pod", before) != substance("Pod", ended)
    assert (
        substance("Pod", read(_pod({RUN_UID: "r"}))) is None
    )  # every change of our own pods counts


def test_heartbeat_of_a_node_is_skipped() -> None:
    read = reader_of("Node", "v1")

    def node(version: str, beat: str) -> dict[str, object]:
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": beat}
        return read(
            json.dumps(
                {
                    "metadata": {"name": "n", "uid": "u", "resourceVersion": version},
                    "spec": {"podCIDR": "10.0.0.0/24"},
                    "status": {
                        "allocatable": {"nvidia.com/gpu": "8"},
                        "conditions": [ready, {"type": "DiskPressure", "status": "False"}],
                        "images": [{"names": ["x" * 1000]}],
                    },
                }
            ).encode()
        )

    first, second = node("1", "2026-11-15T00:00:00Z"), node("2", "2026-11-15T00:05:00Z")
    assert substance("Node", first) == substance("Node", second)
    assert node_from_wire(second, labels=Labels()).gpus == 8
    assert len(json.dumps(second)) < 400
