"""The exact output of every command in every form.

The files are in `golden/`. After an intended change, write them again with
`LEASEHOLD_GOLDEN=write pytest tests/cli_runs/test_golden.py` and read the difference.
"""

import os
from pathlib import Path

import pytest
from tests.cli_runs.conftest import Cli

GOLDEN = Path(__file__).parent / "golden"
FORMS = ("table", "wide", "json", "yaml")
NEW = """\
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata: {name: probe}
spec:
  owner: org:ai:mm:vision
  resources: {gpuType: H100-80GB, totalGPUs: 8, gpusPerPod: 8}
  runtime: {checkpoint: 10m}
  funding: {allowBorrow: true, sponsors: ["lab:speech:asr"]}
"""

COMMANDS = {
    "list": ["list"],
    "list-all": ["list", "-A"],
    "list-owner": ["list", "-A", "--owner", "org:ai:mm:*"],
    "list-chosen": ["list", "-A", "--phase", "Running", "--phase", "Failed", "--sort", "submitted"],
    "describe": ["describe", "train"],
    "plan-run": ["plan", "speech/rescore"],
    "plan-file": ["plan", "-f", "-"],
    "plan-running": ["plan", "train"],
    "explain-pending": ["explain", "rescore", "-n", "speech"],
    "explain-preempted": ["explain", "text/pretrain"],
    "explain-shrunk": ["explain", "audio/sweep"],
    "explain-swapped": ["explain", "train"],
    "explain-completed": ["explain", "speech/decode"],
    "who-pays": ["who-pays", "train"],
    "cover-run": ["cover", "--explain", "train"],
    "cover-file": ["cover", "--explain", "-f", "-"],
    "sponsors": ["sponsors", "list", "train"],
    "budgets-usage": ["budgets", "usage"],
    "budgets-balance": ["budgets", "balance"],
    "budgets-tree": ["budgets", "tree", "--owner", "org*"],
    "leases": ["leases"],
    "leases-of-run": ["leases", "train"],
    "leases-of-node": ["leases", "--node", "b-02", "--since", "12h"],
    "leases-at": ["leases", "--at", "2026-11-02T13:30:00Z", "--owner", "lab:*"],
    "leases-closed": ["leases", "--closed", "--payer", "lab:speech:asr"],
    "reservations": ["reservations", "-A"],
    "reservations-past": ["reservations", "-n", "speech", "--past"],
    "pods": ["pods", "audio/sweep"],
    "report-owner": ["report", "gpu-hours"],
    "report-payer": ["report", "gpu-hours", "--by", "payer", "--owner", "org:ai:mm:vision"],
    "report-run": ["report", "gpu-hours", "--by", "run", "--from", "2026-11-02T13:00:00Z"],
    "report-node": ["report", "gpu-hours", "--by", "node", "--to", "2026-11-02T13:00:00Z"],
    "report-day": ["report", "gpu-hours", "--by", "day"],
}
CHANGES = {
    "submit": ["submit", "-f", "-"],
    "sponsors-add": ["sponsors", "add", "train", "org:ai:text"],
    "sponsors-remove": ["sponsors", "remove", "train", "lab:speech:asr"],
    "shrink": ["shrink", "audio/sweep", "--to", "8"],
    "cancel": ["cancel", "train"],
}


def assert_golden(name: str, printed: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("LEASEHOLD_GOLDEN") == "write":
        file.write_text(printed)
    assert printed == file.read_text(), file.name


@pytest.mark.parametrize("name", COMMANDS)
def test_query_output_equals_golden_files_in_every_form(cli: Cli, name: str) -> None:
    words = COMMANDS[name]
    stdin = NEW if words[-1] == "-" else None
    for form in FORMS:
        done = cli(*words, "-o", form, stdin=stdin)
        assert done.stderr == ""
        assert done.exit_code == 0
        assert_golden(f"{name}.{form}", done.stdout)
        if form in ("table", "wide"):
            assert all(line == line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", CHANGES)
def test_change_output_equals_golden_file(cli: Cli, name: str) -> None:
    done = cli(*CHANGES[name], stdin=NEW)
    assert (done.stderr, done.exit_code) == ("", 0)
    assert_golden(f"{name}.table", done.stdout)


def test_csv_report_equals_golden_file(cli: Cli) -> None:
    done = cli("report", "gpu-hours", "-o", "csv")
    assert (done.stderr, done.exit_code) == ("", 0)
    assert_golden("report-owner.csv", done.stdout)


def test_every_golden_file_belongs_to_a_command() -> None:
    made = {f"{name}.{form}.txt" for name in COMMANDS for form in FORMS}
    made |= {f"{name}.table.txt" for name in CHANGES} | {"report-owner.csv.txt"}
    made |= {f"drain.{form}.txt" for form in FORMS}  # of test_drain
    assert {file.name for file in GOLDEN.iterdir()} == made
