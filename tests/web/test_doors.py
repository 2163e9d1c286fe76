"""Pages behind a proxy: the proxy's header names the user, and there is no signing in or out."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from tests.questions.test_the_past import STORY
from tests.web.visit import Visit

from leasehold.core.objects.access import Caller, CallerRole
from leasehold.shell.config.config import BadConfig, load_config
from leasehold.web.authentication import ProxyAuthentication
from leasehold.web.dependencies import NotShown
from leasehold.web.live import STREAMS_MAX, STREAMS_OF_ALL_MAX, Streams


@dataclass(frozen=True)
class Named:
    user: str
    groups: tuple[str, ...]


def door(groups: str = "") -> ProxyAuthentication:
    return ProxyAuthentication(user_header="X-Forwarded-User", groups_header=groups, named=Named)


def request(*headers: tuple[str, str]) -> Request:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return Request({"type": "http", "method": "GET", "path": "/ui/", "headers": raw})


def test_identity_header_names_the_visitor() -> None:
    whose, found = door().visitor(request(("X-Forwarded-User", "ann")))
    assert found == Named("ann", ())
    assert whose != door().visitor(request(("X-Forwarded-User", "bob")))[0]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 401),
        ([("X-Forwarded-User", " ")], 401),
        ([("X-Remote-User", "ann")], 401),
        ([("X-Forwarded-User", "ann"), ("X-Forwarded-User", "admin")], 400),
        ([("X-Forwarded-User", "a" * 600)], 400),
    ],
)
def test_missing_duplicate_or_oversized_identity_is_refused(
    headers: list[tuple[str, str]], status: int
) -> None:
    with pytest.raises(NotShown) as refused:
        door().visitor(request(*headers))
    assert refused.value.status == status


def test_groups_count_only_if_a_groups_header_is_configured() -> None:
    sent = request(("X-Forwarded-User", "ann"), ("X-Groups", "a, b"), ("X-Groups", "c"))
    assert door().visitor(sent)[1] == Named("ann", ())
    assert door("X-Groups").visitor(sent)[1] == Named("ann", ("a", "b", "c"))


def test_same_user_with_other_groups_is_another_visitor() -> None:
    one = request(("X-Forwarded-User", "ann"), ("X-Groups", "a"))
    two = request(("X-Forwarded-User", "ann"), ("X-Groups", "b"))
    found = door("X-Groups")
    assert found.visitor(one)[0] != found.visitor(two)[0]
    assert found.visitor(one)[1] is found.visitor(one)[1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("web: {identityHeader: X-User}", "web.clientCA"),
        ("web: {groupsHeader: X-Groups}", "web.identityHeader"),
        ("web: {identityHeader: 'X User', clientCA: /ca}", "name of a header"),
    ],
)
def test_unsafe_or_invalid_header_configuration_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        load_config(text)


class Behind(Visit):
    """A visit to the same pages behind a proxy."""

    def make_door(self) -> Any:
        return ProxyAuthentication(
            user_header="X-Forwarded-User",
            groups_header="",
            named=lambda user, _groups: Caller(user=user, role=CallerRole.ADMIN),
        )


def test_pages_behind_proxy_have_no_sign_in_or_sign_out(tmp_path: Path) -> None:
    visit = Behind(tmp_path, STORY)
    assert visit.see("/ui/").status == 401
    seen = visit.see("/ui/", **{"x-forwarded-user": "ann"})
    assert seen.status == 200
    assert "sign out" not in seen.text
    assert "ann" in seen.text
    for address in ("/ui/sign-in", "/ui/code"):
        assert visit.see(address, **{"x-forwarded-user": "ann"}).status == 404


# Streams that stay open.


async def nothing() -> Any:
    yield ""


def test_streams_of_one_visitor_are_limited() -> None:
    """A stream counts from its request on, so simultaneous requests cannot exceed the limit."""
    streams = Streams()
    made = [streams.response("ann", nothing()) for _ in range(STREAMS_MAX)]
    with pytest.raises(NotShown) as refused:
        streams.response("ann", nothing())
    assert refused.value.status == 429
    streams.response("bob", nothing())
    asyncio.run(_ended(made[0]))
    streams.response("ann", nothing())


def test_streams_of_all_visitors_together_are_limited() -> None:
    streams = Streams()
    for place in range(STREAMS_OF_ALL_MAX):
        streams.response(f"visitor {place // STREAMS_MAX}", nothing())
    with pytest.raises(NotShown) as refused:
        streams.response("ann", nothing())
    assert refused.value.status == 503


async def _ended(response: Any) -> None:
    """Run a response whose visitor disconnects in the middle."""

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_message: object) -> None:
        raise OSError("gone")

    with suppress(OSError, BaseExceptionGroup):
        await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)
