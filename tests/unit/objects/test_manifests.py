"""Whole manifests: group, kind, metadata; and no input makes the checkers raise."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leasehold.core.facts import Budget, Run
from leasehold.core.objects.budget import budget_from_wire, budget_warnings, check_budget
from leasehold.core.objects.edits import check_edit
from leasehold.core.objects.labels import ANNOTATION_BYTES_MAX
from leasehold.core.objects.manifests import check_manifest
from leasehold.core.objects.node import Labels, node_from_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.problems import Problem, show
from leasehold.core.objects.run import check_run, run_from_wire

API = "rq.davidlangworthy.io/v1"
META: dict[str, object] = {"name": "r", "namespace": "t"}
RUN: dict[str, object] = {
    "apiVersion": API,
    "kind": "Run",
    "metadata": META,
    "spec": {"owner": "t", "resources": {"gpuType": "H100", "totalGPUs": 8}},
}


def meta(**changes: object) -> dict[str, object]:
    return {**RUN, "metadata": {**META, **changes}}


RULES: tuple[tuple[str, object, list[str]], ...] = (
    ("legal", RUN, []),
    ("read back", {**meta(uid="u", resourceVersion="1", finalizers=[]), "status": {"x": 1}}, []),
    ("a budget", {**RUN, "kind": "Budget", "spec": {"owner": "t"}}, []),
    ("a bad budget", {**RUN, "kind": "Budget", "spec": {}}, ["spec.owner"]),
    ("nothing", None, [""]),
    ("a list", [], [""]),
    ("empty", {}, ["apiVersion", "kind", "metadata"]),
    ("another group", {**RUN, "apiVersion": "v1"}, ["apiVersion"]),
    ("another kind", {**RUN, "kind": "Job"}, ["kind"]),
    ("a kind that is a list", {**RUN, "kind": ["Run"]}, ["kind"]),
    ("a kind that only leasehold writes", {**RUN, "kind": "Lease"}, ["kind"]),
    ("an unknown field", {**RUN, "specs": 1}, ["specs"]),
    ("no name", {**RUN, "metadata": {"namespace": "t"}}, ["metadata.name"]),
    ("no namespace", {**RUN, "metadata": {"name": "r"}}, ["metadata.namespace"]),
    ("a bad name", meta(name="R"), ["metadata.name"]),
    ("a bad namespace", meta(namespace="a.b"), ["metadata.namespace"]),
    ("an unknown metadata field", meta(nam="x"), ["metadata.nam"]),
    ("labels that are a list", meta(labels=[]), ["metadata.labels"]),
    ("a bad label key", meta(labels={"a b": "x"}), ["metadata.labels[a b]"]),
    ("a label key that is a number", meta(labels={5: "x"}), ["metadata.labels[5]"]),
    ("a bad label", meta(labels={"a": "x" * 64}), ["metadata.labels.a"]),
    ("an empty label", meta(labels={"a": ""}), []),
    ("a good annotation", meta(annotations={"a": "any text"}), []),
    ("a bad annotation", meta(annotations={"a": 5}), ["metadata.annotations.a"]),
    ("a bad annotation key", meta(annotations={"-": "x"}), ["metadata.annotations.-"]),
    (
        "too many annotations",
        meta(annotations={"a": "x" * ANNOTATION_BYTES_MAX}),
        ["metadata.annotations"],
    ),
)


@pytest.mark.parametrize(("raw", "expected"), [row[1:] for row in RULES], ids=[r[0] for r in RULES])
def test_check_manifest_reports_path_of_each_problem(raw: object, expected: list[str]) -> None:
    assert [problem.path for problem in check_manifest(raw)] == expected


@pytest.mark.parametrize("check", [check_budget, check_run])
def test_check_of_a_non_object_reports_missing_spec(
    check: Callable[[object], list[Problem]],
) -> None:
    assert [problem.path for problem in check(5)] == ["spec"]


def test_manifest_of_an_internal_kind_is_refused() -> None:
    [problem] = check_manifest({**RUN, "kind": "LedgerHead"})

    assert "only the control plane writes this kind" in problem.remedy


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["H100", "8", "1h", "2026-01-01T00:00:00Z", "t:team", "Run", 8, 16, 10**400])
)
KEYS = st.sampled_from(
    [
        "owner", "parents", "envelopes", "name", "flavor", "concurrency", "maxGPUHours", "start",
        "end", "lending", "to", "aggregateCaps", "resources", "gpuType", "totalGPUs", "gpusPerPod",
        "locality", "groupGPUs", "selector", "malleable", "minTotalGPUs", "maxTotalGPUs",
        "stepGPUs", "desiredTotalGPUs", "funding", "sponsors", "allowBorrow", "maxBorrowGPUs",
        "template", "spec", "containers", "env", "ports", "limits", "requests", "cpu", "labels",
        "metadata", "tolerations", "runtime", "maxDuration", "status", "attempt", "sparesPerGroup",
    ]
)  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS | st.text(max_size=5), inner, max_size=6)
        | st.dictionaries(KEYS | st.integers(), inner, max_size=6)
    ),
    max_leaves=24,
)


@given(kind=st.sampled_from(["Budget", "Run"]), spec=JSON)
@example(kind="Run", spec=RUN["spec"])
@example(kind="Budget", spec={"owner": "t"})
def test_arbitrary_spec_yields_problems_or_a_decodable_object(kind: str, spec: object) -> None:
    raw = {**RUN, "kind": kind, "spec": spec}

    problems = check_manifest(raw)

    assert all(problem.path and problem.remedy for problem in problems)
    assert all("\n" not in show(problem) for problem in problems)
    if not problems and kind == "Budget":
        assert isinstance(budget_from_wire(raw), Budget)
        assert isinstance(budget_warnings(raw), list)
    elif not problems:
        assert isinstance(run_from_wire(raw), Run)


@given(raw=JSON, other=JSON)
def test_arbitrary_json_makes_no_checker_raise(raw: object, other: object) -> None:
    assert check_manifest(raw)
    assert isinstance(check_edit(raw, other), list)
    assert isinstance(check_edit({**RUN, "spec": raw}, {**RUN, "spec": other}), list)
    assert node_from_wire(raw, labels=Labels()).lacks
    assert pod_from_wire(raw).gpus == 0


def test_lone_surrogate_in_a_stored_text_is_refused() -> None:
    spec = {"owner": "\ud800", "resources": {"gpuType": "\ud800", "totalGPUs": 8}}

    found = [problem.path for problem in check_manifest({**RUN, "spec": spec})]

    assert found == ["spec.owner", "spec.resources.gpuType"]
