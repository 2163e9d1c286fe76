"""`kubectl runs` against a cluster: the API server authenticates the caller and passes the query
on to the controller."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.asking import RBAC, answering, grant
from tests.kubernetes.plane import Plane, budget, job


@pytest.fixture
def asked(plane: Plane) -> Iterator[Plane]:
    """A plane with one Run that runs and a controller that answers queries."""
    plane.kubelets.add("n1")
    with answering(plane):
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
        plane.until_phase("train", "Running")
        yield plane


def test_queries_are_answered_with_the_callers_own_rights(asked: Plane) -> None:
    found = asked.leasehold("runs", "who-pays", "train", "-n", "team", "-o", "json")
    assert json.loads(found.stdout)["question"] == "who-pays", found.stderr
    for words in (
        ("list", "-n", "team"), ("explain", "train", "-n", "team"), ("leases", "-n", "team"),
        ("budgets", "usage"), ("pods", "train", "-n", "team"),
        ("report", "gpu-hours", "--by", "owner"),
    ):  # fmt: skip
        answer = asked.leasehold("runs", *words, user="ann")
        assert answer.returncode == 0, (words, answer.stderr)
    assert "train" in asked.leasehold("runs", "list", "-n", "team", user="ann").stdout
    # A user of another namespace is refused.
    refused = asked.leasehold("runs", "explain", "train", "-n", "team", user="vic")
    assert refused.returncode != 0
    assert "team" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_kubectl_finds_leasehold_kinds_beside_the_query_api(asked: Plane, tmp_path: Path) -> None:
    """Each command uses the short names of the kinds and an empty discovery cache."""
    # Events are written last, so the first ones may not be stored yet. `describe` does not show
    # events of other tests' Runs of this name.
    asked.until(lambda: "paid by" in asked.kubectl.ok("describe", "run", "train", "-n", "team"))
    for number, (words, said) in enumerate(
        (
            (("get", "runs"), "train"),
            (("get", "run", "train"), "train"),
            (("get", "runs,budgets"), "budget.rq.davidlangworthy.io/money"),
            (("get", "budgets"), "money"),
            (("get", "budget", "money", "-o", "name"), "budget.rq.davidlangworthy.io/money"),
            (("get", "gpulease", "-o", "name"), "lease.rq.davidlangworthy.io/train"),
            (("get", "reservations"), ""),
            (("get", "resolutions"), ""),
            (("explain", "run.spec.owner"), "VERSION:    v1"),
            (("describe", "run", "train"), "paid by team/money/west"),
            (("wait", "run/train", "--for=condition=Running"), "met"),
            (("delete", "runs", "train", "--wait=false"), "deleted"),
            (("delete", "budgets", "--all"), '"money" deleted'),
        )
    ):
        fresh = f"--cache-dir={tmp_path / str(number)}"
        assert said in asked.kubectl.ok(*words, "-n", "team", fresh), words
    listed = asked.kubectl.ok("api-resources", "--api-group=query.rq.davidlangworthy.io",
                              "--no-headers", f"--cache-dir={tmp_path / 'last'}")  # fmt: skip
    assert sorted(line.split()[0] for line in listed.splitlines()) == ["compaction", "questions"]


def test_queries_about_a_manifest_use_its_own_namespace(asked: Plane) -> None:
    """`ann` has rights in `team` only, and her context names no namespace."""
    file = asked.kubectl.file(job("next", 8), job("after", 8))
    for question, said in (("plan", "next (org:team)"), ("cover", "after (org:team)")):
        answer = asked.leasehold("runs", question, "-f", file, user="ann")
        assert said in answer.stdout, answer.stderr
    elsewhere = asked.leasehold("runs", "plan", "-f", file, user="vic")
    assert elsewhere.returncode != 0
    assert "team" in elsewhere.stderr


def test_role_may_allow_only_single_queries(asked: Plane) -> None:
    group, rbac = "query.rq.davidlangworthy.io", "/apis/rbac.authorization.k8s.io/v1"
    asked.cluster.client.ask("POST", f"{rbac}/clusterroles", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "q-lister"},
        "rules": [{"apiGroups": [group], "resources": ["questions"], "resourceNames": ["runs"],
                   "verbs": ["get"]}],
    })  # fmt: skip
    grant(asked, "olga", "q-lister")
    grant(asked, "olga", "leasehold-viewer", "team")
    asked.until(
        lambda: "train" in asked.leasehold("runs", "list", "-n", "team", user="olga").stdout
    )
    refused = asked.leasehold("runs", "leases", "-n", "team", user="olga")
    assert refused.returncode != 0
    assert 'cannot get resource "questions"' in refused.stderr


def test_caller_forbidden_by_api_server_gets_no_answer(asked: Plane) -> None:
    """A caller whom the API server forbids to send queries never reaches the controller."""
    asked.cluster.client.ask("DELETE", f"{RBAC}/clusterrolebindings/q-vic-leasehold-asker")

    def is_refused() -> bool:
        answer = asked.leasehold("runs", "list", "-n", "other", user="vic")
        return answer.returncode != 0 and "query.rq.davidlangworthy.io" in answer.stderr

    asked.until(is_refused)


# Commands of `kubectl runs` about the whole fleet or about a Run in the caller's own namespace.
WALK = (
    ("list", "-A"), ("list", "-n", "team"), ("reservations", "-n", "team"),
    ("reservations", "-A", "--past"),
    ("explain", "train", "-n", "team"), ("plan", "train", "-n", "team"),
    ("cover", "--explain", "train", "-n", "team"), ("who-pays", "train", "-n", "team"),
    ("sponsors", "list", "train", "-n", "team"), ("pods", "train", "-n", "team"),
    ("budgets", "usage"), ("budgets", "balance"), ("budgets", "tree"),
    ("leases", "--since", "1h"), ("leases", "--node", "n1"), ("leases", "--node", "n2"),
    *(("report", "gpu-hours", "--by", by) for by in ("owner", "payer", "run", "node", "day")),
)  # fmt: skip
_QUERY = "/apis/query.rq.davidlangworthy.io/v1/questions"
_PLAIN = ("attention", "audit", "budgets", "burn", "fleet", "leases", "ledger-head", "report",
          "reservations", "resolutions", "runs", "drain?node=n1", "drain?node=n2",
          "report?by=run", "leases?since=1h", "fleet?at=1s")  # fmt: skip
FOREIGN = re.compile(r"rivals|raid|org:rivals|hoard")


def test_researcher_sees_no_names_of_other_teams(asked: Plane) -> None:
    asked.kubelets.add("n2")
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rivals"}}
    money = budget("org:rivals", "rivals")
    money["metadata"] = {"name": "hoard", "namespace": "rivals"}
    run = job("raid", 4)
    run["metadata"] = {"name": "raid", "namespace": "rivals"}
    run["spec"] = {**run["spec"], "owner": "org:rivals"}  # type: ignore[dict-item]
    asked.kubectl.ok("apply", "-f", asked.kubectl.file(namespace, money, run))
    asked.until(lambda: "raid" in asked.leasehold("runs", "leases", "--since", "1h").stdout)

    for words in WALK:
        mine = asked.leasehold("runs", *words, user="ann")
        assert not FOREIGN.search(mine.stdout + mine.stderr), (words, mine.stdout, mine.stderr)
        assert mine.returncode == 0, (words, mine.stderr)
    for path in _PLAIN:
        told = asked.kubectl("get", "--raw", f"{_QUERY}/{path}", "--as", "ann")
        assert not FOREIGN.search(told.out + told.err), (path, told.out)
        assert (told.code == 0) is (path != "resolutions"), told.err
    own = asked.leasehold("runs", "budgets", "usage", "--owner", "org:team", user="ann")
    assert "team/money/west" in own.stdout, own.stderr
    theirs = asked.leasehold("runs", "budgets", "usage", "--owner", "org:rivals", user="ann")
    assert theirs.returncode != 0
    everything = asked.leasehold("runs", "budgets", "usage")
    assert "rivals/hoard/west" in everything.stdout, "an administrator reads all names"
