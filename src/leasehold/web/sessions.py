"""Sign-in: one-time codes, and session cookies with the rights of their token.

The server stores no sessions. A cookie names a token by its hash and is signed, so it survives a
restart and expires with its token. `leasehold up` and `leasehold ui` give codes to users who have
the token already.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from leasehold.web.dependencies import Visitor

COOKIE = "__Host-leasehold"
CODE_BYTES = 24
CODE_S = 15 * 60.0
CODES_MAX = 1024
ENDED_MAX = 10_000
SESSION_S = 12 * 3600  # then the visitor must sign in again


class Sessions:
    def __init__(
        self,
        key: bytes,
        visitor_of: Callable[[str], Visitor | None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        assert len(key) >= 32, "a short key can be guessed"
        self._key = key
        self._visitor_of = visitor_of
        self._now = now
        self._codes: dict[str, tuple[str, float]] = {}  # code's hash -> (token's hash, expiry)
        self._ended: OrderedDict[str, float] = OrderedDict()  # signed-out sessions -> expiry

    def new_code(self, digest: str) -> str:
        """Return a one-time code for the token with this hash. The code cannot be shown again."""
        now = self._now()
        self._codes = {code: each for code, each in self._codes.items() if each[1] > now}
        while len(self._codes) >= CODES_MAX:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(CODE_BYTES)
        self._codes[_hashed(code)] = (digest, now + CODE_S)
        return code

    def redeem(self, code: str) -> str | None:
        """Return a session cookie for an unused code; None if the code is not valid."""
        digest, until = self._codes.pop(_hashed(code), ("", 0.0))
        if not digest or until <= self._now() or self._visitor_of(digest) is None:
            return None
        payload = f"{digest}.{int(self._now()) + SESSION_S}.{secrets.token_hex(8)}"
        return f"{payload}.{self._signed(payload)}"

    def digest_in(self, cookie: str) -> str | None:
        """Return the hash of the token that the cookie names. Return None if the cookie is not ours
        or has expired."""
        payload, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signed(payload).encode(), signature.encode()):
            return None
        digest, until, _ = payload.split(".")  # cannot fail: the signature is ours
        if int(until) <= self._now() or _hashed(payload) in self._ended:
            return None
        return digest

    def end(self, cookie: str) -> None:
        """End the session: refuse the cookie and every copy of it until this process restarts."""
        payload, _, _ = cookie.rpartition(".")
        if self.digest_in(cookie) is not None:
            self._ended[_hashed(payload)] = self._now() + SESSION_S
        while self._ended and (
            len(self._ended) > ENDED_MAX or next(iter(self._ended.values())) <= self._now()
        ):
            self._ended.popitem(last=False)

    def _signed(self, payload: str) -> str:
        found = hmac.new(self._key, payload.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return base64.urlsafe_b64encode(found.digest()).decode().rstrip("=")


def _hashed(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogateescape")).hexdigest()
