"""What each envelope pays for, now and as far as it is known: the fold of leases by payer.

`cover` asks how many more GPUs an envelope can give. Usage is never a stored balance: an account
is sums over leases, so used GPU-hours at any instant are one multiplication. Reservations put
*claims* on accounts while plans are made; what-ifs change both, and undo it.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from leasehold.core.facts import EnvelopeKey, Lease, Relation, Uid
from leasehold.core.ledger.charges import Charges
from leasehold.core.units import FOREVER, GpuMs, Instant, Millis
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.what_if import WhatIf


class Term(msgspec.Struct, frozen=True, gc=False):
    """What is known of a lease's end: when its GPUs come free, and up to when it is committed.

    `committed_to` None means no limit: the rolling horizon applies. A lease that is ending
    commits nothing any more (the grace period is charged, not committed).
    """

    frees_at: Instant = FOREVER
    committed_to: Instant | None = None


UNLIMITED = Term()


class Claim(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A reservation's money: GPUs within [start, end), and GPU-hours from now on."""

    uid: Uid
    payer: EnvelopeKey
    start: Instant
    end: Instant
    gpus: int
    borrowed: bool
    gpu_ms: GpuMs


class Account:
    """The open leases of one envelope, as sums."""

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
        self.since: Instant = 0  # use before the envelope's window does not count
        self.gpus = 0
        self.lent = 0
        self.settled_ms: GpuMs = 0  # of closed leases
        self.lent_ms: GpuMs = 0
        self.starts = 0  # sum of gpus * start over open leases
        self.lent_starts = 0
        self.terms: dict[Term, list[int]] = {}  # -> [GPUs, of them lent]
        self.borrowers: dict[str, int] = {}  # owner -> GPUs lent to it now
        self.claims: list[Claim] = []

    def used_ms(self, at: Instant) -> GpuMs:
        """Before a window that was moved into the future under open leases, nothing."""
        return self.settled_ms + max(0, self.gpus * at - self.starts)

    def lent_used_ms(self, at: Instant) -> GpuMs:
        return self.lent_ms + max(0, self.lent * at - self.lent_starts)

    def committed_ms(self, at: Instant, *, until: Instant, horizon: Millis) -> tuple[GpuMs, GpuMs]:
        """What open leases may still use, and how much of that is lent."""
        total = lent_total = 0
        for term, (gpus, lent) in self.terms.items():
            end = at + horizon if term.committed_to is None else term.committed_to
            span = min(end, until) - at
            if span > 0:
                total += gpus * span
                lent_total += lent * span
        return total, lent_total

    def overdue(self, at: Instant) -> tuple[int, int]:
        """GPUs (and lent ones) that are used beyond what was committed: overdue, or ending."""
        gpus = lent = 0
        for term, amounts in self.terms.items():
            if term.committed_to is not None and term.committed_to <= at:
                gpus += amounts[0]
                lent += amounts[1]
        return gpus, lent

    def limited_ms(self, at: Instant, *, until: Instant) -> tuple[GpuMs, GpuMs]:
        """The same for leases with a limit only."""
        return self.committed_ms(at, until=until, horizon=0)

    def unlimited(self) -> tuple[int, int]:
        """GPUs under leases without a limit that are not ending, and how many of them are lent."""
        gpus, lent = self.terms.get(UNLIMITED, (0, 0))
        return gpus, lent

    def freed_by(self, at: Instant, now: Instant) -> tuple[int, int]:
        """GPUs (and lent ones) whose leases are known to end by then; an overdue one may stay."""
        gpus = lent = 0
        for term, amounts in self.terms.items():
            if now < term.frees_at <= at:
                gpus += amounts[0]
                lent += amounts[1]
        return gpus, lent


class Accounts:
    """One account per envelope that ever paid."""

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if = what_if
        self._accounts: dict[EnvelopeKey, Account] = {}
        self._carried: Mapping[EnvelopeKey, Charges] = {}  # of leases that are no longer here
        self._planned: Mapping[EnvelopeKey, Sequence[Claim]] = {}
        self._planners: frozenset[Uid] = frozenset()

    def emptied(self, now: Instant) -> "Accounts":
        """The same without open leases: what they used until now stays used."""
        found = Accounts(self._what_if)
        for payer, account in self._accounts.items():
            empty = found._accounts[payer] = Account()
            empty.since = account.since
            empty.settled_ms = account.used_ms(now)
            empty.lent_ms = account.lent_used_ms(now)
        return found

    def of(self, payer: EnvelopeKey) -> Account:
        """To be read. One that never paid has an empty account."""
        return self._accounts.get(payer) or self._new(payer, 0)

    def _kept(self, payer: EnvelopeKey) -> Account:
        account = self._accounts.get(payer)
        return self.reopen(payer, 0) if account is None else account

    def reopen(self, payer: EnvelopeKey, since: Instant) -> Account:
        """Begin an account anew for another window; the caller adds its leases again."""
        account = self._accounts[payer] = self._new(payer, since)
        return account

    def _new(self, payer: EnvelopeKey, since: Instant) -> Account:
        account = Account()
        account.since = since
        account.settled_ms, account.lent_ms = self.carried_ms(payer, since)
        return account

    def carry(self, charges: Mapping[EnvelopeKey, Charges]) -> None:
        """Some of what is settled is known as sums from now on; no balance changes by that."""
        self._carried = charges
        for payer in charges:
            self._kept(payer)

    def carried_ms(self, payer: EnvelopeKey, since: Instant) -> tuple[GpuMs, GpuMs]:
        """What leases that are no longer here used since then, and how much of it was lent."""
        known = self._carried.get(payer)
        return (0, 0) if known is None else known.used_since(since)

    def payers(self) -> Iterable[EnvelopeKey]:
        return sorted(self._accounts)

    def add(self, lease: Lease, term: Term) -> None:
        """An open lease begins to count."""
        self._count(lease, term, 1)
        if self._what_if.active:
            self._what_if.note(lambda: self._count(lease, term, -1))

    def remove(self, lease: Lease, term: Term) -> None:
        """It stops counting; what it has used is settled separately."""
        self._count(lease, term, -1)
        if self._what_if.active:
            self._what_if.note(lambda: self._count(lease, term, 1))

    def end(self, lease: Lease, term: Term, *, at: Instant) -> None:
        """In a what-if: it stops counting, and what it has used stays used."""
        self.remove(lease, term)
        account = self._kept(lease.payer)
        used = lease.gpus * max(0, at - max(lease.start, account.since))
        lent = used if lease.relation is Relation.BORROWED else 0
        self._use(account, used, lent)
        if self._what_if.active:
            self._what_if.note(lambda: self._use(account, -used, -lent))

    def unend(self, lease: Lease, term: Term, *, at: Instant) -> None:
        """In the same what-if: it goes on after all."""
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
        """A closed lease's use within the window is the payer's for ever."""
        assert lease.end is not None, lease.name
        account = self._kept(lease.payer)
        used = lease.gpus * max(0, lease.end - max(lease.start, account.since))
        account.settled_ms += used
        if lease.relation is Relation.BORROWED:
            account.lent_ms += used

    def claim(self, claim: Claim) -> None:
        """Speak for a reservation's money. The caller must hold an open what-if."""
        account = self._kept(claim.payer)
        account.claims.append(claim)
        if self._what_if.active:
            self._what_if.note(lambda: self._unclaim(account))

    def respect(
        self, planned: Mapping[EnvelopeKey, Sequence[Claim]], *, but: frozenset[Uid]
    ) -> None:
        """Count the money of planned starts, except that of these runs.

        The caller must hold an open what-if."""
        before, whose = self._planned, self._planners
        self._planned, self._planners = planned, but
        if self._what_if.active:
            self._what_if.note(lambda: self._respect(before, whose))

    def _respect(self, planned: Mapping[EnvelopeKey, Sequence[Claim]], but: frozenset[Uid]) -> None:
        self._planned, self._planners = planned, but

    def claims_on(self, payer: EnvelopeKey) -> list[Claim]:
        """Money of this envelope that is spoken for."""
        planned = [each for each in self._planned.get(payer, ()) if each.uid not in self._planners]
        return planned + self.of(payer).claims

    def _unclaim(self, account: Account) -> None:
        account.claims.pop()

    def _count(self, lease: Lease, term: Term, sign: int) -> None:
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
        """The most GPUs (and the most lent ones) that envelopes pay for together at any instant of
        [start, end)."""
        payers = tuple(payers)
        accounts = [self.of(payer) for payer in payers]
        used = sum(account.gpus for account in accounts)
        lent = sum(account.lent for account in accounts)
        claims = [each for payer in payers for each in self.claims_on(payer)]
        if not claims:  # from the start on there is only less
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
