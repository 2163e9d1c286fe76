"""One Run on a real API server, from `kubectl apply` to leases that are closed."""

import urllib.request

from tests.kubernetes.plane import Plane, budget, job


def test_a_run_is_paid_for_placed_bound_run_and_accounted_for(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    controller = plane.controller()
    file = plane.kubectl.file(budget(), job("train", 16))
    plane.kubectl.ok("apply", "-f", file)
    run = plane.until_phase("train", "Running")
    pods = plane.pods()
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["n1", "n2"]
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"leasehold"}
    # Rank 0 is found by a name that outlives its pod.
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


def test_a_second_controller_goes_on_where_the_first_was_killed(plane: Plane) -> None:
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


def test_whoever_the_api_server_took_first_is_first_in_line(plane: Plane) -> None:
    """Also where its clock says that they came in the same second, and whoever asks later."""
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


def test_a_budget_is_listed_with_its_envelopes_its_gpus_and_its_state(plane: Plane) -> None:
    """A definition's columns come from the object as it is stored."""
    plane.kubelets.add("n1")
    plane.controller("a")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=16), job("first", 8)))
    plane.until_phase("first", "Running")

    def is_listed() -> bool:
        header, row = plane.kubectl.ok("get", "budgets", "-n", "team").splitlines()
        assert header.split() == ["NAME", "OWNER", "ENVELOPES", "GPUS", "STATUS", "AGE"]
        return row.split()[:5] == ["money", "org:team", "1", "8/16", "Healthy"]

    plane.until(is_listed)
