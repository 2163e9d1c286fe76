"""What a World must know about batches and leases that were archived and left the store.

Everything up to batch `seq` is in an archive. A `Carried` holds what decisions and views still need
of it: sums instead of leases, attempts instead of histories, and the facts stated in the ledger.
`core.world.compaction` makes one, a World starts from one, `shell` stores it. `Carried()` means
that nothing was archived yet.
"""

import msgspec

from leasehold.core.facts import Cause, Envelope, EnvelopeKey, Record, Relation, Uid
from leasehold.core.ledger.batch import Batch
from leasehold.core.ledger.chain import GENESIS, Digest
from leasehold.core.ledger.charges import Charges
from leasehold.core.ledger.lowered import CapKey, LoweredCaps
from leasehold.core.objects.budget import budget_from_fact
from leasehold.core.units import GpuMs, Instant

_ENVELOPE_PARTS = 3  # namespace/budget/envelope; a reservation's subject has two parts


class Announcement(Record):
    """The announcement of a possible draw, and the batch that committed to its nonce."""

    batch: int
    instant: Instant
    commitment: str


class BatchFacts:
    """Everything that batches state, except leases, up to the last batch that was read."""

    def __init__(self) -> None:
        self.budgets: dict[str, bytes] = {}
        self.nodes: dict[str, tuple[int, str, str]] = {}
        self.lowered = LoweredCaps()
        # for each cap on GPU-hours that was lowered: the envelope and the instant of the last time
        self.lowerings: dict[CapKey, tuple[Envelope, Instant]] = {}
        self.overdrafts: dict[str, Announcement] = {}  # subject -> newest announcement
        self.reservations: dict[str, Announcement] = {}  # by subject
        self.resolutions: dict[str, Digest] = {}

    def read(self, batch: Batch) -> None:
        self._read_facts(batch)
        for subject, commitment in batch.announced:
            said = Announcement(batch=batch.seq, instant=batch.instant, commitment=commitment)
            if subject.count("/") == _ENVELOPE_PARTS - 1:
                self.overdrafts[subject] = said
            else:
                self.reservations[subject] = said
        self.resolutions.update(batch.resolutions)

    def _read_facts(self, batch: Batch) -> None:
        for key, spec in batch.facts_budgets:
            if spec is None:
                self.budgets.pop(key, None)
                continue
            self.budgets[key] = spec
            budget = budget_from_fact(key, spec)
            # Leases opened in the same batch were already opened under these caps.
            for envelope, lent in self.lowered.note(budget, batch=batch.seq - 1):
                self.lowerings[envelope.key, lent] = (envelope, batch.instant)
        for fact in batch.facts_nodes:
            if fact.gone:
                self.nodes.pop(fact.name, None)
            else:
                self.nodes[fact.name] = (fact.gpus, fact.flavor, fact.domain)

    def copied(self) -> "BatchFacts":
        new = BatchFacts()
        new.budgets = dict(self.budgets)
        new.nodes = dict(self.nodes)
        new.lowered = self.lowered.copied()
        new.lowerings = dict(self.lowerings)
        new.overdrafts = dict(self.overdrafts)
        new.reservations = dict(self.reservations)
        new.resolutions = dict(self.resolutions)
        return new


class CarriedAttempt(Record):
    """An attempt without any lease left in the World."""

    unit: int
    number: int
    started: Instant
    batch: int
    verdict: tuple[int, int, int]
    closure: str
    cause: Cause | None
    ended_at: Instant
    protected: bool
    completed: int


class CarriedBook(Record):
    """The part of a run's book (`core.world.book`) that its remaining leases no longer show."""

    attempts: tuple[CarriedAttempt, ...] = ()
    settled: tuple[tuple[EnvelopeKey, Relation, GpuMs], ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()
    resized_at: Instant | None = None
    swapped_at: Instant | None = None


class Carried:
    """What remains of archived batches. Immutable, including everything in it."""

    def __init__(
        self,
        *,
        seq: int = 0,
        digest: Digest = GENESIS,
        instant: Instant = 0,
        charges: dict[EnvelopeKey, Charges] | None = None,
        books: dict[Uid, CarriedBook] | None = None,
        told: BatchFacts | None = None,
        kept: frozenset[str] = frozenset(),
    ) -> None:
        self.seq = seq  # the last archived batch
        self.digest = digest
        self.instant = instant
        self.charges = charges or {}
        self.books = books or {}
        self.told = told or BatchFacts()
        self.kept = kept  # leases closed by then whose objects stay in the store

    def has_dropped(self, close_batch: int, name: str) -> bool:
        """Return whether a closed lease is part of the sums, so that its stored object must be
        ignored."""
        return close_batch <= self.seq and name not in self.kept


class _Wire(Record):
    seq: int
    digest: str
    instant: int
    charges: dict[str, list[int]]
    books: dict[str, CarriedBook]
    budgets: dict[str, str]  # key -> canonical JSON
    nodes: dict[str, tuple[int, str, str]]
    caps: list[tuple[str, bool, int]]
    lowered: list[tuple[str, bool, int, int]]
    overdrafts: dict[str, Announcement]
    reservations: dict[str, Announcement]
    resolutions: dict[str, str]
    kept: list[str]


def carried_to_json(carried: Carried) -> bytes:
    told = carried.told
    caps, lowered = told.lowered.to_rows()
    wire = _Wire(
        seq=carried.seq,
        digest=carried.digest,
        instant=carried.instant,
        charges={payer: charges.to_row() for payer, charges in carried.charges.items()},
        books=carried.books,
        budgets={key: spec.decode() for key, spec in told.budgets.items()},
        nodes=told.nodes,
        caps=caps,
        lowered=lowered,
        overdrafts=told.overdrafts,
        reservations=told.reservations,
        resolutions=told.resolutions,
        kept=sorted(carried.kept),
    )
    return msgspec.json.encode(wire, order="sorted")


def carried_from_json(encoded: bytes) -> Carried:
    """Decode; raises `msgspec.DecodeError` if the bytes are no checkpoint."""
    wire = msgspec.json.decode(encoded, type=_Wire)
    told = BatchFacts()
    told.budgets = {key: spec.encode() for key, spec in wire.budgets.items()}
    told.nodes = wire.nodes
    told.lowered = LoweredCaps.from_rows(wire.caps, wire.lowered)
    told.overdrafts = wire.overdrafts
    told.reservations = wire.reservations
    told.resolutions = wire.resolutions
    return Carried(
        seq=wire.seq,
        digest=wire.digest,
        instant=wire.instant,
        charges={payer: Charges.from_row(row) for payer, row in wire.charges.items()},
        books=wire.books,
        told=told,
        kept=frozenset(wire.kept),
    )
