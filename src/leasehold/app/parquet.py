"""Writes a table as a Parquet file with typed columns. This needs duckdb, an optional dependency.

Called by `report` and the dashboard. duckdb is imported only when it is needed.
"""

import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from leasehold.app.failure import Failure

Column = tuple[str, str]  # (name, SQL type)


class _Connection(Protocol):
    def execute(self, sql: str) -> object: ...

    def close(self) -> None: ...


class _Duckdb(Protocol):
    Error: type[Exception]

    def connect(self, database: str) -> _Connection: ...


def load() -> _Duckdb:
    """Import and return duckdb; raise `Failure` if it is not installed."""
    try:
        return cast("_Duckdb", import_module("duckdb"))
    except ImportError:
        raise Failure(
            "Parquet needs duckdb, which is not installed: pip install 'leasehold[parquet]', "
            "or use -o csv"
        ) from None


def write_parquet(duckdb: _Duckdb, columns: Sequence[Column], text: str, file: str) -> None:
    """Write a Parquet file completely or not at all; an existing file is replaced.

    `text`: the table as CSV with a header line. Empty cells become null.
    """
    coming = Path(f"{file}.coming")
    connection = duckdb.connect(":memory:")
    try:
        coming.open("wb").close()  # fails early, with the system's message
        with tempfile.NamedTemporaryFile("w", suffix=".csv", encoding="utf-8") as rows:
            rows.write(text)
            rows.flush()
            types = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in columns)
            table = f"read_csv({_quoted(rows.name)}, header = true, columns = {{{types}}})"
            connection.execute(f"COPY (FROM {table}) TO {_quoted(str(coming))} (FORMAT parquet)")
        coming.replace(file)
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
    except duckdb.Error as error:
        raise Failure(f"cannot write {file}: {str(error).splitlines()[0]}") from None
    finally:
        connection.close()
        coming.unlink(missing_ok=True)


def parquet_bytes(duckdb: _Duckdb, columns: Sequence[Column], text: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        path = Path(folder) / "sheet.parquet"
        write_parquet(duckdb, columns, text, str(path))
        return path.read_bytes()


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"
