"""Daily work without YAML: run, wait, list, and read logs, even of earlier attempts."""

import json
import os
import socket
import subprocess
from pathlib import Path

import yaml
from tests.up.conftest import Servers
from tests.up.server import BIN, Up, job, team

FAILS_ONCE = """
echo attempt $LEASEHOLD_ATTEMPT
test $LEASEHOLD_ATTEMPT -gt 1 || exit 3
sleep 600
"""


def started(up: Servers, *words: str) -> Up:
    server = up(*words).start()
    server.submit(*team())
    return server


def test_run_command_runs_job_without_manifest(up: Servers) -> None:
    server = started(up)

    done = server.runs("run", "-n", "team", "--gpus", "2", "--name", "hello", "--follow", "--",
                       "sh", "-c", "echo I have $CUDA_VISIBLE_DEVICES and $0 costs $5")  # fmt: skip

    assert done.stdout == "I have 0,1 and sh costs\n"
    assert done.stderr.startswith("run team/hello: ")
    [row] = server.rows("list", "-n", "team")
    assert (row["owner"], row["flavor"], row["phase"]) == ("org:team", "virtual", "Completed")


def test_followed_run_exits_with_status_of_the_job(up: Servers) -> None:
    server = started(up)

    done = server.runs("run", "-n", "team", "--gpus", "1", "--follow", "--", "sh", "-c", "exit 7",
                       ok=False)  # fmt: skip

    assert done.returncode == 7
    assert "Failed" in done.stderr


def test_dry_run_prints_manifest_and_creates_nothing(up: Servers, tmp_path: Path) -> None:
    server = started(up)
    words = ("-n", "team", "--gpus", "4", "--per-pod", "2", "--max", "2h", "--checkpoint", "30m",
             "--image", "example.com/train", "--dry-run")  # fmt: skip

    printed = server.runs(
        "run", *words, "-o", "yaml", "--", "python", "train.py", "--lr", "3"
    ).stdout

    manifest = yaml.safe_load(printed)
    name = manifest["metadata"]["name"]
    assert name.startswith("train-")
    assert manifest["spec"] == {
        "owner": "org:team",
        "resources": {"gpuType": "virtual", "totalGPUs": 4, "gpusPerPod": 2},
        "runtime": {"maxDuration": "2h", "checkpoint": "30m"},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "example.com/train",
                        "command": ["python", "train.py", "--lr", "3"],
                    }
                ]
            }
        },
    }
    assert server.rows("list", "-n", "team") == []
    file = tmp_path / "printed.yaml"
    file.write_text(printed)
    assert "would be accepted" in server.runs("submit", "--dry-run", "-f", str(file)).stdout
    assert server.rows("list", "-n", "team") == []
    odd = ("--gpus", "3", "--per-pod", "2", "--dry-run", "--", "x")
    wrong = server.runs("run", "-n", "team", *odd, ok=False)
    assert wrong.returncode == 1
    assert "gpusPerPod" in wrong.stderr


def test_array_run_has_one_group_per_index(up: Servers) -> None:
    server = started(up)
    script = "echo $LEASEHOLD_ARRAY_INDEX of $LEASEHOLD_ARRAY_COUNT in $LEASEHOLD_GROUP"

    for name, array in (("zero", "0-3"), ("odd", "5-11:2")):
        server.runs("run", "-n", "team", "--gpus", "1", "--name", name, "--array", array, "--",
                    "sh", "-c", script)  # fmt: skip
        server.wait_phase(name, "Completed")

    zero = server.runs("logs", "-n", "team", "zero").stdout.splitlines()
    assert zero == [f"[{index}.0] {index} of 4 in {index}" for index in range(4)]
    odd = server.runs("logs", "-n", "team", "odd").stdout.splitlines()
    assert odd == [f"[{group}.0] {5 + 2 * group} of 4 in {group}" for group in range(4)]
    for bad in ("x", "3-1", "0-99999", "1-5:0"):
        wrong = server.runs("run", "--gpus", "1", "--array", bad, "--", "x", ok=False)
        assert wrong.returncode == 2, bad


def test_run_requires_owner_flag_if_owner_is_missing_or_ambiguous(up: Servers) -> None:
    server = started(up)
    nobody = server.runs("run", "--gpus", "1", "--", "true", ok=False)
    assert "--owner" in nobody.stderr
    assert "namespace default" in nobody.stderr
    other = json.loads(json.dumps(team()[1]))
    other["metadata"]["name"] = "other"
    other["spec"]["owner"] = "org:other"
    server.submit(other)
    two = server.runs("run", "-n", "team", "--gpus", "1", "--", "true", ok=False)
    assert "more than one owner" in two.stderr
    assert "org:other, org:team" in two.stderr


def test_submit_waits_for_start_end_or_timeout(up: Servers) -> None:
    server = started(up)
    files = {}
    for name, script in (("good", "sleep 0.3"), ("bad", "exit 9"), ("long", "sleep 600")):
        files[name] = server.folder / f"{name}.yaml"
        files[name].write_text(json.dumps(job(name, script)))

    waited = server.runs("submit", "--wait=Completed", "-f", str(files["good"]))
    assert "run team/good: Completed" in waited.stdout
    failed = server.runs("submit", "--wait=Completed", "-f", str(files["bad"]), ok=False)
    assert failed.returncode == 9
    running = server.runs("submit", "-f", str(files["long"]), "--wait")
    assert "run team/long: Running" in running.stdout
    files["never"] = server.folder / "never.yaml"
    files["never"].write_text(json.dumps(job("never", "true", gpus=8)))
    late = server.runs("submit", "--wait", "--timeout", "0.5", "-f", str(files["never"]), ok=False)
    assert late.returncode == 1
    assert "timed out after 0.5 s: run team/never is still Pending" in late.stderr


def test_logs_of_earlier_attempts_are_kept(up: Servers, kubectl_path: Path) -> None:
    server = started(up)
    server.submit(job("again", FAILS_ONCE, runtime={"retries": 1}))
    server.wait("a second attempt", lambda: server.run("again").get("attempt") == 2)
    server.wait_phase("again", "Running")

    def logs(*words: str, ok: bool = True) -> str:
        done = server.runs("logs", "-n", "team", "again", *words, ok=ok)
        return done.stdout + done.stderr

    server.wait("its output", lambda: "attempt 2" in logs())
    assert logs("--previous") == "attempt 1\n"
    assert logs("--attempt", "1") == "attempt 1\n"
    assert logs("--attempt", "2") == "attempt 2\n"
    stamped = logs("--attempt", "1", "--timestamps")
    assert stamped.endswith("Z attempt 1\n")
    assert logs("--attempt", "1", "--since", "1h") == "attempt 1\n"
    assert logs("--attempt", "1", "--since", "2099-01-01T00:00:00Z") == ""
    assert "no attempt 5" in logs("--attempt", "5", ok=False)
    assert "use a duration" in logs("--since", "yesterday", ok=False)
    [pod] = server.rows("pods", "-n", "team", "again")

    def kubectl(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(kubectl_path), "--kubeconfig", str(server.kubeconfig), "-n", "team", *words],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert kubectl("logs", "--previous", str(pod["name"])).stdout == "attempt 1\n"
    assert "not found" in kubectl("logs", "nobody").stderr

    server.kill()
    server.start()
    assert logs("--previous") == "attempt 1\n"


def test_list_is_filtered_and_sorted(up: Servers) -> None:
    server = started(up)
    for name, label, script in (("b", "one", "true"), ("a", "two", "true"), ("c", "one", "exit 1")):
        made = job(name, script)
        made["metadata"]["labels"] = {"project": label}  # type: ignore[index]
        server.submit(made)
        server.wait_phase(name, "Completed", "Failed")

    def names(*words: str) -> list[str]:
        return server.runs("list", "-n", "team", "-o", "name", *words).stdout.split()

    assert names() == ["a", "b", "c"]
    assert names("-l", "project=one") == ["b", "c"]
    assert names("-l", "project=one", "--phase", "failed") == ["c"]
    assert names("--sort", "submitted") == ["b", "a", "c"]
    assert names("-A", "--phase", "Completed", "--sort", "ended") == ["team/b", "team/a"]
    assert "no such runs" in server.runs("list", "-n", "team", "--phase", "Running").stderr
    status = server.ask("describe", "-n", "team", "a")["run"]
    assert isinstance(status, dict)
    assert status["created"] <= status["started"] <= status["ended"]


def test_logs_of_cancelled_run_stay_readable(up: Servers) -> None:
    server = started(up)
    server.submit(job("stopped", "echo so far; sleep 600"))
    server.wait_phase("stopped", "Running")
    server.wait(
        "its output", lambda: "so far" in server.runs("logs", "-n", "team", "stopped").stdout
    )
    server.runs("cancel", "-n", "team", "stopped")
    server.wait_phase("stopped", "Failed")
    server.wait("its pod to go", lambda: not server.rows("pods", "-n", "team", "stopped"))

    assert server.runs("logs", "-n", "team", "stopped").stdout == "so far\n"


def test_follow_continues_after_server_restart(up: Servers) -> None:
    """The port must stay the same, because the client reads the kubeconfig once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = up("--gpus", "2", "--port", port).start()
    server.submit(*team())
    script = "echo one; while [ ! -e go ]; do sleep 0.1; done; echo two"
    command = [str(BIN / "kubectl-runs"), "run", "-n", "team", "--gpus", "1", "--name", "long",
               "--follow", "--", "sh", "-c", script]  # fmt: skip
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        try:
            assert following.stdout.readline() == "one\n"
            server.kill()
            server.start()
            home = server.work / "team"
            (home / "go").touch()
            assert following.stdout.read() == "two\n"
            assert following.wait(30) == 0
        finally:
            following.kill()
