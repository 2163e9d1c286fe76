"""The commit protocol against a store that loses answers, and against another owner."""

from collections.abc import Coroutine
from typing import TypeVar

import pytest
from msgspec.structs import replace
from tests.unit.records import FACTS, T0

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.ledger.batch import Batch
from leasehold.core.ledger.head import FORMAT, UnknownFormat
from leasehold.core.names import Wire
from leasehold.ports.store import OutcomeUnknown, Store, Unavailable
from leasehold.shell.ledger.commit import Deposed, Ledger
from leasehold.sim.faulty import TOUCHED
from leasehold.sim.kernel import Kernel

T = TypeVar("T")


class Flaky(MemoryStore):
    """Makes calls of `update` fail as `script` says, one entry per call."""

    script: list[str]
    updates = 0

    async def update(self, obj: Wire) -> Wire:
        word = self.script.pop(0) if self.script else "good"
        if word == "refuse":
            raise Unavailable
        if word == "lose request":
            raise OutcomeUnknown
        if word == "touch":
            there = await self.get("LedgerHead", "", "main")
            metadata = there["metadata"]
            assert isinstance(metadata, dict)
            metadata["annotations"] = {TOUCHED: "1"}
            await super().update(there)
        self.updates += 1
        answer = await super().update(obj)
        if word == "lose answer":
            raise OutcomeUnknown
        return answer


class Desk:
    def __init__(self) -> None:
        self.kernel = Kernel(T0)
        self.process = self.kernel.process("us")
        self.store = Flaky(self.process.tasks, self.process.clock)
        self.store.script = []

    def do(self, work: Coroutine[object, object, T]) -> T:
        return self.kernel.complete(work, process=self.process)

    def ledger(self, *, epoch: int = 1, store: Store | None = None) -> Ledger:
        ledger = Ledger(store or self.store, self.process.clock)
        self.do(ledger.seal(epoch))
        return ledger

    def head(self) -> tuple[int, str]:
        spec = self.do(self.store.get("LedgerHead", "", "main"))["spec"]
        assert isinstance(spec, dict)
        return int(spec["seq"]), str(spec["digest"])


SECOND = Batch(seq=2, epoch=1, instant=T0 + 1, announced=(("t/x-2", "77" * 32),))


@pytest.mark.parametrize(
    "script",
    [
        [],
        ["refuse", "refuse"],
        ["lose request"],
        ["lose answer"],
        ["lose request", "lose answer"],
        ["touch"],
        ["touch", "lose answer"],
    ],
    ids=lambda script: " then ".join(script) or "all well",
)
def test_batch_is_committed_once_despite_lost_requests_and_answers(script: list[str]) -> None:
    desk = Desk()
    ledger = desk.ledger()
    desk.store.script = list(script)
    desk.do(ledger.commit(FACTS, []))
    assert desk.head() == (1, ledger.known.head.digest)
    desk.do(ledger.commit(SECOND, []))
    assert desk.head() == (2, ledger.known.head.digest)
    assert not desk.store.script


@pytest.mark.parametrize("script", [[], ["lose request"], ["lose answer"], ["touch"]])
def test_deposed_owner_cannot_commit(script: list[str]) -> None:
    """An owner that was paused between deciding and writing finds that the head has moved."""
    desk = Desk()
    old, new = desk.ledger(), desk.ledger(epoch=2)
    desk.do(new.commit(replace(FACTS, epoch=2), []))
    told = desk.head()
    desk.store.script = list(script)
    other = Batch(seq=1, epoch=1, instant=T0 + 5)
    with pytest.raises(Deposed):
        desk.do(old.commit(other, []))
    assert desk.head() == told
    desk.do(new.commit(replace(SECOND, epoch=2), []))


def _written_by_a_later_version(desk: Desk) -> Wire:
    head = desk.do(desk.store.get("LedgerHead", "", "main"))
    assert isinstance(head["spec"], dict)
    head["spec"]["format"] = FORMAT + 1
    return desk.do(desk.store.update(head))


def test_ledger_of_a_later_version_is_neither_read_nor_sealed() -> None:
    desk = Desk()
    desk.ledger()
    later = _written_by_a_later_version(desk)
    stranger = Ledger(desk.store, desk.process.clock)
    for call in (stranger.look, stranger.seal):
        with pytest.raises(
            UnknownFormat, match="format 3, and this version of leasehold supports only 2"
        ):
            desk.do(call())
    with pytest.raises(Deposed):
        desk.do(stranger.seal(9))
    assert desk.do(desk.store.get("LedgerHead", "", "main")) == later


@pytest.mark.parametrize("before", [None, 1])
def test_ledger_of_an_earlier_version_is_continued(before: int | None) -> None:
    desk = Desk()
    desk.do(desk.ledger().commit(FACTS, []))
    head = desk.do(desk.store.get("LedgerHead", "", "main"))
    assert isinstance(head["spec"], dict)
    head["spec"]["format"] = before
    desk.do(desk.store.update(head))
    later = desk.ledger(epoch=2)
    desk.do(later.commit(replace(SECOND, epoch=2), []))
    spec = desk.do(desk.store.get("LedgerHead", "", "main"))["spec"]
    assert isinstance(spec, dict)
    assert (spec["seq"], spec["format"]) == (SECOND.seq, FORMAT)


def test_owner_is_deposed_when_a_later_version_takes_over() -> None:
    desk = Desk()
    old = Ledger(desk.store, desk.process.clock, is_shared=True)
    desk.do(old.seal(1))
    _written_by_a_later_version(desk)
    with pytest.raises(Deposed):
        desk.do(old.confirm())
    with pytest.raises(Deposed):
        desk.do(old.commit(FACTS, []))


def test_head_without_a_format_can_be_sealed() -> None:
    desk = Desk()
    desk.ledger()
    head = desk.do(desk.store.get("LedgerHead", "", "main"))
    assert isinstance(head["spec"], dict)
    del head["spec"]["format"]
    desk.do(desk.store.update(head))
    assert desk.ledger(epoch=2).known.head.epoch == 2


def test_older_epoch_cannot_seal() -> None:
    desk = Desk()
    desk.ledger(epoch=2)
    with pytest.raises(Deposed):
        desk.ledger(epoch=1)


def test_seal_without_an_epoch_takes_the_next_epoch() -> None:
    desk = Desk()
    first, second = (Ledger(desk.store, desk.process.clock) for _ in range(2))
    assert desk.do(first.seal()).head.epoch == 1
    assert desk.do(second.seal()).head.epoch == 2
    with pytest.raises(Deposed):
        desk.do(first.seal(1))
    assert desk.do(second.seal(2)).head.epoch == 2


def test_seal_without_a_commit_deposes_the_previous_owner() -> None:
    desk = Desk()
    old = desk.ledger()
    desk.ledger(epoch=2)
    with pytest.raises(Deposed):
        desk.do(old.commit(FACTS, []))
    assert desk.head()[0] == 0
