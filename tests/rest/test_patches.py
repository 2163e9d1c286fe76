"""Patches of every kind, as pure functions and through the facade."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rest.facade import ADMIN, BUDGETS, PODS, RUNS, SYSTEM, Facade, budget, node, pod, run

from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest.patching.json_patches import json_patch, merge_patch
from leasehold.adapters.rest.patching.strategic import strategic_merge

APPLY = {"Content-Type": "application/apply-patch+yaml"}
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
TEMPLATE = {"spec": {"containers": [{"name": "main", "command": ["sleep", "1"]}]}}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


@pytest.mark.parametrize(
    ("document", "patch", "after"),
    [  # the cases of RFC 7386
        ({"a": "b"}, {"a": "c"}, {"a": "c"}), ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}), ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}), (["a"], {"a": 1}, {"a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}), ({"e": None}, {"a": 1},
                                                               {"e": None, "a": 1}),
    ],
)  # fmt: skip
def test_merge_patch_matches_rfc_7386_examples(document: Any, patch: Any, after: Any) -> None:
    assert merge_patch(document, patch) == after


def _op(op: str, path: str, **more: object) -> dict[str, object]:
    return {"op": op, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "after"),
    [
        ([_op("add", "/a", value=1)], {"a": 1, "l": [1, 2]}),
        ([_op("add", "/l/1", value=9)], {"l": [1, 9, 2]}),
        ([_op("add", "/l/-", value=9)], {"l": [1, 2, 9]}),
        ([_op("remove", "/l/0")], {"l": [2]}),
        ([_op("replace", "/l", value={})], {"l": {}}),
        ([_op("copy", "/m", **{"from": "/l"}), _op("remove", "/l/0")], {"l": [2], "m": [1, 2]}),
        ([_op("move", "/m", **{"from": "/l/0"})], {"l": [2], "m": 1}),
        ([_op("test", "/l/0", value=1), _op("add", "/a~1b~0", value=1)], {"l": [1, 2], "a/b~": 1}),
    ],
)
def test_json_patch_applies_operations_to_a_copy(operations: list[object], after: object) -> None:
    document = {"l": [1, 2]}

    assert json_patch(document, operations) == after
    assert document == {"l": [1, 2]}


@pytest.mark.parametrize(
    "operations",
    [
        {}, [1], [_op("add", "x", value=1)], [_op("remove", "/x")], [_op("replace", "/x", value=1)],
        [_op("add", "/l/9", value=1)], [_op("add", "/l/01", value=1)],
        [_op("test", "/l/0", value=2)], [_op("test", "/l/0", value=True)],
        [_op("add", "/l/0")], [_op("zap", "/l")],
        [_op("move", "/l/0", **{"from": "/l"})], [_op("remove", "")], [_op("copy", "/m")],
        [_op("copy", "/l/-", **{"from": ""})] * 40,
    ],
)  # fmt: skip
def test_invalid_json_patch_is_refused(operations: Any) -> None:
    with pytest.raises(RequestRefused) as refused:
        json_patch({"l": [1, 2]}, operations)

    assert refused.value.code in (400, 422)


CONTAINERS = {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]}}


@pytest.mark.parametrize(
    ("document", "patch", "after"),
    [
        (CONTAINERS, {"spec": {"containers": [{"name": "b", "image": "3"}]}},
         {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "3"}]}}),
        (CONTAINERS, {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
         {"spec": {"containers": [{"name": "b", "image": "2"}]}}),
        (CONTAINERS, {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}},
         {"spec": {"containers": [{"name": "z"}]}}),
        (CONTAINERS, {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}],
                               "containers": [{"name": "a", "image": "9"}]}},
         {"spec": {"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "9"}]}}),
        ({"spec": {"taints": [{"key": "a"}]}}, {"spec": {"taints": [{"key": "b"}]}},
         {"spec": {"taints": [{"key": "b"}]}}),
        ({"metadata": {"finalizers": ["a", "b"]}},
         {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}},
         {"metadata": {"finalizers": ["b", "c"]}}),
        ({"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, {"spec": {}}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"$retainKeys": ["x"], "x": 3}}, {"a": {"x": 3}}),
        ({"a": {"x": 1}}, {"a": {"$patch": "replace", "y": 1}}, {"a": {"y": 1}}),
    ],
)  # fmt: skip
def test_strategic_merge_follows_patch_directives(document: Any, patch: Any, after: Any) -> None:
    before = json.dumps(document)

    assert strategic_merge(document, patch) == after
    assert json.dumps(document) == before


maps = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3) | st.none(), max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | st.none(), max_size=3),
    max_leaves=8,
)


@given(document=maps, patch=maps)
def test_strategic_and_json_merge_agree_without_lists(document: Any, patch: Any) -> None:
    assert strategic_merge(document, patch) == merge_patch(document, patch)


@given(document=maps, patch=maps)
def test_merge_patch_is_idempotent(document: Any, patch: Any) -> None:
    once = merge_patch(document, patch)

    assert merge_patch(once, patch) == once


def test_facade_accepts_each_patch_type_and_refuses_bad_patches(facade: Facade) -> None:
    facade.ask("POST", RUNS, run("patched", template=TEMPLATE))
    path = f"{RUNS}/patched"
    merged = facade.ask("PATCH", path, {"spec": {"runtime": {"maxDuration": "1h"}}}, headers=MERGE)
    assert merged.json["spec"]["runtime"] == {"maxDuration": "1h"}
    gone = [_op("remove", "/spec/runtime/maxDuration")]
    replaced = facade.ask("PATCH", path, gone, headers=JSON_PATCH)
    assert replaced.json["spec"]["runtime"] == {}
    same = facade.ask("PATCH", path, {}, headers=MERGE)
    assert same.json["metadata"] == replaced.json["metadata"], "nothing changed, no new version"
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "j"}]}}}}
    strategic = facade.ask("PATCH", path, image, headers=STRATEGIC)
    refused = [each["field"] for each in strategic.json["details"]["causes"]]
    assert refused == ["spec.template.spec.containers[0].image"], "containers merge by name"
    assert facade.ask("PATCH", path, {}, headers={"Content-Type": "text/plain"}).status == 415
    stale = {"metadata": {"resourceVersion": "1"}, "spec": {"stop": True}}
    assert facade.ask("PATCH", path, stale, headers=MERGE).status == 409
    assert facade.ask("PATCH", f"{RUNS}/nobody", {}, headers=MERGE).status == 404
    assert facade.ask("PATCH", path, {"spec": None}, headers=MERGE).status == 422
    assert facade.ask("PATCH", path, {"kind": "Budget"}, headers=MERGE).status == 400
    assert facade.ask("PATCH", path, {"metadata": None}, headers=MERGE).status == 400


def test_nodes_and_pods_accept_strategic_patches(facade: Facade) -> None:
    facade.ask("POST", "/api/v1/nodes", node("sn"), caller=SYSTEM)
    facade.ask("POST", PODS, pod("sp"), caller=SYSTEM)
    cordoned = facade.ask("PATCH", "/api/v1/nodes/sn", {"spec": {"unschedulable": True}},
                          headers=STRATEGIC, caller=ADMIN)  # fmt: skip
    assert cordoned.json["spec"]["unschedulable"] is True
    assert cordoned.json["status"]["allocatable"], "the patch must keep the status"
    ready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    status = "/api/v1/nodes/sn/status"
    assert facade.ask("PATCH", status, ready, headers=STRATEGIC, caller=ADMIN).status == 403
    told = facade.ask("PATCH", status, ready, headers=STRATEGIC, caller=SYSTEM)
    assert told.json["status"]["conditions"] == [{"type": "Ready", "status": "False"}]
    assert told.json["status"]["allocatable"] == {"nvidia.com/gpu": "8"}
    imaged = {"spec": {"containers": [{"name": "main", "image": "j"}]}}
    changed = facade.ask("PATCH", f"{PODS}/sp", imaged, headers=STRATEGIC, caller=SYSTEM)
    assert changed.json["spec"]["containers"][0]["command"] == ["sleep", "1"]


def apply(facade: Facade, obj: Any, manager: str, **query: str) -> Any:
    path = f"{BUDGETS}/{obj['metadata']['name']}"
    return facade.ask("PATCH", path, obj, headers=APPLY, fieldManager=manager, **query)


def test_server_side_apply_tracks_ownership_and_reports_conflicts(facade: Facade) -> None:
    one = budget("ssa", namespaces=["batch"])
    made = apply(facade, one, "first")
    assert made.status == 201
    assert apply(facade, one, "first").json["metadata"] == made.json["metadata"]
    entry = made.json["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("first", "Apply")
    assert entry["fieldsV1"]["f:spec"]["f:namespaces"] == {}

    labelled = budget("ssa")
    labelled["metadata"]["labels"] = {"a": "b"}  # type: ignore[index]
    labelled["spec"] = {"owner": "org:ai:mm:vision"}
    both = apply(facade, labelled, "second").json
    assert both["spec"]["namespaces"] == ["batch"], "fields of the other manager must stay"

    dropped = apply(facade, budget("ssa"), "first").json
    assert "namespaces" not in dropped["spec"], "a field that its manager no longer names must go"
    assert dropped["metadata"]["labels"] == {"a": "b"}
    assert dropped["spec"]["owner"] == "org:ai:mm:vision"

    other = budget("ssa")
    other["metadata"]["labels"] = {"a": "c"}  # type: ignore[index]
    conflict = apply(facade, other, "third")
    assert (conflict.status, conflict.json["reason"]) == (409, "Conflict")
    cause = conflict.json["details"]["causes"][0]
    assert cause["reason"] == "FieldManagerConflict"
    assert cause["field"] == ".metadata.labels.a"
    assert '"second"' in cause["message"]
    assert apply(facade, other, "third", force="true").json["metadata"]["labels"] == {"a": "c"}
    assert apply(facade, labelled, "second").status == 409, "the second manager lost the field"


def test_merge_patch_takes_ownership_of_changed_fields(facade: Facade) -> None:
    apply(facade, budget("taken", namespaces=["batch"]), "first")
    path = f"{BUDGETS}/taken"
    patch = {"spec": {"namespaces": ["night"]}}
    facade.ask("PATCH", path, patch, headers=MERGE, fieldManager="hand")

    refused = apply(facade, budget("taken", namespaces=["batch"]), "first")
    assert refused.status == 409
    assert '"hand"' in refused.json["details"]["causes"][0]["message"]


def test_first_apply_conflicts_with_different_existing_values(facade: Facade) -> None:
    facade.ask("POST", BUDGETS, budget("old", namespaces=["batch"]))
    assert apply(facade, budget("old", namespaces=["night"]), "first").status == 409
    assert apply(facade, budget("old", namespaces=["batch"]), "first").status == 200


def test_apply_requires_manager_matching_name_and_valid_body(facade: Facade) -> None:
    path = f"{BUDGETS}/x"
    assert facade.ask("PATCH", path, budget("x"), headers=APPLY).status == 422
    assert facade.ask("PATCH", path, budget("y"), headers=APPLY, fieldManager="m").status == 400
    assert facade.ask("PATCH", path, b"a: [", headers=APPLY, fieldManager="m").status == 400
    text = json.dumps(budget("x", zork=1)).encode()
    strict = facade.ask("PATCH", path, text, headers=APPLY, fieldManager="m",
                        fieldValidation="Strict")  # fmt: skip
    assert 'unknown field "spec.zork"' in strict.json["message"]
    assert facade.ask("GET", path).status == 404
