"""A request as handlers see it, and the two forms of an answer: whole and streamed.

Built by `app` from the ASGI scope and read by every handler. A path is split before it is decoded,
so an encoded slash stays inside its segment.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope

from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller

BODY_BYTES_MAX = 3 * 1024 * 1024
BODY_S_MAX = 60.0  # a slower client would hold a connection for nothing
DRAINED_BYTES_MAX = 8 * BODY_BYTES_MAX
QUERY_FIELDS_MAX = 64
WARNING_CHARS_MAX = 400
WARNINGS_MAX = 8

JSON = "application/json"
_OPTIONS = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}

encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True)
class Response:
    status: int
    body: bytes
    content_type: str = JSON
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


@dataclass(slots=True)
class Stream:
    """A streamed answer. After `close`, the iterator `chunks` soon ends, whatever it is waiting
    for."""

    chunks: AsyncGenerator[bytes, None]
    close: Callable[[], None]
    content_type: str = JSON


Answer = Response | Stream


class Request:
    __slots__ = ("_receive", "caller", "headers", "method", "query", "segments", "warnings")

    def __init__(self, scope: Scope, receive: Receive) -> None:
        """Raise `RequestRefused` if path or query is not text."""
        self._receive = receive
        self.method: str = scope["method"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        raw = scope.get("raw_path") or scope["path"].encode()
        self.segments = [_text(part) for part in raw.split(b"/")[1:]] or [""]
        self.query = _query(scope["query_string"])
        self.caller: Caller = _NOBODY
        self.warnings: list[str] = []

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def media_type(self) -> str:
        """The media type of the body, without parameters."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def warn(self, text: str) -> None:
        """Add a `Warning` header to the answer."""
        if len(self.warnings) < WARNINGS_MAX and text not in self.warnings:
            self.warnings.append(text)

    def flag(self, name: str) -> bool:
        """Return a boolean query parameter, parsed as Go parses one."""
        value = self.query.get(name, "")
        if value in ("1", "t", "T", "true", "TRUE", "True"):
            return True
        if value in ("", "0", "f", "F", "false", "FALSE", "False"):
            return False
        raise bad_request(f"{name}={value[:80]!r} is not a boolean; use true or false")

    def number(self, name: str, *, least: int = 0) -> int | None:
        """Return an integer query parameter; None if it is absent or empty."""
        value = self.query.get(name, "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and len(value) < 19) or int(value) < least:
            raise bad_request(
                f"{name}={value[:80]!r} is not a whole number of at least {least}; use digits"
            )
        return int(value)

    async def body(self) -> bytes:
        """Return the whole body; refuse one that is too large or too slow."""
        try:
            async with asyncio.timeout(BODY_S_MAX):
                return await self._body()
        except TimeoutError:
            message = f"the body did not arrive within {BODY_S_MAX:.0f} s; send the request again"
            raise RequestRefused(408, "Timeout", message) from None

    async def _body(self) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise bad_request("the connection ended before the body did")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            # An oversized body is still read, up to a limit: a client that is cut off while it
            # sends does not see the reason.
            if size <= BODY_BYTES_MAX:
                chunks.append(chunk)
            is_last = not message.get("more_body", False)
            if size > DRAINED_BYTES_MAX or (is_last and size > BODY_BYTES_MAX):
                raise _too_large()
            if is_last:
                return b"".join(chunks)


_NOBODY = Caller(user="")


def json_response(document: Wire, status: int = 200) -> Response:
    return Response(status, encode(document))


def warning_headers(warnings: list[str]) -> list[tuple[bytes, bytes]]:
    return [(b"warning", f'299 - "{_quotable(text)}"'.encode("ascii")) for text in warnings]


def bad_request(message: str) -> RequestRefused:
    return RequestRefused(400, "BadRequest", message)


def wrong_option(request: Request, field: str, reason: str, message: str) -> RequestRefused:
    """Return the refusal (422) of a query parameter whose value is well-formed but not allowed, in
    the words of a real Kubernetes API server."""
    return RequestRefused(
        422,
        "Invalid",
        f"{field}: {message}",
        [RefusalCause(reason, message, field)],
        kind=_OPTIONS.get(request.method, "ListOptions"),
        group="meta.k8s.io",
    )


def _too_large() -> RequestRefused:
    return RequestRefused(
        413,
        "RequestEntityTooLarge",
        f"the body is over {BODY_BYTES_MAX} bytes; send a smaller object",
    )


def _text(segment: bytes) -> str:
    try:
        return (unquote_to_bytes(segment) if b"%" in segment else segment).decode()
    except UnicodeDecodeError:
        raise bad_request("the path is not UTF-8") from None


def _query(raw: bytes) -> dict[str, str]:
    """Return the first value of each query parameter, as a real Kubernetes API server does."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:  # including invalid UTF-8
        raise bad_request(
            f"the query is not URL-encoded UTF-8 of at most {QUERY_FIELDS_MAX} parameters"
        ) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return found


def _quotable(text: str) -> str:
    """Return the text as the content of a quoted header string: printable ASCII with escaped
    quotes."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in text[:WARNING_CHARS_MAX])
    return plain.replace("\\", "\\\\").replace('"', '\\"')
