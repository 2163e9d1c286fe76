"""A consistent snapshot of a store's file, read while a server may write to it.

Takes no lock and writes nothing, so it works whether or not `leasehold up` runs. Used by the
commands that read a data folder: export, verify, replay, audit and backup.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import apsw
import msgspec

from leasehold.adapters.objects.storage import decode
from leasehold.adapters.sqlite.errors import (
    FATAL,
    BadStore,
    FileUnavailable,
    remedy_of_damage,
    sentence,
)
from leasehold.adapters.sqlite.schema import APPLICATION, open_reader
from leasehold.adapters.sqlite.storage import FileObjects
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.head import Head, UnknownFormat, check_format
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.core.policy import Policy
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Listing, NotFound, Store
from leasehold.shell.archive.checkpoints import KIND as CHECKPOINT
from leasehold.shell.archive.checkpoints import MAIN, carried_from
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.ledger.commit import SHARD, HeadLost, Ledger
from leasehold.shell.ledger.read_chain import Lines
from leasehold.shell.loop.recover import Recovered, read_world


class Snapshot:
    """Reads a store's file as of one moment. `get`, `list` and `scan` are those of
    `ports.store.Store`."""

    def __init__(self, path: Path) -> None:
        """Open the file; raise `BadStore`. All reads until `close` see the state of this moment."""
        self.path = path
        if not path.is_file():
            raise BadStore(path, "does not exist", "name the data folder of a server (--data)")
        try:
            self._connection = open_reader(path)
        except apsw.Error as error:
            raise BadStore(path, f"cannot be read ({error})", sentence(error)) from None
        self._pages = _Moment(self._connection, path)
        try:
            if self._connection.pragma("application_id") != APPLICATION:
                raise BadStore(
                    path, "is not a store of leasehold", "name the data folder of a server (--data)"
                )
            self._connection.execute("BEGIN")
            self.version = self._pages.version  # the first read fixes the moment of the snapshot
        except apsw.Error as error:
            self.close()
            raise BadStore(path, f"cannot be read ({error})", sentence(error)) from None
        except BadStore:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()

    def objects(self, kind: str) -> list[Wire]:
        """Return the objects of a kind; raise `BadStore` if one is not JSON."""
        try:
            return [decode(body) for body in self._pages.read_all(kind)[0]]
        except msgspec.DecodeError as error:
            why = f"a {kind} in it is not a JSON object ({error})"
            raise BadStore(self.path, why, remedy_of_damage(self.path)) from None

    def object(self, kind: str, name: str) -> Wire | None:
        body = self._pages.read((kind, "", name))
        return None if body is None else decode(body)

    def head(self) -> Wire:
        """Return the spec of the ledger's head; {} if no server has started yet. Raise `BadStore`
        if a later version of leasehold wrote the head."""
        spec = part(self.object("LedgerHead", SHARD), "spec")
        try:
            check_format(spec.get("format"))
        except UnknownFormat as unknown:
            what, _, remedy = str(unknown).partition(": ")
            raise BadStore(self.path, what, remedy) from None
        return spec

    def carried(self) -> Carried:
        """Return the state of the batches that were compacted. Raise `CheckpointLost`."""
        main = self.object(CHECKPOINT, MAIN)
        if main is None:
            return Carried()
        parts = {
            text_at(part(each, "metadata"), "name"): part(each, "spec").get("text")
            for each in self.objects(CHECKPOINT)
        }
        return carried_from(main, parts)

    def lines(self) -> list[Wire]:
        """Return the exported lines of committed batches that are still in the store, in order.
        Raise `BadStore`, `BatchLost` or `HeadLost`."""
        spec = self.head()
        head = Head(seq=whole_at(spec, "seq") or 0, digest=text_at(spec, "digest"))
        carried = self.carried()
        lines = Lines(head, after=carried.seq, digest=carried.digest, whole_after=head.seq)
        bodies = self._pages.read_all("LedgerBatch")[0]
        if bodies and not spec:
            raise HeadLost(len(bodies))
        for look in (lines.note, lines.check):
            for body in bodies:
                look(body)
        return [part(self.object("LedgerBatch", link.name), "spec") for link in lines.chain()]

    # The read methods of the Store port.

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        body = self._pages.read((kind, namespace, name))
        if body is None:
            raise NotFound(kind, namespace, name)
        return decode(body)

    async def list(self, kind: str) -> Listing:
        return Listing(self.objects(kind), self.version)

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        for body in self._pages.read_all(kind)[0]:
            see(body)
        return self.version


class _Moment(FileObjects):
    """Reads the objects of a snapshot. Errors are final: a snapshot never changes, so a retry would
    not help."""

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            with super()._speaking():
                yield
        except FileUnavailable as error:
            if isinstance(error.__cause__, FATAL):
                why = f"is damaged ({error.__cause__})"
                raise BadStore(self.path, why, remedy_of_damage(self.path)) from None
            raise BadStore(self.path, "cannot be read", error.why) from None


async def world_of(
    snapshot: Snapshot, clock: Clock, *, policy: Policy, labels: Labels
) -> Recovered:
    """Return what a server that starts now would recover; write nothing. Raise `BadStore`,
    `BatchLost`, or `Malformed` if an object of the ledger cannot be read."""
    store = cast(Store, snapshot)  # read_world calls only `get`, `list` and `scan`
    ledger = Ledger(store, clock)
    await ledger.look()
    return await read_world(store, clock, ledger, policy=policy, labels=labels)


def whole_ledger(snapshot: Snapshot, archive: Archive) -> Iterator[Wire]:
    """Yield all exported lines of the ledger: first those up to the checkpoint, from the archive,
    then the others, from the store."""
    carried = snapshot.carried()
    end = archive.end() if carried.seq else None
    if end is not None and end.seq < carried.seq:
        why = f"ends with batch {end.seq}, and the store begins after {carried.seq}"
        raise BadArchive(archive.folder, why, "restore the missing files (ledger.archive)")
    if carried.seq:
        for line in archive.lines():
            if (whole_at(line, "seq") or 0) > carried.seq:
                break
            yield line
    yield from snapshot.lines()
