"""Limits from the server configuration, and warning events of the agent."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.up.conftest import Servers
from tests.up.server import QUICK, Up, job, team

from leasehold.adapters.agent.cgroups import find_cgroups
from leasehold.app.failure import Failure
from leasehold.cli.runs.server import Server, connect
from leasehold.core.names import Wire

STORM = "i=0; while [ $i -lt 60 ]; do sleep 600 & i=$((i + 1)); done"


@contextmanager
def client_of(server: Up) -> Iterator[Server]:
    client = connect(str(server.kubeconfig))
    try:
        yield client
    finally:
        client.close()


def events(server: Up, reason: str) -> list[str]:
    """Return the types of all events with this reason."""
    with client_of(server) as client:
        items = client.send("GET", "/api/v1/events")["items"]
    assert isinstance(items, list)
    return [str(event["type"]) for event in items if event["reason"] == reason]


def test_agent_failure_event_has_type_warning(up: Servers) -> None:
    server = up().start()
    server.submit(*team(), job("typo", "", container={"command": ["/nowhere/train"]}))
    server.wait("the event", lambda: events(server, "ContainerCannotRun") != [])
    assert events(server, "ContainerCannotRun") == ["Warning"]


def test_grace_period_above_limit_is_refused_by_path(up: Servers) -> None:
    server = up(config=f"{QUICK}\ngracePeriod.max: 2m").start()
    server.submit(*team(), job("fits", "sleep 1", runtime={"gracePeriod": "2m"}))
    manifest = server.folder / "long.yaml"
    manifest.write_text(json.dumps(job("long", "sleep 1", runtime={"gracePeriod": "3m"})))
    done = server.runs("submit", "-f", str(manifest), ok=False)
    assert done.returncode == 1
    assert "spec.runtime.gracePeriod" in done.stderr
    assert "use at most 2m (gracePeriod.max of this server)" in done.stderr


def test_edit_is_checked_against_same_limits_as_new_run(up: Servers) -> None:
    server = up(config=f"{QUICK}\ngracePeriod.max: 2m").start()
    server.submit(*team(), job("poor", "sleep 1", owner="org:nobody"))
    edit: Wire = {"spec": {"runtime": {"maxDuration": "never", "gracePeriod": "3m"}}}
    path = "/apis/rq.davidlangworthy.io/v1/namespaces/team/runs/poor"
    with client_of(server) as client, pytest.raises(Failure) as refused:
        client.send("PATCH", path, edit, content_type="application/merge-patch+json")
    causes = dict(refused.value.causes)
    assert "use a duration" in causes.pop("spec.runtime.maxDuration")
    assert "use at most 2m (gracePeriod.max of" in causes.pop("spec.runtime.gracePeriod")
    assert causes == {}


def test_fork_bomb_job_fails_alone(up: Servers) -> None:
    probe = find_cgroups("leasehold-probe")
    probe.remove()
    server = up(config=f"{QUICK}\nagent.pidsMax: 24").start()
    server.submit(*team(), job("quiet", "sleep 600"), job("storm", STORM))
    server.wait_phase("storm", "Failed" if probe.counts_processes else "Completed")
    assert server.run("quiet")["phase"] == "Running"
