"""The log port of simulated kubelets, which the API server asks for what pods print."""

import asyncio
import json
import socket
import ssl
from pathlib import Path

from aiohttp import web
from tests.beside import Beside
from tests.kubernetes.closing import close_all
from tests.kubernetes.cluster import Cluster

from leasehold.adapters.http.tls import ensure_certificates


class KubeletLogs(Beside):
    """Serves one log line with the pod's name for every container of every node."""

    def __init__(self, cluster: Cluster, folder: Path, nodes: list[str]) -> None:
        made = ensure_certificates(folder / "kubelet-tls", [])
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._trust.load_cert_chain(made.cert_path, made.key_path)
        super().__init__()
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

    async def _live(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        listening = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(runner, listening, ssl_context=self._trust).start()
        self._port = listening.getsockname()[1]
        self._is_up.set()
        try:
            await asyncio.Event().wait()
        finally:
            await close_all(runner, listening)

    async def _log(self, request: web.Request) -> web.Response:
        return web.Response(text=f"hello from {request.match_info['pod']}\n")
