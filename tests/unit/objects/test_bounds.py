"""Every list, mapping and text that a user controls has a limit, reported by path and number."""

from pathlib import Path
from typing import cast

import pytest

from leasehold.adapters.objects.admission import Admission
from leasehold.core.names import Wire
from leasehold.core.objects.bounds import (
    BOUNDS,
    RUN_SPEC_BYTES_MAX,
    TEXT_CHARS_MAX,
    Bound,
    check_bounds,
)
from leasehold.core.objects.manifests import check_manifest
from leasehold.core.objects.run import run_from_wire

DOCUMENT = Path(__file__).parents[3] / "docs" / "configuration.md"
NAMES = {"Run": "r", "Budget": "b"}
LISTS = ("finalizers", "ownerReferences", "sponsors", "containers", "command", "args", "env",
         "ports", "initContainers", "tolerations", "parents", "namespaces", "envelopes", "to",
         "aggregateCaps")  # fmt: skip


def run(**spec: object) -> Wire:
    container = {"name": "main", "command": ["true"]}
    return manifest(
        "Run",
        owner="t:team",
        resources={"gpuType": "H100", "totalGPUs": 8},
        template={"metadata": {}, "spec": {"containers": [container]}},
        **spec,
    )


def manifest(kind: str, **spec: object) -> Wire:
    metadata = {"name": NAMES[kind], "namespace": "team"}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1", "kind": kind, "metadata": metadata, "spec": spec,
    }  # fmt: skip


def filled(kind: str, bound: Bound, count: int) -> Wire:
    """Return a manifest with `count` members at the path of the bound."""
    made = run() if kind == "Run" else manifest(kind, owner="t:team")
    at: Wire = made
    *steps, last = bound.path.split(".")
    for step in steps:
        key = step.removesuffix("[]")
        if step.endswith("[]"):
            members = cast(list[Wire], at.setdefault(key, [{}]))
            at = members[0]
        else:
            at = cast(Wire, at.setdefault(key, {}))
    at[last] = ["x"] * count if last in LISTS else {f"k{number}": "v" for number in range(count)}
    return made


ROWS = [(kind, bound) for kind, bounds in BOUNDS.items() for bound in bounds]


@pytest.mark.parametrize(("kind", "bound"), ROWS, ids=lambda row: getattr(row, "path", row))
def test_one_member_too_many_is_refused_with_path_and_number(kind: str, bound: Bound) -> None:
    path = bound.path.replace("[]", "[0]")
    assert check_bounds(filled(kind, bound, bound.most)) == []
    [problem] = check_manifest(filled(kind, bound, bound.most + 1))
    assert problem.path == path
    assert str(bound.most + 1) in problem.value
    assert problem.remedy == f"use at most {bound.most}"


@pytest.mark.parametrize(("kind", "bound"), ROWS, ids=lambda row: getattr(row, "path", row))
def test_documentation_lists_every_bound(kind: str, bound: Bound) -> None:
    assert f"| {kind} | `{bound.path}` | {bound.most} |" in DOCUMENT.read_text()


def test_overlong_text_is_refused_by_path() -> None:
    long = run()
    container = cast(Wire, long["spec"])["template"]["spec"]["containers"][0]  # type: ignore[index]
    container["command"] = ["x" * TEXT_CHARS_MAX]
    assert check_manifest(long) == []
    container["command"] = ["true", "x" * (TEXT_CHARS_MAX + 1)]
    [problem] = check_manifest(long)
    assert problem.path == "spec.template.spec.containers[0].command[1]"
    assert str(TEXT_CHARS_MAX) in problem.remedy
    assert f"{TEXT_CHARS_MAX}" in DOCUMENT.read_text()


def test_oversized_run_spec_is_refused() -> None:
    large = run()
    container = cast(Wire, large["spec"])["template"]["spec"]["containers"][0]  # type: ignore[index]
    container["args"] = ["x" * 1024] * 250
    assert check_manifest(large) == []
    container["args"] = ["x" * 1024] * 256
    [problem] = check_manifest(large)
    assert (problem.path, str(RUN_SPEC_BYTES_MAX) in problem.remedy) == ("spec", True)
    assert f"{RUN_SPEC_BYTES_MAX}" in DOCUMENT.read_text()


def test_object_stored_before_a_bound_is_read_and_its_other_fields_edited() -> None:
    sponsors = [f"t:s{number}" for number in range(100)]
    old = run(funding={"allowBorrow": True, "sponsors": sponsors})
    assert run_from_wire(old).spec.funding.sponsors == tuple(sponsors)
    stopped = {**old, "spec": {**cast(Wire, old["spec"]), "stop": True}}
    admission = Admission()
    assert admission(old, stopped) == []
    wrong = {**old, "spec": {**cast(Wire, old["spec"]), "stop": "yes"}}
    assert [path for path, _ in admission(old, wrong)] == ["spec.stop"]
    more = run(funding={"allowBorrow": True, "sponsors": [*sponsors, "t:one-more"]})
    assert [path for path, _ in admission(old, more)] == ["spec.funding.sponsors"]
    assert [path for path, _ in admission(None, old)] == ["spec.funding.sponsors"]


@pytest.mark.parametrize("odd", [None, 7, [], {}, {"kind": []}, {"kind": "Run", "spec": [7]}])
def test_check_bounds_reports_nothing_for_malformed_objects(odd: object) -> None:
    assert check_bounds(odd) == []
