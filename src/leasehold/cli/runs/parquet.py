"""A table as a Parquet file with typed columns, through duckdb, which is an extra of leasehold.

Called by `report`. duckdb is only imported when somebody asks for Parquet.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from leasehold.cli.runs.failure import Failure

Column = tuple[str, str]  # name, type of SQL


class _Connection(Protocol):
    def execute(self, sql: str) -> object: ...

    def executemany(self, sql: str, rows: Sequence[Sequence[object]]) -> object: ...

    def close(self) -> None: ...


def connect() -> _Connection:
    """Raises `Failure` where duckdb is missing."""
    try:
        duckdb = import_module("duckdb")
    except ImportError:
        raise Failure(
            "Parquet needs duckdb, which is not installed: pip install 'leasehold[parquet]', "
            "or use -o csv"
        ) from None
    return cast("_Connection", duckdb.connect(":memory:"))


def write_parquet(
    connection: _Connection, columns: Sequence[Column], rows: Sequence[Sequence[object]], file: str
) -> None:
    """Whole or not at all; an older file of that name is replaced."""
    coming = Path(f"{file}.coming")
    names = ", ".join(f'"{name}" {kind}' for name, kind in columns)
    connection.execute(f"CREATE TABLE report ({names})")
    if rows:
        marks = ", ".join("?" for _ in columns)
        connection.executemany(f"INSERT INTO report VALUES ({marks})", rows)
    try:
        coming.open("wb").close()  # whose errors are the system's own words
        quoted = str(coming).replace("'", "''")
        connection.execute(f"COPY report TO '{quoted}' (FORMAT parquet)")
        coming.replace(file)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
    finally:
        connection.close()
        coming.unlink(missing_ok=True)
