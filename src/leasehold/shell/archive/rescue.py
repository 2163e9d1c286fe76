"""Whether the ledger is whole in what was salvaged of a damaged store, and a store again from it.

Called by `leasehold restore --salvage`. The chain decides: of copies that differ the one that its
digest fits counts, and a batch that is missing is taken from the archive if that has it. Leases
follow from batches, so whatever their objects say is made to agree; a head that is lost is the end
of the chain. What cannot be had again is named. `plan_rescue` only reads; `carry_out` writes.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from msgspec.structs import replace

from leasehold.adapters.objects.storage import Key, decode
from leasehold.adapters.sqlite.salvage.objects import Salvaged
from leasehold.adapters.sqlite.schema import make_file
from leasehold.core.facts import Lease
from leasehold.core.ledger.chain import Digest, canonical, digest_of, next_digest
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.verify import Disagreement, Fold, fold_lines
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.lease import ARCHIVED, lease_status, lease_to_wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.ports.store import Invalid, Store
from leasehold.shell.archive.checkpoints import KIND as CHECKPOINT
from leasehold.shell.archive.checkpoints import MAIN, CheckpointLost, carried_from
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.ledger import SHARD, batch_name

HEAD: Key = ("LedgerHead", "", SHARD)
LEDGERS = ("LedgerHead", "LedgerBatch", CHECKPOINT, "Lease", "Resolution")
PASSING = ("Event",)  # nobody decides anything by these


@dataclass(slots=True)
class Rescue:
    """What to write, and what is not there to be written."""

    salvaged: Salvaged
    seq: int = 0  # of the head
    digest: Digest = ""
    is_head_made: bool = False  # from the chain's end, because the newest head is lost
    from_archive: int = 0  # batches
    missing: list[int] = field(default_factory=list)  # batches
    given_up: int = 0  # the batch that the head named, if it is taken back
    proofs_lost: list[str] = field(default_factory=list)  # Resolutions
    wrong: Disagreement | None = None  # with the ledger itself, although it is all there
    leases_made: list[Lease] = field(default_factory=list)
    create: list[Wire] = field(default_factory=list)
    drop: set[Key] = field(default_factory=set)
    bodies: dict[Key, bytes] = field(default_factory=dict)  # the right ones of those that differ

    @property
    def is_ledger_whole(self) -> bool:
        return not (self.missing or self.proofs_lost or self.wrong)

    @property
    def lost(self) -> list[Key]:
        """Objects that are neither the ledger's nor passing."""
        return sorted(key for key in self.salvaged.lost if key[0] not in (*LEDGERS, *PASSING))

    @property
    def outdated(self) -> list[Key]:
        return sorted(key for key in self.salvaged.outdated if key[0] not in (*LEDGERS, *PASSING))

    @property
    def doubtful(self) -> list[Key]:
        return sorted(key for key in self.salvaged.doubtful if key[0] not in (*LEDGERS, *PASSING))

    @property
    def differing(self) -> list[tuple[Key, str]]:
        """Objects of which there are two texts, and nothing says which is right; and in what."""
        return [
            (key, _difference(decode(found.bodies[0]), decode(found.bodies[1]), ""))
            for key, found in sorted(self.salvaged.objects.items(), key=lambda each: each[0])
            if len(found.bodies) > 1 and key[0] not in (*LEDGERS, *PASSING)
        ]

    @property
    def is_whole(self) -> bool:
        told = self.lost or self.outdated or self.differing
        return self.is_ledger_whole and self.salvaged.is_sure and not told


def plan_rescue(salvaged: Salvaged, archive: Archive) -> Rescue:
    """Raises `BadArchive`."""
    return _Plan(salvaged, archive).made()


async def carry_out(rescue: Rescue, store: Store) -> None:
    """What `fill` could not write, because the store must stamp it."""
    for obj in rescue.create:
        await store.create(obj)
    for lease in rescue.leases_made:
        opened = replace(lease, ending=None, closed=None)
        with suppress(Invalid):  # as it was when it was first refused; its run knows
            await store.create(lease_to_wire(opened))
            if status := lease_status(lease):
                await store.patch_status("Lease", "", lease.name, status, version=None)


def fill(path: Path, rescue: Rescue) -> None:
    """A new file with all objects that are kept, as they were; raises `BadStore`."""
    salvaged = rescue.salvaged
    rows = (
        (*key, found.version, rescue.bodies.get(key, found.bodies[0]))
        for key, found in salvaged.objects.items()
        if key not in rescue.drop
    )
    make_file(
        path, rows, prefix=salvaged.prefix, version=salvaged.version, created=salvaged.created
    )


@dataclass(frozen=True, slots=True)
class _Line:
    """A batch as an object or an archive has it."""

    key: Key
    body: bytes  # of the object; empty: from the archive
    version: int
    line: Wire

    @property
    def digest(self) -> Digest:
        return text_at(self.line, "digest")

    def follows(self, before: Iterable[Digest]) -> bool:
        try:
            encoded = canonical(self.line.get("batch"))
        except AssertionError:  # a number that became another one
            return False
        return any(next_digest(each, encoded) == self.digest for each in before)


class _Plan:
    def __init__(self, salvaged: Salvaged, archive: Archive) -> None:
        self._salvaged = salvaged
        self._archive = archive
        self._rescue = Rescue(salvaged)
        self._carried = self._read_carried()

    def made(self) -> Rescue:
        lines = self._chain()
        fold, self._rescue.wrong = fold_lines(chain(self._archived_lines(), lines))
        self._mend_resolutions(fold)
        self._mend_leases(fold)
        self._mend_head(fold)
        return self._rescue

    def _objects(self, kind: str) -> Iterator[tuple[Key, bytes, Wire]]:
        """Every text of every object of a kind."""
        for key, found in self._salvaged.objects.items():
            if key[0] == kind:
                for body in found.bodies:
                    yield key, body, decode(body)

    def _read_carried(self) -> Carried:
        """If the checkpoint is lost, the archive has all that it stood for."""
        found = {
            key: each.bodies for key, each in self._salvaged.objects.items() if key[0] == CHECKPOINT
        }
        for choice in (0, -1) if (CHECKPOINT, "", MAIN) in found else ():
            bodies = {key: each[choice] for key, each in found.items()}
            texts = {key[2]: part(decode(body), "spec").get("text") for key, body in bodies.items()}
            with suppress(CheckpointLost):
                carried = carried_from(decode(bodies[CHECKPOINT, "", MAIN]), texts)
                self._rescue.bodies.update(bodies)
                self._check_archive(carried)
                return carried
        self._rescue.drop.update(found)
        return Carried()

    def _check_archive(self, carried: Carried) -> None:
        end = self._archive.end()
        if end.seq < carried.seq:
            why = f"ends with batch {end.seq}, and the store begins after {carried.seq}"
            remedy = "put the missing files back (ledger.archive)"
            raise BadArchive(self._archive.folder, why, remedy)

    def _archived_lines(self) -> Iterator[Wire]:
        for line in self._archive.lines() if self._carried.seq else ():
            if (whole_at(line, "seq") or 0) > self._carried.seq:
                return
            yield line

    def _candidates(self) -> dict[int, list[_Line]]:
        """By number, those of the store before those of the archive."""
        found: dict[int, list[_Line]] = {}
        for key, body, wire in self._objects("LedgerBatch"):
            line, version = part(wire, "spec"), self._salvaged.objects[key].version
            found.setdefault(whole_at(line, "seq") or 0, []).append(
                _Line(key=key, body=body, version=version, line=line)
            )
        for line in self._archive.lines(after=self._carried.seq):
            seq = whole_at(line, "seq") or 0
            key = ("LedgerBatch", "", batch_name(seq, text_at(line, "digest")))
            found.setdefault(seq, []).append(_Line(key=key, body=b"", version=0, line=line))
        return found

    def _chain(self) -> list[Wire]:
        """From where the checkpoint ends to the head, or to the first batch that is missing."""
        candidates, rescue = self._candidates(), self._rescue
        heads = self._heads()
        is_lost = HEAD in self._salvaged.lost or HEAD in self._salvaged.outdated
        end = max((seq for seq, _ in heads), default=0)
        # What is archived or follows another batch was committed, whatever a head says.
        is_old = end < self._carried.seq or (not heads and bool(candidates))
        rescue.is_head_made = is_lost or is_old
        if rescue.is_head_made:
            lost = [name for kind, _, name in self._salvaged.lost if kind == "LedgerBatch"]
            end = max([end, self._carried.seq, *map(_seq_in, lost), *candidates])
        good: dict[int, list[_Line]] = {}
        before: list[Digest] | None = [self._carried.digest]
        for number in range(self._carried.seq + 1, end + 1):
            mine = candidates.get(number, [])
            # After a batch that is missing nobody can tell whether the next one is right.
            right = mine if before is None else [each for each in mine if each.follows(before)]
            if not right:
                rescue.missing.append(number)
            good[number] = right
            before = [each.digest for each in right] or None
        wanted = None
        if not rescue.is_head_made and heads:
            end, wanted = self._fitting(heads, good) or (end, None)
            rescue.missing = [number for number in rescue.missing if number <= end]
            if wanted is None and not rescue.missing:
                rescue.missing = [end]  # what has its number was never committed
        if rescue.missing:
            rescue.given_up, rescue.is_head_made = end, True
            end, wanted = rescue.missing[0] - 1, None
        return self._walk_back(good, end, wanted)

    def _heads(self) -> list[tuple[int, Digest]]:
        found = []
        for _, _, wire in self._objects(HEAD[0]):
            spec = part(wire, "spec")
            found.append((whole_at(spec, "seq") or 0, text_at(spec, "digest")))
        return found

    def _fitting(
        self, heads: list[tuple[int, Digest]], good: dict[int, list[_Line]]
    ) -> tuple[int, Digest] | None:
        """The head that the chain leads to; of two copies one may be wrong."""
        for place, (seq, digest) in enumerate(heads):
            ends = [each.digest for each in good.get(seq, [])]
            if seq == self._carried.seq:
                ends = [self._carried.digest]
            if digest in ends:
                self._rescue.bodies[HEAD] = self._salvaged.objects[HEAD].bodies[place]
                return seq, digest
        return None

    def _walk_back(
        self, good: dict[int, list[_Line]], end: int, wanted: Digest | None
    ) -> list[Wire]:
        """Those that lead to `wanted`, or without it to the newest of the last ones."""
        self._rescue.seq, self._rescue.digest = end, wanted or self._carried.digest
        chosen: list[_Line] = []
        for number in range(end, self._carried.seq, -1):
            fits = [each for each in good[number] if wanted in (None, each.digest)]
            line = max(fits, key=lambda each: (each.version, each.body))
            before = [each.digest for each in good.get(number - 1, [])] or [self._carried.digest]
            wanted = next(each for each in before if line.follows([each]))
            chosen.append(line)
        if chosen:
            self._rescue.digest = chosen[0].digest
        for line in chosen:
            if line.body:
                self._rescue.bodies[line.key] = line.body
            else:
                self._rescue.from_archive += 1
                self._rescue.create.append(_object("LedgerBatch", line.key[2], line.line))
        return [line.line for line in reversed(chosen)]

    def _mend_resolutions(self, fold: Fold) -> None:
        """A proof is the one whose digest its batch quotes; one that none quotes was never true."""
        stored: dict[str, Digest] = {}
        for key, body, wire in self._objects("Resolution"):
            _, due = fold.resolutions.get(key[2], (0, ""))
            with suppress(AssertionError):
                if digest_of(wire.get("spec")) == due:
                    stored[key[2]] = due
                    self._rescue.bodies[key] = body
        for key in self._salvaged.objects:
            if key[0] == "Resolution" and key[2] not in stored:
                self._rescue.drop.add(key)
        archived = {
            text_at(part(each, "metadata"), "name"): each for each in self._archive.resolutions()
        }
        for name, (seq, _) in fold.resolutions.items():
            is_dropped = seq <= self._carried.seq and name not in self._carried.told.resolutions
            if name in stored or is_dropped:
                continue
            if name in archived:
                self._rescue.create.append(archived[name])
            else:
                self._rescue.proofs_lost.append(name)

    def _mend_leases(self, fold: Fold) -> None:
        said: dict[Key, set[bytes]] = {}
        for key, body, wire in self._objects("Lease"):
            lease = fold.leases.get(key[2])
            if lease is not None and _says(wire, lease):
                said.setdefault(key, set()).add(body)
        # Two texts that say what the ledger says differ in what it does not prove: neither is kept.
        self._rescue.bodies |= {key: body for key, (body, *more) in said.items() if not more}
        right = {key[2] for key, bodies in said.items() if len(bodies) == 1}
        for key in self._salvaged.objects:
            if key[0] == "Lease" and key[2] not in right:
                self._rescue.drop.add(key)
        self._rescue.leases_made = [
            lease
            for lease in fold.leases.values()
            if lease.name not in right
            and not (lease.closed and self._carried.has_dropped(lease.closed.batch, lease.name))
        ]

    def _mend_head(self, fold: Fold) -> None:
        """At the end of what was folded; all Lease objects say as much. Of two heads that name the
        same batch one may be wrong in the rest."""
        if not self._rescue.is_head_made and len(self._heads()) < 2:
            return
        self._rescue.drop.add(HEAD)
        spec: Wire = {
            "seq": fold.seq,
            "digest": fold.digest,
            "epoch": fold.epoch,
            "instant": fold.instant,
            "materialised": fold.seq,
        }
        self._rescue.create.append(_object("LedgerHead", SHARD, spec))


def _says(wire: Wire, lease: Lease) -> bool:
    due = lease_to_wire(lease)
    labels = part(part(wire, "metadata"), "labels")
    return (
        wire.get("spec") == due["spec"]
        and (wire.get("status") or {}) == due.get("status", {})
        and labels.items() >= part(part(due, "metadata"), "labels").items()
    )


def _difference(one: object, other: object, path: str) -> str:
    """The first member in which two objects differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one | other:
            if one.get(key) != other.get(key):
                return _difference(one.get(key), other.get(key), f"{path}.{key}".lstrip("."))
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for place, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            if mine != theirs:
                return _difference(mine, theirs, f"{path}[{place}]")
    return f"{path} is {one!r} or {other!r}"


def _object(kind: str, name: str, spec: Wire) -> Wire:
    metadata: Wire = {"name": name, "finalizers": [ARCHIVED]}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _seq_in(name: str) -> int:
    """Of a batch, by its object's name."""
    number = name.partition("-")[0]
    return int(number) if number.isdecimal() else 0
