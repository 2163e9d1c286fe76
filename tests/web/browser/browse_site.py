"""The documentation site: every diagram is drawn, and no other host is asked for anything."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.web.browser.conftest import PICTURES, ROOT, Guest

DOCS = ROOT / "docs"
DRAWN = sorted(
    path.relative_to(DOCS).with_suffix("").as_posix()
    for path in DOCS.rglob("*.md")
    if "```mermaid" in path.read_text()
)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    build = [Path(sys.executable).parent / "zensical", "build", "--strict"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    handler = partial(Quiet, directory=str(ROOT / "build" / "site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", DRAWN)
def test_every_diagram_of_a_page_is_drawn(
    site: str, guest_of: Callable[..., Guest], name: str
) -> None:
    guest = guest_of(site)
    page = guest.page
    page.goto(f"{site}/{'' if name == 'index' else name + '/'}")
    wanted = (DOCS / f"{name}.md").read_text().count("```mermaid")
    # Each diagram is put into its own shadow DOM, so only the containers can be counted.
    expect(page.locator("div.mermaid")).to_have_count(wanted)
    expect(page.locator("pre.mermaid")).to_have_count(0)
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"site-{name.replace('/', '-')}.png", full_page=name == "index")


def test_vendored_mermaid_matches_its_listed_hash() -> None:
    listed = (DOCS / "decisions" / "0023-pages-without-a-framework.md").read_text()
    found = hashlib.sha256((DOCS / "assets" / "mermaid.tiny.js").read_bytes()).hexdigest()
    assert found in listed
