"""The one export line that `leasehold up` prints is enough for every command."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.server import BIN, PATIENCE_S, Up, job, team

Say = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def server(up: Servers) -> Up:
    return up("--gpus", "2").start()


@pytest.fixture
def say(server: Up, tmp_path: Path) -> Say:
    """Return a function that runs `leasehold …` for a person who only exported that line."""
    assert server.process.stdout is not None
    greeting = iter(server.process.stdout.readline, "")
    line = next(each.strip() for each in greeting if each.strip().startswith("export "))
    name, _, value = line.removeprefix("export ").partition("=")

    def run(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
        known = {key: each for key, each in os.environ.items() if key != "LEASEHOLD_DATA"}
        return subprocess.run(
            [str(BIN / "leasehold"), *words],
            env={**known, name: value, "XDG_DATA_HOME": str(tmp_path), **env},
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    return run


def test_folder_commands_use_data_folder_of_exported_server(
    server: Up, say: Say, tmp_path: Path
) -> None:
    server.submit(*team(), job("hello", "true"))
    server.wait_phase("hello", "Completed")

    assert "ok (0 batches)" not in say("ledger", "verify").stdout
    assert say("audit").stdout == "audit: ok (0 open leases)\n"
    assert say("token", "create", "--user", "ann", "-n", "team").returncode == 0
    assert "ann" in server.cli("leasehold", "token", "list", "--data", str(server.data)).stdout
    assert "activationLead: 2s" not in say("config", "show").stdout, "up was given another file"
    (server.data / "config.yaml").write_text("activationLead: 7s\n")
    assert "activationLead: 7s" in say("config", "show").stdout
    assert "backup: ok" in say("backup", str(tmp_path / "b.tar")).stdout
    assert "nothing is old enough" in say("ledger", "compact").stdout


def test_foreign_kubeconfig_is_used_over_the_network(server: Up, say: Say, tmp_path: Path) -> None:
    server.submit(*team(), job("hello", "true"))
    server.wait_phase("hello", "Completed")
    theirs = tmp_path / "auditor"
    made = say("token", "create", "--user", "eve", "--role", "admin", "--kubeconfig", str(theirs))
    assert made.returncode == 0, made.stderr

    verified = say("ledger", "verify", KUBECONFIG=str(theirs))
    tokens = say("token", "list", KUBECONFIG=str(theirs))
    config = say("config", "show", KUBECONFIG=str(theirs))

    assert verified.stdout.startswith("ledger verify: ok ("), verified.stderr
    assert "(0 batches)" not in verified.stdout
    for refused in (tokens, config):
        assert refused.returncode == 2
        assert "--data" in refused.stderr


def test_named_data_folder_overrides_exported_server(server: Up, say: Say, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    assert other in say("token", "list", "--data", other).stderr
    assert other in say("token", "list", LEASEHOLD_DATA=other).stderr
    gone = say("audit", KUBECONFIG=str(tmp_path / "gone"))
    assert gone.returncode == 2
    assert "there is no kubeconfig" in gone.stderr
    assert "--data" in gone.stderr


def test_start_and_stop_messages_use_correct_plurals(up: Servers, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("fleet: []\n")
    empty = up("--fleet", str(fleet)).start()
    assert " with 0 virtual slots on 0 nodes, " in empty.said[0]
    one = up("--gpus", "1").start()
    assert " with 1 virtual slot (flavor virtual) on 1 node, " in one.said[0]
    one.submit(*team(), job("long", "sleep 600"))
    one.wait_phase("long", "Running")
    one.stop()
    assert one.said[-1] == "stopped; 1 job is still running, and the next `leasehold up` adopts it"
