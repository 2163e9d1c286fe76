"""One Run on a real API server, from `kubectl apply` to its closed leases."""

import urllib.request

from tests.kubernetes.plane import Plane, budget, job


def test_run_is_placed_bound_and_completed_with_closed_leases(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    controller = plane.controller()
    file = plane.kubectl.file(budget(), job("train", 16))
    plane.kubectl.ok("apply", "-f", file)
    run = plane.until_phase("train", "Running")
    pods = plane.pods()
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"leasehold"}
    # Rank 0 has a DNS name that outlives its pod.
    services = plane.get("/api/v1/namespaces/team/services")["items"]
    [service] = [each for each in services if each["spec"]["clusterIP"] == "None"]
    env = {each["name"]: each.get("value") for each in pods[1]["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == f"g0-p0.{service['metadata']['name']}.team"
    assert pods[0]["spec"]["hostname"] == "g0-p0"
    leases = plane.all("leases")
    assert {each["spec"]["paidByEnvelope"] for each in leases} == {"west"}
    plane.exit_all(run["metadata"]["uid"])
    plane.kubectl.ok("wait", "--for=condition=Completed", "run/train", "-n", "team")
    closed = [each["status"] for each in plane.all("leases")]
    assert [each["closureReason"] for each in closed] == ["Completed", "Completed"]
    assert _ask(controller.port, "/livez") == _ask(controller.port, "/readyz") == "ok\n"
    assert 'leasehold_leases_closed_total{reason="Completed"} 2.0' in _ask(
        controller.port, "/metrics"
    )
    plane.until(lambda: "Completed" in plane.kubectl.ok("get", "events", "-n", "team"))
    for words, said in (
        (("ledger", "verify"), "ledger verify: ok ("),
        (("audit",), "audit: ok (0 open leases)"),
    ):
        found = plane.leasehold(*words, "--kubeconfig", str(plane.cluster.kubeconfig()))
        assert found.stdout.startswith(said), found.stderr
    assert controller.stop() == 0


def test_second_controller_completes_run_of_killed_controller(plane: Plane) -> None:
    plane.kubelets.add("n1")
    first = plane.controller("first")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    run = plane.until_phase("train", "Running")
    first.process.kill()
    first.process.wait()
    plane.exit_all(run["metadata"]["uid"])
    plane.controller("second")
    plane.until_phase("train", "Completed")
    heads = plane.all("ledgerheads")
    assert [each["spec"]["epoch"] for each in heads] == [2]


def _ask(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return bytes(answer.read()).decode()


def test_queue_order_is_the_order_in_which_runs_were_created(plane: Plane) -> None:
    """The order is that of the API server even if the Runs have the same creation second, and the
    next leader keeps it."""
    plane.kubelets.add("n1")
    names = ["z", "m", "a"]
    jobs = [job(name, 8) for name in names]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), *jobs))
    first = plane.controller("first")
    plane.until_phase("z", "Running")
    plane.until(lambda: all(plane.run(name).get("status") for name in names))
    places = [plane.run(name)["status"]["arrived"] for name in names]
    assert [each["number"] for each in places] == sorted(each["number"] for each in places)
    first.process.kill()
    second = plane.controller("second")
    plane.until(lambda: "tenure gained" in second.log())
    plane.exit_all(plane.run("z")["metadata"]["uid"])
    plane.until_phase("m", "Running")
    assert plane.run("a")["status"]["phase"] == "Pending"
    assert [plane.run(name)["status"]["arrived"] for name in names] == places


def test_budget_list_shows_envelopes_gpus_and_status(plane: Plane) -> None:
    """The printer columns of a definition are filled from the stored object."""
    plane.kubelets.add("n1")
    plane.controller("a")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=16), job("first", 8)))
    plane.until_phase("first", "Running")

    def is_listed() -> bool:
        header, row = plane.kubectl.ok("get", "budgets", "-n", "team").splitlines()
        assert header.split() == ["NAME", "OWNER", "ENVELOPES", "GPUS", "STATUS", "AGE"]
        return row.split()[:5] == ["money", "org:team", "1", "8/16", "Healthy"]

    plane.until(is_listed)
