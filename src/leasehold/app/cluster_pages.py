"""The dashboard of a replica on a cluster, behind a proxy that authenticates visitors.

Started by `leasehold controller --pages`. The API server's authorizer decides what a visitor may
see, as it does for queries. Only the leader serves pages.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leasehold.adapters.http.serve import HttpServer, serve
from leasehold.adapters.http.tls import ensure_certificates
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.front_proxy import ProxiedUser
from leasehold.adapters.kubernetes.reviews import Reviews
from leasehold.adapters.kubernetes.secrets import kept_fields
from leasehold.adapters.private_file import write_private
from leasehold.app.chain import committed_chain
from leasehold.app.cluster_queries import AUTHORITY, made_authority
from leasehold.app.replica import Replica
from leasehold.app.sheets import parquet_writer
from leasehold.control.turn import Turn
from leasehold.core.objects.tenure import NAMESPACE
from leasehold.ports.runtime import Clock
from leasehold.ports.store import StoreError
from leasehold.shell.config.config import FrontDoor
from leasehold.shell.plane import Plane
from leasehold.shell.queries.query import Answered, BadQuestion
from leasehold.web.app import Pages, PagesAndFacade
from leasehold.web.authentication import ProxyAuthentication
from leasehold.web.dependencies import Chain, NotShown, PageDependencies, Visitor
from leasehold.web.news import PageNews

SERVICE = "leasehold-pages"

_log = structlog.get_logger("leasehold")


class BadFrontDoor(Exception):  # noqa: N818 - named for what it states
    """The pages cannot be served with this configuration; the message says why."""


@dataclass(frozen=True, slots=True)
class _Named:
    """A visitor, with the user name and groups that the proxy has authenticated."""

    user: str
    groups: tuple[str, ...]


class PagesOfReplica:
    """Serves the dashboard of one replica."""

    def __init__(self, replica: Replica, client: Client, clock: Clock, settings: FrontDoor) -> None:
        self._replica = replica
        self._client = client
        self._clock = clock
        self._settings = settings
        self._reviews = Reviews(client, clock)
        self._news = PageNews()
        replica.listen(self._turned)

    async def serve(self, host: str, port: int) -> HttpServer:
        try:
            trusted = Path(self._settings.client_ca).read_bytes()
        except OSError as error:
            raise BadFrontDoor(
                f"web.clientCA: {self._settings.client_ca}: {error.strerror}"
            ) from None
        door = ProxyAuthentication(
            user_header=self._settings.identity_header,
            groups_header=self._settings.groups_header,
            named=_Named,
        )
        house = PageDependencies(
            ask=self._ask,
            chain=self._chain,
            logs=_no_logs,
            news=self._news,
            door=door,
            parquet=parquet_writer(),
        )
        app = PagesAndFacade(Pages(house), _Nothing(), self._news.end)
        kept = await kept_fields(self._client, NAMESPACE, AUTHORITY, made_authority)
        with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
            for name, content in kept.items():
                write_private(Path(folder) / name, content)
            made = ensure_certificates(Path(folder), [f"{SERVICE}.{NAMESPACE}.svc"])
            return await serve(
                app, host=host, port=port, certificates=made, only_from=trusted.decode()
            )

    def _turned(self, _turn: Turn) -> None:
        self._news.note()

    def _plane(self) -> Plane:
        plane = self._replica.plane
        if plane is None or plane.world is None:
            raise NotShown(
                503, "this replica is not the leader at the moment; reload the page soon"
            )
        return plane

    async def _ask(self, visitor: Visitor, question: str, params: Mapping[str, str]) -> Answered:
        plane = self._plane()
        world, namespace = plane.world, params.get("namespace", "")
        assert world is not None, "it decides"
        try:
            caller = await self._reviews.caller(_asker(visitor), world, namespace=namespace)
            return await plane.questions.answer(caller, question, params)
        except BadQuestion as bad:
            raise NotShown(bad.status, bad.message) from None
        except StoreError as error:
            raise NotShown(503, f"cannot check your permissions: {error}") from None

    async def _chain(self, visitor: Visitor, after: int, limit: int) -> Chain:
        plane = self._plane()
        try:
            if not await self._reviews.may(_asker(visitor), "list", "ledgerbatches"):
                raise NotShown(403, f"user {visitor.user!r} may not list ledgerbatches")
            return await committed_chain(
                plane, self._replica.store, self._clock, after=after, limit=limit
            )
        except StoreError as error:
            raise NotShown(503, f"the ledger cannot be read: {error}") from None


async def _no_logs(_visitor: Visitor, namespace: str, pod: str) -> str:
    """Refuse to show logs. Visitors read them from the API server, which checks their rights."""
    raise NotShown(501, f"read the output of the pod with: kubectl logs -n {namespace} {pod}")


def _asker(visitor: Visitor) -> ProxiedUser:
    assert isinstance(visitor, _Named), "the door makes no others"
    return ProxiedUser(visitor.user, visitor.groups)


class _Nothing:
    """The application for requests that are not for pages: it answers 404."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        await Response(status_code=404)(scope, receive, send)

    def end_streams(self) -> None:
        pass


async def _lifespan(receive: Receive, send: Send) -> None:
    for kind in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{kind}.complete"})
