"""`leasehold ledger compact` on a cluster: requested through the API server, with the caller's
rights, while Runs go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.asking import answering, grant
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.plane import Plane, budget, job, plane_on
from tests.kubernetes.wellbeing import check_consistency


@pytest.fixture
def plane(installed: Cluster, tmp_path: Path) -> Iterator[Plane]:
    settings = f"{SETTINGS}ledger.archive: {tmp_path / 'archive'}\n"
    with plane_on(installed, tmp_path, settings) as found:
        yield found


@pytest.fixture
def working(plane: Plane) -> Iterator[Plane]:
    """A plane on which one Run has completed and another runs.

    `olga` is an operator; `ann` and `vic` are not.
    """
    plane.kubelets.add("n1", "n2")
    with answering(plane):
        grant(plane, "olga", "leasehold-operator")
        jobs = [job("long", 8), job("short", 8)]
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), *jobs))
        plane.until_phase("long", "Running")
        run = plane.until_phase("short", "Running")
        plane.exit_all(run["metadata"]["uid"])
        plane.until_phase("short", "Completed")
        yield plane


def _compact(plane: Plane, *more: str, user: str = "olga") -> str:
    kubeconfig = str(plane.cluster.kubeconfig(user))
    done = plane.leasehold("ledger", "compact", "--kubeconfig", kubeconfig, *more)
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) is not bool(done.stderr), done
    return done.stdout + done.stderr


def _leases(plane: Plane) -> list[str]:
    return [each["spec"]["runRef"]["name"] for each in plane.all("leases")]


def test_operator_compacts_ledger_while_runs_go_on(working: Plane, tmp_path: Path) -> None:
    archive = ("--archive", str(tmp_path / "archive"))
    before = working.leasehold("runs", "who-pays", "short", "-n", "team").stdout
    assert "nothing is old enough" in _compact(working)
    assert sorted(_leases(working)) == ["long", "short"]
    said = _compact(working, "--keep", "0s")
    assert said.startswith("archived up to batch ")
    assert ", 1 lease and 0 resolutions left the store" in said
    assert _leases(working) == ["long"]
    assert working.run("long")["status"]["phase"] == "Running"
    assert list((tmp_path / "archive").glob("segment-*.json"))
    # Live and archived records are one ledger, and every answer is the same as before.
    assert working.leasehold("runs", "who-pays", "short", "-n", "team").stdout == before
    kubeconfig = ("--kubeconfig", str(working.cluster.kubeconfig()))
    verified = working.leasehold("ledger", "verify", *kubeconfig, *archive)
    assert verified.stdout.startswith("ledger verify: ok ("), verified.stderr
    exported = working.leasehold("ledger", "export", "--format", "csv", *kubeconfig, *archive)
    assert ",short," in exported.stdout
    # The ledger continues from there.
    working.exit_all(working.run("long")["metadata"]["uid"])
    working.until_phase("long", "Completed")
    audited = working.leasehold("audit", *kubeconfig, *archive)
    assert audited.stdout.startswith("audit: ok"), audited.stdout + audited.stderr


def test_user_without_compact_verb_cannot_compact_ledger(working: Plane) -> None:
    """A user who may send queries reaches the controller, which asks the authorizer."""
    for user in ("ann", "vic"):
        said = _compact(working, "--keep", "0s", user=user)
        assert f"{user} may not compact the ledger" in said
        assert "the verb compact on ledgers.rq.davidlangworthy.io" in said
    assert "cannot" in _compact(working, "--keep", "0s", user="bob"), (
        "bob may not even send queries"
    )
    assert sorted(_leases(working)) == ["long", "short"]
    check_consistency(working)


def test_malformed_compaction_request_is_refused_with_explanation(working: Plane) -> None:
    path = "/apis/query.rq.davidlangworthy.io/v1/compaction"
    ask = working.cluster.client.ask
    for body, said in (({"keep": "soon"}, "keep: 'soon' is not a duration"), ({"keep": 7}, "keep")):
        answer = ask("POST", path, body)
        assert (answer.status, said in answer.json["message"]) == (422, True), answer.body
    assert ask("GET", path).status == 405
    assert "--keep" in _compact(working, "--keep", "soon")


def test_compaction_without_archive_or_controller_says_what_is_missing(
    installed: Cluster, tmp_path: Path
) -> None:
    with plane_on(installed, tmp_path, SETTINGS) as plane, answering(plane):
        grant(plane, "olga", "leasehold-operator")
        assert "there is no archive; set ledger.archive" in _compact(plane)
        plane.stop_controllers()
        assert "is leasehold's controller running?" in _compact(plane)
