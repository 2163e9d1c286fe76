"""What pods print, where nobody runs them: the port of a kubelet at which the API server asks."""

import asyncio
import json
import ssl
import threading
from pathlib import Path

from aiohttp import web
from tests.kubernetes.cluster import Cluster

from leasehold.adapters.http.tls import ensure_certificates

DEADLINE_S = 30


class KubeletLogs:
    """Every container of every node has printed the same line, with its pod's name."""

    def __init__(self, cluster: Cluster, folder: Path, nodes: list[str]) -> None:
        made = ensure_certificates(folder / "kubelet-tls", [])
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._trust.load_cert_chain(made.cert_path, made.key_path)
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._is_up.wait(DEADLINE_S)
        change = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        for node in nodes:
            cluster.client.ask(
                "PATCH",
                f"/api/v1/nodes/{node}/status",
                json.dumps({"status": change}).encode(),
                headers={"Content-Type": "application/merge-patch+json"},
            )

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(DEADLINE_S)

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
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._trust).start()
        self._port = runner.addresses[0][1]
        self._is_up.set()
        try:
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    async def _log(self, request: web.Request) -> web.Response:
        return web.Response(text=f"hello from {request.match_info['pod']}\n")
