"""Which caps of GPU-hours were lowered, and which leases were opened before they were (O4).

A run with a limit was paid for ahead. It is preempted for lack of hours only if the cap was lowered
after its start, not because other leases used more during their grace. The World notes every Budget
it reads; after a restart the facts in the ledger give the same result.
"""

from leasehold.core.facts import Budget, Envelope, EnvelopeKey, Lease, Record
from leasehold.core.units import FOREVER, GpuMs

CapKey = tuple[EnvelopeKey, bool]  # (envelope, whether it is its cap on lent hours)


class _Lowered(Record):
    before: GpuMs  # a cap of at least this undoes the lowering
    batch: int  # the last batch under a higher cap


class LoweredCaps:
    """The caps of GPU-hours as last read, also of deleted envelopes, and which of them were
    lowered."""

    def __init__(self) -> None:
        self._caps: dict[CapKey, GpuMs] = {}
        self._lowered: dict[CapKey, _Lowered] = {}

    def note(self, budget: Budget, *, batch: int) -> list[tuple[Envelope, bool]]:
        """Note the caps of a Budget that was read when the ledger was at `batch`.

        Returns (envelope, is_lent) for each cap that is lower than when it was last read.
        """
        return [
            (envelope, lent)
            for envelope in budget.envelopes
            for lent, cap in (
                (False, envelope.max_gpu_ms),
                (True, envelope.lending.max_gpu_ms),
            )
            if self._note((envelope.key, lent), cap, batch)
        ]

    def was_lowered_under(self, lease: Lease, *, lent: bool) -> bool:
        lowered = self._lowered.get((lease.payer, lent))
        return lowered is not None and lease.batch <= lowered.batch

    def forgive(self, payer: EnvelopeKey, *, lent: bool) -> None:
        """Forget that a cap was lowered, because it still covers all leases opened before."""
        self._lowered.pop((payer, lent), None)

    def keep_only_of(self, others: "LoweredCaps") -> None:
        """Forget every lowering that `others`, which has read more of the ledger, no longer has."""
        for key in [key for key in self._lowered if key not in others._lowered]:
            del self._lowered[key]

    def copied(self) -> "LoweredCaps":
        new = LoweredCaps()
        new._caps = dict(self._caps)
        new._lowered = dict(self._lowered)
        return new

    def to_rows(self) -> tuple[list[tuple[str, bool, int]], list[tuple[str, bool, int, int]]]:
        """Return the caps and the lowered caps as plain values."""
        caps = [(payer, lent, cap) for (payer, lent), cap in self._caps.items()]
        lowered = [
            (payer, lent, each.before, each.batch) for (payer, lent), each in self._lowered.items()
        ]
        return caps, lowered

    @classmethod
    def from_rows(
        cls, caps: list[tuple[str, bool, int]], lowered: list[tuple[str, bool, int, int]]
    ) -> "LoweredCaps":
        new = cls()
        new._caps = {(payer, lent): cap for payer, lent, cap in caps}
        new._lowered = {
            (payer, lent): _Lowered(before=before, batch=batch)
            for payer, lent, before, batch in lowered
        }
        return new

    def _note(self, key: CapKey, cap: GpuMs | None, batch: int) -> bool:
        now = FOREVER if cap is None else cap
        last = self._caps.get(key, now)
        self._caps[key] = now
        known = self._lowered.get(key)
        if now < last:
            before = last if known is None else max(last, known.before)
            self._lowered[key] = _Lowered(before=before, batch=batch)
        elif known is not None and now >= known.before:
            del self._lowered[key]
        return now < last
