"""A few stories on a real API server: they pass there, with the same ledger as in memory.

`make test-kube` plays all stories there.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.kubernetes.cluster import Cluster

from leasehold.cli.main import main
from leasehold.sim.on_cluster import BadCluster
from leasehold.sim.scenario.runner import run_scenario

FOLDER = Path(__file__).parent
STORIES = (
    "A5-a-checkpoint-keeps-the-place-in-the-queue",
    "A4-a-held-node-dies",
    "F3-a-filler-ends-with-its-spare",
    "runs-cancelled-while-waiting-and-running",
    "P4-a-gang-over-two-locations",
    "restart-in-every-pause",
)
NODES = "/api/v1/nodes"


@pytest.fixture
def empty(cluster: Cluster) -> Iterator[Cluster]:
    cluster.wipe()
    yield cluster
    cluster.wipe()


@pytest.mark.parametrize("story", STORIES)
def test_story_has_the_same_ledger_on_an_api_server(
    empty: Cluster, story: str, tmp_path: Path
) -> None:
    path, told = FOLDER / f"{story}.yaml", list[str]()
    there = run_scenario(
        path, store="kube", cluster=empty.context, out=tmp_path / "there", echo=told.append
    )

    assert there.code == 0, "\n".join(told)
    run_scenario(path, out=tmp_path / "here", echo=lambda _: None)
    ledgers = [(tmp_path / each / "ledger.jsonl").read_bytes() for each in ("there", "here")]
    assert ledgers[0] == ledgers[1]


def test_sim_scenario_cleans_up_its_cluster_and_refuses_a_used_one(empty: Cluster) -> None:
    story = str(FOLDER / f"{STORIES[0]}.yaml")
    arguments = ["sim", "scenario", story, "--store", "kube", "--quiet"]
    arguments += ["--kubeconfig", str(empty.kubeconfig())]

    first = CliRunner().invoke(main, arguments)
    assert first.exit_code == 0, first.output
    assert empty.client.ask("GET", NODES).json["items"] == []

    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somebodys"}}
    empty.client.ask("POST", NODES, node)
    second = CliRunner().invoke(main, arguments)
    assert (second.exit_code, "somebodys" in second.output) == (2, True), second.output
    with pytest.raises(BadCluster):
        run_scenario(story, store="kube", cluster=empty.context, echo=lambda _: None)
    assert len(empty.client.ask("GET", NODES).json["items"]) == 1
