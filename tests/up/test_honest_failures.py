"""Every failure of a job is explained on its run, and its lease ends with the job."""

import json
import signal

import pytest
from tests.up.conftest import Servers
from tests.up.server import Up, job, marked, team

from leasehold.cli.runs.server import connect


def started(up: Servers, *jobs: dict[str, object]) -> Up:
    server = up().start()
    server.submit(*team(), *jobs)
    return server


# `$$` in a command is `$` in Kubernetes, so a shell's own `$$` is written `$$$$`.


def explanation_of(server: Up, name: str) -> str:
    """Return everything that a user can read about a run."""
    explained = server.runs("explain", f"team/{name}").stdout
    pods = server.runs("pods", f"team/{name}", "-o", "json").stdout
    return explained + pods


def test_missing_command_is_reported_with_path_and_exit_code(up: Servers) -> None:
    container = {"command": ["/nowhere/train"]}
    server = started(up, job("typo", "", container=container))
    server.wait_phase("typo", "Failed")
    assert "/nowhere/train" in explanation_of(server, "typo")
    assert "127" in explanation_of(server, "typo")


def test_exit_code_is_reported_and_uses_up_a_retry(up: Servers) -> None:
    server = started(up, job("three", "echo before; exit 3", runtime={"retries": 1}))
    row = server.wait_phase("three", "Failed")
    assert row["attempt"] == 2
    assert "3" in explanation_of(server, "three")
    assert "before" in server.runs("logs", "team/three").stdout
    closed = {str(each["closed"]) for each in server.rows("leases", "team/three")}
    assert closed == {"Fail"}


def test_killed_process_is_reported_with_exit_code_137(up: Servers) -> None:
    server = started(up, job("killed", "kill -9 $$$$"))
    server.wait_phase("killed", "Failed")
    assert "137" in explanation_of(server, "killed")


def test_cancelled_process_that_ignores_sigterm_is_killed(up: Servers) -> None:
    script = "trap '' TERM; (trap '' TERM; sleep 600) & while :; do sleep 1; done"
    server = started(up, job("deaf", script, runtime={"gracePeriod": "1s"}))
    server.wait_phase("deaf", "Running")
    assert len(marked(server.data)) >= 2
    server.runs("cancel", "team/deaf")
    server.wait_phase("deaf", "Failed")
    [lease] = server.rows("leases", "team/deaf")
    assert lease["closed"] == "Canceled"
    assert not marked(server.data)


def test_second_container_is_refused_by_path(up: Servers) -> None:
    server = started(up)
    two = job("two", "true")
    spec = two["spec"]
    assert isinstance(spec, dict)
    containers = spec["template"]["spec"]["containers"]
    containers.append({"name": "beside", "image": "none", "command": ["true"]})
    path = server.folder / "two.yaml"
    path.write_text(json.dumps(two))
    done = server.runs("submit", "-f", str(path), ok=False)
    assert done.returncode != 0
    assert "spec.template.spec.containers[1]" in done.stderr
    assert server.run("two") == {}


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_crash_is_reported_with_exit_code_of_its_signal(
    up: Servers, number: signal.Signals
) -> None:
    server = started(up, job("crash", f"kill -{int(number)} $$$$"))
    server.wait_phase("crash", "Failed")
    assert str(128 + int(number)) in explanation_of(server, "crash")


def test_deleted_pod_fails_its_run_and_is_not_started_again(up: Servers) -> None:
    """This holds even if the job exits with 0 on the signal."""
    server = started(up, job("gone", "trap 'exit 0' TERM; while :; do sleep 0.1; done"))
    server.wait_phase("gone", "Running")
    [pod] = server.rows("pods", "team/gone")
    client = connect(str(server.kubeconfig))
    try:
        client.send("DELETE", f"/api/v1/namespaces/team/pods/{pod['name']}")
    finally:
        client.close()
    row = server.wait_phase("gone", "Failed", "Completed")
    assert (row["phase"], row["attempt"]) == ("Failed", 1)
    [lease] = server.rows("leases", "team/gone")
    assert (lease["closed"], lease["cause"]) == ("Fail", "Deleted")
    assert not marked(server.data)
