"""A server whose store was damaged goes on with another folder: every commit, every running job."""

import re
import subprocess

from tests.up.conftest import Servers
from tests.up.server import BIN, job, marked, team

PAGE = 4096


def test_what_the_refusal_says_to_type_brings_everything_back(up: Servers) -> None:
    server = up().start()
    script = "echo begun; while [ ! -e stop ]; do sleep 0.1; done; exit 0"
    server.submit(*team(), job("over", "exit 0"), job("long", script, pods=2))
    server.wait_phase("over", "Completed")
    server.wait_phase("long", "Running")
    before = server.rows("leases", "-n", "team")
    server.stop()
    exported = server.cli("leasehold", "ledger", "export", "--data", str(server.data)).stdout
    jobs = marked(server.data)
    assert jobs
    store = server.data / "store.sqlite"
    content = bytearray(store.read_bytes())
    content[PAGE : 2 * PAGE] = bytes(PAGE)  # the root of all objects
    store.write_bytes(content)

    refused = subprocess.run(
        server.command(), capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    [(command, folder)] = re.findall(r"`(leasehold restore .* --data (.*))`", refused.stderr)
    said = server.cli(str(BIN / "leasehold"), *command.split()[1:]).stdout
    assert "the ledger is whole: batches 1 to " in said
    moved = re.search(r"move (\S+) to (\S+)$", said, re.MULTILINE)
    assert moved is not None
    subprocess.run(["mv", moved[1], moved[2]], check=True)
    assert store.read_bytes() == content

    server.data = server.data.with_name("data.salvaged")
    assert str(server.data) == folder
    salvaged = server.cli("leasehold", "ledger", "export", "--data", folder).stdout
    assert salvaged == exported
    server.start()
    assert len({*jobs} & {*marked(server.data)}) >= 2  # the same processes
    assert server.run("long")["phase"] == "Running"
    assert server.run("long")["attempt"] == 1
    assert server.run("over")["phase"] == "Completed"
    again = server.rows("leases", "-n", "team")
    assert [(each["run"], each["start"]) for each in again] == [
        (each["run"], each["start"]) for each in before
    ]
    (server.work / "team" / "stop").touch()
    assert server.wait_phase("long", "Completed", "Failed")["phase"] == "Completed"
    server.submit(job("after", "exit 0"))
    server.wait_phase("after", "Completed")
    server.cli("leasehold", "ledger", "verify", "--data", folder)
    server.cli("leasehold", "audit", "--data", folder)


def test_content_that_was_never_written_is_refused_in_one_sentence(up: Servers) -> None:
    """SQLite has no checksums; the ledger has."""
    server = up().start()
    server.submit(*team(), job("over", "exit 0"))
    server.wait_phase("over", "Completed")
    server.stop()
    store = server.data / "store.sqlite"
    content = store.read_bytes()
    assert content.count(b'"facts":{"budgets"') >= 2
    store.write_bytes(content.replace(b'"facts":{"budgets"', b'"facts":{"bubgets"'))
    refused = subprocess.run(
        server.command(), capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 1
    last = refused.stderr.strip().splitlines()[-1]
    assert last.startswith(f"Error: {store}: is damaged (the ledger has no batch ")
    assert "leasehold restore --salvage" in last
    assert "Traceback" not in refused.stderr
