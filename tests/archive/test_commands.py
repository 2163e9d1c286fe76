"""Ledger, backup and audit commands on a data folder, with and without a running server."""

import csv
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import msgspec
import pytest
from click import Command
from click.testing import CliRunner, Result
from tests.archive.folder import SECRETS, USERS, make_data_folder

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.lock import FileLock
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli import audit, backup, ledger, restore
from leasehold.shell.archive.snapshot import Snapshot
from leasehold.shell.config.folder import DataFolder

# A server without its facade: the loop, its store, the compactor, and a signal that requests a
# compaction.
SERVER = """
import asyncio, signal, sys
from pathlib import Path
from leasehold.adapters.asyncio_runtime import run
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.policy import Policy
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.loop.loop import Controller
from leasehold.shell.loop.settings import PlaneSettings

async def main(clock, tasks):
    folder = DataFolder(Path(sys.argv[1]))
    store = GroupStore(folder.store, tasks, clock)
    compactor = Compactor(store, clock, folder=folder.archive, keep_closed=0, max_objects=10**6)
    requests = []
    async def between(world, ledger):  # not by itself: everything is old enough at once
        return await compactor.step(world, ledger) if requests else None
    terms = PlaneSettings(policy=Policy(binder_enabled=False), lottery_key=b"k" * 32)
    controller = Controller(store, clock, tasks, terms, between_turns=between)
    tasks.spawn("controller", controller.run())
    def asked():
        requests.append(1)
        compactor.request()
        controller.wake()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, asked)
    while controller.world is None:
        await clock.sleep(10)
    print("ready", flush=True)
    await clock.sleep(120_000)

run(main)
"""


def invoke(command: Command, *arguments: str | Path) -> Result:
    result = CliRunner().invoke(command, [str(each) for each in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def ok(command: Command, *arguments: str | Path) -> str:
    result = invoke(command, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = make_data_folder(tmp_path / "data")
    (folder / "agent" / "pods").mkdir()
    (folder / "agent" / "pods" / "record").write_bytes(b"of a job")
    return folder


def rows(data: Path, *more: str) -> list[dict[str, str]]:
    told = ok(ledger.command, "export", "--format", "csv", "--data", data, *more)
    return list(csv.DictReader(io.StringIO(told)))


def total(some: list[dict[str, str]]) -> int:
    """Return the exact sum in GPU-milliseconds."""
    return sum(int(row["gpu_seconds"].replace(".", "")) for row in some)


def test_export_equals_committed_batches_before_and_after_compaction(data: Path) -> None:
    committed = (data / "ledger.jsonl").read_text("utf-8")
    assert ok(ledger.command, "export", "--data", data) == committed
    verified = ok(ledger.command, "verify", "--data", data)
    assert verified == f"ledger verify: ok ({len(committed.splitlines())} batches)\n"
    before = rows(data, "--to", "2027-06-01T00:00:00Z")
    told = ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    assert told.startswith("archived up to batch ")
    assert ok(ledger.command, "export", "--data", data) == committed
    assert ok(ledger.command, "verify", "--data", data) == verified
    assert rows(data, "--to", "2027-06-01T00:00:00Z") == before
    assert "ok" in ok(audit.command, "--data", data)
    again = ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    assert again == "nothing is old enough to be archived\n"
    files = sorted((data / "archive").glob("ledger-*.jsonl"))
    assert ok(ledger.command, "verify", *files) == verified


def test_csv_export_has_a_row_per_lease_and_adds_up_to_the_ledgers_totals(data: Path) -> None:
    lines = (data / "ledger.jsonl").read_bytes().splitlines()
    batches = [msgspec.json.decode(line)["batch"] for line in lines]
    opened = {each["name"]: each["spec"] for batch in batches for each in batch.get("opened", [])}
    ends = {each["lease"]: each["end"] for batch in batches for each in batch.get("closed", [])}
    table = rows(data, "--to", "2027-06-01T00:00:00Z")
    assert [row["lease"] for row in table] == list(opened)
    for row in table:
        spec = opened[row["lease"]]
        assert (row["run"], row["run_uid"]) == (spec["runRef"]["name"], spec["runRef"]["uid"])
        assert row["payer_envelope"] == spec["paidByEnvelope"]
        assert int(row["gpus"]) == len(spec["slice"]["slots"]) == len(row["slots"].split())
        assert (row["end"] == "") == (row["lease"] not in ends)
    replayed = ok(ledger.command, "replay", "--at", "2027-06-01T00:00:00Z", "--data", data)
    for line in replayed.splitlines():
        payer, _, rest = line.strip().partition(" has spent ")
        mine = [row for row in table if payer == "/".join(
            (row["payer_namespace"], row["payer_budget"], row["payer_envelope"]))]  # fmt: skip
        assert not rest or round(total(mine) / 3_600_000, 3) == float(rest.split()[0])
    assert "has spent" in replayed
    cut = "2027-01-15T09:00:00Z"
    early, late = rows(data, "--to", cut), rows(data, "--from", cut, "--to", "2027-06-01T00:00:00Z")
    assert total(early) + total(late) == total(table)


def test_ledger_commands_name_damaged_and_missing_files(data: Path) -> None:
    ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    file = sorted((data / "archive").glob("leases-*.jsonl"))[-1]
    content = file.read_bytes()
    file.write_bytes(content.replace(b'"node":"', b'"node":"x', 1) or b"x")
    told = invoke(ledger.command, "verify", "--data", data)
    assert told.exit_code == 1
    assert file.name in told.output
    file.write_bytes(content)
    for path in (data / "archive").glob("*-000000000001-*"):
        path.unlink()
    told = invoke(ledger.command, "export", "--data", data)
    assert told.exit_code == 1
    assert "Error: " in told.output
    nothing = invoke(ledger.command, "verify", "--data", data / "none")
    assert nothing.exit_code == 1
    assert "does not exist" in nothing.output


def test_compact_and_backup_beside_a_running_server_succeed(data: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(data)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        committed = ok(ledger.command, "export", "--data", data)
        refused = invoke(ledger.command, "compact", "--keep", "1d", "--data", data)
        assert refused.exit_code == 2
        assert f"pid {process.pid}" in refused.output
        told = ok(ledger.command, "compact", "--data", data)
        assert told.startswith("archived up to batch ")
        assert ok(ledger.command, "verify", "--data", data).startswith("ledger verify: ok")
        assert ok(ledger.command, "export", "--data", data).startswith(committed)
        ok(backup.command, data.parent / "backup.tar", "--data", data)
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    assert ok(ledger.command, "verify", "--data", data).startswith("ledger verify: ok")
    restored = data.parent / "restored"
    ok(restore.command, data.parent / "backup.tar", "--data", restored)
    assert ok(ledger.command, "verify", "--data", restored).startswith("ledger verify: ok")


def test_backup_restores_all_files_with_a_higher_epoch(data: Path, tmp_path: Path) -> None:
    ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    to, restored = tmp_path / "backup.tar", tmp_path / "restored"
    lock = FileLock(data / "store.sqlite")  # a running server holds this lock
    try:
        assert "backup: ok" in ok(backup.command, to, "--data", data)
    finally:
        lock.release()
    assert to.stat().st_mode & 0o777 == 0o600
    before = int(time.time())
    assert "restore: ok" in ok(restore.command, to, "--data", restored)
    for name, content in {**SECRETS, "users.json": USERS}.items():
        assert (restored / name).read_bytes() == content
        assert (restored / name).stat().st_mode & 0o777 == 0o600
    assert not (restored / "agent").exists()  # the old folder can be moved here
    exports = [ok(ledger.command, "export", "--data", each) for each in (data, restored)]
    assert exports[0] == exports[1]
    assert ok(ledger.command, "verify", "--data", restored).startswith("ledger verify: ok")
    epochs = [epoch_of(each) for each in (data, restored)]
    assert epochs[0] < 1_000_000 * before <= epochs[1]
    taken = invoke(restore.command, to, "--data", restored)
    assert taken.exit_code == 1
    assert "not empty" in taken.output


def test_backup_of_a_restored_folder_keeps_its_users(data: Path, tmp_path: Path) -> None:
    ok(backup.command, tmp_path / "1.tar", "--data", data)
    ok(restore.command, tmp_path / "1.tar", "--data", tmp_path / "once")
    ok(backup.command, tmp_path / "2.tar", "--data", tmp_path / "once")
    ok(restore.command, tmp_path / "2.tar", "--data", tmp_path / "twice")
    assert (tmp_path / "twice" / "users.json").read_bytes() == USERS


def epoch_of(data: Path) -> int:
    snapshot = Snapshot(data / "store.sqlite")
    try:
        epoch = snapshot.head()["epoch"]
    finally:
        snapshot.close()
    assert isinstance(epoch, int)
    return epoch


def test_damaged_backup_restores_nothing(data: Path, tmp_path: Path) -> None:
    to = tmp_path / "backup.tar"
    ok(backup.command, to, "--data", data)
    content = to.read_bytes()
    with tarfile.open(to) as tar:
        places = {info.name: info.offset_data + info.size // 2 for info in tar}
    for name, place in places.items():
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        to.write_bytes(flipped)
        folder = tmp_path / "to" / name.replace("/", "-")
        told = invoke(restore.command, to, "--data", folder)
        assert told.exit_code == 1, name
        assert "Error: " in told.output
        assert list(folder.iterdir()) == []
    to.write_bytes(b"no tar")
    assert "is not a backup" in invoke(restore.command, to, "--data", tmp_path / "x").output


def test_restore_of_missing_backup_creates_no_folder(tmp_path: Path) -> None:
    to, folder = tmp_path / "nosuch.tar", tmp_path / "to"
    told = invoke(restore.command, to, "--data", folder)
    assert told.exit_code == 1
    assert f"Error: {to}: there is no such backup; name another file" in told.output
    assert not folder.exists()
    told = invoke(restore.command, "--data", folder)
    assert told.exit_code == 2
    assert "Missing argument 'FROM.tar'" in told.output
    assert not folder.exists()


def test_commands_on_a_damaged_store_name_the_file_and_the_remedy(
    data: Path, tmp_path: Path
) -> None:
    store, page = data / "store.sqlite", 4096
    content = store.read_bytes()
    store.write_bytes(content[:page] + bytes(page) + content[2 * page :])  # the root of all objects
    for command, *more in (
        (ledger.command, "verify"),
        (ledger.command, "export"),
        (audit.command,),
        (backup.command, tmp_path / "to.tar"),
    ):
        told = invoke(command, *more, "--data", data)
        assert told.exit_code == 1, more
        assert f"Error: {store}: is damaged (" in told.output, more
        assert f"`leasehold restore FROM.tar --data {data}.restored`" in told.output, more
    assert not (tmp_path / "to.tar").exists()


def test_restore_refuses_file_names_outside_its_folder(data: Path, tmp_path: Path) -> None:
    to = tmp_path / "backup.tar"
    contents = {"format": 1, "taken": 1, "files": {"../evil": {"sha256": "0" * 64, "bytes": 1}}}
    with tarfile.open(to, "w") as tar:
        for name, content in (("../evil", b"x"), ("contents.json", msgspec.json.encode(contents))):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    told = invoke(restore.command, to, "--data", tmp_path / "to")
    assert told.exit_code == 1
    assert "do not use this backup" in told.output
    assert not (tmp_path / "evil").exists()


def test_audit_names_a_missing_pod(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "PAUSE_S", 0)
    assert "audit: ok" in ok(audit.command, "--data", data)

    async def remove_a_pod(clock: AsyncioClock, tasks: AsyncioTasks) -> str:
        store = SqliteStore(DataFolder(data).store, tasks, clock)
        try:
            for pod in (await store.list("Pod")).items:
                metadata, status = pod["metadata"], pod["status"]
                assert isinstance(metadata, dict)
                assert isinstance(status, dict)
                if status["phase"] == "Running":
                    place = str(metadata["namespace"]), str(metadata["name"])
                    await store.delete("Pod", *place, uid=None, grace_ms=0)
                    return place[1]
        finally:
            store.close()
        raise AssertionError("no pod runs")

    gone = run(remove_a_pod)
    told = invoke(audit.command, "--data", data)
    assert told.exit_code == 1
    assert f"it has no pod w/{gone}" in told.output
