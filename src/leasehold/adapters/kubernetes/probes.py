"""The controller's HTTP endpoints for kubelet and Prometheus: liveness, readiness and metrics."""

from collections.abc import Callable, Mapping

from aiohttp import web


async def serve_probes(
    host: str, port: int, *, troubles: Callable[[], Mapping[str, str]], metrics: Callable[[], bytes]
) -> web.AppRunner:
    """Start serving, and return the server's runner; the caller must call its `cleanup` to stop.
    The liveness probe passes as long as the server answers at all."""

    async def alive(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        said = [f"{part}: {why}" for part, why in troubles().items() if why]
        return web.Response(text="\n".join(said or ["ok"]) + "\n", status=503 if said else 200)

    async def figures(_: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/livez", alive)
    app.router.add_get("/readyz", ready)
    app.router.add_get("/metrics", figures)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner
