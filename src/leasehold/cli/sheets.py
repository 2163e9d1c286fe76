"""Sheets of the dashboard as Parquet, written beside the control loop and not in it.

Called by whoever puts a House together. duckdb is looked for at the start and loaded when somebody
first asks, since it is large and most never do.
"""

import asyncio
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.parquet import load, parquet_bytes
from leasehold.web.house import NotShown
from leasehold.web.sheet import Sheet


def parquet_writer() -> Callable[[Sheet], Awaitable[bytes]] | None:
    """None where duckdb is missing."""
    if find_spec("duckdb") is None:
        return None
    one = asyncio.Lock()  # duckdb takes all cores that it finds

    async def write(sheet: Sheet) -> bytes:
        try:
            async with one:
                return await asyncio.to_thread(_written, sheet)
        except Failure as failure:
            raise NotShown(500, failure.message) from None

    return write


def _written(sheet: Sheet) -> bytes:
    return parquet_bytes(load(), sheet.columns, sheet.csv())
