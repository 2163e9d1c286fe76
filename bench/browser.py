"""`make bench-web`: the fleet page of the benchmarks' fleet in a real browser.

Measures until the page is drawn, until it responds, and until it shows a change. Times are wall
seconds of Chromium and the server together on this machine. A process of its own serves the page
over loopback, as `leasehold up` does. Writes `build/bench-web.json`.
"""

import asyncio
import json
import multiprocessing
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Protocol

import uvicorn

from bench.web import DIGEST, WebBench, change

NODES = 10_000
CHANGES = 5
CHANGE_S = 2.0  # between two; what is timed begins when one is committed
OUT = Path("build/bench-web.json")
CHROMIUM = "/usr/bin/chromium"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run")
TARGETS = {
    "browser_fleet_drawn_s": "< 2",
    "browser_fleet_interactive_s": "< 2",
    "browser_change_drawn_s": "< 1",
    "browser_past_drawn_s": "",
    "browser_long_task_ms": "",
}
# Two times since the page was requested: its canvas is drawn, and it has responded to a key.
DRAWN = """() => new Promise(done => {
  const canvas = document.getElementById('fleet');
  const look = () => canvas.dataset.drawn ? done(performance.now()) : requestAnimationFrame(look);
  look();
})"""
ANSWERED = """() => new Promise(done => {
  const canvas = document.getElementById('fleet'), said = document.getElementById('said');
  new MutationObserver(() => done(performance.now())).observe(said, { childList: true });
  canvas.focus();
  canvas.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }));
})"""
NEXT_DRAW = """() => new Promise(done => {
  const canvas = document.getElementById('fleet');
  new MutationObserver(() => done(Date.now())).observe(canvas, { attributeFilter: ['data-drawn'] });
})"""


class _Page(Protocol):
    """What the benchmark uses of a Playwright page. Playwright is only installed for `make
    bench-web`, so its types cannot be imported here."""

    def evaluate(self, expression: str) -> float: ...

    def wait_for_timeout(self, timeout: float) -> None: ...


def _serve(listener: socket.socket, told: Connection) -> None:
    """Serve the pages, in a process of its own. Send through `told` the sign-in code first, and
    later the instant of each change."""

    async def run() -> None:
        bench = WebBench(NODES)
        config = uvicorn.Config(bench.pages, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        told.send(bench.door.sessions.new_code(DIGEST))
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        loop, number = asyncio.get_running_loop(), 0
        while await loop.run_in_executor(None, told.recv):
            change(bench.world, number)
            bench.news.note()
            number += 1
            told.send(loop.time())
        server.should_exit = True
        bench.news.end()
        await serving

    asyncio.run(run())


@contextmanager
def _served() -> Iterator[tuple[str, Connection]]:
    context = multiprocessing.get_context("spawn")
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(listener, theirs))
    process.start()
    try:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}/ui"
        yield f"{base}/sign-in?code={ours.recv()}", ours
    finally:
        ours.send(False)
        process.join(30)
        listener.close()


def measure() -> dict[str, float]:
    sync_playwright = import_module("playwright.sync_api").sync_playwright
    with _served() as (link, server), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        base = link.partition("/sign-in")[0]
        page.goto(link)
        page.wait_for_url(f"{base}/")
        page.add_init_script(
            "window.long = 0; new PerformanceObserver(list => { for (const each of "
            "list.getEntries()) window.long = Math.max(window.long, each.duration) })"
            ".observe({ entryTypes: ['longtask'] })"
        )
        drawn, interactive = [], []
        for _ in range(3):
            page.goto(f"{base}/fleet", wait_until="commit")
            drawn.append(page.evaluate(DRAWN))
            interactive.append(page.evaluate(ANSWERED))
        found = {
            "browser_fleet_drawn_s": max(drawn) / 1000,
            "browser_fleet_interactive_s": max(interactive) / 1000,
            "browser_long_task_ms": page.evaluate("window.long"),
            "browser_change_drawn_s": _changes(page, server),
        }
        page.locator("#slider").evaluate(
            "each => { window.began = Date.now(); each.value = 500; "
            "each.dispatchEvent(new Event('input')) }"
        )
        found["browser_past_drawn_s"] = (
            page.evaluate(f"async () => (await ({NEXT_DRAW})()) - window.began") / 1000
        )
        browser.close()
    return found


def _changes(page: _Page, server: Connection) -> float:
    """Return the longest time from a change on the server until the page has drawn it."""
    longest = 0.0
    for _ in range(CHANGES):
        page.wait_for_timeout(CHANGE_S * 1000)
        began = page.evaluate(f"() => {{ window.next = ({NEXT_DRAW})(); return Date.now() }}")
        server.send(True)
        server.recv()
        longest = max(longest, (page.evaluate("window.next") - began) / 1000)
    return longest


def main() -> None:
    found = measure()
    for name, target in TARGETS.items():
        print(f"{name:32} {found[name]:10,.2f}  {target}")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({name: round(each, 3) for name, each in found.items()}) + "\n")


if __name__ == "__main__":
    main()
