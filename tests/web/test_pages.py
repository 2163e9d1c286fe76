"""Every page works without JavaScript, is shown only to users with rights, and shows the query
API's answers."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.questions.played import FIRST_DAY, ROOT, SCENARIOS
from tests.questions.test_the_past import STORY
from tests.web.visit import Visit

from leasehold.core.objects.access import Caller, CallerRole
from leasehold.web.app import PAGES, POLICY
from leasehold.web.sessions import COOKIE

ANN = Caller(user="ann", role=CallerRole.USER, namespaces=("elsewhere",))
ADDRESSES = (
    "/ui/", "/ui/fleet", "/ui/runs", "/ui/runs/vision/train", "/ui/queue", "/ui/budgets",
    "/ui/decisions", "/ui/ledger", "/ui/report", "/ui/nodes/a-00",
    "/ui/runbook",
)  # fmt: skip


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    found = Visit(tmp_path, STORY)
    found.sign_in()
    return found


@pytest.mark.parametrize("address", ADDRESSES)
def test_page_has_a_content_security_policy_and_no_content_from_other_sites(
    visit: Visit, address: str
) -> None:
    seen = visit.see(address)
    assert seen.status == 200, seen.text
    assert seen.headers["content-security-policy"] == POLICY
    assert seen.headers["cache-control"] == "no-store"
    assert "<h1" in seen.text
    # The page has nothing that the policy would refuse, and loads nothing from another host.
    assert not re.search(r'style="|<style|\son\w+="|<script>|(?:src|href)="(?!/ui/|#)', seen.text)


@pytest.mark.parametrize("address", ADDRESSES)
def test_visitor_without_session_sees_nothing(tmp_path: Path, address: str) -> None:
    seen = Visit(tmp_path, STORY).see(address)
    assert seen.status == 401
    assert "leasehold ui" in seen.text
    assert "vision" not in seen.text


def test_addresses_cover_every_kind_of_page() -> None:
    patterns = ["/".join(("/ui", *parts)) for parts in PAGES if "logs" not in parts]
    shapes = [re.sub(r"\{\w+\}", "[^/]+", each) for each in patterns]
    unseen = [shape for shape in shapes if not any(re.fullmatch(shape, each) for each in ADDRESSES)]
    assert unseen == ["/ui/decisions/[^/]+"]  # tested below


def test_sign_in_code_works_once(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY)
    code = visit.sign_in()
    again = visit.see("/ui/sign-in", f"code={code}")
    assert (again.status, "set-cookie" in again.headers) == (403, False)


def test_session_cookie_is_secure_strict_and_hidden_from_scripts(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY)
    code = visit.door.sessions.new_code(str(visit.tokens.digest_of(visit.tokens.create(ANN))))
    words = visit.see("/ui/sign-in", f"code={code}").headers["set-cookie"].lower()
    assert all(each in words for each in ("httponly", "secure", "samesite=strict", "path=/"))
    assert "domain" not in words


def test_session_ends_when_its_token_is_revoked(visit: Visit) -> None:
    assert visit.see("/ui/").status == 200
    visit.tokens.revoke("admin")
    assert visit.see("/ui/").status == 401


@pytest.mark.parametrize(
    "forge",
    [
        lambda cookie: cookie[:-2] + ("AA" if cookie[-2:] != "AA" else "BB"),
        lambda cookie: cookie.replace(".", ".9", 1),
        lambda _cookie: f"{COOKIE}=",
        lambda _cookie: f"{COOKIE}=a.b.c",
    ],
)
def test_forged_cookie_is_refused(visit: Visit, forge: Callable[[str], str]) -> None:
    visit.cookie = forge(visit.cookie)
    assert visit.see("/ui/").status == 401


def test_sign_in_code_requires_a_token(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY)
    assert visit.see("/ui/code", method="POST", authorization="Bearer lh_no").status == 401
    assert visit.see("/ui/code", method="POST").status == 401
    assert visit.see("/ui/code").status == 405


def test_run_of_another_namespace_is_not_shown(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY)
    visit.sign_in(ANN)
    for address in ("/ui/runs/vision/train", "/ui/runs/vision/none"):
        seen = visit.see(address)
        assert seen.status == 403
    assert "vision/train" not in visit.see("/ui/runs").text


def test_names_of_other_tenants_are_hidden_if_configured(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY, hide_tenants=True)
    visit.sign_in(ANN)
    for address in ("/ui/", "/ui/fleet", "/ui/budgets", "/ui/report"):
        assert "vision/train" not in visit.see(address).text
    assert "vision/train" not in visit.see("/ui/fleet.json").text
    assert visit.see("/ui/decisions").status == 403


def test_filter_text_is_escaped(visit: Visit) -> None:
    for address in ("/ui/runs", "/ui/fleet"):
        seen = visit.see(address, "find=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
        assert seen.status == 200
        assert "<script>alert" not in seen.text
        assert "&lt;script&gt;alert(1)" in seen.text


@pytest.mark.parametrize(
    ("address", "query", "status"),
    [
        ("/ui/none", "", 404),
        ("/ui/runs/vision/none", "", 404),
        ("/ui/nodes/none", "", 404),
        ("/ui/decisions/none-1", "", 404),
        ("/ui/runs", "sort=colour", 400),
        ("/ui/runs", "phase=Odd", 400),
        ("/ui/report", "by=colour", 400),
        ("/ui/fleet", "at=soon", 400),
        ("/ui/ledger", "after=-1", 400),
        ("/ui/runs", f"find={'x' * 600}", 400),
        ("/ui/runs/%ff/x", "", 400),
        ("/ui/static/../app.py", "", 404),
        ("/ui/static/none.js", "", 404),
    ],
)
def test_unknown_address_or_parameter_is_refused_without_traceback(
    visit: Visit, address: str, query: str, status: int
) -> None:
    seen = visit.see(address, query)
    assert seen.status == status
    assert "Traceback" not in seen.text


def test_pages_accept_only_reads(visit: Visit) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert visit.see("/ui/runs", method=method).status == 405


def test_sign_out_removes_the_cookie(visit: Visit) -> None:
    seen = visit.see("/ui/sign-out", method="POST")
    assert (seen.status, seen.headers["location"]) == (303, "/ui/sign-in")
    assert "max-age=0" in seen.headers["set-cookie"].lower()


def test_sign_out_ends_the_session_but_not_others_of_the_token(visit: Visit) -> None:
    """Another session of the same token stays signed in, even if it began in the same second."""
    copied = visit.cookie
    visit.sign_in()
    other, visit.cookie = visit.cookie, copied
    assert other != copied
    assert visit.see("/ui/sign-out", method="POST").status == 303
    assert visit.see("/ui/").status == 401
    visit.cookie = other
    assert visit.see("/ui/").status == 200


def test_every_resolution_has_a_page(tmp_path: Path) -> None:
    visit = Visit(tmp_path, FIRST_DAY)
    visit.sign_in()
    links = set(re.findall(r'href="(/ui/decisions/[^"]+)"', visit.see("/ui/decisions").text))
    assert links
    for link in links:
        seen = visit.see(link)
        assert seen.status == 200
        assert re.search(r'data-digest="[0-9a-f]{64}"', seen.text)


def test_fleet_data_contains_only_changes_since_a_version(visit: Visit) -> None:
    whole = visit.see("/ui/fleet.json").text
    version = re.search(r'"version":"([^"]+)"', whole)
    assert version is not None
    assert '"nodes":[[' in whole
    again = visit.see("/ui/fleet.json", f"since={version.group(1)}").text
    assert '"changes":[]' in again
    visit.news.note()
    later = visit.see("/ui/fleet.json", f"since={version.group(1)}").text
    assert '"changes":[]' in later
    assert version.group(1) not in later


def test_vendored_fonts_match_their_listed_hashes() -> None:
    """The list has each vendored file with its hash."""
    static = ROOT / "src/leasehold/web/static"
    listed = (static / "VENDORED.md").read_text()
    import hashlib

    for path in static.glob("fonts/*.woff2"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() in listed
        assert path.name in listed


def test_alert_links_to_its_section_of_the_runbook(tmp_path: Path) -> None:
    visit = Visit(tmp_path, SCENARIOS / "S2-the-spare-fails-first.yaml")
    visit.sign_in()
    sections = re.findall(r'href="/ui/runbook#([^"]+)"', visit.see("/ui/").text)
    assert set(sections) == {"a-failed-node"}
    runbook = visit.see("/ui/runbook").text
    assert '<a href="#a-failed-node">A failed node</a>' in runbook, (
        "the runbook links to the section"
    )
    for each in ("a-failed-node", "drain", "leaseholdoverdrawn", "leaseholdactivationstuck"):
        assert f'<h2 id="{each}">' in runbook
