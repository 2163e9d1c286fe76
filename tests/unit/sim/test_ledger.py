"""The ledger as read from a store: batches are followed from the head, and orphans ignored."""

import json
from pathlib import Path

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.ledger.batch import Batch, NodeFact, line
from leasehold.core.ledger.chain import GENESIS
from leasehold.core.names import API_VERSION, Wire
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once, ledger_lines, ledger_problems, write_out

START = 1_767_225_600_000


def store_with(lines: list[Wire], *, seq: int, digest: object) -> MemoryStore:
    process = Kernel(START).process("user")
    store = MemoryStore(process.tasks, process.clock)
    head = {"seq": seq, "digest": digest, "epoch": 1, "instant": START, "materialised": seq}
    _create(store, "LedgerHead", "main", head)
    for each in lines:
        _create(store, "LedgerBatch", f"{each['seq']}-{str(each['digest'])[:8]}", each)
    return store


def _create(store: MemoryStore, kind: str, name: str, spec: Wire) -> None:
    metadata = {"name": name}
    at_once(
        store.create({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
    )


def batch(seq: int, node: str, before: str) -> Wire:
    fact = NodeFact(name=node, gpus=8, flavor="H", domain="r/c/a")
    return line(Batch(seq=seq, epoch=1, instant=START, facts_nodes=(fact,)), before)


FIRST = batch(1, "a-00", GENESIS)
ORPHAN = batch(1, "a-99", GENESIS)
SECOND = batch(2, "a-01", str(FIRST["digest"]))


def test_batches_that_the_head_does_not_lead_to_are_ignored(tmp_path: Path) -> None:
    store = store_with([ORPHAN, FIRST, SECOND], seq=2, digest=SECOND["digest"])
    assert ledger_lines(store) == [FIRST, SECOND]
    assert ledger_problems(store) == []
    write_out(store, tmp_path / "out")
    written = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(each) for each in written] == [FIRST, SECOND]
    objects = (tmp_path / "out" / "objects.jsonl").read_text().splitlines()
    assert [json.loads(each)["kind"] for each in objects] == [
        "LedgerBatch", "LedgerBatch", "LedgerBatch", "LedgerHead",
    ]  # fmt: skip


def test_missing_batch_is_reported() -> None:
    store = store_with([SECOND], seq=2, digest=SECOND["digest"])
    assert ledger_problems(store) == ["the head is at batch 2, and 1 batches lead to it"]


def test_store_without_a_ledger_has_no_ledger_problems() -> None:
    process = Kernel(START).process("user")
    store = MemoryStore(process.tasks, process.clock)
    assert ledger_problems(store) == []
