"""Signing in, live updates, reconnecting to a restarted server, and hostile text."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from demo.stage import default_signals
from playwright.sync_api import expect
from tests.web.browser.conftest import Guest
from tests.web.browser.server import Up

GuestOf = Callable[..., Guest]
TEAM = """
apiVersion: v1
kind: Namespace
metadata: {name: vision}
---
apiVersion: rq.davidlangworthy.io/v1
kind: Budget
metadata: {name: vision, namespace: vision}
spec: {owner: "org:vision", envelopes: [{name: all, flavor: virtual, concurrency: 8}]}
"""
RUN = """
apiVersion: rq.davidlangworthy.io/v1
kind: Run
metadata: {{name: {name}, namespace: vision}}
spec:
  owner: org:vision
  resources: {{gpuType: virtual, totalGPUs: 2, gpusPerPod: 2}}
  template:
    spec:
      containers:
        - {{name: main, image: none, command: [sh, -c], args: ["{command}"]}}
"""
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def submit(
    up: Up, folder: Path, name: str, command: str = "sleep 600", *, team: str = TEAM
) -> None:
    path = folder / f"{name}.yaml"
    path.write_text(team + "---" + RUN.format(name=name, command=command))
    up.run("runs", "submit", "-f", str(path))


def test_sign_in_link_of_startup_works_once(up: Up, guest_of: GuestOf) -> None:
    found = re.search(r"https://\S+/ui/sign-in\?code=\S+", up.greeting)
    assert found is not None
    first, second = guest_of(up.base), guest_of(up.base)
    first.sign_in(found.group())
    expect(first.page.locator("h1")).to_contain_text("GPUs are paid for and running")
    second.forgiven = ("403", "401")
    second.page.goto(found.group())
    expect(second.page.locator("main")).to_contain_text("this link was already used")
    second.page.goto(f"{up.base}/ui/")
    expect(second.page.locator("h1")).to_have_text("Sign in")
    assert first.page.evaluate("document.cookie") == ""
    first.forgiven = ("401",)
    first.page.get_by_role("button", name="sign out").click()
    expect(first.page.locator("h1")).to_have_text("Sign in")


def test_root_address_redirects_to_the_pages(up: Up, guest_of: GuestOf) -> None:
    guest = guest_of(up.base)
    guest.sign_in(up.link())
    guest.page.goto(up.base)
    guest.page.wait_for_url(f"{up.base}/ui/")


def test_submitted_run_appears_without_reload(up: Up, guest_of: GuestOf, tmp_path: Path) -> None:
    guest = guest_of(up.base)
    guest.sign_in(up.link())
    runs = guest_of(up.base)
    runs.sign_in(up.link())
    runs.go("runs")
    expect(runs.page.locator("main")).to_contain_text("No runs match these filters")
    guest.page.evaluate("window.here = true")
    submit(up, tmp_path, "train")
    expect(guest.page.locator("main")).to_contain_text("vision/train")
    expect(runs.page.locator("tbody")).to_contain_text("Running")
    assert guest.page.evaluate("window.here")  # the page was not reloaded


@pytest.mark.deadline(300)
def test_live_updates_resume_after_server_restart(
    up: Up, guest_of: GuestOf, tmp_path: Path
) -> None:
    guest = guest_of(up.base)
    guest.forgiven = ("net::ERR_", "Failed to load resource")
    guest.sign_in(up.link())
    live = guest.page.locator("#live")
    expect(live).to_have_class(re.compile("is-live"))
    guest.page.evaluate("window.here = true")
    up.stop()
    expect(live).to_have_class(re.compile("is-stale"))
    expect(live).to_contain_text("not live since")
    up.start()
    submit(up, tmp_path, "after")
    expect(live).to_have_class(re.compile("is-live"), timeout=60_000)
    expect(guest.page.locator("main")).to_contain_text("vision/after")
    assert guest.page.evaluate("window.here")


def test_pages_of_another_tenant_are_refused(up: Up, guest_of: GuestOf, tmp_path: Path) -> None:
    submit(up, tmp_path, "train")
    kubeconfig = tmp_path / "ann"
    up.run("token", "create", "--data", str(up.data), "--user", "ann", "--namespace", "audio",
           "--kubeconfig", str(kubeconfig))  # fmt: skip
    guest = guest_of(up.base)
    guest.sign_in(up.link(kubeconfig))
    guest.forgiven = ("403",)
    page = guest.go("runs/vision/train")
    assert guest.status == 403
    expect(page.locator("main")).to_contain_text("may not see")
    guest.go("runs")
    expect(page.locator("main")).to_contain_text("No runs match these filters")
    guest.forgiven = ("401", "403")
    guest.go("")
    up.run("token", "revoke", "--data", str(up.data), "--user", "ann")
    guest.go("")
    expect(page.locator("h1")).to_have_text("Sign in")


def test_hostile_text_is_shown_as_text(up: Up, guest_of: GuestOf, tmp_path: Path) -> None:
    """Hostile text in a job's output, in a user's name and in an address is shown as text."""
    command = f"echo '{HOSTILE}'; sleep 600".replace('"', '\\"')
    submit(up, tmp_path, "train", command)
    kubeconfig = tmp_path / "mallory"
    up.run("token", "create", "--data", str(up.data), "--user", HOSTILE, "--role", "admin",
           "--kubeconfig", str(kubeconfig))  # fmt: skip
    guest = guest_of(up.base)
    guest.sign_in(up.link(kubeconfig))
    page = guest.page
    expect(page.locator("header")).to_contain_text(HOSTILE)
    guest.go("runs/vision/train")
    expect(page.locator("#main")).to_contain_text("Running")
    page.get_by_role("link", name="log of").click()
    expect(page.locator("pre.log")).to_contain_text(HOSTILE)
    for name in ("runs", "fleet", "budgets", "report"):
        guest.forgiven = ("400",)
        page.goto(f"{up.base}/ui/{name}?find={HOSTILE}&owner={HOSTILE}&at=&sort=name")
        expect(page.locator("h1")).to_be_visible()
    guest.forgiven = ("404", "403")
    page.goto(f"{up.base}/ui/nodes/{HOSTILE.replace('/', '%2F')}")
    expect(page.locator("h1")).to_have_text("Not found")


def test_ui_here_serves_pages_from_a_remote_server(
    up: Up, guest_of: GuestOf, tmp_path: Path
) -> None:
    """As with a cluster that serves no pages: all data comes over the network, as the user."""
    submit(up, tmp_path, "train", "echo begun; sleep 600")
    here = subprocess.Popen(
        [sys.executable, "-u", "-m", "leasehold", "ui", "--here"],
        env=up.env,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    try:
        assert here.stdout is not None
        link = here.stdout.readline().strip()
        guest = guest_of(link.partition("/ui/")[0])
        guest.sign_in(link)
        page = guest.page
        expect(page.locator("main")).to_contain_text("vision/train")
        for name in ("fleet", "runs", "queue", "budgets", "decisions", "report"):
            guest.go(name)
            assert guest.status == 200, name
        guest.go("runs/vision/train")
        page.get_by_role("link", name="log of").click()
        expect(page.locator("pre.log")).to_contain_text("begun")
        guest.go("ledger")
        page.click("#verify")
        expect(page.locator("#verdict")).to_contain_text("each follows from the one before")
        guest.go("runs")
        submit(up, tmp_path, "another", team="")
        expect(page.locator("tbody")).to_contain_text("vision/another")
        page.goto("about:blank")
    finally:
        here.send_signal(signal.SIGINT)
        here.wait(30)
        here.stdout.close()
