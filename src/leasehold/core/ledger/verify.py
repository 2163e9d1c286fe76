"""Check the ledger from its first line, and name the first record that is wrong.

Called by `leasehold ledger verify` and by the simulator at the end of each run. Trusts only the
lines and folds them itself: shares codecs with the committer, but not the World. Never repairs.

Order within a batch: facts, announcements, ending, closed, opened.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from leasehold.core.facts import (
    Closed,
    ClosureReason,
    Ending,
    EnvelopeKey,
    Lease,
    Opened,
    Record,
    parse_why,
)
from leasehold.core.ledger.batch import Batch, Closing, batch_from_wire, closure_of
from leasehold.core.ledger.chain import GENESIS, Digest, canonical, digest_of, next_digest
from leasehold.core.ledger.charges import Charges
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.held import Balances, SlotHolders, WrongRecord
from leasehold.core.ledger.lottery import replay
from leasehold.core.names import Wire
from leasehold.core.objects.lease import cut_run, lease_from_wire, lease_spec, lease_to_wire
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.objects.wire import part
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant

T = TypeVar("T")

_LINE = frozenset({"seq", "epoch", "digest", "batch"})


class Disagreement(Record):
    """The first wrong record: batch, record, and why it is wrong."""

    seq: int
    record: str
    why: str

    def __str__(self) -> str:
        return f"batch {self.seq}: {self.record}: {self.why}"


def verify_lines(lines: Iterable[Wire]) -> Disagreement | None:
    """Check the chain, the order, the life of every lease, slots and balances.

    Returns the first record that is wrong, or None.
    """
    return fold_lines(lines)[1]


def verify_objects(
    lines: Iterable[Wire],
    leases: Iterable[Wire],
    resolutions: Iterable[Wire],
    *,
    materialised: int | None = None,
    carried: Carried | None = None,
) -> Disagreement | None:
    """Check the lines, and that the stored objects agree with them; return the first wrong record.

    Objects touched by batches after `materialised` may not be written yet. Objects that `carried`
    covers may be missing.
    """
    fold, problem = fold_lines(lines)
    if problem is not None:
        return problem
    carried = carried or Carried()
    try:
        _compare_carried(fold, carried)
        _compare_leases(fold, leases, materialised, carried)
        _compare_resolutions(fold, resolutions, materialised, carried)
    except WrongRecord as wrong:
        return Disagreement(seq=fold.seq, record=wrong.record, why=wrong.why)
    return None


def fold_lines(lines: Iterable[Wire]) -> "tuple[Fold, Disagreement | None]":
    """Fold the lines up to the first wrong one; return the state, and what is wrong with that
    line."""
    fold = Fold()
    for line in lines:
        problem = fold.step(line)
        if problem is not None:
            return fold, problem
    return fold, None


class Fold:
    """The state after the lines so far; `step` adds one line, or returns what is wrong with it."""

    def __init__(self) -> None:
        self.seq = 0
        self.epoch = 0
        self.instant: Instant = 0
        self.digest: Digest = GENESIS
        self.leases: dict[str, Lease] = {}  # every lease ever opened
        self.touched: dict[str, int] = {}  # lease -> the last batch about it
        self.digests: list[Digest] = [GENESIS]  # by seq
        self.announced: dict[tuple[str, int], str] = {}  # (subject, batch) -> commitment
        self.resolutions: dict[str, tuple[int, Digest]] = {}
        self._slots = SlotHolders()
        self._balances = Balances()
        self._nodes: dict[str, bool] = {}  # node -> whether it still exists

    def step(self, line: Wire) -> Disagreement | None:
        seq = line.get("seq")
        number = seq if isinstance(seq, int) else self.seq + 1
        try:
            self._step(line)
        except WrongRecord as wrong:
            return Disagreement(seq=number, record=wrong.record, why=wrong.why)
        return None

    def _step(self, line: Wire) -> None:
        for key in line:
            if key not in _LINE:
                raise WrongRecord("line", f"has {key!r}, which is not in the chain")
        wire = line.get("batch")
        if not isinstance(wire, dict):
            raise WrongRecord("line", "has no batch")
        try:
            digest = next_digest(self.digest, canonical(wire))
            batch = batch_from_wire(wire)
        except RecursionError as error:
            raise WrongRecord("batch", "is nested too deep") from error
        except AssertionError as error:
            raise WrongRecord("batch", f"is not well-formed: {error}: integers only") from error
        except msgspec.ValidationError as error:
            raise WrongRecord("batch", f"is not well-formed: {error}") from error
        # before the digest, because it explains a missing line better
        if batch.seq != self.seq + 1:
            raise WrongRecord("seq", f"{batch.seq} does not follow {self.seq}")
        if line.get("digest") != digest:
            raise WrongRecord("digest", f"{line.get('digest')} is not {digest}")
        self._check_order(line, batch)
        self.seq, self.epoch, self.instant, self.digest = (
            batch.seq,
            batch.epoch,
            batch.instant,
            digest,
        )
        self.digests.append(digest)
        _check_repetitions(wire, batch)
        self._state_facts(batch)
        before = self._balances.snapshot(batch)
        for place, (name, reason, deadline) in enumerate(batch.ending):
            self._mark_ending(f"ending[{place}] {name}", name, reason, deadline)
        refinanced = [self._close(place, closing) for place, closing in enumerate(batch.closed)]
        for place, lease in enumerate(batch.opened):
            self._open(f"opened[{place}] {lease.name}", lease, refinanced)
        self._balances.check(before)

    def _check_order(self, line: Wire, batch: Batch) -> None:
        if line.get("seq") != batch.seq or line.get("epoch") != batch.epoch:
            raise WrongRecord("line", "names another seq or epoch than its batch")
        if batch.epoch < self.epoch:
            raise WrongRecord("epoch", f"{batch.epoch} is less than the epoch before, {self.epoch}")
        if batch.instant < self.instant:
            raise WrongRecord(
                "instant", f"{batch.instant} is before the last batch, {self.instant}"
            )

    def _state_facts(self, batch: Batch) -> None:
        for name, spec in batch.facts_budgets:
            try:
                self._balances.state(name, spec)
            except msgspec.ValidationError as error:
                raise WrongRecord(f"facts.budgets {name}", str(error)) from error
        for fact in batch.facts_nodes:
            self._nodes[fact.name] = not fact.gone
        for subject, commitment in batch.announced:
            self.announced[subject, batch.seq] = commitment
        for name, digest in batch.resolutions:
            if name in self.resolutions:
                raise WrongRecord(f"resolutions {name}", "was published before")
            self.resolutions[name] = (batch.seq, digest)

    def _mark_ending(self, record: str, name: str, reason: str, deadline: Instant) -> None:
        lease = self._find_open(record, name)
        if lease.ending is not None:
            raise WrongRecord(record, f"was marked ending before, with {lease.ending.why}")
        why = _why(record, reason)
        ending = Ending(why=why, deadline=deadline, batch=self.seq, at=self.instant)
        self._put(msgspec.structs.replace(lease, ending=ending))

    def _close(self, place: int, closing: Closing) -> Lease:
        record = f"closed[{place}] {closing.lease}"
        lease = self._find_open(record, closing.lease)
        if not lease.start <= closing.end <= self.instant:
            raise WrongRecord(
                record, f"end {closing.end} is not in [{lease.start}, {self.instant}]"
            )
        if lease.ending is not None and closing.reason != str(lease.ending.why):
            raise WrongRecord(record, f"{closing.reason} does not quote {lease.ending.why}")
        why = _why(record, closing.reason)
        if closing.cause is not None and why.reason is not Closed.FAIL:
            raise WrongRecord(record, f"a cause with {closing.reason}")
        if closing.began is not None and not lease.start < closing.began <= closing.end:
            raise WrongRecord(
                record, f"began {closing.began} is not in ({lease.start}, {closing.end}]"
            )
        begins = lease.start if closing.began is None else closing.began
        if closing.saved is not None and not begins < closing.saved <= closing.end:
            raise WrongRecord(record, f"saved {closing.saved} is not in ({begins}, {closing.end}]")
        self._slots.release(lease, closing.end)
        self._balances.add(lease, -1)
        closed = msgspec.structs.replace(lease, closed=closure_of(closing, self.seq))
        self._put(closed)
        return closed

    def _open(self, record: str, lease: Lease, closed: list[Lease]) -> None:
        if lease.name in self.leases:
            raise WrongRecord(record, "was opened before")
        if lease.batch != self.seq or not lease.name.startswith(
            f"{cut_run(lease.run)}-{self.seq}-"
        ):
            raise WrongRecord(record, "names another batch or run")
        if lease.start > self.instant:
            raise WrongRecord(record, f"starts at {lease.start}, after the batch's {self.instant}")
        if lease.reason is Opened.REFINANCE:
            lease = _inherit(record, lease, closed)
        elif not self._nodes.get(lease.node, False):
            raise WrongRecord(record, f"the ledger knows no node {lease.node}")
        self._slots.take(record, lease)
        self._balances.add(lease, 1)
        self._put(lease)

    def _find_open(self, record: str, name: str) -> Lease:
        lease = self.leases.get(name)
        if lease is None:
            raise WrongRecord(record, "was never opened")
        if lease.closed is not None:
            raise WrongRecord(record, f"was closed in batch {lease.closed.batch}")
        return lease

    def _put(self, lease: Lease) -> None:
        self.leases[lease.name] = lease
        self.touched[lease.name] = self.seq


def _why(record: str, text: str) -> ClosureReason:
    try:
        return parse_why(text)
    except ValueError:
        raise WrongRecord(record, f"{text} is not a closure reason") from None


def _check_repetitions(wire: Wire, batch: Batch) -> None:
    """Check that redundant members of a spec, which are not decoded, agree with the rest."""
    written = wire.get("opened")
    assert isinstance(written, list) or not batch.opened, "it was decoded from this"
    for place, lease in enumerate(batch.opened):
        assert isinstance(written, list), "it was looked at above"
        difference = _first_difference(written[place].get("spec"), lease_spec(lease), "spec")
        if difference:
            raise WrongRecord(f"opened[{place}] {lease.name}", difference)


def _first_difference(got: object, due: object, path: str) -> str:
    if got == due:
        return ""
    if not isinstance(got, dict) or not isinstance(due, dict):
        return f"{path} is {got!r}, but the other fields say {due!r}"
    found = (_first_difference(got.get(key), due.get(key), f"{path}.{key}") for key in due | got)
    return next((each for each in found if each), f"{path} has members that are null")


def _inherit(record: str, lease: Lease, closed: list[Lease]) -> Lease:
    """Give a refinanced lease the pod of the lease closed in this batch on the same slots."""
    for old in closed:
        if (
            old.closed is not None
            and old.closed.why.reason is Closed.REFINANCED
            and (old.uid, old.attempt, old.group, old.index, old.role, old.node)
            == (lease.uid, lease.attempt, lease.group, lease.index, lease.role, lease.node)
            and set(lease.slots) <= set(old.slots)
        ):
            return msgspec.structs.replace(lease, pod=old.pod)
    raise WrongRecord(record, "refinances no lease that this batch closes")


def _compare_carried(fold: Fold, carried: Carried) -> None:
    """Check that a checkpoint's sums equal those of the leases that it replaces."""
    if carried.seq > fold.seq or fold.digests[carried.seq] != carried.digest:
        raise WrongRecord("checkpoint", f"its digest is not that of batch {carried.seq}")
    dropped: dict[EnvelopeKey, list[Lease]] = {}
    for lease in fold.leases.values():
        if lease.closed is not None and carried.has_dropped(lease.closed.batch, lease.name):
            dropped.setdefault(lease.payer, []).append(lease)
    for payer in sorted({*dropped, *carried.charges}):
        expected = Charges().with_leases(dropped.get(payer, []))
        if carried.charges.get(payer, Charges()) != expected:
            raise WrongRecord("checkpoint", f"the use of {payer} does not match its leases")


def _compare_leases(
    fold: Fold, objects: Iterable[Wire], materialised: int | None, carried: Carried
) -> None:
    seen = set()
    for wire in objects:
        lease = _read("Lease", wire, lease_from_wire)
        expected = fold.leases.get(lease.name)
        if lease.name in seen:
            raise WrongRecord(f"Lease {lease.name}", "has two objects")
        seen.add(lease.name)
        if expected is None:
            raise WrongRecord(f"Lease {lease.name}", "is in no batch")
        if lease != expected and not _is_pending(fold.touched[lease.name], materialised):
            raise WrongRecord(f"Lease {lease.name}", _difference(lease, expected))
        if lease == expected:
            _compare_repetitions(wire, lease)
    for name, lease in fold.leases.items():
        if name in seen or _is_pending(fold.touched[name], materialised):
            continue
        if lease.closed is None or not carried.has_dropped(lease.closed.batch, name):
            raise WrongRecord(f"Lease {name}", "has no object")


def _read(kind: str, wire: Wire, read: Callable[[Wire], T]) -> T:
    """Decode an object; if that fails in any way, report the object by name."""
    try:
        return read(wire)
    except Exception as error:
        name = part(wire, "metadata").get("name")
        raise WrongRecord(f"{kind} object {name}", f"is not well-formed: {error}") from error


def _compare_repetitions(wire: Wire, lease: Lease) -> None:
    due = lease_to_wire(lease)
    for key in ("spec", "status"):
        difference = _first_difference(wire.get(key) or {}, due.get(key, {}), key)
        if difference:
            raise WrongRecord(f"Lease {lease.name}", difference)
    labels, expected = (part(part(each, "metadata"), "labels") for each in (wire, due))
    for key, value in expected.items():
        if labels.get(key) != value:
            why = f"its label {key} is {labels.get(key)!r}, but its spec says {value!r}"
            raise WrongRecord(f"Lease {lease.name}", why)


def _compare_resolutions(
    fold: Fold, objects: Iterable[Wire], materialised: int | None, carried: Carried
) -> None:
    seen = set()
    for wire in objects:
        resolution = _read("Resolution", wire, resolution_from_wire)
        record = f"Resolution {resolution.name}"
        if resolution.name in seen:
            raise WrongRecord(record, "has two objects")
        seen.add(resolution.name)
        if resolution.name not in fold.resolutions:
            raise WrongRecord(record, "is in no batch")
        seq, digest = fold.resolutions[resolution.name]
        if _digest_of_spec(record, wire) != digest:
            raise WrongRecord(record, f"its digest is not {digest}, as batch {seq} says")
        _check_lottery(fold, record, resolution, seq)
    for name, (seq, _) in fold.resolutions.items():
        dropped = seq <= carried.seq and name not in carried.told.resolutions
        if name not in seen and not dropped and not _is_pending(seq, materialised):
            raise WrongRecord(f"Resolution {name}", "has no object")


def _digest_of_spec(record: str, wire: Wire) -> Digest:
    try:
        return digest_of(wire["spec"])
    except AssertionError as error:
        raise WrongRecord(record, f"is not well-formed: {error}: integers only") from error


def _check_lottery(fold: Fold, record: str, resolution: Resolution, seq: int) -> None:
    """Check the lottery of a Resolution against the ledger.

    The draws must follow from the record. The nonce must have been committed to in an earlier
    batch. The digest in the seed must be that of the batch before.
    """
    lottery = resolution.lottery
    if lottery is None:
        return
    problems = replay(resolution)
    if problems:
        raise WrongRecord(record, problems[0])
    if fold.announced.get((lottery.subject, lottery.announced_in)) != lottery.commitment:
        raise WrongRecord(record, f"batch {lottery.announced_in} did not announce its commitment")
    if lottery.announced_in >= seq:
        raise WrongRecord(record, "was announced after it was drawn")
    if fold.digests[seq - 1] != lottery.ledger_digest:
        raise WrongRecord(record, f"its ledgerDigest is not that before batch {seq}")


def _is_pending(touched: int, materialised: int | None) -> bool:
    return materialised is not None and touched > materialised


def _difference(got: Lease, expected: Lease) -> str:
    """Return the first member in which two unequal leases differ."""
    mine, ledgers = msgspec.structs.asdict(got), msgspec.structs.asdict(expected)
    field = next(field for field in mine if mine[field] != ledgers[field])
    return f"{field} is {mine[field]!r}, the ledger says {ledgers[field]!r}"
