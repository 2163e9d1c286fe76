"""Fixtures: a real Chromium, and the servers that it visits."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from demo.__main__ import BUDGETS, elastic, failure, gang, reservation
from demo.__main__ import lottery as by_lot
from demo.stage import BIN, Stage
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.web.browser.recording import Recording
from tests.web.browser.server import Up

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / "build" / "web"
CHROMIUM = "/usr/bin/chromium"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 40_000  # enough for a busy machine
expect.set_options(timeout=PATIENCE_MS)  # the default is five seconds


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser with an empty profile."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


class Guest:
    """A browser window that records everything that goes wrong in it."""

    def __init__(self, browser: Browser, base: str, **options: object) -> None:
        self.base = base
        self.context: BrowserContext = browser.new_context(
            ignore_https_errors=True,
            **{"viewport": {"width": 1280, "height": 900}, **options},  # type: ignore[arg-type]
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self.page.on("dialog", self._opened)
        self.forgiven: tuple[str, ...] = ()

    def _heard(self, message: object) -> None:
        if getattr(message, "type", "") in ("error", "warning"):
            text = str(getattr(message, "text", ""))
            if not any(each in text for each in self.forgiven):
                self.wrong.append(f"console: {text}")

    def _asked(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if urlsplit(url).netloc != urlsplit(self.base).netloc:
            self.wrong.append(f"asks another host: {url}")

    def _opened(self, dialog: object) -> None:
        self.wrong.append("a foreign script ran")
        dialog.dismiss()  # type: ignore[attr-defined]

    def sign_in(self, link: str) -> None:
        self.page.goto(link)
        self.page.wait_for_url(f"{self.base}/ui/")

    def go(self, path: str) -> Page:
        answer = self.page.goto(f"{self.base}/ui/{path}")
        assert answer is not None
        self.status = answer.status
        return self.page


class Show:
    """The demo, in two parts: until the reservation, and to the end."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        self.stage.open()
        self.stage.runs("submit", "-f", BUDGETS)
        gang(self.stage)
        elastic(self.stage)
        self.is_reserved = self.is_played = False
        command = [BIN / "kubectl-runs", "watch", "-A", "--interval", "0.5"]
        env = {**os.environ, "KUBECONFIG": str(self.stage.data / "kubeconfig")}
        self.watched = Recording(command, env)

    @property
    def base(self) -> str:
        return self.link().partition("/ui/")[0]

    def link(self) -> str:
        return self.stage.printed("ui").strip()

    def reserve(self) -> None:
        self.is_reserved = True
        reservation(self.stage)

    def play(self) -> None:
        """Play the demo to its end, unless an earlier test has done so."""
        if not self.is_reserved:
            self.reserve()
        if not self.is_played:
            by_lot(self.stage)
            failure(self.stage)
            self.is_played = True
            self.watched.stop()

    def close(self) -> None:
        if not self.is_played:
            self.watched.stop()
        self.stage.close()


@pytest.fixture(scope="session")
def show(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Show]:
    found = Show(tmp_path_factory.mktemp("demo") / "stage")
    yield found
    found.close()


@pytest.fixture
def guest_of(browser: Browser) -> Iterator[Callable[..., Guest]]:
    guests: list[Guest] = []

    def make(base: str, **options: object) -> Guest:
        guests.append(Guest(browser, base, **options))
        return guests[-1]

    yield make
    for each in guests:
        each.context.close()
    assert [wrong for each in guests for wrong in each.wrong] == []


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    found = Up(tmp_path, "--gpus", "8")
    yield found
    found.close()
