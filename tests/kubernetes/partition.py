"""A way to the API server that can be cut: bytes of every connection are passed on, until they are
not. Nobody is told: connections stay open, and nothing comes any more."""

import asyncio
import threading

DEADLINE_S = 30


class Partition:
    """Listens on loopback and passes on whatever it is sent, TLS included."""

    def __init__(self, port: int) -> None:
        """`port`: the server's."""
        self._server = port
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._passes: asyncio.Event  # set while it passes on
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._is_up.wait(DEADLINE_S), "the way to the server does not come up"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def cut(self) -> None:
        """From when this returns nothing gets through, either way."""
        self._do(self._passes.clear)

    def heal(self) -> None:
        """What was sent meanwhile arrives late."""
        self._do(self._passes.set)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(DEADLINE_S)

    def _do(self, action: object) -> None:
        async def act() -> None:
            action()  # type: ignore[operator]

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(DEADLINE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

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
            # asyncio drops an accepted connection, open, if its server is closed in the same turn
            self._loop.remove_reader(listening.sockets[0].fileno())
            await asyncio.sleep(0)  # who was just accepted gets a transport ...
            await asyncio.sleep(0)  # ... which tells of it ...
            await asyncio.sleep(0)  # ... and is among the links
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
