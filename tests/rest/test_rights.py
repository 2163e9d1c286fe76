"""Rights on owners: which rights a write needs, and the refusal if one is missing."""

from typing import Any

import pytest
from tests.rest.facade import (
    ADMIN,
    ANN,
    BUDGETS,
    LENDER,
    RUNS,
    SYSTEM,
    Facade,
    budget,
    run,
)

from leasehold.core.objects.access import Caller, CallerRole, OwnerVerb
from leasehold.core.objects.rights import missing_right, rights_needed, rights_to_delete

FUND, SPEND, LEND = OwnerVerb.FUND, OwnerVerb.SPEND, OwnerVerb.LEND
OWNER = "org:ai:mm:vision"
WEST = {"name": "west", "flavor": "H100-80GB", "concurrency": 8}
LENDING = {**WEST, "lending": {"allow": True, "to": ["org:*"]}}
MORE = {**WEST, "concurrency": 9}
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def with_metadata(obj: dict[str, Any], **metadata: object) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


@pytest.mark.parametrize(
    ("old", "new", "needed"),
    [
        (None, budget("b"), [(FUND, OWNER)]),
        (budget("b"), budget("b"), []),
        (budget("b"), budget("b", envelopes=[MORE]), [(FUND, OWNER)]),
        (budget("b", envelopes=[MORE]), budget("b"), [(FUND, OWNER)]),
        (budget("b"), budget("b", envelopes=[LENDING]), [(LEND, OWNER)]),
        (budget("b", envelopes=[LENDING]), budget("b"), [(LEND, OWNER)]),
        (budget("b"), budget("b", envelopes=[{**LENDING, "concurrency": 9}]), [(FUND, OWNER)]),
        (budget("b"), budget("b", envelopes=[LENDING, {**WEST, "name": "e"}]), [(FUND, OWNER)]),
        (budget("b"), budget("b", namespaces=["n"]), [(FUND, OWNER)]),
        (None, budget("b", parents=["org:ai:mm", "org"]), [(FUND, OWNER)]),
        (None, budget("b", parents=["org:ai:rai"]), [(FUND, OWNER), (FUND, "org:ai:rai")]),
        (None, budget("b", parents=["org:ai:m"]), [(FUND, OWNER), (FUND, "org:ai:m")]),
        (budget("b", parents=["x"]), budget("b", parents=["x"], envelopes=[MORE]), [(FUND, OWNER)]),
        (None, run("r"), [(SPEND, OWNER)]),
        (run("r"), run("r"), []),
        (run("r"), run("r", sparesPerGroup=8), [(SPEND, OWNER)]),
        (run("r"), run("r", stop=True), []),
        (run("r"), run("r", owner="org:b"), [(SPEND, OWNER), (SPEND, "org:b")]),
        (budget("b"), with_metadata(budget("b"), finalizers=["x/y"]), [(FUND, OWNER)]),
        (with_metadata(budget("b"), finalizers=["x/y"]), budget("b"), [(FUND, OWNER)]),
        (budget("b"), with_metadata(budget("b"), labels={"a": "b"}), [(FUND, OWNER)]),
        (budget("b"), with_metadata(budget("b"), annotations={"a": "b"}), [(FUND, OWNER)]),
        (budget("b"), with_metadata(budget("b"), ownerReferences=[{"uid": "u"}]), [(FUND, OWNER)]),
        (budget("b"), with_metadata(budget("b", envelopes=[LENDING]), labels={"a": "b"}),
         [(FUND, OWNER)]),
        (budget("b"), with_metadata(budget("b"), labels={}, finalizers=[]), []),
        (budget("b"), with_metadata(budget("b"), managedFields=[{}], generation=2), []),
        (budget("b"), with_metadata(budget("b"), annotations={APPLIED: "{}"}), [(LEND, OWNER)]),
        (budget("b"), with_metadata(budget("b", envelopes=[LENDING]), annotations={APPLIED: "{}"}),
         [(LEND, OWNER)]),
        (run("r"), with_metadata(run("r"), labels={"a": "b"}), [(SPEND, OWNER)]),
        (run("r"), with_metadata(run("r", stop=True), finalizers=["x/y"]), [(SPEND, OWNER)]),
        (run("r"), with_metadata(run("r"), managedFields=[{}]), []),
        (None, {"kind": "Node"}, []),
        (None, {"kind": "Run", "spec": []}, []),
        (None, {"kind": "Budget", "spec": {"owner": 1}}, []),
    ],
)  # fmt: skip
def test_write_needs_verbs_on_affected_owners(
    old: Any, new: Any, needed: list[tuple[OwnerVerb, str]]
) -> None:
    assert rights_needed(old, new) == needed


def test_missing_right_is_found_by_role_and_verb() -> None:
    funder = Caller(user="f", fund=("org:*",))
    assert missing_right(funder, [(FUND, "org:a"), (LEND, "org:a")]) is None
    assert missing_right(funder, [(SPEND, "org:a")]) == (SPEND, "org:a")
    assert missing_right(LENDER, [(LEND, OWNER), (FUND, OWNER)]) == (FUND, OWNER)
    assert missing_right(Caller(user="a", role=CallerRole.ADMIN), [(FUND, "x")]) is None
    assert rights_to_delete(budget("b")) == [(FUND, OWNER)]
    assert rights_to_delete(run("r")) == []


def test_budget_writes_need_fund_and_lending_needs_lend(facade: Facade) -> None:
    refused = facade.ask("POST", BUDGETS, budget("mint"), caller=LENDER)
    assert refused.status == 403
    message = refused.json["message"]
    assert f"verb fund on owner {OWNER}" in message
    assert f"leasehold token create --user lee --fund '{OWNER}'" in message

    assert facade.ask("POST", BUDGETS, budget("mint"), caller=ANN).status == 201
    path = f"{BUDGETS}/mint"
    raised = {"spec": {"envelopes": [MORE]}}
    assert facade.ask("PATCH", path, raised, headers=MERGE, caller=LENDER).status == 403
    lent = {"spec": {"envelopes": [LENDING]}}
    assert facade.ask("PATCH", path, lent, headers=MERGE, caller=LENDER).status == 200
    assert facade.ask("DELETE", path, caller=LENDER).status == 403
    assert facade.ask("DELETE", BUDGETS, caller=LENDER).status == 403
    elsewhere = budget("child", parents=["org:rich"])
    told = facade.ask("POST", BUDGETS, elsewhere, caller=ANN)
    assert "verb fund on owner org:rich" in told.json["message"]
    assert facade.ask("DELETE", path, caller=ANN).status == 200


def test_metadata_edits_need_verb_on_owner(facade: Facade) -> None:
    """A finalizer delays the deletion of a Budget; the deletion completes without it."""
    held: list[dict[str, object]] = [
        {"finalizers": ["example.org/mine"]}, {"labels": {"team": "x"}},
        {"annotations": {"note": "x"}},
        {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "vision",
                              "uid": "u"}]},
    ]  # fmt: skip
    assert facade.ask("POST", BUDGETS, budget("kept"), caller=ANN).status == 201
    assert facade.ask("POST", RUNS, run("kept"), caller=ANN).status == 201
    for path, right in ((f"{BUDGETS}/kept", "fund"), (f"{RUNS}/kept", "spend")):
        for metadata in held:
            patch = {"metadata": metadata}
            refused = facade.ask("PATCH", path, patch, headers=MERGE, caller=LENDER)
            assert refused.status == 403, metadata
            assert f"verb {right} on owner {OWNER}" in refused.json["message"]
            assert facade.ask("PATCH", path, patch, headers=MERGE, caller=ANN).status == 200
        off = {"metadata": {"finalizers": None}}
        assert facade.ask("PATCH", path, off, headers=MERGE, caller=LENDER).status == 403
        assert facade.ask("PATCH", path, off, headers=MERGE, caller=SYSTEM).status == 200


def test_run_writes_need_spend_on_owner_except_stop(facade: Facade) -> None:
    assert facade.ask("POST", RUNS, run("spent"), caller=ANN).status == 201
    rich = run("rich", owner="org:rich")
    refused = facade.ask("POST", RUNS, rich, caller=ANN)
    assert refused.status == 403
    assert "verb spend on owner org:rich" in refused.json["message"]
    assert facade.ask("POST", RUNS, rich, caller=LENDER).status == 403
    assert facade.ask("POST", RUNS, rich, caller=ADMIN).status == 201
    patch = {"spec": {"owner": "org:rich"}}
    assert facade.ask("PATCH", f"{RUNS}/spent", patch, headers=MERGE, caller=ANN).status == 403
    stop = {"spec": {"stop": True}}
    assert facade.ask("PATCH", f"{RUNS}/rich", stop, headers=MERGE, caller=ANN).status == 200


def test_run_of_another_owner_cannot_be_taken_over(facade: Facade) -> None:
    """An edit needs the verb on the previous owner, and only a few fields can be edited at all."""
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8, "desiredTotalGPUs": 8}
    assert facade.ask("POST", RUNS, run("taken", malleable=elastic), caller=ADMIN).status == 201
    ben = Caller(user="ben", namespaces=("vision",), spend=("org:b",))
    wider = {"malleable": {"desiredTotalGPUs": 32}}
    for edit in (wider, {"owner": "org:b"}, {"owner": "org:b", **wider}):
        refused = facade.ask("PATCH", f"{RUNS}/taken", {"spec": edit}, headers=MERGE, caller=ben)
        assert refused.status == 403, edit
        assert f"verb spend on owner {OWNER}" in refused.json["message"]
    moved = {"spec": {"owner": "org:b", **wider}}
    refused = facade.ask("PATCH", f"{RUNS}/taken", moved, headers=MERGE, caller=ADMIN)
    assert refused.status == 422
    assert [each["field"] for each in refused.json["details"]["causes"]] == ["spec.owner"]


def test_access_reviews_agree_with_enforcement(facade: Facade) -> None:
    review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    cases = [
        (ANN, "create", "runs", "vision", True), (ANN, "create", "runs", "audio", False),
        (ANN, "list", "runs", "", False), (ADMIN, "list", "runs", "", True),
        (ANN, "delete", "pods", "vision", False), (ADMIN, "delete", "pods", "vision", True),
        (ADMIN, "create", "leases", "", False), (SYSTEM, "create", "leases", "", True),
        (ANN, "list", "leases", "", True), (ANN, "patch", "nodes", "", False),
        (ADMIN, "*", "*", "", False), (SYSTEM, "*", "*", "", True), (ANN, "eat", "runs", "", False),
        (ANN, "get", "toasters", "vision", False),
    ]  # fmt: skip
    for caller, verb, plural, namespace, allowed in cases:
        group = "" if plural in ("pods", "nodes") else "rq.davidlangworthy.io"
        asked = {"verb": verb, "resource": plural, "group": "*" if plural == "*" else group,
                 "namespace": namespace}  # fmt: skip
        body = {"kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": asked}}
        answer = facade.ask("POST", review, body, caller=caller)
        assert answer.status == 201
        assert answer.json["status"]["allowed"] is allowed, (caller.user, verb, plural, namespace)
    bad = {"kind": "SelfSubjectRulesReview"}
    assert facade.ask("POST", review, bad).status == 400
    assert facade.ask("GET", review).status == 405
