"""What must hold on a cluster at any time, whatever faults it has had."""

from tests.kubernetes.plane import Plane


def check_consistency(plane: Plane) -> None:
    """Assert that the ledger verifies, that the audit finds nothing, and that no machine saw a GPU
    used twice."""
    for words, said in ((("ledger", "verify"), "ledger verify: ok"), (("audit",), "audit: ok")):
        found = plane.leasehold(*words, "--kubeconfig", str(plane.cluster.kubeconfig()))
        assert found.stdout.startswith(said), found.stdout + found.stderr
    assert plane.kubelets.to_machines(lambda fleet: list(fleet.breaches)) == []
