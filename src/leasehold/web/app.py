"""The pages as an ASGI application below `/ui`, and a router that puts them beside the REST server.

The headers of every response forbid external resources, inline scripts and framing. Text from
users, such as a name, is always escaped.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Protocol
from urllib.parse import quote, unquote

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from leasehold.web import formats, templating
from leasehold.web.answer_cache import AnswerCache
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.dependencies import NotShown, PageDependencies
from leasehold.web.feed import FleetFeed
from leasehold.web.live import Streams, events
from leasehold.web.pages import budgets, decisions, fleet, ledger, now, queue, report, runbook, runs
from leasehold.web.pages.view import Page, PageView, Show
from leasehold.web.sessions import COOKIE, SESSION_S
from leasehold.web.statics import Statics

ROOT = "/ui"
FRESH_S = 1.0  # how long a rendered page is reused for the same visitor if nothing happened
FRESH_MAX = 128
FILTER_CHARS_MAX = 512

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
# Keys are the parts of the path below /ui; {name} matches any part.
PAGES: dict[tuple[str, ...], Show] = {
    ("",): now.show,
    ("fleet",): fleet.show,
    ("nodes", "{name}"): fleet.show_node,
    ("runs",): runs.show,
    ("runs", "{namespace}", "{name}"): runs.show_one,
    ("runs", "{namespace}", "{name}", "logs", "{pod}"): runs.show_log,
    ("queue",): queue.show,
    ("budgets",): budgets.show,
    ("decisions",): decisions.show,
    ("decisions", "{name}"): decisions.show_one,
    ("ledger",): ledger.show,
    ("report",): report.show,
    ("runbook",): runbook.show,
}

_log = structlog.get_logger(__name__)


class LiveApp(Protocol):
    """An ASGI application whose endless streams can be ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def end_streams(self) -> None: ...


class Pages:
    def __init__(self, house: PageDependencies) -> None:
        self._house = house = replace(house, ask=AnswerCache(house).ask)
        self._links = house.door if isinstance(house.door, LinkAuthentication) else None
        self._templates = templating.environment()
        self._statics = Statics(templating.HERE / "static")
        self._templates.globals["static"] = self._statics.address
        self._feed = FleetFeed()
        self._fresh: OrderedDict[tuple[str, str], tuple[str, float, bytes]] = OrderedDict()
        self._streams = Streams()
        self._others: dict[
            tuple[str, str], Callable[[Request, PageView, str], Awaitable[Response]]
        ] = {
            ("GET", "live"): self._live,
            ("GET", "fleet.json"): self._fleet_data,
            ("GET", "ledger.json"): self._chain_data,
            ("GET", "report.csv"): self._csv,
            ("GET", "report.parquet"): self._parquet,
            ("POST", "sign-out"): self._sign_out,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except NotShown as refused:
            response = self._said(request, refused)
        except Exception:
            _log.exception("page failed", method=request.method)
            response = self._said(request, NotShown(500, "an internal error of the server"))
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        place = request.url.path.removeprefix(ROOT).strip("/")
        if place.startswith("static/"):
            return self._statics.response(request, place.removeprefix("static/"))
        if self._links is not None and place == "code":
            return self._new_code(request, self._links)
        if self._links is not None and place == "sign-in":
            return self._sign_in(request, self._links)
        whose, visitor = self._house.door.visitor(request)
        filters = dict(request.query_params)
        if any(len(each) > FILTER_CHARS_MAX for each in filters.values()):
            raise NotShown(400, f"a filter has at most {FILTER_CHARS_MAX} characters")
        look = PageView(self._house, visitor, filters, {})
        other = self._others.get((request.method, place))
        if other is not None:
            return await other(request, look, whose)
        if request.method not in ("GET", "HEAD"):
            raise NotShown(405, "pages can only be read")
        return await self._page(request, look, whose)

    async def _page(self, request: Request, look: PageView, whose: str) -> Response:
        address = f"{request.url.path}?{request.url.query}"
        kept = self._fresh.get((whose, address))
        version = self._house.news.name
        if kept is not None and kept[0] == version and time.monotonic() < kept[1]:
            return HTMLResponse(kept[2])
        show, names = _place(request)
        look = replace(look, names=names)
        page = await show(look)
        body = self._rendered(page, look, version)
        self._fresh[whose, address] = (version, time.monotonic() + FRESH_S, body)
        while len(self._fresh) > FRESH_MAX:
            self._fresh.popitem(last=False)
        return HTMLResponse(body)

    def _rendered(self, page: Page, look: PageView, version: str) -> bytes:
        text = self._templates.get_template(page.template).render(
            **page.context,
            title=page.title,
            here=page.menu,
            now_text=formats.instant(look.now),
            filters=look.filters,
            user=look.visitor.user,
            version=version,
            signs_out=self._links is not None,
        )
        return text.encode()

    def _said(self, request: Request, refused: NotShown) -> Response:
        if request.url.path.endswith((".json", "/live", "/code")):
            body = msgspec.json.encode({"message": refused.message})
            return Response(body, refused.status, media_type="application/json")
        text = self._templates.get_template("said.html").render(
            status=refused.status, message=refused.message, title="Not shown", here=None
        )
        return HTMLResponse(text, refused.status)

    def _new_code(self, request: Request, door: LinkAuthentication) -> Response:
        """Return a one-time code. It signs a browser in with the rights of the bearer token in the
        request."""
        if request.method != "POST":
            raise NotShown(405, "a sign-in code needs a POST request with a bearer token")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        digest = door.digest_of(token.strip()) if scheme.lower() == "bearer" else None
        if digest is None:
            raise NotShown(401, "a valid bearer token is needed")
        body = {"code": door.sessions.new_code(digest), "path": f"{ROOT}/sign-in"}
        return Response(msgspec.json.encode(body), media_type="application/json")

    def _sign_in(self, request: Request, door: LinkAuthentication) -> Response:
        code = request.query_params.get("code", "")
        if request.method != "GET" or not code:
            raise NotShown(401, "you are not signed in")
        cookie = door.sessions.redeem(code)
        if cookie is None:
            raise NotShown(403, "this link was already used, or has expired")
        text = self._templates.get_template("welcome.html").render(title="Signed in", here=None)
        # This page navigates on by itself, from our own site. After a redirect that follows a click
        # elsewhere, a browser would not send a SameSite=Strict cookie.
        response = HTMLResponse(text)
        response.set_cookie(
            COOKIE, cookie, max_age=SESSION_S, secure=True, httponly=True, samesite="strict"
        )
        return response

    async def _sign_out(self, request: Request, _look: PageView, _whose: str) -> Response:
        if self._links is None:
            raise NotShown(404, "sign out at the proxy that signed you in")
        self._links.sessions.end(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(f"{ROOT}/sign-in", 303)
        response.delete_cookie(COOKIE, secure=True, httponly=True, samesite="strict")
        return response

    async def _live(self, request: Request, _look: PageView, whose: str) -> Response:
        seen = request.headers.get("last-event-id") or request.query_params.get("seen", "")
        is_welcome = partial(self._house.door.is_welcome, whose)
        return self._streams.response(whose, events(self._house.news, seen, is_welcome=is_welcome))

    async def _fleet_data(self, _request: Request, look: PageView, whose: str) -> Response:
        return Response(await self._feed.data(look, whose), media_type="application/json")

    async def _chain_data(self, _request: Request, look: PageView, _whose: str) -> Response:
        return _json(await ledger.lines(look))

    async def _csv(self, _request: Request, look: PageView, _whose: str) -> Response:
        text = (await report.as_sheet(look)).csv(for_spreadsheets=True)
        return Response(text, headers=_download(look, "csv"), media_type="text/csv")

    async def _parquet(self, _request: Request, look: PageView, _whose: str) -> Response:
        write = self._house.parquet
        if write is None:
            raise NotShown(501, "the server cannot write Parquet: it needs leasehold[parquet]")
        body = await write(await report.as_sheet(look))
        headers = _download(look, "parquet")
        return Response(body, headers=headers, media_type="application/vnd.apache.parquet")


def _place(request: Request) -> tuple[Show, dict[str, str]]:
    """Return the function that makes the page at this path, and the names that the path
    contains."""
    # Split before decoding, so that an encoded slash stays inside its part.
    raw = request.scope.get("raw_path") or request.url.path.encode()
    try:
        path = raw.decode("ascii")
        parts = tuple(_part(each) for each in path.removeprefix(ROOT).strip("/").split("/"))
    except UnicodeDecodeError:
        raise NotShown(400, "the address is not UTF-8") from None
    for wanted, show in PAGES.items():
        names = _matched(wanted, parts)
        if names is not None:
            return show, names
    raise NotShown(404, "there is no such page")


def _download(look: PageView, kind: str) -> dict[str, str]:
    name = f"gpu-hours-by-{look.filter('by') or 'owner'}.{kind}"
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name)}"}


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _part(text: str) -> str:
    return unquote(text, errors="strict")


def _matched(wanted: tuple[str, ...], parts: tuple[str, ...]) -> dict[str, str] | None:
    if len(wanted) != len(parts):
        return None
    names = {}
    for want, part in zip(wanted, parts):
        if want.startswith("{"):
            names[want[1:-1]] = part
        elif want != part:
            return None
    return names


class PagesAndFacade:
    """Serves both on one port: pages below `/ui`, the REST server everywhere else. A browser that
    asks for `/` is redirected to the pages."""

    def __init__(self, pages: ASGIApp, facade: LiveApp, end: Callable[[], None]) -> None:
        self._pages = pages
        self._facade = facade
        self._end = end

    def end_streams(self) -> None:
        self._end()
        self._facade.end_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            if path == ROOT or path.startswith(f"{ROOT}/"):
                await self._pages(scope, receive, send)
                return
            if path == "/" and _is_browser(scope):
                await RedirectResponse(f"{ROOT}/", 307)(scope, receive, send)
                return
        await self._facade(scope, receive, send)


def _is_browser(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return b"authorization" not in headers and b"text/html" in headers.get(b"accept", b"")
