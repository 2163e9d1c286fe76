"""What must hold on a cluster at any time, whatever befell it."""

from tests.kubernetes.plane import Plane


def all_is_well(plane: Plane) -> None:
    """Every pod where a lease says, no GPU twice, and a ledger that proves itself."""
    for words, said in ((("ledger", "verify"), "ledger verify: ok"), (("audit",), "audit: ok")):
        found = plane.leasehold(*words, "--kubeconfig", str(plane.cluster.kubeconfig()))
        assert found.stdout.startswith(said), found.stdout + found.stderr
    assert plane.kubelets.to_machines(lambda fleet: list(fleet.breaches)) == []
