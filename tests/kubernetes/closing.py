"""How the tests' servers stop without leaving anything open."""

import asyncio
import gc
import socket
import warnings

from aiohttp import web


async def finish_accepting(listening: socket.socket) -> None:
    """Stop accepting connections, and wait until the server knows those that it has accepted.

    If a server is closed in the turn that accepts a connection, asyncio leaves that connection
    open.
    """
    asyncio.get_running_loop().remove_reader(listening.fileno())
    await asyncio.sleep(0)  # the connection gets a transport ...
    await asyncio.sleep(0)  # ... the server is notified of it ...
    await asyncio.sleep(0)  # ... and so is the code that waits for connections


async def close_all(runner: web.AppRunner, listening: socket.socket) -> None:
    """Close every connection and cancel every request.

    The runner alone does not close a connection that is accepted meanwhile or whose client does
    not read, and does not end a request whose client has gone.
    """
    await finish_accepting(listening)
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
    """Collect connections that a killed server has left, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
