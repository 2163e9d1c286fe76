"""The compactor: removes old objects from the store once they are safely in the archive.

The loop calls `step` between two turns; each call does a bounded piece of work. The order makes a
crash harmless at any time: archive the batches, read them back, write a checkpoint, and only then
delete. Nothing has changed for readers before the checkpoint. After it, objects that are not
deleted yet are leftovers, which the next recovery finds. Compaction does not affect scheduling.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec

from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Lease, Record
from leasehold.core.ledger.batch import batch_from_wire
from leasehold.core.ledger.chain import Digest, canonical, next_digest
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.verify import Fold
from leasehold.core.names import Wire
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import DAY, HOUR, MINUTE, SECOND, Instant, Millis
from leasehold.core.world.compaction import Compaction, carried_after, forget, plan_compaction
from leasehold.core.world.world import World
from leasehold.ports.archive import Mirror
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    Answers,
    Conflict,
    Delete,
    NotFound,
    OutcomeUnknown,
    SetFinalizers,
    Store,
    StoreError,
    Unavailable,
    Write,
)
from leasehold.shell.archive.checkpoints import KIND as CHECKPOINT
from leasehold.shell.archive.checkpoints import (
    CheckpointLost,
    Stored,
    read_checkpoint,
    write_checkpoint,
)
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.archive.writer import put_file, write_segment
from leasehold.shell.ledger.commit import Ledger, batch_name

Alert = Callable[[str], None]

SEGMENT_BYTES = 2 * 1024 * 1024
ROUND = 256  # objects removed between two turns
BATCHES = 256  # batches that one checkpoint may advance, so that no turn waits long for it
WORTH = 1_000  # with fewer objects to remove, wait until they are a day old
EVERY: Millis = HOUR
AGAIN_AFTER_TROUBLE: Millis = 10 * MINUTE
CROWDED_PERCENT = 70
CROWDED_EVERY: Millis = MINUTE
KEEP_WHEN_CROWDED: Millis = HOUR
ANSWER = "compacted.json"  # beside the segments
NO_ARCHIVE = "there is no archive; set ledger.archive to a folder or a bucket"


class Compacted(Record):
    """How much left the store: since the last request, or in the last compaction without a
    request."""

    seq: int
    batches: int = 0
    leases: int = 0
    resolutions: int = 0


class CompactionAnswer(Record):
    """The result of the last requested compaction."""

    at: Instant
    problem: str
    compacted: Compacted | None  # None: nothing was old enough


class Compactor:
    """Moves old batches and leases to the archive. With `folder` None there is no archive: nothing
    is ever removed, and an alert is raised once the store fills up."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        folder: Path | None,
        keep_closed: Millis,
        max_objects: int,
        alert: Alert = lambda _: None,
        segment_bytes: int = SEGMENT_BYTES,
        mirror: Mirror | None = None,
    ) -> None:
        """`mirror`: a bucket that must also have every segment before anything is removed from the
        store."""
        self._mirror = mirror
        self._store = store
        self._clock = clock
        self._archive = None if folder is None else Archive(folder)
        self._keep = keep_closed
        self._max_objects = max_objects
        self._alert = alert
        self._segment_bytes = segment_bytes
        self._next: Instant = 0
        self._next_if_crowded: Instant = 0
        self._asked = False
        self._keep_asked = keep_closed
        self._is_going_on = False
        self.last: Compacted | None = None
        self.requests = 0  # number of requests so far
        # Number and answer of the last one
        self.answered: tuple[int, CompactionAnswer] | None = None

    def request(self, keep: Millis | None = None) -> int:
        """Request a compaction now, even if it removes little, and return the request's number. If
        a request is under way, return its number. `keep`: how long closed leases stay this time."""
        wanted = self._keep if keep is None else keep
        if self._asked:
            self._keep_asked = min(self._keep_asked, wanted)
            return self.requests
        self._asked, self._keep_asked = True, wanted
        self.last = None
        self.requests += 1
        return self.requests

    async def run_once(self, world: World, ledger: Ledger) -> Compacted | None:
        """Compact everything that is old enough, and return how much; None if nothing was. The
        caller must not change the World meanwhile."""
        self.request()
        while (wait := await self.step(world, ledger)) is not None and wait <= SECOND:
            if wait:
                await self._clock.sleep(wait)
        return self.last

    async def step(self, world: World, ledger: Ledger) -> Millis | None:
        """Do a bounded piece of work, and return the longest time until the next call."""
        if ledger.leftovers:
            swept = await self._sweep(ledger)
            return 0 if swept else SECOND
        now = self._clock.now()
        if now < self._next and not self._asked and not self._presses(world, ledger, now):
            return self._next - now
        problem = ""
        try:
            wait = await self._compact_some(world, ledger, now)
        except (BadArchive, OSError) as error:
            problem, wait = f"the ledger is not archived: {error}", AGAIN_AFTER_TROUBLE
        except Conflict:
            problem, wait = "another process has compacted the ledger; start again", EVERY
        except (StoreError, CheckpointLost) as error:
            problem, wait = f"the ledger is not compacted: {error}", AGAIN_AFTER_TROUBLE
        if problem:
            self._alert(problem)
        if wait:
            self._is_going_on = False
            self._answer(problem)
            self._next = now + wait
            self._next_if_crowded = now + (wait if problem else CROWDED_EVERY)
        return wait

    def _presses(self, world: World, ledger: Ledger, now: Instant) -> bool:
        """Return whether the store fills up, so that compaction cannot wait for its regular
        time."""
        if self._archive is None or now < self._next_if_crowded:
            return False
        return self._is_crowded(world, ledger)

    def _is_crowded(self, world: World, ledger: Ledger) -> bool:
        count = len(world.leases) + len(ledger.chain)
        return 100 * count > CROWDED_PERCENT * self._max_objects

    def _answer(self, problem: str) -> None:
        """Write the result of a request beside the archive, where the process that made it reads
        it."""
        if not self._asked:
            return
        self._asked = False
        problem = problem or ("" if self._archive is not None else NO_ARCHIVE)
        answer = CompactionAnswer(at=self._clock.now(), problem=problem, compacted=self.last)
        self.answered = self.requests, answer
        if self._archive is not None:
            with suppress(OSError):
                self._archive.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                put_file(self._archive.folder / ANSWER, msgspec.json.encode(answer) + b"\n")

    async def _compact_some(self, world: World, ledger: Ledger, now: Instant) -> Millis:
        is_crowded = self._is_crowded(world, ledger)
        if self._archive is None:
            if is_crowded:
                count = len(world.leases) + len(ledger.chain)
                self._alert(
                    f"{count} leases and batches of at most {self._max_objects} are in the "
                    "store, and there is no archive; set ledger.archive to a folder"
                )
            return EVERY
        keep = self._keep_asked if self._asked else self._keep
        keep = min(keep, KEEP_WHEN_CROWDED) if is_crowded else keep
        cutoff = now - keep
        upto = min(_newest(ledger, cutoff, world.carried.seq), world.carried.seq + BATCHES)
        plan = plan_compaction(world, upto=upto, cutoff=cutoff)
        gain = plan.count + upto - world.carried.seq
        if not gain or not (self._asked or is_crowded or self._is_worth(ledger, gain, cutoff)):
            return EVERY
        if await self._archive_some(world, ledger, upto):
            return 0
        await self._check_point(world, ledger, plan, upto)
        return 0 if ledger.leftovers else EVERY

    def _is_worth(self, ledger: Ledger, gain: int, cutoff: Instant) -> bool:
        oldest = next(iter(ledger.chain.values()), None)
        return gain >= WORTH or (oldest is not None and oldest.instant <= cutoff - DAY)

    async def _archive_some(self, world: World, ledger: Ledger, upto: int) -> bool:
        """Write one more segment of batches up to `upto`. Return False if all of them were archived
        already."""
        assert self._archive is not None, "whoever has none does not get here"
        if self._mirror is not None:
            await self._mirror.sync()
        end = self._archive.end()
        _check_fit(self._archive, world, ledger)
        if end.seq >= upto:
            return False
        lines: list[Wire] = []
        size, digest = 0, end.digest
        for seq in range(end.seq + 1, upto + 1):
            line, length = await self._line(ledger, seq, digest)
            lines.append(line)
            digest = text_at(line, "digest")
            size += length
            if size >= self._segment_bytes:
                break
        batches = [batch_from_wire(part(line, "batch")) for line in lines]
        names = [closing.lease for batch in batches for closing in batch.closed]
        quoted = [name for batch in batches for name, _ in batch.resolutions]
        write_segment(
            self._archive.folder,
            end,
            lines,
            leases=self._leases(world, names, lines),
            resolutions=[await self._resolution(name) for name in quoted],
        )
        return True

    async def _line(self, ledger: Ledger, seq: int, before: Digest) -> tuple[Wire, int]:
        name = ledger.chain[seq].name
        wire = await until_answered(self._clock, lambda: self._store.get("LedgerBatch", "", name))
        line = part(wire, "spec")
        encoded = canonical(line.get("batch"))
        if next_digest(before, encoded) != line.get("digest"):
            assert self._archive is not None
            why = f"ends before batch {seq}, which does not follow from it"
            raise BadArchive(self._archive.folder, why, _OTHER_FOLDER)
        return line, len(encoded)

    def _leases(self, world: World, names: list[str], lines: list[Wire]) -> list[Lease]:
        """Return the leases of these names. They come from the World; if one is not there because
        it never had an object, all are computed again from the ledger's lines."""
        if all(name in world.leases for name in names):
            return [world.leases[name] for name in names]
        assert self._archive is not None
        fold = Fold()
        for line in chain(self._archive.lines(), lines):
            fold.step(line)
        return [fold.leases[name] for name in names]

    async def _resolution(self, name: str) -> Wire:
        try:
            return await until_answered(
                self._clock, lambda: self._store.get("Resolution", "", name)
            )
        except NotFound:
            assert self._archive is not None
            why = f"cannot archive Resolution {name}, which is not in the store"
            raise BadArchive(self._archive.folder, why, "restore it from a backup") from None

    async def _check_point(self, world: World, ledger: Ledger, plan: Compaction, upto: int) -> None:
        """Write the checkpoint: from here on everything that the plan names counts as removed, even
        after a crash. Then queue its objects for deletion."""
        _, before = await read_checkpoint(self._store, self._clock)
        if before.seq != world.carried.seq:
            raise Conflict(CHECKPOINT, "", "main")
        carried = self._carried(world, ledger, plan, upto)
        assert self._archive is not None
        segments = [each for each in self._archive.indices() if each.first <= upto]
        last = segments[-1].files if segments else {}
        archive: Wire = {
            "segments": len(segments),
            "last": [f"{file.name} {file.sha256}" for file in last.values()],
        }
        stored = await write_checkpoint(self._store, self._clock, carried, before, archive=archive)
        sofar = self.last if self._is_going_on and self.last is not None else Compacted(seq=0)
        self.last = Compacted(
            seq=upto,
            batches=sofar.batches + upto - world.carried.seq,
            leases=sofar.leases + len(plan.leases),
            resolutions=sofar.resolutions + len(plan.resolutions),
        )
        self._is_going_on = True
        forget(world, plan, carried)
        _leave(ledger, plan, carried, before, stored)

    def _carried(self, world: World, ledger: Ledger, plan: Compaction, upto: int) -> Carried:
        """Compute the checkpoint's state from the archived lines. Raise `BadArchive` if a line
        differs from the chain in the store."""
        assert self._archive is not None
        told, digest = world.carried.told.copied(), world.carried.digest
        instant = world.carried.instant
        for line in self._archive.lines(after=world.carried.seq):
            batch = batch_from_wire(part(line, "batch"))
            if batch.seq > upto:
                break
            digest = next_digest(digest, canonical(line["batch"]))
            if batch_name(batch.seq, digest) != ledger.chain[batch.seq].name:
                why = f"has a batch {batch.seq} that differs from the store's"
                raise BadArchive(self._archive.folder, why, _OTHER_FOLDER)
            told.read(batch)
            instant = batch.instant
        return carried_after(world, plan, told, seq=upto, digest=digest, instant=instant)

    async def _sweep(self, ledger: Ledger) -> bool:
        """Delete some of the objects that are no longer needed. Return False if some must be tried
        again."""
        writes: list[Write] = []
        owners: list[tuple[str, str]] = []
        for kind, name in list(ledger.leftovers)[:ROUND]:
            mine = _removal(kind, name)
            writes += mine
            owners += [(kind, name)] * len(mine)
        await ledger.confirm()
        try:
            answers: Answers = await self._store.write_all(writes)
        except (Unavailable, OutcomeUnknown):
            return False
        unsettled: set[tuple[str, str]] = set()
        for owner, write, answer in zip(owners, writes, answers, strict=True):
            if isinstance(answer, Unavailable | OutcomeUnknown):
                unsettled.add(owner)  # tried again later
            elif isinstance(answer, Conflict):
                if not (isinstance(write, SetFinalizers) and await self._let_go(write)):
                    unsettled.add(owner)
            elif isinstance(write, Delete) and owner not in unsettled:
                if isinstance(answer, StoreError) and not isinstance(answer, NotFound):
                    self._alert(f"cannot remove {owner[0]} {owner[1]}: {answer}")
                ledger.leftovers.pop(owner, None)
        return not unsettled

    async def _let_go(self, tried: SetFinalizers) -> bool:
        """Remove our finalizer from an object that has other finalizers than expected. Return
        whether ours is removed."""
        place = (tried.kind, tried.namespace, tried.name)
        try:
            wire = await self._store.get(*place)
            held = [str(each) for each in list_at(part(wire, "metadata"), "finalizers")]
            others = [each for each in held if each != ARCHIVED]
            if others != held:
                await self._store.set_finalizers(*place, others, known=held)
        except NotFound:
            return True
        except StoreError:
            return False
        return True


_OTHER_FOLDER = "the archive belongs to another ledger: name the right folder (ledger.archive)"


def _removal(kind: str, name: str) -> list[Write]:
    """Return the writes that delete an object. If compaction alone may delete objects of this kind,
    the first write removes their finalizer."""
    namespace, _, last = name.rpartition("/")  # only a Reservation has a namespace
    delete = Delete(kind, namespace, last, None)
    if kind not in _HELD:
        return [delete]
    return [SetFinalizers(kind, "", last, (), (ARCHIVED,)), delete]


_HELD = frozenset({"Lease", "LedgerBatch", CHECKPOINT})


def _newest(ledger: Ledger, cutoff: Instant, archived: int) -> int:
    """Return the number of the newest batch that is not after `cutoff` and whose Lease objects,
    like those of all earlier batches, are written. Return `archived` if there is none."""
    found = archived
    for seq, committed in ledger.chain.items():
        if committed.instant > cutoff or seq > ledger.known.materialised:
            break
        found = seq
    return found


def _check_fit(archive: Archive, world: World, ledger: Ledger) -> None:
    """Raise `BadArchive` unless the archive ends with a batch of this ledger, and not before the
    point from which the store has the batches."""
    end, carried = archive.end(), world.carried
    if end.seq < carried.seq:
        why = f"ends with batch {end.seq}, and the store begins after {carried.seq}"
        raise BadArchive(archive.folder, why, "restore the missing files (ledger.archive)")
    if end.seq == carried.seq:
        fits = end.digest == carried.digest
    else:
        known = ledger.chain.get(end.seq)
        fits = known is not None and known.name == batch_name(end.seq, end.digest)
    if not fits:
        why = f"ends with a batch {end.seq} that is not in this ledger"
        raise BadArchive(archive.folder, why, _OTHER_FOLDER)


def _leave(
    ledger: Ledger, plan: Compaction, carried: Carried, before: Stored, after: Stored
) -> None:
    """Queue objects for deletion, a few at a time: those that the new checkpoint summarises, and
    the parts of the checkpoint before it."""
    left = ledger.leftovers
    left.update((("Lease", name), None) for name in plan.leases)
    left.update((("Resolution", name), None) for name in plan.resolutions)
    left.update((("Reservation", subject), None) for subject in plan.reservations)
    left.update(((CHECKPOINT, name), None) for name in before.parts if name not in after.parts)
    for seq in [each for each in ledger.chain if each <= carried.seq]:
        left["LedgerBatch", ledger.chain.pop(seq).name] = None
