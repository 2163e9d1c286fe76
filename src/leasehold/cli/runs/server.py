"""Talks to one server over HTTP: sends queries, and reads and changes objects for commands.

Every error becomes a Failure with one sentence. Only the standard library is used, because every
command imports this module and must start fast.
"""

import contextlib
import http.client
import json
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlencode, urlsplit

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext, load_context
from leasehold.app.failure import Failure
from leasehold.core.names import GROUP, Wire

QUERY = "/apis/query.rq.davidlangworthy.io/v1/"
TIMEOUT_S = 30.0
# The messages of an API server about an API that is not registered.
UNSERVED = ("HTTP status 404", "the server could not find the requested resource")
T = TypeVar("T")


def connect(kubeconfig: str = "", context: str = "", *, timeout_s: float = TIMEOUT_S) -> "Server":
    """Return the server that the kubeconfig's context names. No request is sent yet."""
    try:
        return Server(load_context(kubeconfig, context), timeout_s=timeout_s)
    except BadKubeconfig as bad:
        raise Failure(str(bad)) from None


class Server:
    """A server, with one connection that is kept open. Threads must not share it."""

    def __init__(self, context: KubeContext, *, timeout_s: float = TIMEOUT_S) -> None:
        self.context = context
        self._timeout = timeout_s
        self._url = urlsplit(context.server)
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def another(self) -> "Server":
        """Return a Server with a connection of its own to the same server, for use in another
        thread."""
        return Server(self.context, timeout_s=self._timeout)

    def ask(
        self, question: str, params: Mapping[str, str | None], body: Wire | None = None
    ) -> Wire:
        given = {name: value for name, value in params.items() if value}
        query = f"?{urlencode(given)}" if given else ""
        return self._ask(f"questions/{question}{query}", body)

    def request(self, deed: str, body: Wire) -> Wire:
        """Ask the controller for an action such as a compaction. The answer reports how far it
        is."""
        return self._ask(deed, body)

    def _ask(self, path: str, body: Wire | None) -> Wire:
        try:
            return self.send("GET" if body is None else "POST", f"{QUERY}{path}", body)
        except Failure as failure:
            if failure.status != 404 or failure.message not in UNSERVED:
                raise
        raise Failure(
            f"the query API of {self.context.server} does not answer; is leasehold's controller "
            "running?",
            status=503,
        )

    def run_path(self, namespace: str, name: str = "", kind: str = "runs") -> str:
        tail = f"/{quote(name, safe='')}" if name else ""
        return f"/apis/{GROUP}/v1/namespaces/{quote(namespace, safe='')}/{kind}{tail}"

    def all_runs_path(self) -> str:
        return f"/apis/{GROUP}/v1/runs"

    def patch(self, path: str, change: Wire) -> Wire:
        return self.send("PATCH", path, change, content_type="application/merge-patch+json")

    def send(
        self, method: str, path: str, body: Wire | None = None, *, content_type: str = ""
    ) -> Wire:
        """Send a request and return the JSON object of the answer."""
        with self._response(method, path, body, content_type) as response:
            raw = self._guarded(response.read)
        try:
            found = json.loads(raw)
        except ValueError:
            found = None
        if response.status >= 400:
            raise self._refusal(response.status, found)
        if not isinstance(found, dict):
            raise Failure(
                f"unexpected response from {self.context.server}: not JSON; is this a "
                "leasehold API server?"
            )
        return found

    def lines(self, path: str) -> Iterator[bytes]:
        """Yield the lines of a text while the server sends them, possibly for ever."""
        with self._response("GET", path, None, "") as response:
            if response.status >= 400:
                raw = self._guarded(response.read)
                try:
                    raise self._refusal(response.status, json.loads(raw))
                except ValueError:
                    raise self._refusal(response.status, None) from None
            if response.fp is not None and self._connection is not None and self._connection.sock:
                self._connection.sock.settimeout(None)  # a quiet log is no failure
            while line := self._guarded(response.readline):
                yield line

    @contextlib.contextmanager
    def _response(
        self, method: str, path: str, body: Wire | None, content_type: str
    ) -> Iterator[http.client.HTTPResponse]:
        headers = {"Accept": "application/json", "User-Agent": "kubectl-runs"}
        if self.context.token:
            headers["Authorization"] = f"Bearer {self.context.token}"
        elif self.context.basic:
            headers["Authorization"] = f"Basic {self.context.basic}"
        encoded = None
        if body is not None:
            encoded = json.dumps(body).encode()
            headers["Content-Type"] = content_type or "application/json"
        try:
            response = self._guarded(lambda: self._sent(method, path, encoded, headers))
        except Failure:
            self.close()  # the next request connects again
            raise
        try:
            yield response
        finally:
            if response.will_close or not response.isclosed():
                self.close()
            response.close()

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        kept = self._connection is not None
        connection = self._connection or self._connected()
        self._connection = connection
        try:
            connection.request(method, self._url.path.rstrip("/") + path, body, headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            self.close()
            if not kept or method not in ("GET", "HEAD"):
                raise
            # The kept connection may have been closed meanwhile; repeating a read is harmless.
            return self._sent(method, path, body, headers)

    def _connected(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=self._timeout)
        context = self._trust()
        name = self.context.server_name
        if name:
            return _Renamed(name, host, port or 443, timeout=self._timeout, context=context)
        return http.client.HTTPSConnection(
            host, port or 443, timeout=self._timeout, context=context
        )

    def _trust(self) -> ssl.SSLContext:
        known = self.context
        try:
            context = ssl.create_default_context(
                cafile=known.ca_file or None,
                cadata=known.ca_data.decode("ascii", "replace") if known.ca_data else None,
            )
            if not known.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if known.cert_data:
                _load_chain(context, known.cert_data, known.key_data)
            elif known.cert_file:
                context.load_cert_chain(known.cert_file, known.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise Failure(f"{known.files}: a certificate or key cannot be used: {error}") from None
        return context

    def _guarded(self, action: Callable[[], T]) -> T:
        """Call `action` and return its result. A network error becomes a Failure with one
        sentence."""
        server = self.context.server
        try:
            return action()
        except Failure:
            raise
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message or str(error)
            raise Failure(
                f"the certificate of {server} is not trusted: {why}; "
                f"check certificate-authority in {self.context.files}"
            ) from None
        except ssl.SSLError as error:
            why = error.reason or str(error)
            raise Failure(f"TLS error from {server}: {why}") from None
        except ConnectionRefusedError:
            raise Failure(
                f"cannot reach {server}: connection refused; is it running? "
                f"(context {self.context.name!r} of {self.context.files})"
            ) from None
        except TimeoutError:
            raise Failure(f"{server} did not answer within {self._timeout:g} s") from None
        except socket.gaierror:
            raise Failure(f"cannot reach {server}: there is no such host") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = str(error) or type(error).__name__
            raise Failure(f"cannot communicate with {server}: {why}") from None

    def _refusal(self, status: int, found: object) -> Failure:
        wire = found if isinstance(found, dict) else {}
        message = wire.get("message")
        said = message if isinstance(message, str) and message else f"HTTP status {status}"
        if status == 401:
            return Failure(
                f"{self.context.server} does not accept the credentials of user "
                f"{self.context.user!r} in {self.context.files}",
                status=status,
            )
        return _said_once(said, _causes(wire), status)


class _Renamed(http.client.HTTPSConnection):
    """A connection that expects the server's certificate to be for another name than the host's."""

    def __init__(
        self, name: str, host: str, port: int, *, timeout: float, context: ssl.SSLContext
    ) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._name = name
        self._trust = context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._trust.wrap_socket(self.sock, server_hostname=self._name)


def _load_chain(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    """Load a client certificate and its key through a temporary file, because OpenSSL can read them
    only from files."""
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        chain = Path(folder) / "client.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(cert + b"\n" + key)
        context.load_cert_chain(chain)


def _said_once(message: str, causes: list[tuple[str, str]], status: int) -> Failure:
    """Return a Failure that has each cause once. A Kubernetes Status also repeats its causes in its
    message, for clients that print only the message."""
    again = [message.find(f"{path}: {why}" if path else why) for path, why in causes]
    if not again or min(again) < 0:
        return Failure(message, causes, status=status)
    if len(again) == 1:
        return Failure(message, status=status)
    return Failure(message[: min(again)].rstrip(" :["), causes, status=status)


def _causes(wire: Wire) -> list[tuple[str, str]]:
    details = wire.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    return [
        (str(each.get("field") or ""), str(each.get("message") or each.get("reason") or ""))
        for each in (causes if isinstance(causes, list) else [])
        if isinstance(each, dict)
    ]
