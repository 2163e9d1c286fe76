"""Translates an API server's answers into the port's errors.

Pure functions. The essential rule: after a 5xx, or without an answer, it is unknown whether a
*write* reached etcd. A *read* without an answer simply did not happen.
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
WORDS_MAX = 1_000  # maximum length of a server's message
_NO_RIGHT = re.compile(r'User "[^"]*" cannot \w+ (resource|path) ')
_TOO_LARGE = "request is too large"  # etcd's message, which arrives as a 500


class BadCredentials(Exception):  # noqa: N818 - named for the condition
    """The server does not accept our credentials; nothing happened."""


def error_of(status: int, body: bytes, key: Key, *, is_write: bool) -> StoreError:
    """Return the error for an answer with status 400 or higher."""
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
    """Return the server's message if it refuses us as a user, whatever the object: a right is
    missing, or the server has just started and has not read the roles yet. Return "" for other
    answers, such as refusals by policies and quotas, which depend on the object."""
    message = text_at(_status_of(body), "message") if status == 403 else ""
    return message if _NO_RIGHT.search(message) else ""


def no_answer(key: Key, *, is_write: bool) -> StoreError:
    """Return the error for a request that got no answer, although it may have been sent."""
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
