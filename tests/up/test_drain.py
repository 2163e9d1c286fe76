"""`leasehold drain` on a real control plane: jobs save their state and resume elsewhere."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.server import BIN, PATIENCE_S, Up, job, team

FLEET = """\
fleet:
  - {domain: a, nodes: 3, gpus: 4, flavor: virtual, region: here, cluster: one}
"""
# The job counts on from its checkpoint. The folder `<name>.lives` exists while the job runs; a job
# that finds the folder at its start is a duplicate. (`$$` in a command is `$` in Kubernetes.)
COUNTS = """
n=$(cat {folder}/{name} 2>/dev/null || echo 0)
mkdir {folder}/{name}.lives || touch {folder}/twice
echo "resumed at $$n"
trap 'sleep 1; echo $$n > {folder}/{name}; rmdir {folder}/{name}.lives; exit 0' TERM
while :; do n=$((n + 1)); echo $$n > {folder}/{name}.now; sleep 0.05; done
"""


class Drained:
    """A node with three jobs: one with checkpoints, one with a spare and one with neither."""

    def __init__(self, up: Servers, tmp_path: Path) -> None:
        fleet = tmp_path / "fleet.yaml"
        fleet.write_text(FLEET)
        self.server = up("--fleet", str(fleet)).start()
        self.folder = self.server.folder / "state"
        self.folder.mkdir()
        self.folder.chmod(0o777)
        wait = f"while [ ! -e {self.folder}/end ]; do sleep 0.05; done"
        self.server.submit(
            *team(),
            job("saves", self._counts("saves"), runtime={"checkpoint": "1m"}),
            job("spared", self._counts("spared"), sparesPerGroup=1),
            job("plain", wait),
        )
        for name in ("saves", "spared", "plain"):
            self.server.wait_phase(name, "Running")
        assert self.on("a-00") == ["plain Active", "saves Active", "spared Active"]
        self.server.wait("both to count", self.counted)

    def _counts(self, name: str) -> str:
        return COUNTS.format(folder=self.folder, name=name)

    def on(self, node: str) -> list[str]:
        rows = self.server.rows("leases", "--node", node)
        return sorted(f"{str(row['run']).partition('/')[2]} {row['role']}" for row in rows)

    def counted(self) -> bool:
        files = [self.folder / f"{name}.now" for name in ("saves", "spared")]
        return all(file.exists() and file.read_text().strip() not in ("", "1") for file in files)

    def resumed(self, name: str) -> bool:
        return f"resumed at {self.saved(name)}\n" in self.server.runs("logs", f"team/{name}").stdout

    def saved(self, name: str) -> int:
        file = self.folder / name
        return int(file.read_text()) if file.exists() else 0


@pytest.fixture
def drained(up: Servers, tmp_path: Path) -> Drained:
    return Drained(up, tmp_path)


def is_left_to_plain(drained: Drained) -> bool:
    return drained.on("a-00") == ["plain Active"]


def has_moved(drained: Drained) -> bool:
    """Return whether both jobs run again from their saved state."""
    return all(drained.saved(name) and drained.resumed(name) for name in ("saves", "spared"))


def test_drain_empties_node_without_loss_of_work(drained: Drained) -> None:
    server = drained.server

    with subprocess.Popen(
        [str(BIN / "leasehold"), "drain", "a-00"],
        env={**os.environ, "KUBECONFIG": str(server.kubeconfig)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as draining:  # fmt: skip
        assert draining.stderr is not None
        waits = (
            "team/plain stays until it ends by itself: it has no runtime.checkpoint, and no spare"
        )
        assert any(line.startswith(waits) for line in draining.stderr)
        server.wait("the others to leave", lambda: is_left_to_plain(drained))
        server.wait("both to go on", lambda: has_moved(drained))
        (drained.folder / "end").touch()
        said, _ = draining.communicate(timeout=PATIENCE_S)

    spare = server.rows("leases", "team/spared")[-1]["node"]
    assert said.splitlines() == [
        "team/plain ended (Completed)",
        "team/saves requeued",
        f"team/spared swapped to its spare on {spare}",
        "node a-00 is empty and takes no new work",
    ]
    assert draining.returncode == 0
    assert drained.on("a-00") == []
    spared, saves = (server.ask("explain", f"team/{name}") for name in ("spared", "saves"))
    assert f"node a-00 was drained by admin: group 0 pod 0 moved to its spare on {spare}" in str(
        spared
    )
    assert "node a-00 was drained by admin: it was stopped, with 1 GPU, and requeued" in str(saves)
    attempts = {str(row["name"]): row["attempt"] for row in server.rows("list", "-n", "team")}
    assert attempts == {"plain": 1, "saves": 2, "spared": 1}
    assert not (drained.folder / "twice").exists()

    undone = server.cli("leasehold", "drain", "a-00", "--undo")
    assert undone.stdout == "node a-00 accepts work again\n"
    server.submit(*(job(name, "sleep 600", gpus=4) for name in ("four", "more")))
    server.wait("new work", lambda: drained.on("a-00") != [])
    _is_sound(server)


def test_drain_completes_after_control_plane_is_killed(drained: Drained) -> None:
    server = drained.server
    server.cli("leasehold", "drain", "a-00", "--wait", "0.1", ok=False)

    server.kill()
    server.start()

    server.wait("the others to leave", lambda: is_left_to_plain(drained))
    server.wait("both to go on", lambda: has_moved(drained))
    assert not (drained.folder / "twice").exists()
    closed = [row for row in server.rows("leases", "--closed") if row["node"] == "a-00"]
    assert [(row["closed"], row["closure"]) for row in closed] == [("Swap", "Swap(a-00)")] * 2
    _is_sound(server)


def _is_sound(server: Up) -> None:
    assert server.stop() == 0
    for words in (("audit",), ("ledger", "verify")):
        said = server.cli("leasehold", *words, "--data", str(server.data))
        assert "ok" in said.stdout
