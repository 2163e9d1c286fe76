"""Bearer tokens: a private file of hashes, shared by the server and the CLI.

The file holds only SHA-256 digests; a token is shown once, at its creation. The server calls
`caller_of` on every request, and notices a changed file within `LOOK_S`. `leasehold token` may
write the file while the server runs; a lock file beside it keeps writers apart. While the file
cannot be read, every token is refused.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog

from leasehold.adapters.private_file import write_private
from leasehold.core.objects.access import Caller
from leasehold.core.units import Instant

TOKEN_BYTES = 32
LOOK_S = 0.1  # a token revoked by another process may still be accepted for so long
TOKEN_CHARS_MAX = 512  # of received tokens; ours are much shorter
PREFIX = "lh_"

_log = structlog.get_logger(__name__)


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the file stores of a token: everything but the token itself. `expires` None: never."""

    caller: Caller
    sha256: str
    created: Instant
    expires: Instant | None = None


class _TokenFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    tokens: tuple[TokenRecord, ...] = ()


Records = list[TokenRecord]  # `Tokens.list` shadows the builtin inside the class


class BadTokenFile(Exception):  # noqa: N818 - named for the condition
    """The file is not a token file; the message names it and a remedy."""


def wall_ms() -> Instant:
    return time.time_ns() // 1_000_000


class Tokens:
    def __init__(self, path: Path, *, now: Callable[[], Instant] = wall_ms) -> None:
        """Read the file; raise `BadTokenFile` if it cannot be used."""
        self.path = path
        self._now = now
        self._stamp: tuple[int, int, int] | None = None
        self._known: dict[str, TokenRecord] = {}
        self._looked = 0.0
        self._refresh()

    def caller_of(self, token: str) -> Caller | None:
        """Return the token's caller; None if it is unknown, revoked or expired."""
        if not token or len(token) > TOKEN_CHARS_MAX:
            return None
        digest = _digest(token)
        if digest not in self._known or time.monotonic() > self._looked + LOOK_S:
            self._look_again()
        record = self._known.get(digest)
        # The lookup's timing can reveal something about a hash, but nothing about the token.
        if record is None or not hmac.compare_digest(record.sha256, digest):
            return None
        if record.expires is not None and record.expires <= self._now():
            return None
        return record.caller

    def digest_of(self, token: str) -> str | None:
        """Return the digest of a valid token, for callers that must not keep the token; None if the
        token is invalid."""
        return None if self.caller_of(token) is None else _digest(token)

    def caller_of_digest(self, digest: str) -> Caller | None:
        """Return the caller of the token with this digest, like `caller_of`."""
        if digest not in self._known or time.monotonic() > self._looked + LOOK_S:
            self._look_again()
        record = self._known.get(digest)
        if record is None or (record.expires is not None and record.expires <= self._now()):
            return None
        return record.caller

    def create(self, caller: Caller, *, expires: Instant | None = None) -> str:
        """Create a token and return it. The token's record is on disk when this returns; the token
        itself cannot be shown again."""
        token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
        record = TokenRecord(
            caller=caller, sha256=_digest(token), created=self._now(), expires=expires
        )
        with self._changing() as found:
            found.append(record)
        return token

    def list(self) -> tuple[TokenRecord, ...]:
        self._refresh()
        return tuple(self._known.values())

    def revoke(self, user: str) -> int:
        """Revoke every token of the user; return their number."""
        with self._changing() as found:
            kept = [record for record in found if record.caller.user != user]
            revoked = len(found) - len(kept)
            found[:] = kept
        return revoked

    @contextmanager
    def _changing(self) -> Iterator[Records]:
        """Yield the records as a list that the block may change; write the list back if the block
        succeeds."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(
            self.path.with_name(f".{self.path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._refresh()
            records = [*self._known.values()]
            yield records
            body = msgspec.json.encode(_TokenFile(tokens=tuple(records)))
            write_private(self.path, msgspec.json.format(body) + b"\n")
            self._refresh()
        finally:
            os.close(lock)

    def _look_again(self) -> None:
        try:
            self._refresh()
        except BadTokenFile as error:
            _log.error(
                "the token file cannot be read, so all requests are rejected", why=str(error)
            )

    def _refresh(self) -> None:
        """Read the file again if it has changed."""
        self._looked = time.monotonic()
        try:
            about = self.path.stat()
        except FileNotFoundError:
            self._stamp, self._known = None, {}
            return
        stamp = (about.st_ino, about.st_mtime_ns, about.st_size)
        if stamp == self._stamp:
            return
        self._known = {}
        self._stamp = stamp  # also for a bad file, so that it is read and reported once
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=_TokenFile)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadTokenFile(
                f"{self.path} is not a token file ({error}); restore it, or remove it and create "
                "new tokens"
            ) from error
        self._known = {record.sha256: record for record in found.tokens}


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
