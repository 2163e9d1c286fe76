"""Names of runs, labels and owners, and the output of jobs, are shown as text on every page."""

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import expect
from tests.web.browser.conftest import Guest
from tests.web.browser.hostile import Hostile

GuestOf = Callable[..., Guest]
TEXTS = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(2)>'",
    "</textarea></pre></title><svg onload=alert(3)>",
    "javascript:alert(4)//",
    "{{7*7}}{% raw %}<b onmouseover=alert(5)>",
)
# Links that lead to another host, and elements that no template has; both must be empty.
LINKS = """[...document.querySelectorAll('a[href]')].map(each => each.href)
    .filter(each => !each.startsWith(location.origin + '/ui'))"""
FRESH = """() => { window.fresh = new Promise(done => document.addEventListener(
    'leasehold:fresh', () => done(1), { once: true })) }"""
STRANGERS = """[...document.querySelectorAll(`main script, main img, main iframe, main style,
    main b[onmouseover], main svg[onload], main [onerror]`)].map(each => each.outerHTML)"""


@pytest.fixture(params=TEXTS, ids=[str(place) for place in range(len(TEXTS))])
def hostile(request: pytest.FixtureRequest) -> Iterator[Hostile]:
    found = Hostile(request.param)
    yield found
    found.stop()


@pytest.mark.deadline(300)
def test_hostile_text_in_every_answer_is_shown_as_text(hostile: Hostile, guest_of: GuestOf) -> None:
    guest = guest_of(hostile.base)
    guest.sign_in(hostile.link())
    page, name = guest.page, quote(hostile.text, safe="")
    for place in (
        "", "fleet", "fleet?colour=state", "runs", f"runs/{name}/{name}", "queue", "budgets",
        "decisions", f"decisions/{name}", "ledger", "report?by=run", "report?by=node",
        f"nodes/{name}", f"runs/{name}/{name}/logs/{name}", f"runs?find={name}",
    ):  # fmt: skip
        guest.go(place)
        assert guest.status == 200, place
        expect(page.locator("body")).to_contain_text(hostile.text)
        if place.startswith("fleet"):
            expect(page.locator("#fleet[data-drawn]")).to_be_visible()
            page.locator("#fleet").focus()
            page.keyboard.press("Home")
            expect(page.locator("#said")).to_contain_text(hostile.text)
        if place.startswith("decisions/"):
            expect(page.locator("#verdict")).to_contain_text("Rejected")
        # The same page again, fetched and replaced by our script.
        expect(page.locator("#live.is-live")).to_be_visible()
        page.evaluate(FRESH)
        hostile.change()
        page.evaluate("() => window.fresh")
        assert page.evaluate(LINKS) == [], place
        assert page.evaluate(STRANGERS) == [], place
    page.goto("about:blank")
