"""Answers the queries that the API server passes on to a replica, and manages the certificates for
this.

Started by `leasehold controller --questions`. Only the leader answers queries. Every replica serves
discovery, the list of what can be queried.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from leasehold.adapters.http.tls import Certificates, ensure_certificates
from leasehold.adapters.kubernetes.aggregated import (
    SERVICE,
    Aggregated,
    AnswerRefused,
    register,
    withdraw,
)
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.front_proxy import (
    FrontProxy,
    NoFrontProxy,
    ProxiedUser,
    front_proxy,
)
from leasehold.adapters.kubernetes.install.roles import COMPACT, LEDGERS
from leasehold.adapters.kubernetes.reviews import Reviews
from leasehold.adapters.kubernetes.secrets import kept_fields
from leasehold.adapters.private_file import write_private
from leasehold.app.replica import Replica
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.tenure import NAMESPACE
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import DAY, SECOND, Instant, Millis, parse_span
from leasehold.ports.runtime import Clock
from leasehold.ports.store import StoreError
from leasehold.shell.archive.requests import NAME as COMPACTION
from leasehold.shell.archive.requests import CompactionOrder
from leasehold.shell.plane import Plane
from leasehold.shell.queries.query import BadQuestion

AUTHORITY = "leasehold-query-ca"  # Secret with the authority under which all replicas serve
_THEIRS = ("tls.crt", "tls.key", "ca.crt")  # files as cert-manager writes them
LOOK_EVERY: Millis = 20 * SECOND
RENEW_EVERY: Millis = 30 * DAY  # a certificate is valid for a year

_wire = msgspec.json.Decoder(dict[str, object]).decode
_log = structlog.get_logger("leasehold")


class Answers:
    """Answers queries and compaction requests for a replica, and keeps its certificates valid."""

    def __init__(
        self, replica: Replica, client: Client, clock: Clock, *, certificates: Path | None = None
    ) -> None:
        """`certificates`: a folder into which another program (such as cert-manager) writes
        certificates. While it has them, they are used instead of our own."""
        self._folder = certificates
        self._shown = b""  # the certificates from that folder that we serve with
        self._replica = replica
        self._client = client
        self._clock = clock
        self._reviews = Reviews(client, clock)
        self._authority = b""  # the authority we serve under, with the one before it
        self._kept: dict[str, bytes] = {}
        self._renew_at: Instant = 0
        self._proxy: FrontProxy | None = None
        self._aggregated: Aggregated | None = None

    async def serve(self, host: str, port: int) -> web.AppRunner | None:
        """Start the HTTPS server for queries. Return None if the API server has no certificate
        authority for requests that it passes on. Queries, and so `kubectl runs`, cannot be answered
        then."""
        try:
            self._proxy = await front_proxy(self._client)
        except NoFrontProxy:
            _log.warning(
                "questions are not answered",
                message="the API server has no request-header authority",
            )
            return None
        self._kept = await kept_fields(self._client, NAMESPACE, AUTHORITY, made_authority)
        self._aggregated = Aggregated(self._proxy, self._ask, deeds=(COMPACTION,))
        with self._certificates() as made:
            return await self._aggregated.serve(host, port, made.cert_path, made.key_path)

    async def keep_up(self) -> None:
        """Reload the API server's authorities and renew our own certificate when necessary; never
        return."""
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                await self.look()
            except (NoFrontProxy, StoreError, OSError) as error:
                _log.warning("cannot read the API server's authorities", message=str(error))

    async def look(self) -> None:
        assert self._aggregated is not None, "it serves"
        found = await front_proxy(self._client)
        if found != self._proxy:
            _log.info("the API server has new authorities", names=list(found.names))
            self._aggregated.believe(found)
            self._proxy = found
        theirs = self._theirs()
        if theirs != self._shown or (not theirs and self._clock.now() >= self._renew_at):
            before = self._authority
            with self._certificates() as made:
                # Clients must know the new authority before it is shown to them.
                if made.ca_pem not in before:
                    self._authority = made.ca_pem + before
                    if self._replica.plane is not None and self._replica.plane.is_leading:
                        await self.begin()
                self._aggregated.serve_as(made.cert_path, made.key_path)

    @contextmanager
    def _certificates(self) -> Iterator[Certificates]:
        """Provide certificates as files: those in the folder for them, or new ones that our own
        authority signs."""
        theirs = self._theirs()
        if theirs and self._folder is not None:
            ca = (self._folder / "ca.crt").read_bytes()
            self._authority, self._shown = self._authority or ca, theirs
            yield Certificates(ca, self._folder / "tls.crt", self._folder / "tls.key")
            return
        self._shown = b""
        with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
            for name, content in self._kept.items():
                write_private(Path(folder) / name, content)
            made = ensure_certificates(Path(folder), [f"{SERVICE}.{NAMESPACE}.svc"])
            self._authority = self._authority or made.ca_pem
            self._renew_at = self._clock.now() + RENEW_EVERY
            yield made

    def _theirs(self) -> bytes:
        """Return the contents of the certificates that another program wrote into the folder.
        Return b"" if there is no folder or a file is missing."""
        if self._folder is None:
            return b""
        try:
            return b"\n".join((self._folder / name).read_bytes() for name in _THEIRS)
        except OSError:
            return b""

    async def begin(self) -> None:
        """Register the query API with the API server, because this replica leads now."""
        try:
            if not await register(self._client, NAMESPACE, self._authority):
                _log.warning(
                    "questions are not answered",
                    message=f"there is no Service {NAMESPACE}/{SERVICE}",
                )
        except StoreError as error:
            _log.warning(
                "questions are not answered", message=f"the API cannot be registered: {error}"
            )

    async def end(self) -> None:
        """Unregister the query API from the API server. The next leader registers it again."""
        try:
            await withdraw(self._client)
        except StoreError as error:
            _log.warning("the query API could not be unregistered", message=str(error))

    async def _ask(
        self, asker: ProxiedUser, question: str, params: Mapping[str, str], body: Wire | None
    ) -> Wire:
        plane = self._replica.plane
        world = None if plane is None else plane.world
        if plane is None or world is None:
            raise _undecided()
        if question == COMPACTION:
            return await self._compact(asker, plane, body)
        # A manifest's own namespace has priority over the parameter.
        namespace = text_at(part(body or {}, "metadata"), "namespace")
        namespace = namespace or params.get("namespace", "")
        owner = text_at(part(body or {}, "spec"), "owner")
        try:
            caller = await self._reviews.caller(asker, world, namespace=namespace, owner=owner)
            return await plane.questions.ask(caller, question, params, body)
        except BadQuestion as bad:
            raise AnswerRefused(bad.status, bad.reason, bad.message, bad.causes) from None
        except StoreError as error:
            said = f"cannot check your permissions: {error}"
            raise AnswerRefused(503, "ServiceUnavailable", said) from None

    async def _compact(self, asker: ProxiedUser, plane: Plane, body: Wire | None) -> Wire:
        """Compact the ledger, if the caller has the right to. The API server has only checked that
        the caller may query."""
        if body is None:
            raise AnswerRefused(405, "MethodNotAllowed", f"{COMPACTION} needs a POST request")
        try:
            asked = msgspec.convert(body, CompactionOrder)
        except msgspec.ValidationError as error:
            raise AnswerRefused(
                422, "Invalid", f"the body is not a request for compaction: {error}"
            ) from None
        keep = parse_span(asked.keep) if asked.keep else None
        if asked.keep and keep is None:
            causes = [("keep", f"{asked.keep[:100]!r} is not a duration; use 7d or 12h")]
            raise AnswerRefused(422, "Invalid", f"{causes[0][0]}: {causes[0][1]}", causes)
        try:
            is_allowed = await self._reviews.may(asker, COMPACT, LEDGERS)
        except StoreError as error:
            said = f"cannot check your permissions: {error}"
            raise AnswerRefused(503, "ServiceUnavailable", said) from None
        if not is_allowed:
            said = f"{asker.user} may not compact the ledger: that needs the verb {COMPACT} on"
            raise AnswerRefused(403, "Forbidden", f"{said} {LEDGERS}.{GROUP}")
        if not asked.request:
            _log.info("compaction requested", user=asker.user, keep=asked.keep)
        told = await plane.compactions.ask(asked.request, keep)
        if told is None:
            raise _undecided()
        return _wire(msgspec.json.encode(told))


def _undecided() -> AnswerRefused:
    said = "this replica is not the leader at the moment; try again soon"
    return AnswerRefused(503, "ServiceUnavailable", said)


def made_authority() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="leasehold-") as folder:
        ensure_certificates(Path(folder), [])
        return {name: (Path(folder) / name).read_bytes() for name in ("ca.crt", "ca.key")}
