"""What each envelope pays for, now and in the future as far as known: leases summed by payer.

`cover` asks how many more GPUs an envelope can give. An account stores sums over leases, not a
balance, so GPU-hours used at any instant are one multiplication. The plans of runs *claim* money on
accounts. What-ifs change leases and claims, and undo these changes.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from leasehold.core.facts import EnvelopeKey, Lease, Relation, Uid
from leasehold.core.ledger.charges import Charges
from leasehold.core.units import FOREVER, GpuMs, Instant, Millis
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.what_if import WhatIf


class KnownEnd(msgspec.Struct, frozen=True, gc=False):
    """When the GPUs of a lease come free, as far as known, and until when GPU-hours are committed
    to it.

    `committed_to` is None for a lease without a limit: `accounting.horizon` applies. A lease that
    is ending commits nothing more (its grace period is charged, but not committed).
    """

    frees_at: Instant = FOREVER
    committed_to: Instant | None = None


UNLIMITED = KnownEnd()


class Claim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Money claimed by a plan: GPUs within [start, end), and GPU-hours from now on."""

    uid: Uid
    payer: EnvelopeKey
    start: Instant
    end: Instant
    gpus: int
    borrowed: bool
    gpu_ms: GpuMs


class Account:
    """The open leases of one envelope, as sums.

    GPU-ms used by open leases until t are `gpus * t - starts`, whatever the number of leases.
    Example: 2 GPUs since 100 and 4 GPUs since 200 give gpus 6 and starts 2 * 100 + 4 * 200 = 1000;
    until 300 they have used 6 * 300 - 1000 = 800, which is 2 * 200 + 4 * 100.
    """

    __slots__ = (
        "borrowers",
        "claims",
        "gpus",
        "lent",
        "lent_ms",
        "lent_starts",
        "settled_ms",
        "since",
        "starts",
        "terms",
    )

    def __init__(self) -> None:
        self.since: Instant = 0  # use before the window of the envelope does not count
        self.gpus = 0
        self.lent = 0
        self.settled_ms: GpuMs = 0  # of closed leases
        self.lent_ms: GpuMs = 0
        self.starts = 0  # sum of gpus * start over open leases
        self.lent_starts = 0
        self.terms: dict[KnownEnd, list[int]] = {}  # known end -> [GPUs, how many are lent]
        self.borrowers: dict[str, int] = {}  # owner -> GPUs lent to it now
        self.claims: list[Claim] = []

    def used_ms(self, at: Instant) -> GpuMs:
        """Return the GPU-ms used within the window up to `at`; 0 if the window now begins after
        `at`."""
        return self.settled_ms + max(0, self.gpus * at - self.starts)

    def lent_used_ms(self, at: Instant) -> GpuMs:
        return self.lent_ms + max(0, self.lent * at - self.lent_starts)

    def committed_ms(self, at: Instant, *, until: Instant, horizon: Millis) -> tuple[GpuMs, GpuMs]:
        """Return the GPU-ms that open leases may still use after `at`, and how many of them are
        lent.

        A lease without a limit counts for `horizon` ms. No lease counts beyond `until`.
        """
        total = lent_total = 0
        for term, (gpus, lent) in self.terms.items():
            end = at + horizon if term.committed_to is None else term.committed_to
            span = min(end, until) - at
            if span > 0:
                total += gpus * span
                lent_total += lent * span
        return total, lent_total

    def overdue(self, at: Instant) -> tuple[int, int]:
        """Return the GPUs, and how many of them are lent, of leases that are overdue or ending."""
        gpus = lent = 0
        for term, amounts in self.terms.items():
            if term.committed_to is not None and term.committed_to <= at:
                gpus += amounts[0]
                lent += amounts[1]
        return gpus, lent

    def limited_ms(self, at: Instant, *, until: Instant) -> tuple[GpuMs, GpuMs]:
        """Return the same as `committed_ms`, but only for leases with a limit."""
        return self.committed_ms(at, until=until, horizon=0)

    def unlimited(self) -> tuple[int, int]:
        """Return the GPUs, and how many of them are lent, of leases without a limit that are not
        ending."""
        gpus, lent = self.terms.get(UNLIMITED, (0, 0))
        return gpus, lent

    def freed_by(self, at: Instant, now: Instant) -> tuple[int, int]:
        """Return the GPUs, and how many of them are lent, that come free after `now` and by `at`.

        A lease whose known end has passed by `now` is overdue: nobody knows when its GPUs come
        free, so they do not count.
        """
        gpus = lent = 0
        for term, amounts in self.terms.items():
            if now < term.frees_at <= at:
                gpus += amounts[0]
                lent += amounts[1]
        return gpus, lent


class Accounts:
    """One account for each envelope that ever paid."""

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if = what_if
        self._accounts: dict[EnvelopeKey, Account] = {}
        self._carried: Mapping[EnvelopeKey, Charges] = {}  # sums of leases that were archived
        self._planned: Mapping[EnvelopeKey, Sequence[Claim]] = {}
        self._planners: frozenset[Uid] = frozenset()

    def emptied(self, now: Instant) -> "Accounts":
        """Return the accounts as if every open lease ended at `now`; what the leases used still
        counts."""
        found = Accounts(self._what_if)
        for payer, account in self._accounts.items():
            empty = found._accounts[payer] = Account()
            empty.since = account.since
            empty.settled_ms = account.used_ms(now)
            empty.lent_ms = account.lent_used_ms(now)
        return found

    def of(self, payer: EnvelopeKey) -> Account:
        """Return the account, read-only; an empty one if the envelope never paid."""
        return self._accounts.get(payer) or self._new(payer, 0)

    def _kept(self, payer: EnvelopeKey) -> Account:
        account = self._accounts.get(payer)
        return self.reopen(payer, 0) if account is None else account

    def reopen(self, payer: EnvelopeKey, since: Instant) -> Account:
        """Begin an account again for a window that starts at `since`; the caller must add its
        leases again."""
        account = self._accounts[payer] = self._new(payer, since)
        return account

    def _new(self, payer: EnvelopeKey, since: Instant) -> Account:
        account = Account()
        account.since = since
        account.settled_ms, account.lent_ms = self.carried_ms(payer, since)
        return account

    def carry(self, charges: Mapping[EnvelopeKey, Charges]) -> None:
        """Take over the sums of archived leases, which were counted before; no balance changes."""
        self._carried = charges
        for payer in charges:
            self._kept(payer)

    def carried_ms(self, payer: EnvelopeKey, since: Instant) -> tuple[GpuMs, GpuMs]:
        """Return the GPU-ms that archived leases used from `since` on, and how many of them were
        lent."""
        known = self._carried.get(payer)
        return (0, 0) if known is None else known.used_since(since)

    def payers(self) -> Iterable[EnvelopeKey]:
        return sorted(self._accounts)

    def add(self, lease: Lease, term: KnownEnd) -> None:
        """Start to count an open lease."""
        self._count(lease, term, 1)
        if self._what_if.active:
            self._what_if.note(lambda: self._count(lease, term, -1))

    def remove(self, lease: Lease, term: KnownEnd) -> None:
        """Stop counting a lease; `settle` adds what it used."""
        self._count(lease, term, -1)
        if self._what_if.active:
            self._what_if.note(lambda: self._count(lease, term, 1))

    def end(self, lease: Lease, term: KnownEnd, *, at: Instant) -> None:
        """End a lease in a what-if: it stops counting, but what it used stays used."""
        self.remove(lease, term)
        account = self._kept(lease.payer)
        used = lease.gpus * max(0, at - max(lease.start, account.since))
        lent = used if lease.relation is Relation.BORROWED else 0
        self._use(account, used, lent)
        if self._what_if.active:
            self._what_if.note(lambda: self._use(account, -used, -lent))

    def unend(self, lease: Lease, term: KnownEnd, *, at: Instant) -> None:
        """Undo `end` in the same what-if."""
        self.add(lease, term)
        account = self._kept(lease.payer)
        used = lease.gpus * max(0, at - max(lease.start, account.since))
        lent = used if lease.relation is Relation.BORROWED else 0
        self._use(account, -used, -lent)
        if self._what_if.active:
            self._what_if.note(lambda: self._use(account, used, lent))

    def _use(self, account: Account, used: GpuMs, lent: GpuMs) -> None:
        account.settled_ms += used
        account.lent_ms += lent

    def settle(self, lease: Lease) -> None:
        """Add what a closed lease used within the window."""
        assert lease.end is not None, lease.name
        account = self._kept(lease.payer)
        used = lease.gpus * max(0, lease.end - max(lease.start, account.since))
        account.settled_ms += used
        if lease.relation is Relation.BORROWED:
            account.lent_ms += used

    def claim(self, claim: Claim) -> None:
        """Add a plan's claim. The caller must hold an open what-if."""
        account = self._kept(claim.payer)
        account.claims.append(claim)
        if self._what_if.active:
            self._what_if.note(lambda: self._unclaim(account))

    def respect(
        self, planned: Mapping[EnvelopeKey, Sequence[Claim]], *, except_for: frozenset[Uid]
    ) -> None:
        """Count the claims of planned starts as used money, except those of the runs `except_for`.

        The caller must hold an open what-if.
        """
        before, whose = self._planned, self._planners
        self._planned, self._planners = planned, except_for
        if self._what_if.active:
            self._what_if.note(lambda: self._respect(before, whose))

    def _respect(self, planned: Mapping[EnvelopeKey, Sequence[Claim]], but: frozenset[Uid]) -> None:
        self._planned, self._planners = planned, but

    def claims_on(self, payer: EnvelopeKey) -> list[Claim]:
        """Return the claims on this envelope."""
        planned = [each for each in self._planned.get(payer, ()) if each.uid not in self._planners]
        return planned + self.of(payer).claims

    def _unclaim(self, account: Account) -> None:
        account.claims.pop()

    def _count(self, lease: Lease, term: KnownEnd, sign: int) -> None:
        account = self._kept(lease.payer)
        gpus = sign * len(lease.slots)
        account.gpus += gpus
        started = max(lease.start, account.since)
        account.starts += gpus * started
        amounts = account.terms.get(term)
        if amounts is None:
            amounts = account.terms[term] = [0, 0]
        amounts[0] += gpus
        if lease.relation is Relation.BORROWED:
            account.lent += gpus
            account.lent_starts += gpus * started
            amounts[1] += gpus
            lent_to = account.borrowers.get(lease.owner, 0) + gpus
            if lent_to:
                account.borrowers[lease.owner] = lent_to
            else:
                account.borrowers.pop(lease.owner, None)
        if not amounts[0]:
            del account.terms[term]

    def peak(
        self, payers: Iterable[EnvelopeKey], *, start: Instant, end: Instant, now: Instant
    ) -> tuple[int, int]:
        """Return the most GPUs that these envelopes pay for together at any time in [start, end).

        The second number is the most GPUs of these that are lent at any time.
        """
        payers = tuple(payers)
        accounts = [self.of(payer) for payer in payers]
        used = sum(account.gpus for account in accounts)
        lent = sum(account.lent for account in accounts)
        claims = [each for payer in payers for each in self.claims_on(payer)]
        if not claims:  # without claims, use only falls after the start
            freed = [account.freed_by(start, now) for account in accounts]
            return used - sum(each[0] for each in freed), lent - sum(each[1] for each in freed)
        drops: list[Drop] = []
        lent_drops: list[Drop] = []
        for account in accounts:
            for term, (gpus, of_them_lent) in account.terms.items():
                frees_at = term.frees_at if term.frees_at > now else FOREVER
                drops.append((frees_at, -gpus))
                lent_drops.append((frees_at, -of_them_lent))
        for each in claims:
            both = (each.start, each.gpus), (each.end, -each.gpus)
            drops += both
            if each.borrowed:
                lent_drops += both
        left = fewest(-used, drops, start=start, stop=end)
        lent_left = fewest(-lent, lent_drops, start=start, stop=end)
        return max(0, -left), max(0, -lent_left)
