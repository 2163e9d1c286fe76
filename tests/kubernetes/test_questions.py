"""`kubectl runs` against a cluster: the API server says who asks, and passes the question on."""

import json
from collections.abc import Iterator

import pytest
from tests.kubernetes.asking import RBAC, answering
from tests.kubernetes.plane import Plane, budget, job


@pytest.fixture
def asked(plane: Plane) -> Iterator[Plane]:
    """One Run under way, and a controller that answers."""
    plane.kubelets.add("n1")
    with answering(plane):
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
        plane.until_phase("train", "Running")
        yield plane


def test_questions_are_answered_with_the_callers_own_rights(asked: Plane) -> None:
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
    # Another tenant's.
    refused = asked.leasehold("runs", "explain", "train", "-n", "team", user="vic")
    assert refused.returncode != 0
    assert "team" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nobody_else_may_speak_for_others(asked: Plane) -> None:
    """A caller whom the API server does not let ask never reaches us."""
    asked.cluster.client.ask("DELETE", f"{RBAC}/clusterrolebindings/q-vic-leasehold-asker")

    def is_refused() -> bool:
        answer = asked.leasehold("runs", "list", "-n", "other", user="vic")
        return answer.returncode != 0 and "query.rq.davidlangworthy.io" in answer.stderr

    asked.until(is_refused)
