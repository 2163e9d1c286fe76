"""A complete facade for tests: a file store, tokens, TLS on a free port, and its own event loop.

`World` stands for the rest of the program; a test may set its fields.
"""

import asyncio
import http.client
import json
import ssl
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.adapters.http.serve import HttpServer, serve
from leasehold.adapters.http.tls import Certificates, ensure_certificates
from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.kubeconfig.write import write_kubeconfig
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.objects.store import ObjectStore
from leasehold.adapters.rest.app import App, make_app
from leasehold.adapters.rest.backend import Backend, LogOptions
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.run import grace_problems
from leasehold.core.objects.wire import part
from leasehold.core.units import HOUR, Millis

T = TypeVar("T")
OURS = "/apis/rq.davidlangworthy.io/v1"
RUNS = f"{OURS}/namespaces/vision/runs"
BUDGETS = f"{OURS}/namespaces/vision/budgets"
PODS = "/api/v1/namespaces/vision/pods"
DEADLINE_S = 30

ADMIN = Caller(user="root", role=CallerRole.ADMIN)
SYSTEM = Caller(user="loop", role=CallerRole.SYSTEM)
ANN = Caller(user="ann", namespaces=("vision",), spend=("org:ai:mm:*",), fund=("org:ai:mm:vision",))
LENDER = Caller(user="lee", namespaces=("vision",), lend=("org:ai:mm:*",))
VIEWER = Caller(user="vic", role=CallerRole.VIEWER, namespaces=("vision",), spend=("*",))
BOB = Caller(user="bob", namespaces=("audio",), spend=("*",), fund=("*",))


@dataclass
class World:
    """The program behind the facade."""

    lines: list[bytes] = field(default_factory=lambda: [b"one\n", b"two\n", b"three\n"])
    asked: list[LogOptions] = field(default_factory=list)
    health: dict[str, str] = field(default_factory=lambda: {"store": "", "controller": ""})
    objections: list[tuple[str, str]] = field(default_factory=list)
    is_log_lost: bool = False
    grace_max: Millis = HOUR
    hides_tenants: bool = False

    async def logs(self, pod: Wire, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if "spec" not in pod:  # the pod is gone, and its log is not kept
            name = str(part(pod, "metadata")["name"])
            raise RequestRefused(
                404, "NotFound", f'pods "{name}" not found', kind="pods", name=name
            )
        if self.is_log_lost:
            raise RequestRefused(400, "BadRequest", "its log is lost")
        count = options.tail_lines
        for line in self.lines if count is None else self.lines[len(self.lines) - count :]:
            yield line
        if options.follow:
            await asyncio.Event().wait()

    async def query(
        self, caller: Caller, question: str, params: Mapping[str, str], body: Wire | None
    ) -> Wire:
        if question == "impossible":
            raise RequestRefused(
                422, "Invalid", "no", [RefusalCause("FieldValueInvalid", "no", "spec")]
            )
        return {"who": caller.user, "question": question, "params": dict(params), "body": body}

    async def metrics(self, _: Caller) -> bytes:
        return b"leasehold_up 1\n"

    async def judge(self, _: Caller, __: Wire | None, ___: Wire) -> list[tuple[str, str]]:
        return list(self.objections)


def backend_over(world: World, store: ObjectStore, tokens: Tokens, clock: AsyncioClock) -> Backend:
    return Backend(
        store=store,
        tokens=tokens,
        clock=clock,
        query=world.query,
        logs=world.logs,
        metrics=world.metrics,
        health=lambda: world.health,
        judge=world.judge,
        hides_tenants=world.hides_tenants,
    )


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Facade:
    """A running facade. Use it as a context manager; call it from the thread of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = World()
        self.tokens = Tokens(folder / "tokens.json")
        self._made: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="facade")

    def __enter__(self) -> "Facade":
        self._thread.start()
        try:
            self.run(self._start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._stop())
        self._end()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEADLINE_S)

    def token(self, caller: Caller) -> str:
        if caller.user not in self._made:
            self._made[caller.user] = self.tokens.create(caller)
        return self._made[caller.user]

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: Caller | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Answer:
        """Send one request on a new connection; a body that is not bytes is sent as JSON."""
        connection = self.connection()
        try:
            self.send(connection, method, path, body, caller=caller, headers=headers, **query)
            response = connection.getresponse()
            warnings = tuple(response.headers.get_all("warning") or ())
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read(), warnings)
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cadata=self.certificates.ca_pem.decode())
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=context, timeout=DEADLINE_S
        )

    def send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: Caller | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> None:
        sent = dict(headers or {})
        if caller is not None:
            sent.setdefault("Authorization", f"Bearer {self.token(caller)}")
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = f"{path}?{urlencode(query)}" if query else path
        connection.request(method, url, body=body, headers=sent)

    def kubeconfig(self, caller: Caller, namespace: str = "vision") -> Path:
        path = self.folder / f"{caller.user}.kubeconfig"
        write_kubeconfig(
            path,
            server=f"https://127.0.0.1:{self.port}",
            ca_pem=self.certificates.ca_pem,
            token=self.token(caller),
            namespace=namespace,
        )
        return path

    def restart(self) -> None:
        """Restart as after a crash of the process: only the folder remains."""
        self.run(self._stop())
        self.run(self._start())

    async def _start(self) -> None:
        clock = AsyncioClock()
        admission = Admission(also=lambda run: grace_problems(run, self.world.grace_max))
        self.store = GroupStore(self.folder / "store.db", AsyncioTasks(), clock, admission)
        backend = backend_over(self.world, self.store, self.tokens, clock)
        self.certificates: Certificates = ensure_certificates(self.folder / "tls", [])
        self.app: App = make_app(backend)
        self.server: HttpServer = await serve(
            self.app, host="127.0.0.1", port=0, certificates=self.certificates
        )
        self.port = self.server.port

    async def _stop(self) -> None:
        await self.server.stop()
        self.store.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def prepared(folder: Path) -> Facade:
    """Start a facade with three namespaces, as `leasehold up` does at its first start."""
    facade = Facade(folder)
    facade.__enter__()
    for name in ("default", "vision", "audio"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        facade.ask("POST", "/api/v1/namespaces", namespace)
    return facade


def run(name: str, **spec: object) -> Wire:
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Run",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {
            "owner": "org:ai:mm:vision",
            "resources": {"gpuType": "H100-80GB", "totalGPUs": 8},
            **spec,
        },
    }


def budget(name: str, **spec: object) -> Wire:
    envelope = {"name": "west", "flavor": "H100-80GB", "concurrency": 8}
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Budget",
        "metadata": {"name": name, "namespace": "vision"},
        "spec": {"owner": "org:ai:mm:vision", "envelopes": [envelope], **spec},
    }


def pod(name: str, node: str = "n1", namespace: str = "vision") -> Wire:
    containers = [{"name": "main", "image": "i", "command": ["sleep", "1"]}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "a"}},
        "spec": {"containers": containers, **({"nodeName": node} if node else {})},
    }


def node(name: str) -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"region": "us-west"}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": "8"},
        },
    }


def lease(name: str, node_name: str = "n1") -> Wire:
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {
            "owner": "org:ai:mm:vision",
            "runRef": {"namespace": "vision", "name": "train", "uid": "u", "attempt": 1},
            "slice": {"node": node_name, "nodes": [node_name], "slots": [0, 1], "role": "Active"},
            "interval": {"start": "2026-11-15T00:00:10.000Z"},
            "paidByEnvelope": "west",
            "paidBy": {"namespace": "vision", "budget": "b", "envelope": "west",
                       "owner": "org:ai:mm:vision", "relation": "Owned"},
            "reason": "Start",
            "batch": 4711,
        },
    }  # fmt: skip
