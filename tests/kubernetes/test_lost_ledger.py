"""Objects of the ledger on a real API server: a plain deletion leaves them, and batches that an
administrator removes by force are noticed, named and put back from an export."""

import re
import urllib.error
import urllib.request

from tests.kubernetes.asking import RBAC
from tests.kubernetes.plane import API, Controller, Plane, budget, job

BATCHES = f"/apis/{API}/ledgerbatches"
_MERGE = {"Content-Type": "application/merge-patch+json"}
_NO_FINALIZERS = b'{"metadata":{"finalizers":null}}'


def complete(plane: Plane, *names: str) -> None:
    for name in names:
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job(name, 8)))
        run = plane.until_phase(name, "Running")
        plane.exit_all(run["metadata"]["uid"])
        plane.until_phase(name, "Completed")


def gauge(controller: Controller, name: str) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{controller.port}/metrics", timeout=10) as said:
        found = re.search(rf"^leasehold_{name} (\S+)$", said.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def batches(plane: Plane) -> list[str]:
    names = [each["metadata"]["name"] for each in plane.get(BATCHES)["items"]]
    return sorted(names, key=lambda name: int(name.partition("-")[0]))


def force_out(plane: Plane, name: str) -> None:
    ask = plane.cluster.client.ask
    ask("PATCH", f"{BATCHES}/{name}", _NO_FINALIZERS, headers=_MERGE)
    ask("DELETE", f"{BATCHES}/{name}")
    assert name not in batches(plane)


def test_user_with_every_verb_cannot_delete_ledger_objects(plane: Plane) -> None:
    """This holds even for a user who has all of Kubernetes' verbs on these kinds."""
    plane.kubelets.add("n1")
    plane.controller("a")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
    complete(plane, "one")
    ask, group = plane.cluster.client.ask, "rbac.authorization.k8s.io"
    kinds = ["ledgerbatches", "ledgerheads", "leases"]
    ask("POST", f"{RBAC}/clusterroles", {
        "apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "q-mallory"},
        "rules": [{"apiGroups": ["rq.davidlangworthy.io"], "resources": kinds, "verbs": ["*"]}],
    })  # fmt: skip
    ask("POST", f"{RBAC}/clusterrolebindings", {
        "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "q-mallory"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "mallory"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "q-mallory"},
    })  # fmt: skip
    for kind in kinds:
        plural = f"{kind}.rq.davidlangworthy.io"
        there = plane.kubectl.ok("get", plural, "-o", "name").split()
        assert there
        plane.kubectl.ok("delete", plural, "--all", "--wait=false", "--as", "mallory")
        refused = plane.kubectl("patch", there[0], "--as", "mallory", "--type=merge",
                                "-p", _NO_FINALIZERS.decode())  # fmt: skip
        assert refused.code != 0
        assert "the ledger writes this" in refused.err
        assert plane.kubectl.ok("get", plural, "-o", "name").split() == there

    complete(plane, "two")  # marked for deletion, the head still moves
    checked = plane.leasehold("ledger", "verify", "--kubeconfig", str(plane.cluster.kubeconfig()))
    assert checked.returncode == 0, checked.stderr


def test_forcibly_deleted_batches_are_named_and_restored_from_export(plane: Plane) -> None:
    plane.kubelets.add("n1")
    controller = plane.controller("a")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
    complete(plane, "one")
    cluster = ("--kubeconfig", str(plane.cluster.kubeconfig()))
    exported = str(plane.kubectl.home / "ledger.jsonl")
    told = plane.leasehold("ledger", "export", *cluster, "--out", exported)
    assert told.returncode == 0, told.stderr
    complete(plane, "two")
    first, second = batches(plane)[:2]
    force_out(plane, first)
    force_out(plane, second)

    plane.until(lambda: gauge(controller, "ledger_gaps") == 2)
    assert "the store has lost batch" in controller.log()
    for words in (("ledger", "verify"), ("audit",), ("ledger", "export")):
        told = plane.leasehold(*words, *cluster)
        assert told.returncode == 1
        assert told.stderr.startswith(
            f"Error: {plane.cluster.server}: the ledger has no batches 1 to 2 that its head names; "
            "leasehold ledger restore puts missing batches back"
        ), (words, told.stderr)
        assert "leasehold restore" not in told.stderr
    standby = plane.controller("b")
    plane.until(lambda: "no batches 1 to 2" in ready(standby))

    without_export = plane.leasehold("ledger", "restore", *cluster)
    assert "the ledger has no batches 1 to 2" in without_export.stderr
    planned = plane.leasehold("ledger", "restore", *cluster, "--dry-run", exported)
    assert planned.stdout == "ledger restore: would restore batches 1 to 2\n", planned.stderr
    restored = plane.leasehold("ledger", "restore", *cluster, exported)
    assert restored.stdout == ("ledger restore: restored batches 1 to 2\nledger verify: ok\n"), (
        restored.stderr
    )
    plane.until(lambda: gauge(controller, "ledger_gaps") == 0)
    plane.until(lambda: ready(standby) == "ok\n")
    again = plane.leasehold("ledger", "restore", *cluster, exported)
    assert again.stdout == "ledger restore: no batch is missing\n"
    here = plane.leasehold("ledger", "restore", "--data", str(plane.kubectl.home))
    assert "restore a backup (leasehold restore)" in here.stderr


def ready(controller: Controller) -> str:
    """Return the text of /readyz."""
    url = f"http://127.0.0.1:{controller.port}/readyz"
    try:
        with urllib.request.urlopen(url, timeout=10) as said:
            return str(said.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode()
    except OSError:
        return ""
