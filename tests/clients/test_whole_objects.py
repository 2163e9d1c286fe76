"""Objects have all the fields that typed clients, and people with `-o yaml`, read."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import listed
from tests.up.server import Up, job

from leasehold.cli.runs.server import connect

GROUP = "/apis/rq.davidlangworthy.io/v1/namespaces/team"
PODS = "/api/v1/namespaces/team/pods"
RENDEZVOUS = """
python3 - <<'PYTHON'
import json, os
names = ("MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_RDZV_ENDPOINT")
print(json.dumps({name: os.environ[name] for name in names if name in os.environ}))
PYTHON
"""


def got(server: Up, path: str) -> Any:
    connection = connect(str(server.kubeconfig))
    try:
        return connection.send("GET", path)
    finally:
        connection.close()


def test_every_condition_has_transition_time_that_advances(server: Up) -> None:
    server.submit(job("since", "sleep 600"))
    server.wait_phase("since", "Running")
    for path in (f"{GROUP}/runs", f"{GROUP}/budgets", "/api/v1/nodes", PODS):
        for each in got(server, path)["items"]:
            for condition in each.get("status", {}).get("conditions", []):
                assert condition.get("lastTransitionTime"), (path, each["metadata"]["name"])

    before = conditions(server)
    server.runs("cancel", "-n", "team", "since")
    server.wait_phase("since", "Failed")
    after = conditions(server)
    assert after["Running"]["status"] == "False"
    assert after["Running"]["lastTransitionTime"] > before["Running"]["lastTransitionTime"]
    assert after["Failed"]["lastTransitionTime"] >= after["Running"]["lastTransitionTime"]


def conditions(server: Up) -> dict[str, dict[str, str]]:
    status = got(server, f"{GROUP}/runs/since")["status"]
    return {each["type"]: each for each in status["conditions"]}


def test_unchanged_conditions_keep_transition_time_across_restart(server: Up) -> None:
    def since() -> dict[str, str]:
        [held] = [
            each for each in got(server, f"{GROUP}/runs")["items"]
            if each["metadata"]["name"] == "held"
        ]  # fmt: skip
        return {each["type"]: each["lastTransitionTime"] for each in held["status"]["conditions"]}

    before = since()
    server.stop()
    server.start()  # the new server writes all statuses again

    assert since() == before


def test_pod_has_owner_reference_to_its_run(server: Up) -> None:
    for pod in got(server, PODS)["items"]:
        [owner] = pod["metadata"]["ownerReferences"]
        run = got(server, f"{GROUP}/runs/{owner['name']}")
        assert owner == {
            "apiVersion": "rq.davidlangworthy.io/v1",
            "kind": "Run",
            "name": run["metadata"]["name"],
            "uid": run["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }


@pytest.mark.parametrize("elastic", [False, True])
def test_pod_spec_shows_rendezvous_variables_of_its_process(server: Up, elastic: bool) -> None:
    name = f"meets-{'elastic' if elastic else 'fixed'}"
    more: dict[str, object] = {}
    if elastic:
        more["malleable"] = {"minTotalGPUs": 1, "maxTotalGPUs": 1}
    server.submit(job(name, RENDEZVOUS, **more))
    server.wait_phase(name, "Completed")

    told = json.loads(server.runs("logs", "-n", "team", name).stdout)
    [pod] = [
        each for each in got(server, PODS)["items"]
        if each["metadata"]["labels"]["rq.davidlangworthy.io/run"] == name
    ]  # fmt: skip
    env = {each["name"]: each.get("value") for each in pod["spec"]["containers"][0]["env"]}
    assert told, "the job must have a rendezvous"
    assert {key: env[key] for key in told} == told
    assert "movedEnv" not in pod["status"]


def test_kubectl_drain_needs_no_force(server: Up, kubectl_path: Path) -> None:
    server.submit(
        job("moves", "trap 'exit 0' TERM; sleep 600 & wait", runtime={"checkpoint": "1m"})
    )
    server.wait_phase("moves", "Running")
    [row] = server.rows("pods", "-n", "team", "moves")
    node = str(row["node"])
    done = subprocess.run(
        [str(kubectl_path), "--kubeconfig", str(server.kubeconfig), "drain", node, "--timeout=30s"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    try:
        assert done.returncode == 0, done.stderr
        assert f"node/{node} drained" in done.stdout
    finally:
        subprocess.run(
            [str(kubectl_path), "--kubeconfig", str(server.kubeconfig), "uncordon", node],
            check=True,
            capture_output=True,
        )
        server.runs("cancel", "-n", "team", "moves")
    assert node in listed(server, "/api/v1/nodes")
