"""A minimal API server for the command line: the query API and a few objects of a `Played` story.

The time is that of the story. It stands still unless a test sets `tick`, which every query calls.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.questions.played import ADMIN, Played

from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller
from leasehold.ports.store import AlreadyExists, Conflict, Invalid, NotFound, StoreError
from leasehold.shell.queries.query import BadQuestion

QUERY = "/apis/query.rq.davidlangworthy.io/v1/questions/"
TOKEN = "a-token"
_STATUS = {Conflict: (409, "Conflict"), NotFound: (404, "NotFound"),
           AlreadyExists: (409, "AlreadyExists")}  # fmt: skip


class Refused(Exception):  # noqa: N818 - named after the outcome
    def __init__(
        self, code: int, reason: str, message: str, causes: list[Wire] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                     "reason": reason, "message": message,
                     "details": {"causes": causes or []}}  # fmt: skip


class Facade:
    """Answers requests from a story; tests may read `asked` and set the other attributes."""

    def __init__(self, played: Played) -> None:
        self.played = played
        self.callers: dict[str, Caller] = {TOKEN: ADMIN}
        self.logs: dict[str, bytes] = {}  # pod name -> its output
        self.tick: Callable[[], None] = lambda: None
        self.conflicts = 0  # the number of patches to refuse because of a conflict
        self.answers_reviews = True  # whether it answers a SelfSubjectReview
        self.asked: list[str] = []
        self.lock = threading.Lock()

    def handle(self, method: str, target: str, token: str, body: bytes) -> tuple[int, object]:
        url = urlsplit(target)
        params = dict(parse_qsl(url.query))
        path = unquote(url.path)
        try:
            with self.lock:
                self.asked.append(f"{method} {path}")
                caller = self.callers.get(token)
                if caller is None:
                    raise Refused(401, "Unauthorized", "Unauthorized")
                wire = json.loads(body) if body else None
                return 200, self._answer(method, path, params, caller, wire)
        except Refused as refused:
            return refused.code, refused.body

    def _answer(
        self, method: str, path: str, params: dict[str, str], caller: Caller, body: Any
    ) -> object:
        if path.startswith(QUERY):
            return self._question(path.removeprefix(QUERY), params, caller, body)
        match path.strip("/").split("/"):
            case ["api", "v1", ("nodes" | "namespaces") as kind]:
                return {"items": [{"metadata": {"name": name}} for name in self._names(kind)]}
            case ["api", "v1", "nodes", name]:
                return self._object(method, "Node", "", name, body)
            case ["apis", "authentication.k8s.io", "v1", "selfsubjectreviews"] if (
                self.answers_reviews
            ):
                return {"status": {"userInfo": {"username": caller.user}}}
            case ["api", "v1", "namespaces", _, "pods", pod, "log"]:
                return self._log(pod, params)
            case ["apis", group, "v1", "namespaces", _, kind] if group == GROUP:
                assert method == "POST", path
                assert kind in ("runs", "budgets")
                return self._stored(self.played.stage.store.create(body))
            case ["apis", group, "v1", "namespaces", namespace, "runs", name] if group == GROUP:
                return self._object(method, "Run", namespace, name, body)
        raise Refused(404, "NotFound", "the server could not find the requested resource")

    def _question(self, name: str, params: dict[str, str], caller: Caller, body: Any) -> object:
        self.tick()
        try:
            return asyncio.run(self.played.questions().ask(caller, name, params, body))
        except BadQuestion as bad:
            causes: list[Wire] = [{"field": field, "message": why} for field, why in bad.causes]
            raise Refused(bad.status, bad.reason, bad.message, causes) from None

    def _names(self, kind: str) -> list[str]:
        world = self.played.world
        if kind == "nodes":
            return sorted(world.fleet.nodes)
        return sorted({budget.namespace for budget in world.budgets.values()})

    def _log(self, pod: str, params: dict[str, str]) -> bytes:
        if pod not in self.logs:
            raise Refused(404, "NotFound", f'pods "{pod}" not found')
        lines = self.logs[pod].splitlines(keepends=True)
        return b"".join(lines[-int(params["tailLines"]) :] if "tailLines" in params else lines)

    def _object(self, method: str, kind: str, namespace: str, name: str, body: Any) -> object:
        found = self._stored(self.played.stage.store.get(kind, namespace, name))
        if method == "GET":
            return found
        assert method == "PATCH", method
        if self.conflicts:
            self.conflicts -= 1
            raise Refused(409, "Conflict", f'{kind} "{name}": the object has been modified')
        return self._stored(self.played.stage.store.update(merged(found, body)))

    def _stored(self, action: Coroutine[object, object, Wire]) -> Wire:
        stage = self.played.stage
        try:
            done = stage.kernel.complete(action, process=stage.user)
        except Invalid as bad:
            causes: list[Wire] = [{"field": path, "message": why} for path, why in bad.problems]
            # Like the real server, repeat every cause in the message.
            listed = ", ".join(f"{path}: {why}" for path, why in bad.problems)
            listed = f"[{listed}]" if len(causes) > 1 else listed
            said = f"{bad.kind} {bad.name!r} is invalid: {listed}"
            raise Refused(422, "Invalid", said, causes) from None
        except StoreError as error:
            code, reason = _STATUS[type(error)]
            raise Refused(code, reason, f"{error.kind} {error.name!r}: {reason}") from None
        stage.settle()
        return done


def merged(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@contextmanager
def served(facade: Facade, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve the facade on a free port of the loopback, and yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            found = facade.handle(self.command, self.path, token, self.rfile.read(length))
            status, answer = found
            raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = do_PATCH = _do  # noqa: N815 - names that http.server requires

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = False

        def handle_error(self, *_: object) -> None:
            pass  # clients that hang up or reject the certificate

    server = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True,
                                        do_handshake_on_connect=False)  # fmt: skip
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def kubeconfig(folder: Path, url: str, *, namespace: str = "vision", **more: str) -> Path:
    """Write a kubeconfig for this server; `more` goes into its cluster entry."""
    cluster = {"server": url, **more}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "me",
                                                  "namespace": namespace}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "me", "user": {"token": TOKEN}}],
    }  # fmt: skip
    file = folder / "kubeconfig"
    file.write_text(json.dumps(config))
    return file
