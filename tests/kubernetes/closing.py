"""How servers of tests end: with nothing left open."""

import asyncio
import gc
import socket
import warnings

from aiohttp import web


async def hear_of_the_last(listening: socket.socket) -> None:
    """Accept nobody any more; whoever was just accepted is known afterwards. asyncio drops an
    accepted connection, open, if its server is closed in the same turn."""
    asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)  # it gets a transport ...
    await asyncio.sleep(0)  # ... and the server hears of it ...
    await asyncio.sleep(0)  # ... and who waits for connections, too


async def close_all(runner: web.AppRunner, listening: socket.socket) -> None:
    """Whatever is open. What the runner closes by itself is not all: neither a connection that is
    accepted meanwhile, nor one whose client does not read, nor a request whose client has gone."""
    await hear_of_the_last(listening)
    assert runner.server is not None
    for connection in runner.server.connections:
        if connection.transport is not None:
            connection.transport.abort()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await runner.cleanup()


def sweep() -> None:
    """Lets go of connections that whoever was killed has left, without a word about them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
