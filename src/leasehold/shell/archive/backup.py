"""Backup of a data folder into one file, while jobs run, and restore.

Included: the store as of one moment, the archive, tokens, keys and certificates, the configuration,
and the uid of each namespace. Not included: logs and pod records, which belong to the agent and
this machine. The file is written under a temporary name, read back and checked, and only then
renamed. A restored ledger gets an epoch above every epoch that an earlier copy can have used.
"""

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import apsw
import msgspec

from leasehold.adapters.sqlite.errors import BadStore, sentence
from leasehold.adapters.sqlite.schema import open_reader
from leasehold.core.facts import Record
from leasehold.shell.archive.segments import file_name, read_indices
from leasehold.shell.archive.writer import check_segment, sync_folder
from leasehold.shell.config.folder import DataFolder

CONTENTS = "contents.json"
STORE, ARCHIVE = "store.sqlite", "archive"
SECRETS = ("tokens.json", "lottery.key", "config.yaml", "tls")
EPOCHS_PER_GENERATION = 1_000_000  # more starts after one restore than any folder sees


class BadBackup(Exception):  # noqa: N818 - named for the condition
    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(f"{path}: {why}; {remedy}")


class BackupMember(Record):
    sha256: str
    bytes: int


class Contents(Record):
    format: int
    taken: int  # milliseconds UTC
    files: dict[str, BackupMember]


def generation_at(now: int) -> int:
    """Return the first epoch of a ledger that is restored at `now`: its seconds times a million.
    Every earlier copy has lower epochs, because a start uses one epoch, and a second has fewer than
    a million starts.

    Example: a restore at second 1,800,000,000 begins with epoch 1,800,000,000,000,000.
    """
    return now // 1000 * EPOCHS_PER_GENERATION


def take_backup(data: DataFolder, archive: Path, to: Path, *, now: int) -> Contents:
    """Write a backup to the file `to`. On `BadStore`, `BadArchive`, `BadBackup` or `OSError` no
    file is left behind."""
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=to.absolute().parent) as scratch:
        folder = Path(scratch)
        copy_store(data.store, folder / STORE)
        files = {STORE: folder / STORE, **dict(_others(data, archive))}
        unfinished = folder / "backup.tar"
        contents = _write_tar(unfinished, files, now)
        checked = folder / "checked"
        checked.mkdir()
        unpack(unfinished, checked)
        check_folder(checked)
        unfinished.replace(to)
        sync_folder(to.absolute().parent)
    return contents


def copy_store(path: Path, to: Path) -> None:
    """Copy the store as of one moment, even while other processes write to it."""
    try:
        source = open_reader(path)
    except apsw.Error as error:
        raise BadStore(path, f"cannot be read ({error})", sentence(error)) from None
    try:
        source.execute("VACUUM INTO ?", (str(to),))
    except apsw.Error as error:
        raise BadStore(path, f"cannot be copied ({error})", sentence(error)) from None
    finally:
        source.close()
    to.chmod(0o600)


def check_folder(folder: Path) -> None:
    """Check that the store in an unpacked backup is intact, and that every archive segment matches
    its index."""
    store = folder / STORE
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = connection.execute("PRAGMA integrity_check(1)").get
    except apsw.Error as error:
        raise BadStore(store, f"cannot be read ({error})", sentence(error)) from None
    finally:
        connection.close()
    if found != "ok":
        raise BadStore(store, f"is damaged ({found})", "take another backup")
    for index in read_indices(folder / ARCHIVE):
        check_segment(folder / ARCHIVE, index)


def unpack(backup: Path, folder: Path) -> Contents:
    """Extract all files of a backup into an empty folder and check their digests."""
    try:
        with tarfile.open(backup, "r:") as tar:
            contents = _contents(backup, tar)
            for name, member in contents.files.items():
                _unpack_one(backup, tar, folder / _safe(backup, name), name, member)
    except tarfile.TarError as error:
        raise BadBackup(backup, f"is not a backup ({error})", "name another file") from None
    return contents


def _others(data: DataFolder, archive: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name in the backup and the path of each file except the store. Unfinished archive
    segments are left out, because their batches are still in the store."""
    for index in read_indices(archive):
        for file in index.files.values():
            yield f"{ARCHIVE}/{file.name}", archive / file.name
        name = file_name("segment", index.first, index.last)
        yield f"{ARCHIVE}/{name}", archive / name
    for name in SECRETS:
        path = data.root / name
        if path.is_file():
            yield name, path
        elif path.is_dir():
            for each in sorted(path.rglob("*")):
                if each.is_file():
                    yield str(PurePosixPath(*each.relative_to(data.root).parts)), each
    # After a restore, `restored_users` holds the file until the folder is first started.
    users = next((each for each in (data.users, data.restored_users) if each.is_file()), None)
    if users is not None:
        yield data.restored_users.name, users


def _write_tar(to: Path, files: dict[str, Path], now: int) -> Contents:
    descriptor = os.open(to, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as raw:
        with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
            members = {}
            for name, path in files.items():
                members[name] = _add(tar, name, path)
            contents = Contents(format=1, taken=now, files=members)
            encoded = msgspec.json.encode(contents)
            info = tarfile.TarInfo(CONTENTS)
            info.size, info.mode = len(encoded), 0o600
            tar.addfile(info, io.BytesIO(encoded))
        raw.flush()
        os.fsync(raw.fileno())
    return contents


def _add(tar: tarfile.TarFile, name: str, path: Path) -> BackupMember:
    """Add one file and return its size and digest. A small file is read only once, so that the
    digest fits the written bytes even if the file changes. The store is a private copy that does
    not change."""
    info = tarfile.TarInfo(name)
    info.mode = 0o600
    if name == STORE:
        info.size = path.stat().st_size
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            file.seek(0)
            tar.addfile(info, file)
        return BackupMember(sha256=digest, bytes=info.size)
    content = path.read_bytes()
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))
    return BackupMember(sha256=hashlib.sha256(content).hexdigest(), bytes=len(content))


def _contents(backup: Path, tar: tarfile.TarFile) -> Contents:
    try:
        file = tar.extractfile(CONTENTS)
        assert file is not None, "it is a plain file"
        contents = msgspec.json.decode(file.read(), type=Contents)
    except (KeyError, AssertionError, msgspec.DecodeError):
        raise BadBackup(backup, "is not a backup made by leasehold", "name another file") from None
    if contents.format != 1:
        raise BadBackup(backup, "was written by a newer leasehold", "use that newer leasehold")
    return contents


def _safe(backup: Path, name: str) -> PurePosixPath:
    """Return the name as a relative path. Raise `BadBackup` if it leads out of the target
    folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BadBackup(
            backup,
            f"holds a file {name!r}",
            "leasehold did not put this file there; do not use this backup",
        )
    return path


def _unpack_one(
    backup: Path, tar: tarfile.TarFile, path: Path, name: str, member: BackupMember
) -> None:
    try:
        source = tar.extractfile(name)
    except KeyError:
        source = None
    if source is None:
        raise BadBackup(backup, f"lacks {name}", "it is incomplete; use another backup")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    digest, size = hashlib.sha256(), 0
    with os.fdopen(descriptor, "wb") as file:
        while chunk := source.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    if (digest.hexdigest(), size) != (member.sha256, member.bytes):
        raise BadBackup(backup, f"{name} differs from its checksum", "use another backup")


def check_empty(folder: Path) -> None:
    """Raise `BadBackup` if the folder is not empty: a restore never overwrites files."""
    try:
        there = sorted(each.name for each in folder.iterdir())
    except FileNotFoundError:
        return
    if there:
        raise BadBackup(folder, f"is not empty ({there[0]})", "name an empty folder (--data)")
