"""What the API server refuses by itself, by roles and policies and without a webhook."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.apiserver.client import Answer
from tests.conformance.things import pod, thing
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import API, DEADLINE_S, RUNS, budget, job

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BUDGETS = f"/apis/{API}/namespaces/team/budgets"
LEASES = f"/apis/{API}/leases"
PODS = "/api/v1/namespaces/team/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
# Each user's role in namespace `team`, and verbs on owners.
PEOPLE = {
    "ann": ("leasehold-researcher", {"spend": ["org:team"]}),
    "ben": ("leasehold-researcher", {"spend": ["org:other"]}),
    "bob": ("leasehold-budget-owner", {"fund": ["org:team"]}),
    "len": ("leasehold-budget-owner", {"lend": ["org:team"]}),
    "vic": ("leasehold-viewer", {}),
}


@pytest.fixture(scope="module")
def people(installed: Cluster) -> Cluster:
    """A cluster on which each user has their role; `eve` has all verbs of Kubernetes on our kinds,
    but none of leasehold's own verbs."""
    ask = installed.client.ask
    for name, (role, verbs) in PEOPLE.items():
        rules = [
            {"apiGroups": [API.partition("/")[0]], "resources": ["owners"],
             "resourceNames": owners, "verbs": [verb]}
            for verb, owners in verbs.items()
        ]  # fmt: skip
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        ask("POST", f"{RBAC}/namespaces/team/roles", {**head, "kind": "Role", "rules": rules})
        for kind, referred in (("Role", name), ("ClusterRole", role)):
            _bind(installed, "team", f"{name}-{kind.lower()}", name, kind, referred)
    every = [{"apiGroups": ["", API.partition("/")[0]], "resources": _KINDS, "verbs": _VERBS}]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "eve"}}
    ask("POST", f"{RBAC}/clusterroles", {**head, "kind": "ClusterRole", "rules": every})
    _bind(installed, "", "eve", "eve", "ClusterRole", "eve")
    _wait_for_policies(installed)
    return installed


def _wait_for_policies(cluster: Cluster) -> None:
    """Wait until all policies are in force; each needs a second or two after its creation."""
    eve, labelled = As(cluster, "eve"), pod("tried", node="")
    labelled["metadata"] = {"name": "tried", "labels": {"rq.davidlangworthy.io/run-uid": "x"}}
    tried = [
        (f"/apis/{API}/ledgerheads", thing("tried", kind="LedgerHead", namespace="")),
        (RUNS, job("tried", 8)),
        (BUDGETS, budget()),
        (PODS, labelled),
    ]
    due = time.monotonic() + DEADLINE_S
    while any(eve.create(f"{path}?dryRun=All", body).status == 201 for path, body in tried):
        assert time.monotonic() < due, "the policies are not in force"
        time.sleep(0.1)
    made = As(cluster, "ann")
    while "finalizers" not in made.create(f"{RUNS}?dryRun=All", job("tried", 8)).json["metadata"]:
        assert time.monotonic() < due, "created Runs have no finalizer yet"
        time.sleep(0.1)


_VERBS = ["get", "list", "watch", "create", "update", "patch", "delete"]
_KINDS = [
    "runs", "runs/status", "budgets", "budgets/status", "leases", "leases/status", "ledgerheads",
    "ledgerbatches", "resolutions", "reservations", "reservations/status", "pods",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _clean(people: Cluster) -> Iterator[None]:
    yield
    people.wipe()


def _bind(cluster: Cluster, namespace: str, name: str, who: str, kind: str, role: str) -> None:
    group = "rbac.authorization.k8s.io"
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    cluster.client.ask(
        "POST",
        f"{RBAC}/{where}",
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": who}],
            "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        },
    )


class As:
    """A client that impersonates a user."""

    def __init__(self, cluster: Cluster, who: str) -> None:
        self._cluster = cluster
        self._headers = {"Impersonate-User": who, "Impersonate-Group": "system:authenticated"}

    def create(self, path: str, body: object) -> Answer:
        return self._cluster.client.ask("POST", path, body, headers=self._headers)

    def patch(self, path: str, change: object) -> Answer:
        headers = {**self._headers, **MERGE}
        return self._cluster.client.ask("PATCH", path, json.dumps(change).encode(), headers=headers)


def _assert_refused(answer: Answer, *words: str) -> None:
    said: Any = answer.json
    assert answer.status in (403, 422), said
    for each in words:
        assert each in said["message"], said["message"]


def test_user_without_spend_verb_cannot_run_as_that_owner(people: Cluster) -> None:
    ann = As(people, "ann")
    assert ann.create(RUNS, job("mine", 8)).status == 201
    _assert_refused(
        ann.create(RUNS, job("theirs", 8, owner="org:other")), "ann", "spend", "org:other"
    )
    _assert_refused(ann.patch(f"{RUNS}/mine", {"spec": {"owner": "org:other"}}), "spec.owner")
    _assert_refused(As(people, "vic").create(RUNS, job("theirs", 8)), "runs")
    _assert_refused(As(people, "eve").create(RUNS, job("theirs", 8)), "eve", "spend")


def test_owner_of_a_run_cannot_be_edited(people: Cluster) -> None:
    """Editing the owner is refused even together with a field that may be edited."""
    ann, ben = As(people, "ann"), As(people, "ben")
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8, "desiredTotalGPUs": 8}
    assert ann.create(RUNS, job("mine", 8, malleable=elastic)).status == 201
    wider = {"malleable": {"desiredTotalGPUs": 32}}
    _assert_refused(ben.patch(f"{RUNS}/mine", {"spec": wider}), "ben", "spend", "org:team")
    for more in ({}, wider, {"stop": True}, {"runtime": {"maxDuration": "99h"}}):
        taken = ben.patch(f"{RUNS}/mine", {"spec": {"owner": "org:other", **more}})
        assert taken.status == 422
        _assert_refused(taken, "spec.owner", "can be edited")
    # The controller, to which the policies do not apply, is refused too.
    patched = people.client.ask(
        "PATCH",
        f"{RUNS}/mine",
        json.dumps({"spec": {"owner": "org:other", **wider}}).encode(),
        headers=MERGE,
    )
    _assert_refused(patched, "spec.owner", "can be edited")
    assert people.client.ask("GET", f"{RUNS}/mine").json["spec"]["owner"] == "org:team"
    assert ann.patch(f"{RUNS}/mine", {"spec": wider}).status == 200


def test_created_run_has_finalizer_and_names_its_submitter(people: Cluster) -> None:
    made: Any = As(people, "ann").create(RUNS, job("mine", 8)).json
    assert made["metadata"]["finalizers"] == ["rq.davidlangworthy.io/leases-closed"]
    assert made["metadata"]["annotations"]["rq.davidlangworthy.io/submitter"] == "ann"


def test_user_without_spend_verb_may_stop_a_run_but_not_extend_it(people: Cluster) -> None:
    As(people, "ann").create(RUNS, job("mine", 8))
    eve = As(people, "eve")
    assert eve.patch(f"{RUNS}/mine", {"spec": {"stop": True}}).status == 200
    wider = {"spec": {"runtime": {"maxDuration": "99h"}}}
    _assert_refused(eve.patch(f"{RUNS}/mine", wider), "spend")
    assert As(people, "ann").patch(f"{RUNS}/mine", wider).status == 200


def test_budget_edit_needs_fund_verb_and_lending_edit_needs_lend_verb(people: Cluster) -> None:
    bob, len_, eve = (As(people, who) for who in ("bob", "len", "eve"))
    _assert_refused(len_.create(BUDGETS, budget()), "len", "fund", "org:team")
    assert bob.create(BUDGETS, budget()).status == 201
    _assert_refused(
        bob.create(BUDGETS, {**budget(), **_renamed("x", "org:rich")}), "fund", "org:rich"
    )
    envelope: dict[str, object] = {"name": "west", "flavor": "H100-80GB", "concurrency": 64}
    more = {"spec": {"envelopes": [{**envelope, "concurrency": 6400}]}}
    lent = {"spec": {"envelopes": [{**envelope, "lending": {"allow": True, "to": ["org:*"]}}]}}
    for who, change in ((len_, more), (eve, more), (eve, lent)):
        _assert_refused(who.patch(f"{BUDGETS}/money", change), "fund")
    assert len_.patch(f"{BUDGETS}/money", lent).status == 200
    assert bob.patch(f"{BUDGETS}/money", more).status == 200
    _assert_refused(
        bob.patch(f"{BUDGETS}/money", {"spec": {"parents": ["org:rich"]}}), "fund", "org:rich"
    )
    _assert_refused(bob.patch(f"{BUDGETS}/money", {"spec": {"owner": "org:rich"}}))


def _renamed(name: str, owner: str) -> dict[str, object]:
    made: Any = budget(owner)
    return {"metadata": {**made["metadata"], "name": name}, "spec": made["spec"]}


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Lease", "leases"), ("LedgerHead", "ledgerheads"), ("LedgerBatch", "ledgerbatches"),
        ("Resolution", "resolutions"),
    ],
)  # fmt: skip
def test_user_cannot_create_ledger_objects(people: Cluster, kind: str, plural: str) -> None:
    made = thing("forged", kind=kind, namespace="")
    _assert_refused(As(people, "eve").create(f"/apis/{API}/{plural}", made), "ledger")


def test_lease_cannot_be_edited_or_reopened(people: Cluster) -> None:
    people.client.ask("POST", LEASES, thing("l", kind="Lease", namespace=""))
    path, eve = f"{LEASES}/l", As(people, "eve")
    _assert_refused(eve.patch(path, {"metadata": {"labels": {"a": "b"}}}), "ledger")
    _assert_refused(eve.patch(f"{path}/status", {"status": {"closed": True}}), "ledger")
    close = json.dumps({"status": {"closed": True}}).encode()
    people.client.ask("PATCH", f"{path}/status", close, headers=MERGE)
    # The controller, which writes the ledger, is refused too.
    again = json.dumps({"status": {"closed": False}}).encode()
    _assert_refused(people.client.ask("PATCH", f"{path}/status", again, headers=MERGE), "final")
    spec = json.dumps({"spec": {"batch": 7}}).encode()
    _assert_refused(people.client.ask("PATCH", path, spec, headers=MERGE), "immutable")


def test_user_cannot_write_status_of_a_run(people: Cluster) -> None:
    As(people, "ann").create(RUNS, job("mine", 8))
    done = {"status": {"phase": "Completed"}}
    _assert_refused(As(people, "eve").patch(f"{RUNS}/mine/status", done), "ledger")
    _assert_refused(As(people, "ann").patch(f"{RUNS}/mine/status", done), "runs/status")


def test_user_cannot_create_relabel_or_bind_leasehold_pods(people: Cluster) -> None:
    eve, ours = As(people, "eve"), {"rq.davidlangworthy.io/run-uid": "x"}
    made: Any = pod("forged", node="")
    made["metadata"]["labels"] = ours
    _assert_refused(eve.create(PODS, made), "labels")
    people.client.ask("POST", PODS, made)
    _assert_refused(eve.patch(f"{PODS}/forged", {"metadata": {"labels": None}}), "labels")
    assert eve.patch(f"{PODS}/forged", {"metadata": {"labels": {"mine": "1"}}}).status == 200
    assert eve.create(PODS, pod("theirs", node="")).status == 201
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "forged"},
               "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}}  # fmt: skip
    _assert_refused(As(people, "ann").create(f"{PODS}/forged/binding", binding), "pods/binding")


def test_user_with_delete_verb_may_delete_a_lease(people: Cluster) -> None:
    people.client.ask("POST", LEASES, thing("l", kind="Lease", namespace=""))
    gone = people.client.ask("DELETE", f"{LEASES}/l", headers={"Impersonate-User": "eve"})
    assert gone.status == 200


def _many(total: int, *, group: int | None = None, pod: int | None = None) -> dict[str, object]:
    """Return sizes that are each legal but together make too many groups or pods."""
    sizes: dict[str, object] = {"gpuType": "H100-80GB", "totalGPUs": total}
    sizes |= {} if pod is None else {"gpusPerPod": pod}
    return {"resources": sizes, **({} if group is None else {"locality": {"groupGPUs": group}})}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"resources": {"gpuType": "H100-80GB", "totalGPUs": 0}}, "spec.resources.totalGPUs"),
        ({"locality": {"groupGPUs": 3}}, "spec.locality.groupGPUs"),
        ({"resources": {"gpuType": "a", "totalGPUs": 8, "gpusPerPod": 3}}, "gpusPerPod"),
        (_many(1_000_000, group=1, pod=1), "spec.locality.groupGPUs"),
        (_many(1_000_000, group=500, pod=1), "spec.resources.gpusPerPod"),
        (_many(16_385), "spec.resources.gpusPerPod"),
        ({"sparesPerGroup": 8 * 16_384}, "spec.resources.gpusPerPod"),
        (
            {"malleable": {"minTotalGPUs": 8, "maxTotalGPUs": 8 * 4097}},
            "spec.locality.groupGPUs",
        ),
        (
            {"funding": {"allowBorrow": True, "sponsors": [f"org:o{n}" for n in range(65)]}},
            "spec.funding.sponsors",
        ),
        ({"owner": "org::team"}, "spec.owner"),
        ({"malleable": {"minTotalGPUs": 4, "maxTotalGPUs": 8}}, "spec.malleable.minTotalGPUs"),
        ({"funding": {"sponsors": ["org:other"]}}, "spec.funding.sponsors"),
        ({"runtime": {"maxDuration": "soon"}}, "spec.runtime.maxDuration"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
        (
            {"template": {"spec": {"nodeName": "n", "containers": [{"name": "main"}]}}},
            "spec.template.spec.nodeName",
        ),
        (
            {"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "m"}]}}},
            "spec.template.spec.restartPolicy",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_invalid_run_is_refused_by_its_definition(
    people: Cluster, change: dict[str, object], path: str
) -> None:
    bad: Any = job("bad", 8)
    bad["spec"] |= change
    answer = people.client.ask("POST", RUNS, bad)
    assert answer.status == 422, answer.body
    fields = [each["field"] for each in answer.json["details"]["causes"]]
    assert any(path in each for each in fields), answer.body


def test_cancelled_run_cannot_be_restarted(people: Cluster) -> None:
    people.client.ask("POST", RUNS, job("stopped", 8, stop=True))
    patch = {"Content-Type": "application/merge-patch+json"}
    body = json.dumps({"spec": {"stop": False}}).encode()
    answer = people.client.ask("PATCH", f"{RUNS}/stopped", body, headers=patch)
    assert answer.status == 422
    assert "cannot be resumed" in answer.json["message"]
