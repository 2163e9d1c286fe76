"""`leasehold up` as a user sees it: the first start, refusals, Ctrl-C and restarts."""

import os
import signal
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.up.conftest import Servers
from tests.up.server import PATIENCE_S, Up, job, marked, team

from leasehold.cli import ledger
from leasehold.core.ledger.head import FORMAT


def refused(server: Up, *more: str) -> str:
    """Start a server that must fail without a traceback, and return its stderr."""
    done = subprocess.run(
        server.command(*more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


def test_first_start_announces_slots_and_makes_private_files(up: Servers) -> None:
    server = up().start()
    said = "\n".join(server.said)
    assert "8 virtual slots" in said
    assert server.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert server.data.stat().st_mode & 0o777 == 0o700
    open_to_others = [path for path in server.data.rglob("*") if path.stat().st_mode & 0o077]
    assert open_to_others == []
    assert server.rows("list", "-A") == []
    assert server.stop() == 0


def test_submitted_run_completes_with_logs_and_valid_ledger(up: Servers) -> None:
    server = up().start()
    server.submit(*team(), job("hello", "echo hello $RANK of $WORLD_SIZE", gpus=2, pods=2))
    row = server.wait_phase("hello", "Completed")
    assert row["attempt"] == 1
    logs = server.runs("logs", "hello", "-n", "team").stdout
    assert sorted(line.split("] ")[-1] for line in logs.splitlines()) == [
        "hello 0 of 4", "hello 2 of 4",
    ]  # fmt: skip
    [used] = {str(each["node"]) for each in server.rows("leases", "-n", "team", "hello")}
    assert used
    assert "ok" in server.cli("leasehold", "ledger", "verify", "--data", str(server.data)).stdout
    server.cli("leasehold", "audit", "--data", str(server.data))


def test_leader_is_visible_with_kubectl_and_changes_at_restart(
    up: Servers, kubectl_path: Path
) -> None:
    server = up().start()

    def kubectl(*words: str) -> str:
        command = [str(kubectl_path), "--kubeconfig", str(server.kubeconfig), *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=True
        ).stdout

    asked = ("get", "leases.coordination.k8s.io", "-n", "leasehold-system")
    head, row = kubectl(*asked).splitlines()
    assert head.split() == ["NAME", "HOLDER", "AGE"]
    first = row.split()[1]
    assert row.split()[0] == "leasehold-main"
    assert first.startswith(socket.gethostname())
    told = kubectl(*asked, "-o", "jsonpath={.items[0].kind} {.items[0].apiVersion}")
    assert told == "Lease coordination.k8s.io/v1"
    assert server.stop() == 0
    server.start()
    second = kubectl(*asked).splitlines()[1].split()[1]
    assert second.startswith(socket.gethostname())
    assert second != first


def test_second_server_on_same_data_is_refused_with_pid_of_first(up: Servers) -> None:
    server = up().start()
    assert str(server.process.pid) in refused(server)
    assert server.rows("list", "-A") == []


@pytest.mark.parametrize("is_there", [True, False], ids=["empty", "missing"])
def test_missing_or_empty_store_is_not_created_again(up: Servers, is_there: bool) -> None:
    server = up().start()
    assert server.stop() == 0
    store = server.data / "store.sqlite"
    kept = store.read_bytes()
    for path in server.data.glob("store.sqlite*"):
        path.unlink()
    if is_there:
        store.touch()
    said = refused(server)
    assert "is missing or empty, although this folder was used before" in said
    assert "leasehold restore" in said
    store.write_bytes(kept)
    assert server.start().rows("list", "-A") == []


def test_stale_lock_file_is_taken_over(up: Servers) -> None:
    server = up().start()
    server.kill()
    lock = server.data / "store.sqlite.lock"
    lock.write_text(f"{os.getpid()}\n")  # a live process that does not hold the lock
    server.start()
    assert server.rows("list", "-A") == []


def test_port_in_use_is_refused_with_remedy(up: Servers) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = refused(up(), "--port", str(taken.getsockname()[1]))
    assert "is in use by another program" in said
    assert "--port" in said


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--fleet", "nowhere.yaml"), "no such file"),
        (("--config", "nowhere.yaml"), "name a file that can be read"),
    ],
)
def test_missing_fleet_or_config_file_is_reported(
    up: Servers, more: tuple[str, ...], says: str
) -> None:
    server = up("--log-level", "info") if "--fleet" in more else up()
    assert says in refused(server, *more)


def test_unknown_setting_is_refused_by_name(up: Servers) -> None:
    assert "activationlead" in refused(up(config="activationlead: 3s\n"))


def test_ledger_of_later_format_is_refused(up: Servers) -> None:
    server = up().start()
    server.stop()
    path = server.data / "store.sqlite"
    with closing(sqlite3.connect(path)) as store, store:
        changed = store.execute(
            "UPDATE objects SET body = CAST(replace(body, ?, ?) AS BLOB) WHERE kind = 'LedgerHead'",
            (f'"format":{FORMAT}', f'"format":{FORMAT + 1}'),
        )
        assert changed.rowcount == 1
    said = refused(server)
    assert f"the ledger has format {FORMAT + 1}" in said
    assert "use the version that wrote the ledger" in said
    verified = CliRunner().invoke(ledger.command, ["verify", "--data", str(server.data)])
    assert verified.exit_code == 1
    assert f"the ledger has format {FORMAT + 1}" in verified.output


def test_damaged_store_is_refused_and_not_changed(up: Servers) -> None:
    server = up().start()
    server.stop()
    store = server.data / "store.sqlite"
    whole = store.read_bytes()
    store.write_bytes(whole[:5000] + os.urandom(3000) + whole[8000:])
    damaged = store.read_bytes()
    said = refused(server)
    assert "damaged" in said or "malformed" in said
    assert "backup" in said
    assert store.read_bytes() == damaged


def test_altered_ledger_content_is_refused_with_restore_command(up: Servers) -> None:
    """SQLite has no checksums, but the ledger has."""
    server = up().start()
    server.submit(*team(), job("over", "exit 0"))
    server.wait_phase("over", "Completed")
    server.stop()
    store = server.data / "store.sqlite"
    content = store.read_bytes()
    assert content.count(b'"facts":{"budgets"') >= 2
    store.write_bytes(content.replace(b'"facts":{"budgets"', b'"facts":{"bubgets"'))
    last = refused(server).strip().splitlines()[-1]
    assert last.startswith(f"Error: {store}: is damaged (the ledger has no batch ")
    assert f"`leasehold restore FROM.tar --data {server.data}.restored`" in last


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_jobs_survive_server_restart(up: Servers, how: signal.Signals) -> None:
    server = up().start()
    script = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; exit 0"
    server.submit(*team(), job("long", script, pods=2), job("quick", "sleep 0.7; exit 3"))
    server.wait_phase("long", "Running")
    server.process.send_signal(how)
    server._gone()
    assert marked(server.data)  # the jobs still run
    server.start()
    assert server.wait_phase("quick", "Failed")["phase"] == "Failed"
    row = server.wait_phase("long", "Completed")
    assert row["attempt"] == 1
    logs = server.runs("logs", "long", "-n", "team").stdout
    assert [line.split("] ")[-1] for line in logs.splitlines()].count("6") == 2
    assert len(logs.splitlines()) == 12
    leases = server.rows("leases", "-n", "team", "long")
    assert {each["closed"] for each in leases} == {"Completed"}


def test_stop_with_end_jobs_kills_jobs_and_starts_no_waiting_run(up: Servers) -> None:
    server = up("--gpus", "2", "--end-jobs").start()
    waiting = [job(f"next{n}", "sleep 600", pods=2) for n in range(3)]
    server.submit(*team(), job("long", "sleep 600", pods=2), *waiting)
    server.wait_phase("long", "Running")
    assert marked(server.data)
    assert server.stop() == 0
    assert not marked(server.data), "no waiting run may start in its place"
    server.cli("leasehold", "ledger", "verify", "--data", str(server.data))
    assert server.said[-1] == "stopped"
    server.start()
    assert server.run("long")["phase"] == "Failed"
    explained = server.runs("explain", "long", "-n", "team").stdout
    assert "the pod was stopped together with the control plane" in explained
    server.wait(
        "the next", lambda: any(row["phase"] == "Running" for row in server.rows("list", "-A"))
    )


def test_only_health_endpoints_need_no_token(up: Servers, tmp_path: Path) -> None:
    import http.client
    import ssl

    server = up().start()
    url = next(word for word in server.said[0].split() if word.startswith("https://"))
    host, _, port = url.removeprefix("https://").partition(":")
    unchecked = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(host, int(port), context=unchecked, timeout=30)
    try:
        for path, status in (("/readyz", 200), ("/livez", 200), ("/metrics", 401), ("/api", 401)):
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == status, (path, body)
            assert b"org:" not in body
    finally:
        connection.close()
