"""Manifests, jobs and folders that could stop the agent or break all later jobs."""

import os
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.up.server import BIN

from leasehold.adapters.agent.limits import AgentError, CannotStart
from leasehold.adapters.agent.users import Users
from leasehold.adapters.agent.variables import declared, words
from leasehold.cli.main import main


def test_nested_variable_references_are_refused_before_filling_memory() -> None:
    env = [{"name": "A0", "value": "x" * 1000}]
    env += [{"name": f"A{n}", "value": f"$(A{n - 1})" * 20} for n in range(1, 12)]

    with pytest.raises(CannotStart, match="more than a process can get"):
        declared({}, {"env": env}, given={})


def test_variables_and_arguments_that_are_too_long_together_are_refused() -> None:
    wide = {"A": "x" * 100_000}
    env = [{"name": f"B{n}", "value": "$(A)"} for n in range(100)]

    with pytest.raises(CannotStart, match="together"):
        declared({}, {"env": env}, given=wide)
    with pytest.raises(CannotStart, match="together"):
        words(["$(A)"] * 100, wide)
    assert words(["echo", "$(A)"], wide) == ["echo", "x" * 100_000]


def test_home_folder_that_a_job_made_inaccessible_is_opened_for_the_next_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "work").mkdir()
    users = Users(tmp_path / "agent", private_first=61_184)
    home = users.home(tmp_path / "work", "team")
    home.chmod(0o050)

    assert users.home(tmp_path / "work", "team") == home
    assert stat.S_IMODE(home.stat().st_mode) == 0o750


@pytest.mark.parametrize("written", ["[1, 2", '{"team": 0}', '{"team": "x"}', "[]", "\ud800"])
def test_damaged_list_of_users_is_refused_with_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "users.json").write_bytes(written.encode("utf-8", "surrogatepass"))

    with pytest.raises(AgentError, match=r"users\.json.*restore it"):
        Users(tmp_path)


def test_empty_host_option_is_refused(tmp_path: Path) -> None:
    asked = ["up", "--data", str(tmp_path / "data"), "--gpus", "1", "--port", "0", "--host", ""]
    said = CliRunner().invoke(main, asked)

    assert said.exit_code == 2
    assert "--host is empty" in said.output


@pytest.fixture
def enterable() -> Iterator[Path]:
    """A folder that other users can enter: as root, jobs run as other users."""
    with tempfile.TemporaryDirectory(prefix="leasehold-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        yield Path(root)


def test_server_runs_and_stops_without_standard_streams(enterable: Path) -> None:
    data = enterable / "data"
    command = f"exec {BIN}/leasehold up --data {data} --gpus 1 --port 0 <&- >&- 2>&-"
    process = subprocess.Popen(["sh", "-c", command])
    try:
        deadline = time.monotonic() + 30
        while not (data / "kubeconfig").exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        said = subprocess.run(
            [BIN / "kubectl-runs", "report", "gpu-hours", "--from", "0001-01-01"],
            env={**os.environ, "KUBECONFIG": str(data / "kubeconfig")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (said.returncode, "parameter from" in said.stderr) == (1, True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
