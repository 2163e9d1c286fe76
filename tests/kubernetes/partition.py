"""A way to the API server that can be cut: bytes of every connection are passed on, until they are
not. Nobody is told: connections stay open, and nothing comes any more."""

import asyncio

from tests.beside import Beside
from tests.kubernetes.closing import hear_of_the_last


class Partition(Beside):
    """Listens on loopback and passes on whatever it is sent, TLS included."""

    def __init__(self, port: int) -> None:
        """`port`: the server's."""
        self._server = port
        self._passes: asyncio.Event  # set while it passes on
        super().__init__()

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """From when this returns nothing gets through, either way."""
        self.do(self._passes.clear)

    def heal(self) -> None:
        """What was sent meanwhile arrives late."""
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
            await hear_of_the_last(listening.sockets[0])
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
            pass  # one of the two has gone
        finally:
            self._links.discard(link)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until whoever sends has nothing more to send; what is read behind a cut waits for it to
        be healed."""
        while piece := await reader.read(1 << 16):
            await self._passes.wait()
            writer.write(piece)
            await writer.drain()
        await self._passes.wait()
        if writer.can_write_eof():
            writer.write_eof()
