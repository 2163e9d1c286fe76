"""The CustomResourceDefinitions on a real API server: they hold what we write, and nothing else."""

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
from leasehold.cli.crds import command
from leasehold.core.names import API_VERSION
from leasehold.core.objects.budget import check_budget
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
    "LedgerBatch": [{"seq": 1}, {"seq": 2}, {"seq": 1, "effects": [{"x": 1}]}],
    "LedgerHead": [{"seq": 1}, {"seq": 2}],
}
PLURALS = {each.kind: each for each in RESOURCES}


def place(kind: str, namespace: str = "") -> str:
    where = f"{OURS}/namespaces/{namespace}" if namespace else OURS
    return f"{where}/{PLURALS[kind].plural}"


def test_the_command_prints_the_definitions() -> None:
    printed = CliRunner().invoke(command)

    assert list(yaml.safe_load_all(printed.output)) == definitions()
    assert "&" not in printed.output.replace("&&", "")  # no anchors: they are for people too


def test_the_server_finds_nothing_wrong_with_them(real: Client) -> None:
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


def test_what_the_control_loop_writes_is_kept_whole(real: Client, tmp_path: Path) -> None:
    """Every object of a day's story, as the store has it in the end."""
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
def test_a_lease_is_closed_once_by_the_same_rules(real: Client, before: dict[str, Any]) -> None:
    """The server's CEL and the rules of our own stores judge every change alike."""
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
def test_a_spec_is_immutable_by_the_same_rules(real: Client, kind: str) -> None:
    verdicts = set()
    for at, before in enumerate(SPECS[kind]):
        name = f"fixed-{kind.lower()}-{at}"
        head = {"apiVersion": f"{rules.GROUP}/v1", "kind": kind, "metadata": {"name": name}}
        made = real.ask("POST", place(kind), {**head, "spec": before})
        assert made.status == 201, made.body.decode()
        for after in SPECS[kind]:
            current = real.ask("GET", f"{place(kind)}/{name}").json
            changed = {**current, "spec": after}
            refused = bool(rules.problems_of_change(current, changed))
            code = real.ask("PUT", f"{place(kind)}/{name}", changed).status
            verdicts.add((refused, code))

    is_fixed = kind in rules.IMMUTABLE_KINDS
    assert verdicts == ({(False, 200), (True, 422)} if is_fixed else {(False, 200)})


def test_a_spec_cannot_be_taken_away_instead(real: Client) -> None:
    real.ask("POST", f"{OURS}/leases", lease("bare"))
    patched = real.ask("PATCH", f"{OURS}/leases/bare", {"spec": None},
                       headers={"Content-Type": MERGE})  # fmt: skip

    assert patched.status == 422


@pytest.mark.parametrize("kind", ["Run", "Lease", "Reservation", "Budget"])
def test_its_columns_are_the_facades(real: Client, ours: Client, kind: str) -> None:
    """In order, and with the same names; what has to be computed only the facade shows."""
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
def test_a_budget_that_cannot_be_is_refused_by_the_same_path(
    real: Client, path: str, spec: dict[str, Any]
) -> None:
    wire = {"apiVersion": API_VERSION, "kind": "Budget",
            "metadata": {"name": "wrong", "namespace": "vision"},
            "spec": {"owner": "org:team", **spec}}  # fmt: skip
    answer = real.ask("POST", f"{OURS}/namespaces/vision/budgets", wire)
    assert answer.status == 422, answer.body
    assert {each["field"] for each in answer.json["details"]["causes"]} == {path}
    assert {problem.path for problem in check_budget(wire)} == {path}


def test_a_budget_that_says_all_there_is_to_say_is_taken(real: Client) -> None:
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
