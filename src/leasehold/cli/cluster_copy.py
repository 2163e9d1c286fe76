"""Copies the ledger of a cluster into a temporary data folder, so that commands need not care where
a ledger is.

Used by the commands that read a ledger. Everything is listed at one version of the API server, so
that the copy is consistent. Nothing is written to the cluster.
"""

import asyncio
import functools
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from leasehold.adapters.asyncio_runtime import AsyncioClock
from leasehold.adapters.bucket import BucketTrouble
from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.adapters.objects.rules import key_of
from leasehold.adapters.objects.storage import Change, decode
from leasehold.adapters.sqlite.schema import open_file
from leasehold.adapters.sqlite.storage import FileStorage
from leasehold.app.archive_place import archive_at
from leasehold.cli.data_folder import ledger_data_option
from leasehold.cli.kube_options import kube_sentences, loader
from leasehold.ports.store import StoreError, WatchExpired
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.config.folder import DataFolder

# The head first: no part of the ledger is newer than the version at which it was read.
KINDS = (
    "LedgerHead",
    "LedgerBatch",
    "LedgerCheckpoint",
    "Lease",
    "Resolution",
    "Reservation",
    "Budget",
    "Run",
    "Node",
    "Pod",
)
TRIES = 3
REMEDY_OF_LOSS = (
    "leasehold ledger restore puts missing batches back from an archive (--archive) or exported "
    "files; anything else comes from a backup of etcd"
)

F = TypeVar("F", bound=Callable[..., object])


class ClusterCopy(DataFolder):
    """A temporary data folder with a copy of a cluster's ledger. `renew` copies the ledger
    again."""

    def __init__(self, root: Path, load: Callable[[], KubeContext], archive: Path | None) -> None:
        super().__init__(root)
        self._load = load
        self._has_archive = archive is not None
        if archive is not None:
            self.archive = archive

    @property
    def title(self) -> str:
        return self._load().server

    def context(self) -> KubeContext:
        return self._load()

    def loss(self, why: str) -> str:
        return f"{self.title}: {why}; {REMEDY_OF_LOSS}"

    def misfit(self, bad: BadArchive) -> str:
        if self._has_archive:
            return str(bad)
        return (
            f"{self.title}: its older batches were compacted into an archive; name the folder or "
            "bucket (--archive)"
        )

    def renew(self) -> None:
        for path in self.root.glob(f"{self.store.name}*"):
            path.unlink()
        with kube_sentences():
            asyncio.run(self._fill())

    async def _fill(self) -> None:
        client = Client(self._load)
        try:
            for _ in range(TRIES):
                try:
                    changes = await _read(KubernetesStore(client, AsyncioClock()))
                    break
                except WatchExpired:
                    continue
            else:
                raise click.ClickException("the ledger changes faster than it can be listed")
        except StoreError as error:
            said = " ".join([str(error), *getattr(error, "__notes__", [])])
            raise click.ClickException(f"{(await client.context()).server}: {said}") from None
        finally:
            await client.close()
        connection = open_file(self.store, prefix="copy")
        try:
            storage = FileStorage(connection, self.store, tell=lambda _: None, history_max=1)
            storage.transact(lambda: deque(map(storage.put, changes), maxlen=0))
        finally:
            connection.close()


async def _read(store: KubernetesStore) -> list[Change]:
    changes: list[Change] = []

    def see(_: str, body: bytes) -> None:
        changes.append(Change(len(changes) + 1, "ADDED", key_of(decode(body)), body))

    await store.moment(KINDS, see)
    return changes


def _archive(named: str) -> Path | None:
    """Return the folder of the named archive; None if no archive is named. A bucket is first copied
    into a local folder."""
    try:
        folder, bucket = archive_at(named)
        if bucket is not None:
            asyncio.run(bucket.sync())
    except BucketTrouble as trouble:
        raise click.ClickException(str(trouble)) from None
    return folder


def ledger_options(command: F) -> F:
    """Add `--data`, `--kubeconfig`, `--context` and `--archive` to a command. The command is called
    with a data folder, which is a temporary copy if the ledger is on a cluster.

    Without any of these options, the variable KUBECONFIG decides.
    """

    @click.option(
        "--kubeconfig",
        default="",
        help="Use the cluster of this kubeconfig instead of a data folder.",
    )
    @click.option(
        "--context", default="", help="Use the cluster of this context instead of a data folder."
    )
    @click.option(
        "--archive",
        default="",
        help="With a cluster: the folder or bucket of its ledger's archive.",
    )
    @functools.wraps(command)
    def with_data(
        *args: object,
        data: DataFolder | None,
        kubeconfig: str,
        context: str,
        archive: str,
        **others: object,
    ) -> object:
        if data is not None and not kubeconfig and not context:
            if archive:
                raise click.UsageError(
                    "--archive is only for a cluster; the archive of a data folder is "
                    "in its configuration"
                )
            return command(*args, data=data, **others)
        with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
            copy = ClusterCopy(Path(folder), loader(kubeconfig, context), _archive(archive))
            return command(*args, data=copy, **others)

    return ledger_data_option(with_data)  # type: ignore[return-value]
