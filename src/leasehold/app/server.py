"""The server of `leasehold up`: REST facade and pages on one port, access control and kubeconfig.

Created by `embedded`. Tokens, certificates and the key of sessions are kept in the data folder, so
that users stay signed in after a restart.
"""

import hashlib
from collections.abc import Callable, Mapping

from leasehold.adapters.http.serve import HttpServer, serve
from leasehold.adapters.http.tls import ensure_certificates
from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.kubeconfig.write import read_back, write_kubeconfig
from leasehold.adapters.rest.app import App, make_app
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.app.backend import EmbeddedBackend
from leasehold.app.pages import EmbeddedPages
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.ports.runtime import Clock
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.plane import Plane
from leasehold.web.app import Pages, PagesAndFacade
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.news import PageNews

ADMIN = "admin"  # the user in the kubeconfig that `up` writes
Health = Callable[[], Mapping[str, str]]


class EmbeddedServer:
    """The HTTPS server of `leasehold up`, which is open from `start` to `stop`."""

    def __init__(
        self,
        folder: DataFolder,
        store: GroupStore,
        plane: Plane,
        clock: Clock,
        backing: EmbeddedBackend,
        *,
        health: Health,
    ) -> None:
        self._folder = folder
        self._store = store
        self._plane = plane
        self._clock = clock
        self._backing = backing
        self._health = health
        self._tokens = Tokens(folder.tokens)
        self._news = PageNews()
        self._server: HttpServer | None = None
        self._host = ""
        plane.listen(lambda _turn: self._news.note())

    async def start(self, host: str, port: int) -> None:
        self._host = host
        certificates = ensure_certificates(self._folder.tls, [host])
        facade = make_app(self._backend())
        self._server = await serve(
            self._with_pages(facade), host=host, port=port, certificates=certificates
        )
        write_kubeconfig(
            self._folder.kubeconfig,
            server=self.url,
            ca_pem=certificates.ca_pem,
            token=self._admin_token(),
        )

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop()

    @property
    def url(self) -> str:
        assert self._server is not None, "it is not started"
        host = self._host
        return f"https://{f'[{host}]' if ':' in host else host}:{self._server.port}"

    def sign_in_link(self) -> str:
        """Return a link that signs its first visitor in as administrator."""
        digest = self._tokens.digest_of(self._admin_token())
        assert digest is not None, "the administrator's token was made at the start"
        return f"{self.url}/ui/sign-in?code={self._door.sessions.new_code(digest)}"

    def _backend(self) -> Backend:
        return Backend(
            store=self._store,
            tokens=self._tokens,
            clock=self._clock,
            query=self._backing.ask,
            logs=self._backing.logs,
            metrics=self._backing.metrics,
            health=self._health,
            judge=self._backing.judge,
            hides_tenants=self._backing.hides_tenants,
        )

    def _with_pages(self, facade: App) -> PagesAndFacade:
        """Return an application that serves the REST facade and the pages. Sessions are signed with
        a key derived from the data folder's, so they outlive a restart and cannot be forged."""
        key = hashlib.sha256(b"sessions\n" + self._folder.key()).digest()
        rooms = EmbeddedPages(
            plane=self._plane,
            store=self._store,
            clock=self._clock,
            logs=self._backing.logs,
            hides_tenants=self._backing.hides_tenants,
        )
        self._door = LinkAuthentication(
            visitor_of=self._tokens.caller_of_digest, digest_of=self._tokens.digest_of, key=key
        )
        return PagesAndFacade(Pages(rooms.house(self._news, self._door)), facade, self._news.end)

    def _admin_token(self) -> str:
        """Return the administrator's token in the kubeconfig, or a new one if that is no longer
        valid. The old token cannot be read from anywhere else, because only its digest is
        stored."""
        kept = read_back(self._folder.kubeconfig)
        if kept is not None and self._tokens.caller_of(kept.token) is not None:
            return kept.token
        self._tokens.revoke(ADMIN)
        return self._tokens.create(Caller(user=ADMIN, role=CallerRole.ADMIN))
