"""Follows the ledger line by line: which lease holds each slot, and what each envelope pays for.

Used by `verify`, which trusts only the lines, and therefore shares no index with the World.
"""

from collections import Counter

import msgspec

from leasehold.core.facts import EnvelopeKey, Lease, Opened, Record, Role
from leasehold.core.ledger.batch import Batch
from leasehold.core.units import Instant

Slot = tuple[str, int]


class WrongRecord(Exception):  # noqa: N818 - `verify` turns it into a `Disagreement`
    """A record that cannot be right, and why."""

    def __init__(self, record: str, why: str) -> None:
        super().__init__(record, why)
        self.record = record
        self.why = why


class SlotHolders:
    """The leases on each slot: one Active or Spare lease, and at most one filler on a Spare.

    When the spare ends, its filler may stay alone on the slot.
    """

    def __init__(self) -> None:
        self._held: dict[Slot, Lease] = {}
        self._filled: dict[Slot, Lease] = {}
        self._freed: dict[tuple[bool, Slot], Instant] = {}

    def take(self, record: str, lease: Lease) -> None:
        if not lease.slots or len(set(lease.slots)) != len(lease.slots) or min(lease.slots) < 0:
            raise WrongRecord(record, f"slots {lease.slots} are not distinct ordinals")
        is_filler = lease.role is Role.BORROWED
        for ordinal in lease.slots:
            slot = (lease.node, ordinal)
            self._check(record, lease, slot)
            if lease.start < self._freed.get((is_filler, slot), 0):
                raise WrongRecord(record, f"starts before {slot} was released")
            (self._filled if is_filler else self._held)[slot] = lease

    def release(self, lease: Lease, end: Instant) -> None:
        is_filler = lease.role is Role.BORROWED
        for ordinal in lease.slots:
            slot = (lease.node, ordinal)
            del (self._filled if is_filler else self._held)[slot]
            self._freed[is_filler, slot] = end

    def _check(self, record: str, lease: Lease, slot: Slot) -> None:
        held, filled = self._held.get(slot), self._filled.get(slot)
        is_refinance = lease.reason is Opened.REFINANCE
        if lease.role is Role.BORROWED:
            # A filler whose spare has ended may be refinanced, but none may start without a spare.
            on_spare = held is not None and held.role is Role.SPARE
            if filled is not None or not (on_spare or (held is None and is_refinance)):
                raise WrongRecord(record, f"{slot} is not a spare that a filler could use")
        elif held is not None:
            raise WrongRecord(record, f"{slot} is held by {held.name}")
        elif filled is not None and not (lease.role is Role.SPARE and is_refinance):
            raise WrongRecord(record, f"{slot} is held by the filler {filled.name}")


class _EnvelopeSpec(Record):
    name: str
    concurrency: int


class _AggregateSpec(Record, rename="camel"):
    name: str
    envelopes: tuple[str, ...]
    max_concurrency: int


class _BudgetSpec(Record, rename="camel"):
    """The caps in a Budget's spec that `Balances` checks."""

    envelopes: tuple[_EnvelopeSpec, ...] = ()
    aggregate_caps: tuple[_AggregateSpec, ...] = ()


class Balances:
    """GPUs that each envelope pays for, compared with the caps last stated."""

    def __init__(self) -> None:
        self._used: Counter[EnvelopeKey] = Counter()
        self._budgets: dict[str, _BudgetSpec] = {}

    def state(self, budget: str, spec: bytes | None) -> None:
        """Note the caps that a batch states for a Budget.

        `spec` is None if the Budget was deleted: its envelopes may then pay for nothing new.
        """
        self._budgets[budget] = (
            _BudgetSpec() if spec is None else msgspec.json.decode(spec, type=_BudgetSpec)
        )

    def add(self, lease: Lease, sign: int) -> None:
        self._used[lease.payer] += sign * lease.gpus

    def snapshot(self, batch: Batch) -> dict[str, int]:
        """Return how many GPUs each payer in this batch was paying for before the batch.

        The same is returned for each aggregate cap over these payers.
        """
        budgets = sorted({lease.payer.rpartition("/")[0] for lease in batch.opened})
        for budget in budgets:
            if budget not in self._budgets:
                raise WrongRecord("opened", f"the ledger knows no Budget {budget}")
        payers = sorted({lease.payer for lease in batch.opened})
        before = {payer: self._used[payer] for payer in payers}
        for budget in budgets:
            for cap in self._budgets[budget].aggregate_caps:
                if any(f"{budget}/{member}" in before for member in cap.envelopes):
                    before[f"{budget}/{cap.name} (aggregate)"] = self._sum(budget, cap)
        return before

    def check(self, before: dict[str, int]) -> None:
        """Raise WrongRecord if the leases that a batch opens take an envelope or aggregate over its
        cap.

        `before`: the result of `snapshot`. It is no error if a lowered cap is exceeded but the use
        has not grown.
        """
        for payer in sorted(before):
            budget, _, name = payer.rpartition("/")
            for used, cap in self._balances_of(budget, name):
                if used > cap and used > before[payer]:
                    raise WrongRecord("opened", f"{payer} pays for {used} GPUs, its cap is {cap}")

    def _balances_of(self, budget: str, name: str) -> list[tuple[int, int]]:
        """Return (used, cap) of an envelope, or of an aggregate named as in `snapshot`."""
        spec = self._budgets[budget]
        for aggregate in spec.aggregate_caps:
            if name == f"{aggregate.name} (aggregate)":
                return [(self._sum(budget, aggregate), aggregate.max_concurrency)]
        caps = [each.concurrency for each in spec.envelopes if each.name == name]
        return [(self._used[f"{budget}/{name}"], cap) for cap in caps or [0]]

    def _sum(self, budget: str, cap: _AggregateSpec) -> int:
        return sum(self._used[f"{budget}/{member}"] for member in cap.envelopes)
