"""`leasehold up` without root: it announces one trust domain, and all else works as usual."""

import os
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.server import Up, job, marked, team
from tests.up.test_start_and_stop import refused

USER = 65_534 if os.geteuid() == 0 else os.geteuid()


@pytest.fixture
def server(up: Servers) -> Up:
    made = up()
    return made.as_user(USER) if os.geteuid() == 0 else made


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_up_without_root_announces_one_trust_domain_and_runs_jobs_as_user(server: Up) -> None:
    server.start()
    assert owner_of(server.process.pid) == USER
    assert server.kubeconfig.stat().st_mode & 0o777 == 0o600
    server.submit(*team(), job("who", "id -u; pwd"))
    server.wait_phase("who", "Completed")
    logs = server.runs("logs", "who", "-n", "team").stdout
    said = [line.split("] ")[-1] for line in logs.splitlines()]
    assert said == [str(USER), str(server.work / "team")]
    server.cli("leasehold", "ledger", "verify", "--data", str(server.data))
    server.cli("leasehold", "audit", "--data", str(server.data))
    assert server.stop() == 0
    assert "one trust domain" in "\n".join(server.said)


def test_job_outlives_killed_server_and_is_adopted(server: Up) -> None:
    server.start()
    server.submit(*team(), job("long", "while [ ! -e go ]; do sleep 0.1; done; echo gone; exit 3"))
    server.wait_phase("long", "Running")
    shell = min(marked(server.data))
    assert owner_of(shell) == USER
    server.kill()
    server.start()
    assert shell in marked(server.data)
    (server.work / "team" / "go").touch()
    row = server.wait_phase("long", "Failed")
    assert "gone" in server.runs("logs", "long", "-n", "team").stdout
    assert row["attempt"] == 1


def test_cancelled_job_that_ignores_sigterm_is_killed_with_its_children(server: Up) -> None:
    server.start()
    script = "trap '' TERM; (trap '' TERM; setsid sleep 600) & sleep 600; sleep 600"
    runtime = {"gracePeriod": "200ms"}
    server.submit(*team(), job("stubborn", script, runtime=runtime))
    server.wait("its children", lambda: len(marked(server.data)) >= 3)
    family = marked(server.data)
    server.runs("cancel", "stubborn", "-n", "team")
    server.wait_phase("stubborn", "Failed")
    assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []


def test_users_for_namespaces_are_refused_without_root(up: Servers) -> None:
    server = up(config="agent.users: {team: daemon}\n")
    if os.geteuid() == 0:
        server.as_user(USER)
    said = refused(server)
    assert "jobs of namespace team are configured to run as daemon, which only root can do" in said
