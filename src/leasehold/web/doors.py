"""Who comes in, and as whom: by a link that was printed once, or as a proxy in front says.

A door knows its visitors; what they may see, the answers know.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request

from leasehold.web.house import NotShown, Visitor
from leasehold.web.sessions import COOKIE, Sessions

NAME_CHARS_MAX = 512
VISITORS_MAX = 4096
GROUPS_MAX = 256


class LinkDoor:
    """A code is exchanged for a cookie, which can do what its token can and ends with it.

    `visitor_of` knows a token by its SHA-256 as long as it is good; `digest_of` is the SHA-256 of a
    bearer token that is good; `key` signs sessions, and outlives a restart."""

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
            raise NotShown(401, "you are not signed in, or your token has ended")
        return digest, visitor

    def is_welcome(self, whose: str) -> bool:
        return self._visitor_of(whose) is not None


class ProxyDoor:
    """Behind a proxy that signs people in and says in a header who they are. Whoever can reach us
    without it could say anything: the server takes connections from the proxy's certificate only.

    `named` makes a visitor of a user and groups; without a `groups_header` there are none."""

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
            raise NotShown(
                401, f"the proxy in front does not say who you are ({self._user_header})"
            )
        if len(users) > 1:
            # It passes on what the visitor sent, and adds its own: neither can be believed.
            raise NotShown(400, f"{self._user_header} is there {len(users)} times; it must be once")
        named = request.headers.getlist(self._groups_header) if self._groups_header else []
        groups = _groups(named)
        user = users[0].strip()
        if any(len(each) > NAME_CHARS_MAX for each in (user, *groups)) or len(groups) > GROUPS_MAX:
            raise NotShown(400, "the names that the proxy in front gives are too long")
        whose = hashlib.sha256("\n".join((user, *groups)).encode()).hexdigest()
        found = self._known.pop(whose, None) or self._named(user, groups)
        self._known[whose] = found  # one visitor is one object, also to what is remembered
        while len(self._known) > VISITORS_MAX:
            self._known.popitem(last=False)
        return whose, found

    def is_welcome(self, whose: str) -> bool:  # noqa: ARG002 - the proxy knows, and ends it
        return True


def _groups(values: list[str]) -> tuple[str, ...]:
    """In several headers, or in one with commas."""
    return tuple(each.strip() for value in values for each in value.split(",") if each.strip())
