"""Archived leases of an existing Run are counted exactly once."""

from tests.up.conftest import Servers
from tests.up.server import job, team


def test_who_pays_answer_is_unchanged_after_compaction_of_leases(up: Servers) -> None:
    server = up().start()
    server.submit(*team(), job("short", "true", gpus=8))
    server.wait_phase("short", "Completed")
    asked = ("who-pays", "short", "-n", "team")
    before = server.ask(*asked)
    told = {name: before[name] for name in ("gpuMs", "shares", "payers")}
    assert server.rows("leases", "-n", "team", "short")[0]["gpuMs"] == before["gpuMs"] != 0
    server.stop()
    said = server.cli("leasehold", "ledger", "compact", "--keep", "0s", "--data", str(server.data))
    assert "1 lease and 0 resolutions left the store" in said.stdout

    server.start()

    after = server.ask(*asked)
    assert {name: after[name] for name in told} == told
