"""Thousands of mutated manifests of one tenant on a real API server with three replicas.

The leader is once killed and once stopped meanwhile. No other replica exits, Runs of another team
start quickly, and after everything is deleted nothing is left behind.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.kubernetes.asking import RBAC, grant
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.plane import Controller, Plane, plane_on
from tests.kubernetes.probe import Probe
from tests.kubernetes.replicas import holder
from tests.kubernetes.wellbeing import check_consistency
from tests.up.fuzz import CONFIG, SUBMISSIONS, seed_of_commit
from tests.up.raw import Raw
from tests.up.server import team
from tests.up.submissions import NODE_NAMES, Submissions, clear

TENANT = "ann"
# The API server's own answer to an apply that it cannot decode or merge. leasehold is not asked
# about those; if one of its policies failed, the status would be another one.
EXCUSED = 500
NAMES = ("a", "b", "c")
PAUSE_S = 0.5
# Two clients send about 40 submissions per second together. An API server that shares two cores
# with this test can handle about three times as many.
GAP_S = 0.02
# The leader is killed after the first part of the submissions and stopped after the second.
ENDS = (signal.SIGKILL, signal.SIGTERM, None)


@pytest.fixture
def stormy(cluster: Cluster, tmp_path: Path) -> Iterator[Plane]:
    cluster.install()
    with (
        cluster.managers("garbage-collector-controller"),
        plane_on(cluster, tmp_path, SETTINGS + CONFIG) as plane,
    ):
        _give_rights(plane)
        plane.kubelets.add(*NODE_NAMES, domain="r/c/a", flavor="virtual")
        yield plane


def _give_rights(plane: Plane) -> None:
    """Grant the tenant every right that it can have in its own namespace, for any owner."""
    group = "rbac.authorization.k8s.io"
    plane.cluster.client.ask("POST", f"{RBAC}/namespaces/team/roles", {
        "apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "owns-all"},
        "rules": [{"apiGroups": ["rq.davidlangworthy.io"], "resources": ["owners"],
                   "verbs": ["spend", "fund", "lend"]}],
    })  # fmt: skip
    grant(plane, TENANT, "owns-all", "team", kind="Role")
    for role in ("researcher", "budget-owner"):
        grant(plane, TENANT, f"leasehold-{role}", "team")


class Watched:
    """Runs the probe repeatedly in its own thread until stopped."""

    def __init__(self, probe: Probe, plane: Plane) -> None:
        self._probe, self._plane = probe, plane
        self._is_over = threading.Event()
        self._trouble: list[BaseException] = []
        self.took: list[float] = []
        self._thread = threading.Thread(target=self._play)
        self._thread.start()

    def stop(self) -> list[float]:
        self._is_over.set()
        self._thread.join()
        assert not self._trouble, self._trouble
        return self.took

    def _play(self) -> None:
        client = self._plane.cluster.connect()
        try:
            while not self._is_over.wait(PAUSE_S):
                self.took.append(self._probe.once(client))
        except BaseException as error:
            self._trouble.append(error)
        finally:
            client.close()


def _replace_leader(plane: Plane, replicas: dict[str, Controller], how: signal.Signals) -> int:
    """End the leader, start a replacement, and return the leader's exit code."""
    name = holder(plane)
    gone = replicas.pop(name)
    gone.process.send_signal(how)
    code = gone.process.wait(plane.patience_s)
    replicas[f"{name}-again"] = plane.controller(f"{name}-again")
    plane.until(lambda: holder(plane) not in ("", name))
    return code


@pytest.mark.deadline(1500)
def test_mutated_manifests_stop_none_of_three_replicas(
    stormy: Plane, record_property: Callable[[str, object], None]
) -> None:
    replicas = {name: stormy.controller(name) for name in NAMES}
    stormy.until(lambda: bool(holder(stormy)))
    probe = Probe(stormy)
    probe.calm()
    stormy.kubectl.ok("apply", "-f", stormy.kubectl.file(*team(concurrency=32)))
    tenant = stormy.cluster.kubeconfig(TENANT)
    sent = Submissions(lambda: Raw(tenant), seed=seed_of_commit(), excused=EXCUSED, pause_s=GAP_S)
    watched, began, codes = Watched(probe, stormy), time.monotonic(), []
    try:
        for part, how in enumerate(ENDS):
            sent.send(SUBMISSIONS * (part + 1) // 3, part)
            if how is not None:
                codes.append(_replace_leader(stormy, replicas, how))
    finally:
        took = watched.stop()
    seconds = time.monotonic() - began
    assert sent.found.problems == [], sent.found.problems
    assert codes == [-signal.SIGKILL, 0]
    assert [each.process.poll() for each in replicas.values()] == [None] * 3
    with closing(Raw(stormy.cluster.kubeconfig())) as administrator:
        clear(administrator, sent.found.problems)
    sent.found.problems += _defects(stormy)
    told = f"{sent.found} in {seconds:.0f} s; {probe.judge(took)}"
    record_property("counts", told)
    assert sent.found.problems == [], told
    assert sent.found.submissions >= SUBMISSIONS
    # Many of the submissions were accepted, so the replicas had to handle them.
    assert sent.found.counts["run accepted"] > SUBMISSIONS // 20
    assert sent.found.counts["edit accepted"] > 0
    stormy.until(lambda: all(each.get("status", {}).get("closed") for each in stormy.all("leases")))
    check_consistency(stormy)
    assert [each.stop() for each in replicas.values()] == [0, 0, 0]


def _defects(plane: Plane) -> list[str]:
    """Return the internal errors in the replicas' logs; complaints about manifests do not count."""
    found = []
    for path in plane.kubectl.home.glob("*.log"):
        for line in path.read_text(encoding="utf-8").splitlines():
            said = json.loads(line) if line.startswith("{") else {"exception": line}
            kinds = {each.get("exc_type") for each in said.get("exception", ())
                     if isinstance(each, dict)}  # fmt: skip
            if "exception" in said and not kinds & {"InvalidManifest"}:
                found.append(f"{path.name}: {line[:2000]}")
    return found[:5]
