"""What an API server's answer means to whoever wrote or read: one of the port's errors.

Pure. The rule that matters: after a 5xx, or none at all, nobody knows whether a *write* reached
etcd; a read simply did not happen.
"""

import re

import msgspec

from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    StoreError,
    Unavailable,
    WatchExpired,
)

Key = tuple[str, str, str]  # kind, namespace, name
WORDS_MAX = 1_000  # of a server's message
_NO_RIGHT = re.compile(r'User "[^"]*" cannot \w+ (resource|path) ')
_TOO_LARGE = "request is too large"  # etcd's word, which comes as a 500


class BadCredentials(Exception):  # noqa: N818 - it says what they are
    """The server does not know us; nothing happened."""


def error_of(status: int, body: bytes, key: Key, *, is_write: bool) -> StoreError:
    """The error for an answer of 400 and more."""
    said = _status_of(body)
    reason, message = text_at(said, "reason"), text_at(said, "message")[:WORDS_MAX]
    match status:
        case 404:
            return NotFound(*key)
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(*key)
        case 409:
            return Conflict(*key)
        case 410:
            return WatchExpired(*key)
        case 403 | 405:
            return _told(Forbidden(*key), message)
        case 429:
            return Unavailable(*key)
        case 400 | 406 | 413 | 415 | 422:
            return Invalid(_causes(said) or [("", message or f"HTTP status {status}")], *key)
        case 500 if _TOO_LARGE in message:
            return Invalid([("", "the object is larger than the API server stores")], *key)
        case _ if is_write:
            return OutcomeUnknown(*key)
        case _:
            return Unavailable(*key)


def is_stranger(status: int, body: bytes) -> str:
    """The server's words, where it refuses *us*, whatever the object: a right is missing, or the
    server has just begun and has not read who has which. Policies and quotas speak of objects."""
    message = text_at(_status_of(body), "message") if status == 403 else ""
    return message if _NO_RIGHT.search(message) else ""


def no_answer(key: Key, *, is_write: bool) -> StoreError:
    """The error for a request that was sent, or may have been, and had no answer."""
    return OutcomeUnknown(*key) if is_write else Unavailable(*key)


def _told(error: StoreError, message: str) -> StoreError:
    if message:
        error.add_note(message)
    return error


def _status_of(body: bytes) -> Wire:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _causes(said: Wire) -> list[tuple[str, str]]:
    return [
        (text_at(each, "field"), text_at(each, "message") or text_at(each, "reason"))
        for each in list_at(part(said, "details"), "causes")
        if isinstance(each, dict)
    ]
