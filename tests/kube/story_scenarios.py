"""Every scenario file on a real API server, with the controllers on the story's time: each holds,
and its ledger is to the byte what it is in memory."""

from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster

from leasehold.sim.scenario.runner import run_scenario

FOLDER = Path(__file__).parents[1] / "scenarios"
STORIES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_it_holds(cluster: Cluster, path: Path, tmp_path: Path) -> None:
    told: list[str] = []
    there, here = tmp_path / "there", tmp_path / "here"
    outcome = run_scenario(path, store="kube", cluster=cluster.context, out=there, echo=told.append)

    assert outcome.code == 0, "\n".join(told)
    run_scenario(path, out=here, echo=lambda _: None)
    assert (there / "ledger.jsonl").read_bytes() == (here / "ledger.jsonl").read_bytes()
