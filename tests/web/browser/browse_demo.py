"""The demo in a browser: midway and at its end, on every page, in every theme and width."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.web.browser.conftest import PICTURES, Guest, Show
from tests.web.browser.recording import as_svg

AXE = (Path(__file__).parent / "vendored" / "axe.min.js").read_text()
THEMES = ("light", "dark")
WIDTHS = {"phone": (390, 844), "desk": (1280, 900), "wall": (2560, 1440)}
PAGES = {
    "now": "", "fleet": "fleet", "runs": "runs", "run": "runs/safety/redteam", "queue": "queue",
    "budgets": "budgets", "decisions": "decisions", "decision": "", "ledger": "ledger",
    "report": "report", "node": "nodes/h-01", "log": "",
    "runbook": "runbook",
}  # fmt: skip
SAID = {
    "now": "are paid for and running", "fleet": "h-02", "runs": "vision/sweep",
    "run": "its pod moved to the spare on h-02", "queue": "The queue is empty.",
    "budgets": "audio/audio/h100",
    "decisions": "audio/train", "ledger": "leases, pods and balances agree",
    "report": "org:ai:mm:vision", "node": "Fenced",
}  # fmt: skip
GuestOf = Callable[..., Guest]


def decision(guest: Guest) -> str:
    """Return the address of the page of the Resolution with a lottery."""
    page = guest.go("decisions")
    link = page.locator('h2 a[href^="/ui/decisions/"]').first.get_attribute("href")
    assert link is not None
    return link.removeprefix("/ui/")


def log(guest: Guest) -> str:
    """Return the address of the page with a pod's output."""
    page = guest.go(PAGES["run"])
    link = page.get_by_role("link", name="log of").first.get_attribute("href")
    assert link is not None
    return link.removeprefix("/ui/")


def settle(page: Page, name: str) -> None:
    """Wait until scripts have drawn the page and it is live."""
    if name == "fleet":
        expect(page.locator("#fleet[data-drawn]")).to_be_visible()
    if name == "decision":
        expect(page.locator("#verdict .verdict")).to_be_visible()
    expect(page.locator("#live.is-live")).to_be_visible()


def keep(page: Page, name: str, *, for_docs: str = "") -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path, full_page=not for_docs, animations="disabled")
    if for_docs:
        shutil.copy(path, PICTURES / f"docs-{for_docs}.png")


@pytest.mark.deadline(300)
def test_open_pages_show_the_reservation_of_the_demo(show: Show, guest_of: GuestOf) -> None:
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    other = guest_of(show.base, color_scheme="dark")
    other.sign_in(show.link())
    show.reserve()
    page = guest.page
    # Both pages update themselves without a reload.
    expect(page.locator("section", has_text="Starts next")).to_contain_text("audio/train")
    keep(page, "middle-now", for_docs="now")
    line = other.go("queue")
    expect(line.locator("main")).to_contain_text("audio/train")
    keep(line, "middle-queue-dark", for_docs="queue")


@pytest.mark.deadline(600)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_has_no_serious_accessibility_problem(
    show: Show, guest_of: GuestOf, theme: str, width: str
) -> None:
    show.play()
    wide, tall = WIDTHS[width]
    guest = guest_of(show.base, color_scheme=theme, viewport={"width": wide, "height": tall})
    guest.sign_in(show.link())
    findings = []
    for name, place in PAGES.items():
        found = {"decision": decision, "log": log}.get(name)
        page = guest.go(place if found is None else found(guest))
        assert guest.status == 200, name
        settle(page, name)
        keep(page, f"{name}-{width}-{theme}")
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{name} is wider than a {width} by {overflow} pixels"
        findings += [f"{name}: {each}" for each in serious(page)]
    guest.forgiven = ("404",)
    guest.go("none")
    findings += [f"not there: {each}" for each in serious(guest.page)]
    keep(guest.page, f"not-there-{width}-{theme}")
    stranger = guest_of(show.base, color_scheme=theme, viewport={"width": wide, "height": tall})
    stranger.forgiven = ("401",)
    stranger.go("")
    findings += [f"sign in: {each}" for each in serious(stranger.page)]
    keep(stranger.page, f"sign-in-{width}-{theme}")
    assert findings == []


def serious(page: Page) -> list[str]:
    page.evaluate(f"{AXE}; 0")
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {json.dumps([node['html'][:200] for node in each['nodes'][:3]])}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def test_pictures_for_the_documentation_are_taken(show: Show, guest_of: GuestOf) -> None:
    show.play()
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    for name, place in (("run", "runs/safety/redteam"), ("fleet", "fleet"), ("budgets", "budgets"),
                        ("decision", decision(guest))):  # fmt: skip
        page = guest.go(place)
        settle(page, name)
        keep(page, f"for-docs-{name}", for_docs=name)


def test_terminal_recording_shows_waiting_before_start(show: Show, guest_of: GuestOf) -> None:
    """`kubectl runs watch` from before the reservation until after the failure, as a picture for
    the documentation."""
    show.play()
    screens = show.watched.screens()
    told = [terminal.text() for _, terminal in screens]
    waits = next(place for place, text in enumerate(told) if "Pending" in text)
    starts = [place for place, text in enumerate(told) if "train" in text and "Pending" not in text]
    assert max(starts) > waits, told
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / "docs-watch.svg"
    path.write_text(as_svg("kubectl runs watch -A", screens), encoding="utf-8")
    guest = guest_of("file://")
    page = guest.page
    page.goto(path.as_uri())
    assert page.evaluate("document.getAnimations().length") == len(screens)
    page.evaluate(
        "document.getAnimations().forEach(each => { each.pause(); each.currentTime = 1 })"
    )
    expect(page.locator("g.f0 text").first).to_be_visible()


@pytest.mark.parametrize("name", [each for each in PAGES if each in SAID])
def test_page_can_be_read_without_scripts(show: Show, guest_of: GuestOf, name: str) -> None:
    show.play()
    guest = guest_of(show.base, java_script_enabled=False)
    guest.sign_in(show.link())
    page = guest.go(PAGES[name])
    assert guest.status == 200
    expect(page.locator("main")).to_contain_text(SAID[name])


def test_browser_repeats_the_draw_and_refuses_a_forged_record(
    show: Show, guest_of: GuestOf
) -> None:
    show.play()
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    page = guest.go(decision(guest))
    verdict, record = page.locator("#verdict"), page.locator("#record")
    expect(verdict).to_contain_text("Verified in this browser: this is the committed record")
    expect(verdict).to_contain_text("whose own digest follows from the one before")
    expect(page.locator("#draws tbody tr")).to_have_count(1)
    wire = json.loads(record.input_value())
    (drawn,) = wire["lottery"]["draws"]
    owner, bundles = next(
        each for each in wire["lottery"]["conflictSet"].items() if each[0] != drawn["owner"]
    )
    wire["lottery"]["draws"] = [{**bundles[0], "owner": owner}]
    record.fill(json.dumps(wire, separators=(",", ":"), sort_keys=True))
    page.click("#check")
    expect(verdict).to_contain_text("Rejected")
    expect(verdict).to_contain_text(f"the seed draws {drawn['bundle']} of {drawn['owner']}")
    page.click("#restore")
    expect(verdict).to_contain_text("Verified in this browser")
    wire["lottery"]["derivedFrom"]["nonce"] = "00" * 32
    record.fill(json.dumps(wire, separators=(",", ":"), sort_keys=True))
    page.click("#check")
    expect(verdict).to_contain_text("the commitment is not the SHA-256 of the nonce")


def test_browser_verifies_the_chain_and_refuses_a_forged_batch(
    show: Show, guest_of: GuestOf
) -> None:
    show.play()
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    page = guest.go("ledger")
    page.click("#verify")
    expect(page.locator("#verdict")).to_contain_text("each follows from the one before")

    def forge(route: object) -> None:
        answer = route.fetch()  # type: ignore[attr-defined]
        body = answer.text().replace('\\"gpus\\":', '\\"gpus\\": ', 1)
        route.fulfill(response=answer, body=body)  # type: ignore[attr-defined]

    page.route("**/ui/ledger.json*", forge)
    page.click("#verify")
    expect(page.locator("#verdict")).to_contain_text("Rejected: the chain is broken")


def test_fleet_slider_shows_the_past_and_returns_to_now(show: Show, guest_of: GuestOf) -> None:
    show.play()
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    page = guest.go("fleet")
    settle(page, "fleet")
    drawn = page.locator("#fleet").get_attribute("data-drawn")
    assert drawn is not None
    page.locator("#slider").fill("100")
    expect(page.locator("#fleet")).not_to_have_attribute("data-drawn", drawn)
    assert "at=20" in page.url
    keep(page, "fleet-past")
    page.reload()
    settle(page, "fleet")
    expect(page.locator("h1")).to_contain_text(", at ")
    page.click("#to-now")
    expect(page.locator("#slider-at")).to_have_text("now")
    assert "at=" not in page.url


def test_fleet_can_be_navigated_by_keyboard(show: Show, guest_of: GuestOf) -> None:
    show.play()
    guest = guest_of(show.base)
    guest.sign_in(show.link())
    page = guest.go("fleet")
    settle(page, "fleet")
    page.locator("#fleet").focus()
    page.keyboard.press("Home")
    expect(page.locator("#said")).to_contain_text("a-00")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#said")).to_contain_text("a-01")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/nodes/a-01")


def test_chosen_theme_is_kept_after_reload(show: Show, guest_of: GuestOf) -> None:
    guest = guest_of(show.base, color_scheme="light")
    guest.sign_in(show.link())
    page = guest.go("")
    paper = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(paper)
    page.click("#theme")
    after = page.evaluate(paper)
    page.reload()
    assert page.evaluate(paper) == after != before
