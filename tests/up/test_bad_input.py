"""Mistakes of users are refused by path, even in edits of a running run."""

import json
from collections.abc import Iterator

import pytest
from tests.up.conftest import Servers
from tests.up.raw import APPLY, JSON_PATCH, MERGE, RUNS, Raw, causes
from tests.up.server import Up, job, team

ELASTIC = {"minTotalGPUs": 2, "maxTotalGPUs": 6, "stepGPUs": 2, "desiredTotalGPUs": 4}
DESIRED = "spec.malleable.desiredTotalGPUs"
LIMIT = "spec.runtime.maxDuration"
SPONSORS = "spec.funding.sponsors[0]"


@pytest.fixture
def client(server: Up) -> Iterator[Raw]:
    made = Raw(server.kubeconfig)
    yield made
    made.close()


@pytest.fixture
def server(up: Servers) -> Iterator[Up]:
    """Start a server with an elastic run that is running."""
    made = up().start()
    elastic = job("wide", "sleep 600", gpus=2, pods=2, locality={"groupGPUs": 2}, malleable=ELASTIC)
    made.submit(*team(), elastic)
    made.wait_phase("wide", "Running")
    yield made
    made.runs("cancel", "team/wide")


def test_invalid_edit_of_admitted_run_is_refused_by_path_in_every_way(client: Raw) -> None:
    _, stored = client.ask("GET", f"{RUNS}/wide")
    spec = stored["spec"]
    edits = (
        ({"malleable": {"desiredTotalGPUs": 3}}, DESIRED),
        ({"malleable": {"desiredTotalGPUs": 8}}, DESIRED),
        ({"malleable": {"desiredTotalGPUs": "many"}}, DESIRED),
        ({"runtime": {"maxDuration": "soon"}}, LIMIT),
        ({"runtime": {"maxDuration": 7}}, LIMIT),
        ({"runtime": 7}, "spec.runtime"),
        ({"stop": "yes"}, "spec.stop"),
        ({"funding": {"allowBorrow": True, "sponsors": ["not an owner"]}}, SPONSORS),
        ({"owner": None}, "spec.owner"),
        ({"template": None}, "spec.template.spec.containers"),
    )
    for change, path in edits:
        status, answer = client.ask("PATCH", f"{RUNS}/wide", {"spec": change}, media=MERGE)
        assert (status, path in causes(answer)) == (422, True), answer
    for change, path in edits[:8]:
        merged = {**spec, **{
            key: {**spec.get(key, {}), **value} if isinstance(value, dict) else value
            for key, value in change.items()
        }}  # fmt: skip
        changed = {**stored, "spec": merged}
        status, answer = client.ask("PUT", f"{RUNS}/wide", changed)
        assert (status, path in causes(answer)) == (422, True), answer
        mine = {key: changed[key] for key in ("apiVersion", "kind", "spec")}
        mine["metadata"] = {"name": "wide", "namespace": "team"}
        where = f"{RUNS}/wide?fieldManager=me&force=true"
        status, answer = client.ask("PATCH", where, mine, media=APPLY)
        assert (status, path in causes(answer)) == (422, True), answer
    gone = [{"op": "remove", "path": "/spec"}]
    status, answer = client.ask("PATCH", f"{RUNS}/wide", gone, media=JSON_PATCH)
    assert (status, causes(answer)) == (422, ["spec"])
    assert client.ask("GET", f"{RUNS}/wide")[1]["spec"] == spec


def test_width_off_the_grid_is_refused_with_allowed_widths(server: Up) -> None:
    shrunk = server.runs("shrink", "team/wide", "--to", "3", ok=False)
    grown = server.runs("grow", "team/wide", "--to", "8", ok=False)
    for done in (shrunk, grown):
        assert done.returncode == 1
        assert DESIRED in done.stderr
        assert "from minTotalGPUs 2 to maxTotalGPUs 6 in steps of 2" in done.stderr
        assert "error of the server" not in done.stderr


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"valueFrom": {}}, "env[0].valueFrom"),
        ({"valueFrom": {"fieldRef": None}}, "env[0].valueFrom"),
        ({"valueFrom": {"resourceFieldRef": None}}, "env[0].valueFrom"),
        ({"valueFrom": "metadata.name"}, "env[0].valueFrom"),
    ],
)
def test_variable_without_source_is_refused(
    up: Servers, change: dict[str, object], path: str
) -> None:
    server = up().start()
    server.submit(*team())
    file = server.folder / "bad.yaml"
    bad = job("bad", "true", container={"env": [{"name": "NODE", **change}]})
    file.write_text(json.dumps(bad))
    done = server.runs("submit", "-f", str(file), ok=False)
    assert f"spec.template.spec.containers[0].{path}" in done.stderr
    assert "name one source" in done.stderr
    assert server.run("bad") == {}
