"""Opens a store's file: settings, application id, schema version, and integrity.

Called by `store` and `shared`, which hold the lock of `lock`. The tables:

    objects   every object in its current state
    history   the latest changes of each kind, for watches
    meta      version (of the last change), created (total number), prefix (of the uids),
              forgotten/KIND (the newest version dropped from that kind's `history`)
"""

import secrets
from collections.abc import Callable
from pathlib import Path

import apsw

from leasehold.adapters.sqlite.errors import FATAL, BadStore, remedy_of_damage, sentence
from leasehold.adapters.sqlite.wal import hidden_commits, log_of

APPLICATION = 0x6C656173  # "leas": SQLite's application id
BUSY_MS = 1_000
PREFIX_BYTES = 4


def _tables(connection: apsw.Connection) -> None:
    connection.execute("""
        CREATE TABLE objects(
            kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
            version INTEGER NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY(kind, namespace, name)
        ) STRICT;
        CREATE TABLE history(
            version INTEGER PRIMARY KEY, kind TEXT NOT NULL, event TEXT NOT NULL,
            body BLOB NOT NULL
        ) STRICT;
        CREATE INDEX history_of_kind ON history(kind, version);
        CREATE TABLE meta(key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID;
        INSERT INTO meta VALUES ('version', 0), ('created', 0);
    """)


# The function at index n migrates a file from schema n to n + 1; released ones never change.
MIGRATIONS: tuple[Callable[[apsw.Connection], None], ...] = (_tables,)


def open_file(path: Path, *, prefix: str | None) -> apsw.Connection:
    """Check the file and return a connection to it; create the file if it is missing. Raise
    `BadStore` if the file is damaged or of another schema.

    `prefix` is used only for a new file; by default it is random.
    """
    try:
        connection = apsw.Connection(str(path))
    except apsw.Error as error:
        raise BadStore(
            path, f"cannot be opened ({error})", "check its folder and permissions"
        ) from error
    try:
        # Closing the last connection would checkpoint the log: not before it is verified.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        _check_owner(connection, path)
        _check_log(connection, path)
        _check_soundness(connection, path)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        _settle(connection, path)
        _migrate(connection)
        _name_uids(connection, prefix or secrets.token_hex(PREFIX_BYTES))
    except apsw.Error as error:
        connection.close()
        remedy = remedy_of_damage(path) if isinstance(error, FATAL) else sentence(error)
        raise BadStore(path, f"cannot be used ({error})", remedy) from error
    except BadStore:
        connection.close()
        raise
    return connection


def open_another(path: Path, *, prefix: str | None) -> apsw.Connection:  # noqa: ARG001 - is named
    """Open a file that another process has opened with `open_file` and still has open. The checks
    of `open_file` are not repeated, because the other process may be writing."""
    try:
        connection = apsw.Connection(str(path))
        _check_owner(connection, path)
        _settle(connection, path)
    except apsw.Error as error:
        raise BadStore(path, f"cannot be used ({error})", sentence(error)) from error
    return connection


def open_reader(path: Path) -> apsw.Connection:
    """Open a read-only connection to a file that `open_file` has checked."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(BUSY_MS)
    return connection


def _check_owner(connection: apsw.Connection, path: Path) -> None:
    """Raise `BadStore` if the file is read-only, belongs to another program, or was written by a
    newer leasehold. Nothing was changed in the file before this check."""
    connection.set_busy_timeout(BUSY_MS)
    if connection.readonly("main"):
        remedy = "check the permissions of the file, its folder and its mount"
        raise BadStore(path, "cannot be written", remedy)
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    owner, schema = connection.pragma("application_id"), connection.pragma("user_version")
    if owner != APPLICATION and (tables or owner):
        raise BadStore(path, "is a database of another program", "name another file")
    if schema > len(MIGRATIONS):
        why = f"was written by a newer leasehold (schema {schema}; this version knows "
        why += f"{len(MIGRATIONS)})"
        raise BadStore(path, why, "start that newer leasehold, or restore an older backup")


def _check_log(connection: apsw.Connection, path: Path) -> None:
    """Raise `BadStore` if the write-ahead log has commits after a damaged part, which SQLite would
    silently drop."""
    _, frames, _ = connection.execute("PRAGMA wal_checkpoint(NOOP)").get
    hidden = hidden_commits(log_of(path), connection.pragma("page_size"), frames=max(frames, 0))
    if hidden:
        why = f"is damaged (its log has {hidden} commits after a place that cannot be read)"
        raise BadStore(path, why, remedy_of_damage(path))


def _check_soundness(connection: apsw.Connection, path: Path) -> None:
    found = connection.execute("PRAGMA quick_check(1)").get
    if found != "ok":
        raise BadStore(path, f"is damaged ({found})", remedy_of_damage(path))


def _settle(connection: apsw.Connection, path: Path) -> None:
    mode = connection.pragma("journal_mode", "wal")
    if mode != "wal":
        why = f"cannot use a write-ahead log (SQLite chose {mode})"
        raise BadStore(path, why, "put it on a local disk")
    connection.pragma("synchronous", 2)  # FULL: a commit is on disk when it returns
    connection.pragma("fullfsync", 1)  # where fsync alone leaves data in the drive's cache


def _migrate(connection: apsw.Connection) -> None:
    """Run the missing migration steps. Each has a transaction of its own, which also records its
    number."""
    schema = connection.pragma("user_version")
    for number, step in enumerate(MIGRATIONS[schema:], start=schema + 1):
        with connection:
            step(connection)
            connection.pragma("application_id", APPLICATION)
            connection.pragma("user_version", number)


def _name_uids(connection: apsw.Connection, prefix: str) -> None:
    """Store the uid prefix unless the file has one. The prefix never changes, so a uid names the
    same object for ever."""
    connection.execute("INSERT INTO meta VALUES ('prefix', ?) ON CONFLICT DO NOTHING", (prefix,))
