"""A TCP proxy to the API server that can be cut like a network partition: connections stay open,
but no more bytes arrive."""

import asyncio

from tests.beside import Beside
from tests.kubernetes.closing import finish_accepting


class Partition(Beside):
    """Listens on loopback and passes on all bytes, TLS included."""

    def __init__(self, port: int) -> None:
        """`port`: the server's."""
        self._server = port
        self._passes: asyncio.Event  # set while it passes on
        super().__init__()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """Stop passing on bytes in both directions, from when this returns."""
        self.do(self._passes.clear)

    def heal(self) -> None:
        """Pass on bytes again, first those that were sent while the partition was cut."""
        self.do(self._passes.set)

    async def _live(self) -> None:
        self._passes = asyncio.Event()
        self._passes.set()
        self._links: set[asyncio.Task[None]] = set()
        listening = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._port = listening.sockets[0].getsockname()[1]
        self._is_up.set()
        try:
            await asyncio.Event().wait()
        finally:
            await finish_accepting(listening.sockets[0])
            listening.close()
            for link in list(self._links):
                link.cancel()
            await asyncio.gather(*self._links, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            await self._passes.wait()
            there, back = await asyncio.open_connection("127.0.0.1", self._server)
            try:
                ways = (self._pass_on(reader, back), self._pass_on(there, writer))
                await asyncio.gather(*ways)
            finally:
                back.close()
        except OSError:
            pass  # one of the two ends has closed the connection
        finally:
            self._links.discard(link)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on bytes until the sender closes; while cut, bytes that were read wait."""
        while piece := await reader.read(1 << 16):
            await self._passes.wait()
            writer.write(piece)
            await writer.drain()
        await self._passes.wait()
        if writer.can_write_eof():
            writer.write_eof()
