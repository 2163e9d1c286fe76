"""Every scenario file on a real API server, with the controllers on simulated time: its
expectations hold, and its ledger is byte for byte the one of the in-memory store."""

from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster

from leasehold.sim.scenario.runner import run_scenario

FOLDER = Path(__file__).parents[1] / "scenarios"
STORIES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_scenario_holds_on_cluster_with_same_ledger_as_in_memory(
    cluster: Cluster, path: Path, tmp_path: Path
) -> None:
    told: list[str] = []
    there, here = tmp_path / "there", tmp_path / "here"
    outcome = run_scenario(path, store="kube", cluster=cluster.context, out=there, echo=told.append)

    assert outcome.code == 0, "\n".join(told)
    run_scenario(path, out=here, echo=lambda _: None)
    assert (there / "ledger.jsonl").read_bytes() == (here / "ledger.jsonl").read_bytes()
