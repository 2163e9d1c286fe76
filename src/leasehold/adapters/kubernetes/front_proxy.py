"""Authenticates requests that the API server forwards, through the front-proxy headers.

The API server connects with a certificate of its request-header authority, and names the user in
headers. A ConfigMap of the API server has the authority, the allowed names and the header names.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from leasehold.adapters.kubernetes.client import Client
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import NotFound

CONFIG = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
_decode = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, slots=True)
class ProxiedUser:
    user: str
    groups: tuple[str, ...] = ()


class NoFrontProxy(Exception):  # noqa: N818 - named for the condition
    """The API server publishes no request-header authority, so it forwards nothing."""


class UntrustedProxy(Exception):  # noqa: N818 - named for the condition
    """The connected client may not act for other users, so its headers are not believed."""


@dataclass(frozen=True, slots=True)
class FrontProxy:
    ca_pem: str
    names: tuple[str, ...]  # allowed names of its certificate; empty: any
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]

    def trust(self, cert: str, key: str) -> ssl.SSLContext:
        """Return a server TLS context with our certificate. A client must present a certificate
        that the request-header authority has signed."""
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(cert, key)
        found.load_verify_locations(cadata=self.ca_pem)
        found.verify_mode = ssl.CERT_REQUIRED
        return found

    def asker(self, peer: Mapping[str, object] | None, headers: Mapping[str, str]) -> ProxiedUser:
        """Return the user who made the request that the API server forwards. Raise `UntrustedProxy`
        if the client may not act for users, or names none. `peer` is the client's verified
        certificate. `headers` may contain several values of one name."""
        if self.names and not set(_common_names(peer or {})) & set(self.names):
            raise UntrustedProxy(
                "the client certificate has none of the names that may act for other users"
            )
        user = next((headers[each] for each in self.user_headers if each in headers), "")
        if not user:
            raise UntrustedProxy("the request does not name the user for whom it is made")
        groups: list[str] = []
        for name in self.group_headers:
            getall = getattr(headers, "getall", None)
            groups += getall(name, []) if getall is not None else [headers[name]]
        return ProxiedUser(user, tuple(groups))


async def front_proxy(client: Client) -> FrontProxy:
    try:
        said = part(_decode(await client.read(CONFIG)), "data")
    except NotFound:
        raise NoFrontProxy from None
    ca = text_at(said, "requestheader-client-ca-file")
    if not ca:
        raise NoFrontProxy
    return FrontProxy(
        ca_pem=ca,
        names=_listed(said, "requestheader-allowed-names"),
        user_headers=_listed(said, "requestheader-username-headers") or ("X-Remote-User",),
        group_headers=_listed(said, "requestheader-group-headers") or ("X-Remote-Group",),
    )


def _listed(said: dict[str, object], name: str) -> tuple[str, ...]:
    found = json.loads(text_at(said, name) or "[]")
    return tuple(str(each) for each in found) if isinstance(found, list) else ()


def _common_names(peer: Mapping[str, object]) -> list[str]:
    subject = peer.get("subject")
    return [
        value
        for part_ in (subject if isinstance(subject, tuple) else ())
        for key, value in part_
        if key == "commonName"
    ]
