"""The query API through Kubernetes' aggregation layer, and actions ("deeds") that are POST only.

The API server forwards requests for `query.rq.davidlangworthy.io` to us. All questions are one
resource, `questions`, with the question as the name. kubectl looks up a name such as `runs` in
every group, so no resource here may share a name with one of our definitions, and no two may have
the same kind.

Every replica serves discovery, because an API service without a backend blocks the deletion of
namespaces in the whole cluster. `Aggregated` only transports: its `ask` function computes answers
and checks permissions.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web

from leasehold.adapters.kubernetes.client import APPLY, ApiRequest, Client
from leasehold.adapters.kubernetes.front_proxy import FrontProxy, ProxiedUser, UntrustedProxy
from leasehold.adapters.kubernetes.install.roles import QUERY_GROUP, QUESTIONS
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, whole_at
from leasehold.ports.store import NotFound

VERSION = "v1"
SERVICE = "leasehold-query"
BODY_BYTES_MAX = 3 * 1024 * 1024 // 2
_PATH = f"/apis/{QUERY_GROUP}/{VERSION}"
# kubectl prefers the group with the higher priority; CRDs have 1000.
PRIORITY = 100
_REGISTERED = f"/apis/apiregistration.k8s.io/v1/apiservices/{VERSION}.{QUERY_GROUP}"
_decode = msgspec.json.Decoder(dict[str, object]).decode
_encode = msgspec.json.Encoder().encode

# (asker, question, parameters, body) -> answer as JSON; may raise `AnswerRefused`.
Ask = Callable[[ProxiedUser, str, Mapping[str, str], Wire | None], Awaitable[Wire]]


class AnswerRefused(Exception):  # noqa: N818 - named for the condition
    """Carries the Kubernetes `Status` that says why a question is not answered."""

    def __init__(
        self, status: int, reason: str, message: str, causes: Sequence[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body: Wire = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": {"causes": [{"field": field, "message": why} for field, why in causes]},
            "code": status,
        }


class Aggregated:
    def __init__(self, proxy: FrontProxy, ask: Ask, *, deeds: Sequence[str] = ()) -> None:
        self._proxy = proxy
        self._deeds = tuple(deeds)
        self._served = [
            _resource(QUESTIONS, "Question", ["create", "get"]),
            *(_resource(each, each.capitalize(), ["create"]) for each in deeds),
        ]
        self._ask = ask
        self._trust: ssl.SSLContext | None = None  # set while serving

    async def serve(self, host: str, port: int, cert: Path, key: Path) -> web.AppRunner:
        """Start serving, and return the server's runner. The caller must call the runner's
        `cleanup` to stop."""
        app = web.Application(client_max_size=BODY_BYTES_MAX)
        app.router.add_get("/apis", self._groups)
        app.router.add_get(f"/apis/{QUERY_GROUP}", self._group)
        app.router.add_get(_PATH, self._resources)
        for path in (f"{_PATH}/{QUESTIONS}/{{question}}", f"{_PATH}/{{deed}}"):
            app.router.add_get(path, self._answer)
            app.router.add_post(path, self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._trust = self._proxy.trust(str(cert), str(key))
        await web.TCPSite(runner, host, port, ssl_context=self._trust).start()
        return runner

    def believe(self, proxy: FrontProxy) -> None:
        """Replace the settings that decide which proxy may forward requests. They apply to new
        connections.

        Certificate authorities can only be added to a TLS context. An authority that was removed is
        therefore accepted until the process ends. Its certificates are useless only if the settings
        list allowed names, and the certificate has none of them."""
        assert self._trust is not None, "it serves"
        self._trust.load_verify_locations(cadata=proxy.ca_pem)
        self._proxy = proxy

    def serve_as(self, cert: Path, key: Path) -> None:
        """Present this certificate to new connections."""
        assert self._trust is not None, "it serves"
        self._trust.load_cert_chain(str(cert), str(key))

    async def _groups(self, request: web.Request) -> web.Response:
        self._known(request)
        listed: Wire = {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_GROUP]}
        return _json(200, listed)

    async def _group(self, request: web.Request) -> web.Response:
        self._known(request)
        return _json(200, {"kind": "APIGroup", "apiVersion": "v1", **_GROUP})

    async def _resources(self, request: web.Request) -> web.Response:
        self._known(request)
        return _json(
            200,
            {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": f"{QUERY_GROUP}/{VERSION}",
                "resources": self._served,
            },
        )

    async def _answer(self, request: web.Request) -> web.Response:
        asker = self._known(request)
        deed = request.match_info.get("deed", "")
        asked = deed or request.match_info["question"]
        try:
            if (asked in self._deeds) != bool(deed):
                raise AnswerRefused(404, "NotFound", "the server could not find that resource")
            body = _manifest(await request.read()) if request.method == "POST" else None
            found = await self._ask(asker, asked, dict(request.query), body)
        except AnswerRefused as refused:
            return _json(refused.status, refused.body)
        return _json(200, found)

    def _known(self, request: web.Request) -> ProxiedUser:
        peer = request.transport.get_extra_info("peercert") if request.transport else None
        try:
            return self._proxy.asker(peer, request.headers)
        except UntrustedProxy as stranger:
            refused = AnswerRefused(401, "Unauthorized", str(stranger))
            raise web.HTTPUnauthorized(
                text=_encode(refused.body).decode(), content_type="application/json"
            ) from None


async def register(client: Client, namespace: str, ca_pem: bytes) -> bool:
    """Register our APIService, so that the API server forwards questions to our Service
    `leasehold-query`. Return False if `namespace` has no such Service; nothing is registered
    then."""
    services = _decode(await client.read(f"/api/v1/namespaces/{namespace}/services"))
    ports = [
        whole_at(ports[0], "port")
        for each in list_at(services, "items")
        if isinstance(each, dict) and part(each, "metadata").get("name") == SERVICE
        for ports in [[p for p in list_at(part(each, "spec"), "ports") if isinstance(p, dict)]]
        if ports
    ]
    if not ports:
        return False
    name = f"{VERSION}.{QUERY_GROUP}"
    wanted: Wire = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {
            "group": QUERY_GROUP,
            "version": VERSION,
            "groupPriorityMinimum": PRIORITY,
            "versionPriority": 10,
            "caBundle": _base64(ca_pem),
            "service": {"namespace": namespace, "name": SERVICE, "port": ports[0]},
        },
    }
    await client.ask(
        ApiRequest(
            "PATCH",
            _REGISTERED,
            ("APIService", "", name),
            {"fieldManager": "leasehold", "force": "true"},
            _encode(wanted),
            APPLY,
        )
    )
    return True


async def withdraw(client: Client) -> None:
    """Remove our APIService. If it stayed without a backend, no namespace of the cluster could be
    deleted."""
    with suppress(NotFound):
        await client.write("DELETE", _REGISTERED, {"propagationPolicy": "Background"})


def _resource(name: str, kind: str, verbs: list[str]) -> Wire:
    return {
        "name": name,
        "singularName": name.removesuffix("s"),
        "namespaced": False,
        "kind": kind,
        "verbs": verbs,
    }


def _base64(data: bytes) -> str:
    return _decode(_encode({"data": data}))["data"]  # type: ignore[return-value]


def _manifest(raw: bytes) -> Wire:
    try:
        return _decode(raw)
    except msgspec.DecodeError as error:
        raise AnswerRefused(400, "BadRequest", f"the body is not a JSON object: {error}") from None


def _json(status: int, body: Wire) -> web.Response:
    return web.Response(status=status, body=_encode(body), content_type="application/json")


_SERVED: Wire = {"groupVersion": f"{QUERY_GROUP}/{VERSION}", "version": VERSION}
_GROUP: Wire = {"name": QUERY_GROUP, "versions": [_SERVED], "preferredVersion": _SERVED}
