"""The CustomResourceDefinitions on a real API server: they keep what leasehold writes, and refuse
what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.apiserver.client import Client
from tests.apiserver.talk import MERGE, OURS, TABLE
from tests.rest.facade import lease

from leasehold.adapters.api.crds import definitions
from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.objects import rules
from leasehold.adapters.rest.patching.json_patches import merge_patch
from leasehold.cli.crds import command
from leasehold.core.names import API_VERSION
from leasehold.core.objects.budget import check_budget
from leasehold.core.objects.edits import IMMUTABLE_KINDS, check_edit
from leasehold.core.objects.manifests import check_manifest
from leasehold.sim.scenario.runner import run_scenario

ROOT = Path(__file__).resolve().parents[2]
STORY = ROOT / "demo" / "first-day.yaml"
ENDING = {"reason": "Shrink", "deadline": "2026-11-15T00:00:00Z"}
STATUSES: list[dict[str, Any]] = [
    {},
    {"closed": False},
    {"ending": ENDING},
    {"ending": {**ENDING, "reason": "Fail"}},
    {"closed": True, "closureReason": "Shrink"},
    {"closed": True, "closureReason": "Fail"},
    {"closed": True, "closureReason": "Shrink", "ending": ENDING},
]
SPECS: dict[str, list[dict[str, Any]]] = {
    "Lease": [{"owner": "a"}, {"owner": "b"}, {"owner": "a", "slice": {"slots": [1]}}],
    "Resolution": [{"scope": {"a": 1}}, {"scope": {"a": 2}}, {"scope": {"a": 1}, "victims": []}],
    "Reservation": [{"runRef": {"name": "a"}}, {"runRef": {"name": "b"}}],
    "LedgerBatch": [{"seq": 1}, {"seq": 2}, {"seq": 1, "effects": [{"x": 1}]}],
    "LedgerHead": [{"seq": 1}, {"seq": 2}],
}
PLURALS = {each.kind: each for each in RESOURCES}


def place(kind: str, namespace: str = "") -> str:
    where = f"{OURS}/namespaces/{namespace}" if namespace else OURS
    return f"{where}/{PLURALS[kind].plural}"


def test_crds_command_prints_the_definitions() -> None:
    printed = CliRunner().invoke(command)

    assert list(yaml.safe_load_all(printed.output)) == definitions()
    assert "&" not in printed.output.replace("&&", "")  # no YAML anchors, which are hard to read


def test_server_accepts_and_establishes_every_definition(real: Client) -> None:
    found = real.ask("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions").json
    conditions = {
        each["metadata"]["name"]: {
            condition["type"]: condition["status"] for condition in each["status"]["conditions"]
        }
        for each in found["items"]
    }

    assert conditions == {
        definition["metadata"]["name"]: {"NamesAccepted": "True", "Established": "True"}  # type: ignore[index,call-overload]
        for definition in definitions()
    }


def test_server_keeps_objects_of_control_loop_unchanged(real: Client, tmp_path: Path) -> None:
    """Every object that the store has at the end of a scenario is accepted without a loss."""
    run_scenario(STORY, out=tmp_path, echo=lambda _: None)
    lines = (tmp_path / "objects.jsonl").read_text(encoding="utf-8").splitlines()
    written = [obj for obj in map(json.loads, lines) if rules.GROUP in obj["apiVersion"]]
    kinds = {obj["kind"] for obj in written}
    for namespace in {obj["metadata"].get("namespace", "") for obj in written} - {""}:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        real.ask("POST", "/api/v1/namespaces", document)
    for obj in written:
        kept = {"name", "namespace", "labels", "annotations", "finalizers"} & set(obj["metadata"])
        bare = {**obj, "metadata": {key: obj["metadata"][key] for key in kept}}
        where = place(obj["kind"], obj["metadata"].get("namespace", ""))
        strict = {"fieldValidation": "Strict"}
        made = real.ask("POST", where, bare, query=strict)
        assert made.status == 201, made.body.decode()
        found = made.json
        if "status" in obj:
            found["status"] = obj["status"]
            path = f"{where}/{obj['metadata']['name']}/status"
            told = real.ask("PUT", path, found, query=strict)
            assert told.status == 200, told.body.decode()
            found = told.json
        assert {key: found.get(key) for key in ("spec", "status")} == {
            key: obj.get(key) for key in ("spec", "status")
        }

    assert kinds == {
        "Budget", "Run", "Lease", "Reservation", "Resolution", "LedgerHead", "LedgerBatch",
    }  # fmt: skip


@pytest.mark.parametrize("before", STATUSES, ids=str)
def test_lease_status_changes_follow_the_same_rules_as_in_our_stores(
    real: Client, before: dict[str, Any]
) -> None:
    """The server's CEL rules and the rules of our own stores judge every change alike."""
    judged = {}
    for at, after in enumerate(STATUSES):
        name = f"once-{STATUSES.index(before)}-{at}"
        real.ask("POST", f"{OURS}/leases", lease(name))
        path = f"{OURS}/leases/{name}/status"
        old = real.ask("GET", path).json
        first = real.ask("PUT", path, {**old, "status": before})
        assert first.status == 200, first.body.decode()
        changed = {**first.json, "status": after}
        mine = rules.problems_of_status(first.json, changed)
        judged[str(after)] = (real.ask("PUT", path, changed).status, bool(mine))

    assert judged
    assert all(code == (422 if refused else 200) for code, refused in judged.values()), judged


@pytest.mark.parametrize("kind", SPECS)
def test_spec_is_immutable_by_the_same_rules_as_in_our_stores(real: Client, kind: str) -> None:
    verdicts = set()
    for at, before in enumerate(SPECS[kind]):
        name = f"fixed-{kind.lower()}-{at}"
        namespace = "vision" if PLURALS[kind].is_namespaced else ""
        where = place(kind, namespace)
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        head = {"apiVersion": f"{rules.GROUP}/v1", "kind": kind, "metadata": metadata}
        made = real.ask("POST", where, {**head, "spec": before})
        assert made.status == 201, made.body.decode()
        for after in SPECS[kind]:
            current = real.ask("GET", f"{where}/{name}").json
            changed = {**current, "spec": after}
            refused = bool(rules.problems_of_change(current, changed))
            code = real.ask("PUT", f"{where}/{name}", changed).status
            verdicts.add((refused, code))

    is_fixed = kind in IMMUTABLE_KINDS
    assert verdicts == ({(False, 200), (True, 422)} if is_fixed else {(False, 200)})


RUN_SPEC: dict[str, Any] = {
    "owner": "org:team",
    "resources": {"gpuType": "H100", "totalGPUs": 8, "gpusPerPod": 4},
    "malleable": {"minTotalGPUs": 8, "maxTotalGPUs": 32, "desiredTotalGPUs": 8},
    "runtime": {"maxDuration": "1h", "retries": 1},
    "funding": {"allowBorrow": True, "maxBorrowGPUs": 8, "sponsors": ["org:a"]},
    "template": {"metadata": {"labels": {"a": "b"}},
                 "spec": {"volumes": [{"name": "v", "emptyDir": {}}],
                          "containers": [{"name": "main", "image": "v1"}]}},
}  # fmt: skip
# JSON merge patches of that spec: allowed edits, fixed fields one by one, and two fields at once.
RUN_EDITS: tuple[dict[str, Any], ...] = (
    {"malleable": {"desiredTotalGPUs": 16}},
    {"malleable": {"desiredTotalGPUs": None}},
    {"runtime": {"maxDuration": "2h"}},
    {"runtime": {"maxDuration": None}},
    {"funding": {"sponsors": ["org:b", "org:c"]}},
    {"stop": True},
    {"stop": True, "runtime": {"maxDuration": "2h"}},
    {"owner": "org:b"},
    {"owner": "org:b", "malleable": {"desiredTotalGPUs": 16}},
    {"owner": "org:b", "stop": True},
    {"resources": {"gpuType": "A100"}},
    {"resources": {"gpusPerPod": 8}},
    {"resources": {"gpusPerPod": None}},
    {"locality": {"groupGPUs": 4}},
    {"locality": {"selector": {"fabric.domain": "a"}}},
    {"locality": {}},
    {"gang": "Group"},
    {"gang": "Run"},
    {"malleable": {"maxTotalGPUs": 64}},
    {"resources": {"totalGPUs": 16}, "malleable": {"minTotalGPUs": 16, "desiredTotalGPUs": 16}},
    {"malleable": {"stepGPUs": 8}},
    {"malleable": None},
    {"sparesPerGroup": 4},
    {"opportunistic": True},
    {"runtime": {"retries": 2}},
    {"runtime": {"checkpoint": "1m"}},
    {"runtime": {"startTimeout": "1m"}},
    {"runtime": {"gracePeriod": "1m"}},
    {"runtime": None},
    {"funding": {"allowBorrow": False, "maxBorrowGPUs": None, "sponsors": None}},
    {"funding": {"maxBorrowGPUs": 16}},
    {"funding": None},
    {"template": {"metadata": {"labels": {"a": "c"}}}},
    {"template": {"spec": {"containers": [{"name": "main", "image": "v2"}]}}},
    {"template": {"spec": {"volumes": None}}},
    {"template": {"spec": {"hostNetwork": True}}},
)


def test_run_edits_follow_the_same_rules_as_in_leasehold_up(real: Client) -> None:
    """The server's CEL rules and `check_edit` of `leasehold up` judge every edit alike."""
    where = place("Run", "vision")
    head = {"apiVersion": API_VERSION, "kind": "Run"}
    judged = {}
    for at, edit in enumerate(RUN_EDITS):
        metadata = {"name": f"fixed-{at}", "namespace": "vision"}
        made = real.ask("POST", where, {**head, "metadata": metadata, "spec": RUN_SPEC})
        assert made.status == 201, made.body.decode()
        merged: Any = merge_patch(made.json, {"spec": edit})
        assert check_manifest(merged, before=made.json) == [], edit
        mine = {problem.path for problem in check_edit(made.json, merged)}
        answer = real.ask("PATCH", f"{where}/fixed-{at}", {"spec": edit},
                          headers={"Content-Type": MERGE})  # fmt: skip
        theirs = {each["field"] for each in answer.json.get("details", {}).get("causes", [])}
        judged[str(edit)] = (answer.status, theirs, mine)
        real.ask("DELETE", f"{where}/fixed-{at}")

    assert {edit: code for edit, (code, _, _) in judged.items()} == {
        edit: 422 if mine else 200 for edit, (_, _, mine) in judged.items()
    }
    for _, theirs, mine in judged.values():
        assert all(any(path.startswith(field) for field in theirs) for path in mine)
    assert [code for code, _, _ in judged.values()].count(200) == 7


def test_budget_owner_is_immutable_by_the_same_rule_as_in_leasehold_up(real: Client) -> None:
    where = place("Budget", "vision")
    wire = {"apiVersion": API_VERSION, "kind": "Budget",
            "metadata": {"name": "kept", "namespace": "vision"},
            "spec": {"owner": "org:team", "envelopes": [ENVELOPE]}}  # fmt: skip
    made = real.ask("POST", where, wire).json
    for edit in ({"owner": "org:b"}, {"owner": "org:b", "parents": ["org:c"], "envelopes": []}):
        assert check_edit(made, {**made, "spec": {**made["spec"], **edit}})
        answer = real.ask("PATCH", f"{where}/kept", {"spec": edit}, headers={"Content-Type": MERGE})
        assert answer.status == 422, answer.body
        assert {each["field"] for each in answer.json["details"]["causes"]} == {"spec.owner"}
    wider = {"parents": ["org:c"], "envelopes": []}
    answer = real.ask("PATCH", f"{where}/kept", {"spec": wider}, headers={"Content-Type": MERGE})
    assert answer.status == 200, answer.body
    real.ask("DELETE", f"{where}/kept")


def test_spec_of_a_lease_cannot_be_removed(real: Client) -> None:
    real.ask("POST", f"{OURS}/leases", lease("bare"))
    patched = real.ask("PATCH", f"{OURS}/leases/bare", {"spec": None},
                       headers={"Content-Type": MERGE})  # fmt: skip

    assert patched.status == 422


@pytest.mark.parametrize("kind", ["Run", "Lease", "Reservation", "Budget"])
def test_printer_columns_match_those_of_the_facade(real: Client, ours: Client, kind: str) -> None:
    """The server has the facade's columns with the same names in the same order, except for
    computed ones, which only the facade has."""
    shown = [
        [
            (each["name"], each["priority"])
            for each in server.ask("GET", place(kind), headers={"Accept": TABLE}).json[
                "columnDefinitions"
            ]
        ]
        for server in (real, ours)
    ]

    assert shown[0] == [each for each in shown[1] if each in shown[0]]
    assert len(shown[0]) >= len(shown[1]) - 4


ENVELOPE: dict[str, Any] = {"name": "e", "flavor": "H100", "concurrency": 8}
CAP: dict[str, Any] = {"name": "c", "flavor": "H100", "envelopes": ["e"], "maxConcurrency": 4}
WINDOW = {"start": "2026-02-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        ("spec.owner", {"owner": "a b"}),
        ("spec.parents[0]", {"parents": [":"]}),
        ("spec.namespaces[0]", {"namespaces": [""]}),
        ("spec.envelopes[0].name", {"envelopes": [{**ENVELOPE, "name": "-"}]}),
        ("spec.envelopes[0].concurrency", {"envelopes": [{**ENVELOPE, "concurrency": 0}]}),
        ("spec.envelopes[0].maxGPUHours", {"envelopes": [{**ENVELOPE, "maxGPUHours": 0}]}),
        ("spec.envelopes[0].selector.region",
         {"envelopes": [{**ENVELOPE, "selector": {"region": "?"}}]}),
        ("spec.envelopes[0].lending.maxConcurrency",
         {"envelopes": [{**ENVELOPE, "lending": {"allow": True, "maxConcurrency": 0}}]}),
        ("spec.envelopes[0].end", {"envelopes": [{**ENVELOPE, **WINDOW}]}),
        ("spec.aggregateCaps[0].maxConcurrency",
         {"envelopes": [ENVELOPE], "aggregateCaps": [{**CAP, "maxConcurrency": 0}]}),
        ("spec.aggregateCaps[0].envelopes",
         {"envelopes": [ENVELOPE], "aggregateCaps": [{**CAP, "envelopes": []}]}),
    ],
)  # fmt: skip
def test_api_server_and_our_check_name_same_field_of_invalid_budget(
    real: Client, path: str, spec: dict[str, Any]
) -> None:
    wire = {"apiVersion": API_VERSION, "kind": "Budget",
            "metadata": {"name": "wrong", "namespace": "vision"},
            "spec": {"owner": "org:team", **spec}}  # fmt: skip
    answer = real.ask("POST", f"{OURS}/namespaces/vision/budgets", wire)
    assert answer.status == 422, answer.body
    assert {each["field"] for each in answer.json["details"]["causes"]} == {path}
    assert {problem.path for problem in check_budget(wire)} == {path}


@pytest.mark.parametrize(
    ("kind", "path", "spec"),
    [
        ("Budget", "spec.envelopes[1]",
         {"envelopes": [ENVELOPE, {**ENVELOPE, "concurrency": 9}]}),
        ("Budget", "spec.aggregateCaps[1]",
         {"envelopes": [ENVELOPE], "aggregateCaps": [CAP, {**CAP, "maxConcurrency": 5}]}),
        ("Budget", "spec.aggregateCaps[0].envelopes[1]",
         {"envelopes": [ENVELOPE], "aggregateCaps": [{**CAP, "envelopes": ["e", "e"]}]}),
        ("Budget", "spec.envelopes[0].lending.to[1]",
         {"envelopes": [{**ENVELOPE, "lending": {"allow": True, "to": ["a:*", "a:*"]}}]}),
        ("Budget", "spec.parents[1]", {"parents": ["org", "org"]}),
        ("Budget", "spec.namespaces[1]", {"namespaces": ["audio", "audio"]}),
        ("Run", "spec.funding.sponsors[1]",
         {"funding": {"allowBorrow": True, "sponsors": ["org:a", "org:a"]}}),
        ("Run", "spec.template.spec.containers[1]",
         {"template": {"spec": {"containers": [{"name": "m"}, {"name": "m"}]}}}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_duplicate_list_entry_is_refused_by_both_servers(
    real: Client, ours: Client, kind: str, path: str, spec: dict[str, Any]
) -> None:
    """Both servers refuse a duplicate, and so does the check of the manifest."""
    wire = {"apiVersion": API_VERSION, "kind": kind,
            "metadata": {"name": "twice", "namespace": "vision"},
            "spec": {"owner": "org:team", **spec}}  # fmt: skip
    if kind == "Run":
        wire["spec"] = {**RUN_SPEC, **spec}
    for server in (real, ours):
        answer = server.ask("POST", place(kind, "vision"), wire)
        assert answer.status == 422, answer.body
        fields = [each["field"] for each in answer.json["details"]["causes"]]
        assert [field for field in fields if field.startswith(path)] == fields, fields
    assert check_manifest(wire)


def test_envelope_cannot_be_renamed_to_the_name_of_another(real: Client) -> None:
    where = place("Budget", "vision")
    wire = {"apiVersion": API_VERSION, "kind": "Budget",
            "metadata": {"name": "two", "namespace": "vision"},
            "spec": {"owner": "org:team",
                     "envelopes": [ENVELOPE, {**ENVELOPE, "name": "f"}]}}  # fmt: skip
    assert real.ask("POST", where, wire).status == 201
    operations = [{"op": "replace", "path": "/spec/envelopes/1/name", "value": "e"}]
    answer = real.ask("PATCH", f"{where}/two", operations,
                      headers={"Content-Type": "application/json-patch+json"})  # fmt: skip
    real.ask("DELETE", f"{where}/two")
    assert answer.status == 422, answer.body
    assert "Duplicate value" in answer.json["message"]


def test_budget_with_every_field_is_accepted(real: Client) -> None:
    lending = {"allow": True, "to": ["org:*"], "maxConcurrency": 4, "maxGPUHours": 0.5}
    window = {"start": WINDOW["end"], "end": WINDOW["start"]}
    envelope = {**ENVELOPE, **window, "lending": lending, "maxGPUHours": 100,
                "sharing": "none", "selector": {"region": "r", "cluster": "c"}}  # fmt: skip
    spec = {"owner": "org:team", "parents": ["org"], "namespaces": ["audio"],
            "envelopes": [envelope], "aggregateCaps": [CAP]}  # fmt: skip
    wire = {"apiVersion": API_VERSION, "kind": "Budget",
            "metadata": {"name": "right", "namespace": "vision"}, "spec": spec}  # fmt: skip
    place = f"{OURS}/namespaces/vision/budgets"
    assert check_budget(wire) == []
    made = real.ask("POST", place, wire)
    assert made.status == 201, made.body
    real.ask("DELETE", f"{place}/right")
