"""Checks tenure and head at every step of a simulation, from outside the processes.

Reads the store and what each process considers valid; repairs nothing. The seven rules are those of
`docs/invariants.md`. A simulation that breaks a rule stops at that step.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from leasehold.adapters.objects.storage import Change, decode
from leasehold.core.facts import Record
from leasehold.core.objects.tenure import KIND, TenureRecord, tenure_from_wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.core.units import Instant
from leasehold.ports.tenure import Margins


class ObservedProcess(Protocol):
    """What the checks need to know about a process that may hold a tenure."""

    @property
    def identity(self) -> str: ...

    @property
    def epoch(self) -> int:
        """The epoch of the process' tenure; 0 if it holds none."""
        ...

    @property
    def believes(self) -> bool:
        """Whether the process considers its tenure valid now, by its own clock."""
        ...

    @property
    def is_alive(self) -> bool: ...


class SeenHead(Record, frozen=True):
    seq: int
    epoch: int
    digest: str


class LeaderChange(Record, frozen=True):
    """A change of the leader. `took`: the time from the old holder's last write of the record to
    the new holder's first."""

    epoch: int
    took: int
    handed_over: bool


class TenureChecks:
    """Checks the rules about tenure and head, and calls `fail` with each violation.
    `breaks_clocks`: the simulation runs clocks too fast or too slow, so rules that need correct
    clocks are skipped."""

    def __init__(
        self,
        everybody: Callable[[], Iterable[ObservedProcess]],
        now: Callable[[], Instant],
        fail: Callable[[str], None],
        *,
        margins: Margins,
        breaks_clocks: bool,
    ) -> None:
        self._everybody = everybody
        self._now = now
        self._fail = fail
        self._margins = margins
        self._rests_on_clocks = not breaks_clocks
        self._changed_at: Instant = 0
        self._believing: set[tuple[str, int]] = set()  # identity and epoch
        self._over: set[tuple[str, int]] = set()  # former members of `_believing`
        self.record: TenureRecord | None = None
        self.head: SeenHead | None = None
        self.evaluated: Counter[str] = Counter()
        self.take_overs: list[LeaderChange] = []

    def on_change(self, change: Change) -> None:
        if change.key[0] == KIND:
            self._on_tenure(change)
        elif change.key[0] == "LedgerHead":
            self._on_head(change)

    def look(self) -> None:
        """Check, after a step, which processes consider themselves leader."""
        believers = [each for each in self._everybody() if each.believes]
        if not self._rests_on_clocks:
            return
        self.evaluated["LeaseUniqueness"] += 1
        if len(believers) > 1:
            names = ", ".join(f"{each.identity} (epoch {each.epoch})" for each in believers)
            self._fail(f"LeaseUniqueness: {names} believe at once")
        self.evaluated["BeliefConsistency"] += 1
        record = self.record
        for each in believers:
            if record is None or (record.holder, record.epoch) != (each.identity, each.epoch):
                self._fail(f"BeliefConsistency: {each.identity} believes in epoch {each.epoch}, "
                           f"and the record is {_said(record)}")  # fmt: skip
        believing = {(each.identity, each.epoch) for each in believers}
        if believing != self._believing:
            self._over |= self._believing - believing
            for identity, epoch in sorted(believing & self._over):
                self._fail(f"BeliefConsistency: {identity} believes in epoch {epoch} again, "
                           "which was over for it")  # fmt: skip
            self._believing = believing

    def _on_tenure(self, change: Change) -> None:
        before, at = self.record, self._now()
        if change.event == "DELETED":
            self._fail("EpochMonotonic: the record was deleted")
            return
        record = tenure_from_wire(decode(change.body))
        is_same_write = before is not None and before.write == record.write
        self.record = record
        if is_same_write:
            return  # only annotated
        self._check_epochs(before, record)
        self._check_owner(before, record)
        took = at - self._changed_at
        self._changed_at = at
        if before is not None and not record.is_free and record.epoch != before.epoch:
            self.take_overs.append(
                LeaderChange(epoch=record.epoch, took=took, handed_over=before.is_free)
            )

    def _check_epochs(self, before: TenureRecord | None, after: TenureRecord) -> None:
        self.evaluated["EpochMonotonic"] += 1
        if before is None:
            return
        is_new_owner = not after.is_free and after.holder != before.holder
        if after.epoch < before.epoch or (is_new_owner and after.epoch == before.epoch):
            self._fail(f"EpochMonotonic: from {_said(before)} to {_said(after)}")

    def _check_owner(self, before: TenureRecord | None, after: TenureRecord) -> None:
        """Check that a renewal was written by the holder, and that a new epoch replaces only a
        record that is free, expired, or the writer's own."""
        writer = after.write.rpartition(".")[0]
        if before is None:
            return
        if after.epoch == before.epoch:
            self.evaluated["RenewalRequiresOwnership"] += 1
            if writer != before.holder:
                self._fail(f"RenewalRequiresOwnership: {writer} wrote over {_said(before)}")
            return
        self.evaluated["ExpiredLeaseClaimable"] += 1
        if before.is_free or before.holder == writer or not self._rests_on_clocks:
            return
        for each in self._everybody():
            if each.identity == before.holder and each.believes:
                self._fail(f"ExpiredLeaseClaimable: {writer} took over while "
                           f"{before.holder} still believes")  # fmt: skip

    def _on_head(self, change: Change) -> None:
        self.evaluated["SealedHeadRejectsOldEpoch"] += 1
        spec = part(decode(change.body), "spec")
        head = SeenHead(
            seq=whole_at(spec, "seq") or 0,
            epoch=whole_at(spec, "epoch") or 0,
            digest=text_at(spec, "digest"),
        )
        before, self.head = self.head, head
        if before is None:
            return
        if head.epoch < before.epoch:
            self._fail(f"SealedHeadRejectsOldEpoch: epoch {head.epoch} over {before.epoch}")
        if head.seq not in (before.seq, before.seq + 1):
            self._fail(f"SealedHeadRejectsOldEpoch: batch {head.seq} follows {before.seq}")
        if head.seq == before.seq + 1 and head.epoch != before.epoch:
            self._fail(f"SealedHeadRejectsOldEpoch: batch {head.seq} was committed under "
                       f"{head.epoch}, and the head was sealed with {before.epoch}")  # fmt: skip
        if head.seq == before.seq and head.digest != before.digest:
            self._fail(f"SealedHeadRejectsOldEpoch: batch {head.seq} was exchanged")


def _said(record: TenureRecord | None) -> str:
    if record is None:
        return "absent"
    return f"{record.holder or 'free'} under {record.epoch} ({record.write})"
