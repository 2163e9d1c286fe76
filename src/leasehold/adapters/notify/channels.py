"""Notification channels: a signed HTTP request or a program.

Called by `shell.observe.notifications`. Each channel is called in a thread, because a call may last
until its timeout. Only the operator configures URLs, programs and secrets.
"""

import hashlib
import hmac
import http.client
import ssl
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 4096
_AGAIN = (408, 425, 429)  # refusals that may succeed on a retry


class NotDelivered(Exception):  # noqa: N818 - named for the condition
    """The message was not delivered. `is_final`: trying again would not help."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class Message:
    delivery: str  # the same for all attempts, so that receivers can detect duplicates
    event: str
    at_s: int
    body: bytes


class Channel(Protocol):
    def tell(self, message: Message) -> None:
        """Deliver the message; raise `NotDelivered`."""
        ...

    @property
    def words(self) -> str:
        """The destination as messages name it, without secrets."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str
    secret: bytes

    @property
    def words(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def tell(self, message: Message) -> None:
        """Send one POST request. Redirects are not followed, because another host would receive the
        signature."""
        url = urlsplit(self.url)
        connection: http.client.HTTPConnection
        if url.scheme == "https":
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                url.hostname or "", url.port, timeout=TIMEOUT_S, context=context
            )
        else:
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT_S)
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "leasehold",
            "X-Leasehold-Event": message.event,
            "X-Leasehold-Delivery": message.delivery,
            "X-Leasehold-Timestamp": str(message.at_s),
            "X-Leasehold-Signature": signature(self.secret, message),
        }
        try:
            connection.request("POST", path, message.body, headers)
            response = connection.getresponse()
            response.read(ANSWER_BYTES_MAX)
            status = response.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise NotDelivered(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            is_final = 300 <= status < 500 and status not in _AGAIN
            raise NotDelivered(f"HTTP status {status}", is_final=is_final)


def signature(secret: bytes, message: Message) -> str:
    """Return the signature of the message and its time. A receiver that checks the time is thereby
    safe from replays."""
    signed = f"{message.at_s}.".encode() + message.body
    return "sha256=" + hmac.new(secret, signed, hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Command:
    """The operator's program. It runs as the server's own user and receives JSON on stdin."""

    argv: Sequence[str]

    @property
    def words(self) -> str:
        return self.argv[0]

    def tell(self, message: Message) -> None:
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LEASEHOLD_EVENT": message.event,
            "LEASEHOLD_DELIVERY": message.delivery,
        }
        try:
            done = subprocess.run(
                list(self.argv),
                input=message.body,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise NotDelivered(f"the command did not end within {TIMEOUT_S:g} s") from None
        except (OSError, ValueError) as error:
            raise NotDelivered(str(error)) from None
        if done.returncode:
            said = done.stderr[-200:].decode("utf-8", "replace").strip()
            raise NotDelivered(f"exit status {done.returncode}{': ' if said else ''}{said}")
