"""Writes the dashboard's tables as Parquet files, in a thread beside the control loop.

At the start it is only checked that duckdb is installed. It is loaded at the first use, because it
is large and rarely needed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from leasehold.app.failure import Failure
from leasehold.app.parquet import load, parquet_bytes
from leasehold.web.dependencies import NotShown
from leasehold.web.sheet import Sheet


def parquet_writer() -> Callable[[Sheet], Awaitable[bytes]] | None:
    """Return a function that writes a table as Parquet; None if duckdb is not installed."""
    if find_spec("duckdb") is None:
        return None
    one = asyncio.Lock()  # duckdb uses all cores

    async def write(sheet: Sheet) -> bytes:
        try:
            async with one:
                return await asyncio.to_thread(_written, sheet)
        except Failure as failure:
            raise NotShown(500, failure.message) from None

    return write


def _written(sheet: Sheet) -> bytes:
    return parquet_bytes(load(), sheet.columns, sheet.csv())
