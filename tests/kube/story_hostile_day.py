"""Attacks by users with the documented roles on a real API server with three replicas.

Each attack is refused, or contained and reported on the object, and Runs of another team still
start quickly. `ann` may spend as org:team, `ben` as org:other, `len` may lend what org:team has,
and `mallory` has all of Kubernetes' verbs on the ledger.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.apiserver.client import Answer
from tests.kubernetes.asking import API_SERVICE, RBAC, grant, is_available
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import (
    API,
    DEADLINE_S,
    QUERY_SERVICES,
    RUNS,
    Controller,
    Plane,
    budget,
    free_port,
    job,
    plane_on,
)
from tests.kubernetes.probe import Probe
from tests.kubernetes.replicas import holder
from tests.kubernetes.wellbeing import check_consistency

GROUP = API.partition("/")[0]
RBAC_GROUP = "rbac.authorization.k8s.io"
BUDGETS = f"/apis/{API}/namespaces/team/budgets"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/runs.{GROUP}"
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
OWNERS = {"ann": ("spend", "org:team"), "ben": ("spend", "org:other"), "len": ("lend", "org:team")}
ROLES = {"ann": "researcher", "ben": "researcher", "len": "budget-owner"}
LEDGER = ("ledgerbatches", "ledgerheads", "leases")
PROBES = 5
GRACE_S = 30  # that a cluster gives a pod to end
LARGE = 40  # Runs, each with as many groups as a Run may have
FOREIGN = re.compile(r"lab:probe|probe-\d|other/money")


class Day:
    def __init__(self, plane: Plane, manager: int) -> None:
        self.plane, self.manager = plane, manager
        self.cluster = plane.cluster
        self._ports: dict[str, int] = {}
        self.replicas: dict[str, Controller] = {}
        self.told: list[str] = []  # by test, how quickly the probe started
        self._bind_roles()
        for name in "abc":
            self.begin(name)
        plane.kubelets.add("n1", "n2", "n3", "n4")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
        self.probe = Probe(plane)
        self.probe.calm()

    def begin(self, name: str) -> None:
        """Start one more replica; it answers queries while it leads."""
        self._ports[name] = free_port()
        asked = f"127.0.0.1:{self._ports[name]}"
        self.replicas[name] = self.plane.controller(name, "--questions", asked)
        self.plane.until(lambda: bool(holder(self.plane)))

    def take_over(self) -> None:
        """Kill the leader, start a replacement, and wait until another replica leads."""
        before = holder(self.plane)
        gone = self.replicas.pop(before)
        gone.process.kill()
        gone.process.wait()
        self.begin(f"{before}-again")
        self.plane.until(lambda: holder(self.plane) not in ("", before))
        self.probe.started(1)

    def ask_holder(self) -> None:
        """Lead queries to the leader, as the Service of an installation does."""
        ask, port = self.cluster.client.ask, self._ports[holder(self.plane)]
        ask("DELETE", f"{QUERY_SERVICES}/leasehold-query")
        made = ask("POST", QUERY_SERVICES, {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "leasehold-query"},
            "spec": {"type": "ExternalName", "externalName": "localhost",
                     "ports": [{"name": "here", "port": port}]},
        })  # fmt: skip
        assert made.status == 201, made.body
        service = {"spec": {"service": {"port": port}}}
        if ask("GET", API_SERVICE).status == 200:
            ask("PATCH", API_SERVICE, json.dumps(service).encode(), headers=MERGE)
        else:
            self.take_over()
            self.ask_holder()
        self.plane.until(lambda: is_available(self.plane))

    def as_user(
        self, user: str, method: str, path: str, body: object, media: dict[str, str] | None = None
    ) -> Answer:
        headers = {"Impersonate-User": user, "Impersonate-Group": "system:authenticated"}
        sent = body if media is None else json.dumps(body).encode()
        return self.cluster.client.ask(method, path, sent, headers={**headers, **(media or {})})

    def message(self, name: str, namespace: str = "team") -> str:
        """Return the status of a Run as text."""
        found = self.plane.get(f"/apis/{API}/namespaces/{namespace}/runs/{name}")
        return json.dumps(found.get("status", {}))

    def payers(self) -> list[str]:
        """Return the payer of each open lease of the team, sorted."""
        is_open = [
            each for each in self.plane.all("leases") if not each.get("status", {}).get("closed")
        ]
        return sorted(f"{each['spec']['paidBy']['budget']}/{each['spec']['paidByEnvelope']}"
                      for each in is_open
                      if each["spec"]["runRef"]["namespace"] == "team")  # fmt: skip

    def clear(self) -> None:
        self.plane.kubectl.ok("delete", "runs", "--all", "-n", "team", "--wait=false")
        self.plane.until(lambda: not self.plane.get(RUNS)["items"])
        self.plane.until(lambda: not self.payers())
        self.plane.kubectl.ok("apply", "-f", self.plane.kubectl.file(budget()))

    def _bind_roles(self) -> None:
        ask = self.cluster.client.ask
        for user, (verb, owner) in OWNERS.items():
            head = {"apiVersion": f"{RBAC_GROUP}/v1", "metadata": {"name": f"{user}-{verb}"}}
            rules = [{"apiGroups": [GROUP], "resources": ["owners"], "resourceNames": [owner],
                      "verbs": [verb]}]  # fmt: skip
            ask("POST", f"{RBAC}/namespaces/team/roles", {**head, "kind": "Role", "rules": rules})
            grant(self.plane, user, f"{user}-{verb}", "team", kind="Role")
            grant(self.plane, user, f"leasehold-{ROLES[user]}", "team")
            grant(self.plane, user, "leasehold-asker")
        every = [{"apiGroups": [GROUP], "resources": list(LEDGER), "verbs": ["*"]}]
        head = {"apiVersion": f"{RBAC_GROUP}/v1", "metadata": {"name": "mallory"}}
        ask("POST", f"{RBAC}/clusterroles", {**head, "kind": "ClusterRole", "rules": every})
        grant(self.plane, "mallory", "mallory")


@pytest.fixture(scope="module")
def whole_day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    folder = tmp_path_factory.mktemp("day")
    cluster = Cluster(folder / "cluster", accounts=True)
    try:
        cluster.install()
        managers = cluster.managers(
            "serviceaccount-controller", "namespace-controller", "garbage-collector-controller"
        )
        with managers as manager, plane_on(cluster, folder, "") as plane:
            yield Day(plane, manager)
            plane.kill_controllers()
    finally:
        cluster.stop()


@pytest.fixture
def day(whole_day: Day, request: pytest.FixtureRequest) -> Iterator[Day]:
    """The day; after the test, with the attack's objects still there, the probe is measured."""
    yield whole_day
    told = whole_day.probe.judge(whole_day.probe.started(PROBES))
    whole_day.told.append(f"{request.node.name}: {told}")
    whole_day.clear()
    check_consistency(whole_day.plane)


def _sweep(name: str, groups: int) -> dict[str, Any]:
    sizes = {"gpuType": "H100-80GB", "totalGPUs": groups, "gpusPerPod": 1}
    return job(name, 8, gang="Group", locality={"groupGPUs": 1}, resources=sizes)


def test_run_of_million_groups_is_refused_with_path_and_remedy(day: Day) -> None:
    refused = day.as_user("ann", "POST", RUNS, _sweep("million", 1_000_000))
    assert refused.status == 422, refused.body
    [cause, *_] = refused.json["details"]["causes"]
    assert cause["field"] == "spec.locality.groupGPUs"
    assert "4096 groups" in cause["message"]


def test_stored_run_of_million_groups_is_quarantined_by_each_leader(day: Day) -> None:
    """Such a Run may have been stored before the bound existed. Every new leader finds it."""
    _store_without_rules(day, _sweep("million", 1_000_000))
    day.plane.until(lambda: "Quarantined" in day.message("million"))
    assert "spec.locality.groupGPUs" in day.message("million")
    leader = day.replicas[holder(day.plane)]
    assert "team/million" in leader.log()
    day.take_over()
    assert "Quarantined" in day.message("million")


def _store_without_rules(day: Day, run: dict[str, Any]) -> None:
    """Store a Run as an administrator who removes the definition's rules for a moment."""
    ask = day.cluster.client.ask
    strict = ask("GET", DEFINITION).json["spec"]["versions"]
    _define(day, _without_rules(strict))
    day.plane.until(lambda: ask("POST", f"{RUNS}?dryRun=All", run).status == 201)
    assert ask("POST", RUNS, run).status == 201
    _define(day, strict)
    tried = {**run, "metadata": {**run["metadata"], "name": "tried"}}
    day.plane.until(lambda: ask("POST", f"{RUNS}?dryRun=All", tried).status == 422)


def _without_rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_rules(each) for key, each in schema.items()
                if key != "x-kubernetes-validations"}  # fmt: skip
    return [_without_rules(each) for each in schema] if isinstance(schema, list) else schema


def _define(day: Day, versions: list[object]) -> None:
    body = json.dumps({"spec": {"versions": versions}}).encode()
    assert day.cluster.client.ask("PATCH", DEFINITION, body, headers=MERGE).status == 200


def test_many_runs_of_largest_size_do_not_delay_another_team(day: Day) -> None:
    for number in range(LARGE):
        made = day.as_user("ann", "POST", RUNS, _sweep(f"large-{number}", 4_096))
        assert made.status == 201, made.body
    day.plane.until(lambda: "Running" in day.message("large-0"))
    day.plane.until(lambda: "Pending" in day.message(f"large-{LARGE - 1}"))


def test_user_cannot_take_over_run_by_editing_two_fields_at_once(day: Day) -> None:
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8, "desiredTotalGPUs": 8}
    made = day.as_user("ann", "POST", RUNS, job("mine", 8, malleable=elastic))
    assert made.status == 201, made.body
    day.plane.until_phase("mine", "Running")
    wider = {"malleable": {"desiredTotalGPUs": 32}}
    for spec, said in (
        (wider, "org:team"),
        ({"owner": "org:other"}, "spec.owner"),
        ({"owner": "org:other", **wider}, "spec.owner"),
    ):
        refused = day.as_user("ben", "PATCH", f"{RUNS}/mine", {"spec": spec}, MERGE)
        assert refused.status in (403, 422), refused.body
        assert said in refused.json["message"]
    before = day.payers()
    day.take_over()
    assert day.plane.run("mine")["spec"]["owner"] == "org:team"
    assert day.payers() == before == ["money/west"]


def test_lender_cannot_make_budget_invalid_by_duplicate_envelope_name(day: Day) -> None:
    two = budget()
    [west] = two["spec"]["envelopes"]  # type: ignore[index]
    two["spec"]["envelopes"] = [west, {**west, "name": "east"}]  # type: ignore[index]
    day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(two, job("paid", 8)))
    day.plane.until_phase("paid", "Running")
    before = day.payers()
    step = {"op": "replace", "path": "/spec/envelopes/1/name", "value": "west"}
    refused = day.as_user("len", "PATCH", f"{BUDGETS}/money", [step], JSON_PATCH)
    assert refused.status == 422, refused.body
    assert "Duplicate value" in refused.json["message"]
    day.take_over()
    assert day.payers() == before


def test_kubectl_finds_leasehold_kinds_and_manifests_keep_their_namespace(day: Day) -> None:
    day.ask_holder()
    day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(job("train", 8)))
    day.plane.until_phase("train", "Running")
    for number in range(5):
        fresh = f"--cache-dir={day.plane.kubectl.home / f'fresh-{number}'}"
        found = day.plane.kubectl.ok("get", "runs", "-n", "team", "--as", "ann", fresh)
        assert "train" in found
        told = day.plane.kubectl.ok("get", "budgets", "-n", "team", fresh)
        assert re.search(r"money +org:team +1 +8/64 +Healthy", told), told
    file = day.plane.kubectl.file(job("next", 8))
    for question in ("plan", "cover"):
        answer = day.plane.leasehold("runs", question, "-f", file, user="ann")
        assert "next (org:team)" in answer.stdout, answer.stderr


def test_researcher_sees_no_names_of_other_teams(day: Day) -> None:
    day.ask_holder()
    for words in (
        ("list", "-A"), ("budgets", "usage"), ("budgets", "balance"), ("budgets", "tree"),
        ("leases", "--since", "1h"), ("leases", "--node", "probe"), ("leases", "-A"),
        ("report", "gpu-hours", "--by", "run"), ("report", "gpu-hours", "--by", "payer"),
    ):  # fmt: skip
        mine = day.plane.leasehold("runs", *words, user="ann")
        assert not FOREIGN.search(mine.stdout + mine.stderr), (words, mine.stdout, mine.stderr)
    raw = "/apis/query.rq.davidlangworthy.io/v1/questions/drain?node=probe"
    told = day.plane.kubectl("get", "--raw", raw, "--as", "ann")
    assert not FOREIGN.search(told.out + told.err), told.out


def test_run_starts_once_its_namespace_has_a_service_account(day: Day) -> None:
    os.kill(day.manager, signal.SIGSTOP)
    try:
        day.cluster.namespace("fresh")
        documents = [budget("org:fresh", "fresh"), job("early", 8, owner="org:fresh")]
        for each in documents:
            each["metadata"] = {**each["metadata"], "namespace": "fresh"}  # type: ignore[dict-item]
        day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(*documents))
        day.plane.until(lambda: "serviceaccount" in day.message("early", "fresh"))
        assert "tries again after a pause" in day.message("early", "fresh")
    finally:
        os.kill(day.manager, signal.SIGCONT)
    day.plane.until(lambda: '"phase": "Running"' in day.message("early", "fresh"))
    day.plane.kubectl.ok("delete", "run", "early", "-n", "fresh", "--wait=false")


def test_user_cannot_delete_ledger_and_new_runs_start_after_takeover(day: Day) -> None:
    day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(job("one", 8)))
    day.plane.until_phase("one", "Running")
    for kind in LEDGER:
        plural = f"{kind}.{GROUP}"
        there = day.plane.kubectl.ok("get", plural, "-o", "name").split()
        day.plane.kubectl.ok("delete", plural, "--all", "--wait=false", "--as", "mallory")
        still = day.plane.kubectl.ok("get", plural, "-o", "name").split()
        assert set(there) <= set(still), kind
    day.take_over()
    day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(job("two", 8)))
    day.plane.until_phase("two", "Running")


def test_explain_names_resize_interval_for_shrink_right_after_grow(day: Day) -> None:
    day.ask_holder()
    elastic = {"minTotalGPUs": 8, "maxTotalGPUs": 32, "stepGPUs": 8, "desiredTotalGPUs": 8}
    day.plane.kubectl.ok("apply", "-f", day.plane.kubectl.file(job("wide", 8, malleable=elastic)))
    day.plane.until_phase("wide", "Running")
    for change, gpus in (("grow", "16"), ("shrink", "8")):
        told = day.plane.leasehold("runs", change, "wide", "--to", gpus, "-n", "team")
        assert told.returncode == 0, told.stderr
        if change == "grow":
            day.plane.until(lambda: len(day.payers()) == 2)
    answer = day.plane.leasehold("runs", "explain", "wide", "-n", "team")
    assert "resize.interval" in answer.stdout, answer.stdout


def test_replicas_without_rights_still_stop_on_sigterm(
    whole_day: Day, record_property: Callable[[str, object], None]
) -> None:
    """This must be the last test of the day: no replica leads afterwards."""
    ask = whole_day.cluster.client.ask
    for path in (
        f"{RBAC}/clusterrolebindings/leasehold-controller",
        f"{RBAC}/namespaces/leasehold-system/rolebindings/leasehold-controller",
    ):
        assert ask("DELETE", path).status == 200
    leader = whole_day.replicas[holder(whole_day.plane)]
    whole_day.plane.until(lambda: "the API server does not allow this" in leader.log())
    began = time.monotonic()
    for each in whole_day.replicas.values():
        each.process.terminate()
    codes = [each.process.wait(DEADLINE_S) for each in whole_day.replicas.values()]
    took = time.monotonic() - began
    assert codes == [0, 0, 0], [each.log()[-2000:] for each in whole_day.replicas.values()]
    assert took < GRACE_S, took
    told = [*whole_day.told, f"replicas without rights ended within {took:.1f} s"]
    record_property("counts", "\n".join(told))
