"""Authentication of visitors: by a printed one-time link, or by a proxy in front of the server.

This module only identifies visitors. What a visitor may see is checked where questions are
answered.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from leasehold.web.dependencies import NotShown, Visitor
from leasehold.web.sessions import COOKIE, Sessions

NAME_CHARS_MAX = 512
VISITORS_MAX = 4096
GROUPS_MAX = 256


class LinkAuthentication:
    """Exchanges a one-time code for a session cookie. A session has the rights of the token for
    which the code was made, and ends when that token expires.

    `visitor_of`: returns the visitor of a token's SHA-256 while the token is valid. `digest_of`:
    returns the SHA-256 of a valid bearer token. `key`: signs the cookies; it must survive a
    restart."""

    def __init__(
        self,
        *,
        visitor_of: Callable[[str], Visitor | None],
        digest_of: Callable[[str], str | None],
        key: bytes,
    ) -> None:
        self._visitor_of = visitor_of
        self.digest_of = digest_of
        self.sessions = Sessions(key, visitor_of)

    def visitor(self, request: Request) -> tuple[str, Visitor]:
        digest = self.sessions.digest_in(request.cookies.get(COOKIE, ""))
        visitor = None if digest is None else self._visitor_of(digest)
        if digest is None or visitor is None:
            raise NotShown(401, "you are not signed in, or your token has expired")
        return digest, visitor

    def is_welcome(self, whose: str) -> bool:
        return self._visitor_of(whose) is not None


class ProxyAuthentication:
    """Trusts a proxy that signs people in and names them in a header.

    A client that bypassed the proxy could send any name. So the server accepts only connections
    with the proxy's certificate. `named` returns the visitor for a user and groups. Without
    `groups_header` a visitor has no groups."""

    def __init__(
        self,
        *,
        user_header: str,
        groups_header: str,
        named: Callable[[str, tuple[str, ...]], Visitor],
    ) -> None:
        self._user_header = user_header
        self._groups_header = groups_header
        self._named = named
        self._known: OrderedDict[str, Visitor] = OrderedDict()

    def visitor(self, request: Request) -> tuple[str, Visitor]:
        users = request.headers.getlist(self._user_header)
        if not users or not users[0].strip():
            raise NotShown(401, f"the proxy did not send a user name ({self._user_header})")
        if len(users) > 1:
            # The proxy passes on the visitor's header and adds its own: neither can be trusted.
            raise NotShown(
                400, f"{self._user_header} was sent {len(users)} times; it must be sent once"
            )
        named = request.headers.getlist(self._groups_header) if self._groups_header else []
        groups = _groups(named)
        user = users[0].strip()
        if any(len(each) > NAME_CHARS_MAX for each in (user, *groups)) or len(groups) > GROUPS_MAX:
            raise NotShown(400, "the user or group names from the proxy are too long")
        whose = hashlib.sha256("\n".join((user, *groups)).encode()).hexdigest()
        found = self._known.pop(whose, None) or self._named(user, groups)
        self._known[whose] = found  # the same visitor is the same object, also as a cache key
        while len(self._known) > VISITORS_MAX:
            self._known.popitem(last=False)
        return whose, found

    def is_welcome(self, whose: str) -> bool:  # noqa: ARG002 - the proxy knows, and ends it
        return True


def _groups(values: list[str]) -> tuple[str, ...]:
    """Return the groups in the header's values; a value may list several, separated by commas."""
    return tuple(each.strip() for value in values for each in value.split(",") if each.strip())
