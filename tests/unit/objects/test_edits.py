"""Edits: what may change in an object that exists, by path."""

import pytest

from leasehold.core.objects.edits import check_edit

SPEC: dict[str, object] = {
    "owner": "t",
    "resources": {"gpuType": "H100", "totalGPUs": 8},
    "funding": {"allowBorrow": True, "sponsors": ["a"]},
    "template": {"spec": {"containers": [{"name": "main", "image": "v1"}]}},
}
IMAGE_V2 = {"spec": {"containers": [{"name": "main", "image": "v2"}]}}


def paths(old: object, new: object) -> list[str]:
    return [problem.path for problem in check_edit(old, new)]


def run_paths(changes: dict[str, object]) -> list[str]:
    old = {"kind": "Run", "spec": SPEC}
    return paths(old, {**old, "spec": {**SPEC, **changes}})


RUN_EDITS: tuple[tuple[dict[str, object], list[str]], ...] = (
    ({}, []),
    ({"stop": True}, []),
    ({"funding": {"allowBorrow": True, "sponsors": ["b"]}}, []),
    ({"funding": {"allowBorrow": True, "sponsors": ["a", "b"]}}, []),
    ({"funding": {"allowBorrow": True}}, []),
    ({"runtime": {"maxDuration": "3h"}}, []),
    ({"malleable": {"desiredTotalGPUs": 16}}, []),
    ({"locality": {}}, ["spec.locality"]),
    ({"malleable": {}}, []),
    ({"funding": {"allowBorrow": False, "sponsors": ["a"]}}, ["spec.funding.allowBorrow"]),
    ({"funding": None}, ["spec.funding.allowBorrow"]),
    ({"owner": "u"}, ["spec.owner"]),
    ({"resources": {"gpuType": "A100", "totalGPUs": 9}},
     ["spec.resources.gpuType", "spec.resources.totalGPUs"]),
    ({"resources": {"gpuType": "H100", "totalGPUs": 8, "gpusPerPod": 4}},
     ["spec.resources.gpusPerPod"]),
    ({"resources": "x"}, ["spec.resources"]),
    ({"runtime": {"maxDuration": "3h", "checkpoint": "1h"}}, ["spec.runtime.checkpoint"]),
    ({"malleable": {"minTotalGPUs": 8, "desiredTotalGPUs": 8}}, ["spec.malleable.minTotalGPUs"]),
    ({"opportunistic": True}, ["spec.opportunistic"]),
    ({"template": IMAGE_V2}, ["spec.template.spec.containers[0].image"]),
    ({"template": {"spec": {"containers": []}}}, ["spec.template.spec.containers"]),
)  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), RUN_EDITS)
def test_edit_of_a_run_reports_path_of_each_immutable_field(
    changes: dict[str, object], expected: list[str]
) -> None:
    assert run_paths(changes) == expected


@pytest.mark.parametrize("after", [{}, {"stop": False}, {"stop": None}])
def test_cancelled_run_cannot_be_resumed(after: dict[str, object]) -> None:
    old = {"kind": "Run", "spec": {**SPEC, "stop": True}}

    assert paths(old, {**old, "spec": {**SPEC, **after}}) == ["spec.stop"]
    assert paths(old, old) == []


LEASE = {"kind": "Lease", "spec": {"owner": "t", "flag": 1}, "status": {"closed": False}}
CLOSED = {**LEASE, "status": {"closed": True, "endTime": "x"}}
OTHERS: tuple[tuple[object, object, list[str]], ...] = (
    (
        {"kind": "Budget", "spec": {"owner": "a", "x": 1}},
        {"kind": "Budget", "spec": {"owner": "a"}},
        [],
    ),
    (
        {"kind": "Budget", "spec": {"owner": "a"}},
        {"kind": "Budget", "spec": {"owner": "b"}},
        ["spec.owner"],
    ),
    ({"kind": "Budget", "spec": {"owner": "a"}}, {"kind": "Budget"}, ["spec.owner"]),
    ({"kind": "Budget"}, {"kind": "Run"}, ["kind"]),
    ({"kind": "Pod", "spec": 1}, {"kind": "Pod", "spec": 2}, []),
    (5, LEASE, [""]),
    (LEASE, None, [""]),
    (LEASE, LEASE, []),
    (LEASE, CLOSED, []),
    (LEASE, {**LEASE, "spec": {"owner": "u", "flag": 1}}, ["spec.owner"]),
    (LEASE, {**LEASE, "spec": {"owner": "t", "flag": True}}, ["spec.flag"]),
    (CLOSED, LEASE, ["status.closed", "status.endTime"]),
    (CLOSED, {**CLOSED, "status": {"closed": True, "endTime": "y"}}, ["status.endTime"]),
    (
        {"kind": "Resolution", "spec": {"a": [1]}},
        {"kind": "Resolution", "spec": {"a": [2]}},
        ["spec.a[0]"],
    ),
    ({"kind": "Reservation", "spec": {"a": 1}}, {"kind": "Reservation", "spec": {}}, ["spec.a"]),
)


@pytest.mark.parametrize(("old", "new", "expected"), OTHERS)
def test_edit_of_other_kinds_reports_path_of_each_immutable_field(
    old: object, new: object, expected: list[str]
) -> None:
    assert paths(old, new) == expected
