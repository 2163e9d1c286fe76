"""Nodes, pods and quantities: reading what Kubernetes writes, writing what Kubernetes reads."""

import pytest

from leasehold.core.facts import Node, Pod, PodPhase, Taint
from leasehold.core.objects.node import DRAIN, Labels, node_from_wire, node_to_wire
from leasehold.core.objects.pod import pod_from_wire, pod_to_wire
from leasehold.core.objects.quantity import milli, units
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.wire import canonical, part, stamps

LABELS = Labels()
NODE = Node(name="n", flavor="H100", region="w", cluster="a", fabric="d", gpus=8)


@pytest.mark.parametrize(
    ("value", "thousandths"),
    [
        ("500m", 500),
        ("1", 1000),
        (2, 2000),
        (0.5, 500),
        ("1.5", 1500),
        (".5", 500),
        ("1n", 1),
        ("1u", 1),
        ("0", 0),
        ("2k", 2_000_000),
        ("1Ki", 1_024_000),
        ("1Gi", 2**30 * 1000),
        ("1e3", 1_000_000),
        ("1E", 10**21),
    ],
)
def test_quantity_is_read_in_thousandths(value: object, thousandths: int) -> None:
    assert milli(value) == thousandths


@pytest.mark.parametrize(
    "value",
    ["", "x", "-1", "1 Gi", "1gi", "1e999", "9" * 100, -1, True, None, [], 10**30, float("nan")],
    ids=repr,
)
def test_invalid_quantity_is_refused(value: object) -> None:
    with pytest.raises(WrongValue):
        milli(value)


def test_fractional_quantity_is_rounded_up_to_a_whole_unit() -> None:
    assert units("100m") == 1


@pytest.mark.parametrize(
    "node",
    [
        NODE,
        Node(
            name="n", flavor="H100", region="w", cluster="a", fabric="d", gpus=4,
            cpu_milli=1500, memory_bytes=2**30, pods_max=20, ready=False, not_ready_since=1500,
            cordoned=True, taints=(Taint(key="k", value="v", effect="NoExecute"),),
        ),
        Node(
            name="n", flavor="H100", region="w", cluster="a", fabric="d", gpus=8, cordoned=True,
            drained_by="ann",
        ),
    ],
)  # fmt: skip
def test_simulated_node_is_unchanged_by_writing_and_reading(node: Node) -> None:
    assert node_from_wire(node_to_wire(node, labels=LABELS), labels=LABELS) == node


@pytest.mark.parametrize(
    ("annotation", "unschedulable", "drained_by"),
    [
        ("ann", True, "ann"),
        ("", True, "asked"),
        (" ann\n of  ops ", True, "ann of ops"),
        ("a" * 500, True, "a" * 120),
        ("ann", False, ""),
        (None, True, ""),
    ],
)
def test_node_drains_only_while_it_is_cordoned(
    annotation: str | None, unschedulable: bool, drained_by: str
) -> None:
    """Pods evicted from an uncordoned node would come back and be evicted again."""
    wire = node_to_wire(NODE, labels=LABELS)
    part(wire, "spec")["unschedulable"] = unschedulable
    if annotation is not None:
        part(wire, "metadata")["annotations"] = {DRAIN: annotation}
    node = node_from_wire(wire, labels=LABELS)
    assert (node.drained_by, node.is_draining) == (drained_by, bool(drained_by))


def test_fenced_node_is_recognized_by_its_taint() -> None:
    fenced = Node(name="n", flavor="H", region="w", cluster="a", fabric="d", gpus=1, fenced=True)
    once = node_from_wire(node_to_wire(fenced, labels=LABELS), labels=LABELS)

    assert once.fenced
    assert node_from_wire(node_to_wire(once, labels=LABELS), labels=LABELS) == once


def test_node_without_labels_lists_what_it_lacks() -> None:
    got = node_from_wire({"metadata": {"name": "n"}}, labels=LABELS)

    assert got.lacks == (
        "label region, label cluster, label fabric.domain, label gpu.flavor, "
        "allocatable nvidia.com/gpu"
    )
    assert not got.ready
    assert got.not_ready_since is None


def test_well_known_labels_are_understood() -> None:
    written = {
        "topology.kubernetes.io/region": "w",
        "nvidia.com/gpu.product": "H100",
        "cluster": "a",
        "pod-of-racks": "d",
    }
    wire = {
        "metadata": {"name": "n", "uid": "u", "resourceVersion": "5", "labels": written},
        "spec": {
            "taints": [
                {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
                {"key": "k"},
                "nonsense",
            ]
        },
        "status": {
            "allocatable": {"amd.com/gpu": "8"},
            "conditions": [{"type": "Disk"}, {"type": "Ready", "status": "True"}],
        },
    }
    labels = Labels(fabric="pod-of-racks", gpu_resource="amd.com/gpu")

    got = node_from_wire(wire, labels=labels)

    assert got == Node(
        name="n", flavor="H100", region="w", cluster="a", fabric="d", gpus=8, uid="u", version=5,
        taints=(Taint(key="k"),),
    )  # fmt: skip


def test_pod_made_from_a_template_reads_back() -> None:
    template = {
        "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "RANK", "value": "9"}, {"name": "MINE", "value": "1"}],
                    "resources": {"requests": {"cpu": "2"}},
                },
                {"name": "side"},
            ]
        },
    }
    group = "rq.davidlangworthy.io"
    labels = {
        f"{group}/run-uid": "u",
        f"{group}/group-index": "1",
        f"{group}/pod-index": "3",
        f"{group}/attempt": "2",
    }

    wire = pod_to_wire(
        canonical(template), name="p", namespace="t", node="n", gpus=4, labels=labels,
        env={"RANK": "0"}, grace=1500,
    )  # fmt: skip

    assert pod_from_wire(wire) == Pod(
        namespace="t", name="p", node="n", gpus=4, run_uid="u", group=1, index=3, attempt=2,
        cpu_milli=2000,
    )  # fmt: skip
    assert wire["metadata"] == {
        "name": "p",
        "namespace": "t",
        "labels": {"app": "x", **labels},
        "annotations": {"note": "y"},
    }
    gpu = {"nvidia.com/gpu": "4"}
    assert wire["spec"] == {
        "nodeName": "n",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "containers": [
            {
                "name": "main",
                "env": [{"name": "RANK", "value": "0"}, {"name": "MINE", "value": "1"}],
                "resources": {"requests": {"cpu": "2", **gpu}, "limits": gpu},
            },
            {"name": "side", "env": [{"name": "RANK", "value": "0"}]},
        ],
    }


def test_an_empty_template_gets_a_container() -> None:
    wire = pod_to_wire(b"{}", name="p", namespace="t", node="n", gpus=0, labels={}, env={})

    assert part(wire, "spec")["containers"] == [{"name": "main", "image": "none"}]


def test_failed_pod_has_exit_code_end_and_deletion_time() -> None:
    ended = {"terminated": {"exitCode": 3, "finishedAt": "1970-01-01T00:00:02Z"}}
    wire = {
        "metadata": {"namespace": "t", "name": "p", "deletionTimestamp": "1970-01-01T00:00:03Z"},
        "spec": {"containers": [{"name": "main"}, {"name": "a-side"}]},
        "status": {
            "phase": "Failed",
            "reason": "Evicted",
            "containerStatuses": [
                {"name": "a-side", "state": {}},
                {"name": "main", "state": ended},
            ],
        },
    }

    assert pod_from_wire(wire) == Pod(
        namespace="t", name="p", node="", gpus=0, placed=False, phase=PodPhase.FAILED,
        exit_code=3, finished_at=2000, deleting=True, asked_to_go=3000, disrupted=True,
    )  # fmt: skip


def test_evicted_pod_counts_as_rejected_if_it_never_ran_otherwise_as_deleted() -> None:
    def pod(**status: object) -> Pod:
        return pod_from_wire({"spec": {"nodeName": "n"}, "status": {"phase": "Failed", **status}})

    ran = [{"name": "main", "state": {"terminated": {"exitCode": 137}}}]
    target = [{"type": "DisruptionTarget", "status": "True"}]
    rejected = pod(reason="Evicted")  # a node that is low on disk accepts no pod
    assert (rejected.reason, rejected.ended_because_deleted) == ("Evicted", False)
    for status in ({"reason": "Evicted"}, {"reason": "Terminated"}, {"conditions": target}):
        found = pod(containerStatuses=ran, **status)
        assert (found.reason, found.ended_because_deleted) == ("", True), status
    failed = pod(containerStatuses=ran, reason="OutOfmemory")
    assert (failed.reason, failed.ended_because_deleted) == ("", False)


def test_pod_deleted_before_it_had_a_node_has_ended() -> None:
    wire = {"metadata": {"deletionTimestamp": "1970-01-01T00:00:03Z"}, "status": {}}
    assert pod_from_wire(wire).ended_because_deleted
    assert not pod_from_wire({**wire, "spec": {"nodeName": "n"}}).has_ended


def test_deletion_was_requested_one_grace_period_before_its_timestamp() -> None:
    metadata = {"deletionTimestamp": "1970-01-01T00:00:40Z", "deletionGracePeriodSeconds": 30}
    assert pod_from_wire({"metadata": metadata}).asked_to_go == 10_000
    metadata["deletionGraceMs"] = 500
    assert pod_from_wire({"metadata": metadata}).asked_to_go == 39_500
    assert pod_from_wire({"metadata": {}}).asked_to_go is None


def test_only_container_status_is_used_when_no_name_matches() -> None:
    status = {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}

    assert pod_from_wire({"spec": {"containers": [{"name": "m"}]}, "status": status}).exit_code == 0


def test_foreign_pod_holds_the_resources_of_its_limits() -> None:
    limits = {"limits": {"nvidia.com/gpu": "2", "memory": "1Ki", "cpu": "what"}}
    wire = {"spec": {"nodeName": "n", "containers": [{"resources": limits}, "nonsense"]}}

    assert pod_from_wire(wire) == Pod(namespace="", name="", node="n", gpus=2, memory_bytes=1024)


@pytest.mark.parametrize("version", ["", "abc", "٣", "9" * 30, "-1"])
def test_non_numeric_resource_version_reads_as_zero(version: str) -> None:
    assert stamps({"metadata": {"resourceVersion": version}}).version == 0
