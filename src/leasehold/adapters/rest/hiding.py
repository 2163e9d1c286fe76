"""Hides other tenants' objects from a caller if `query.hideTenants` is set.

Used by `reads` and `watches`; the query API hides names by itself, with pseudonyms. An object of
the ledger is shown unchanged or not at all, because digests cover the whole object. A caller sees
its own leases, reservations and namespaces. Records that name all teams are for administrators
only.
"""

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.messages import Request, encode
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.objects.storage import decode
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.selectors import Matches
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.core.objects.wire import part, text_at

_OF_ALL = frozenset({"Resolution", "LedgerBatch", "LedgerCheckpoint"})
REDACTED = frozenset({"Reservation"})
_OF_OTHERS = ("odds", "releases")
_COMMON = frozenset({"default", "leasehold-system"})


def check_hidden(backend: Backend, request: Request, resource: Resource) -> None:
    """Raise `RequestRefused` if objects of this kind name every team, and the caller may not see
    other teams."""
    if resource.kind in _OF_ALL and _hides(backend, request.caller):
        said = (
            f"{resource.qualified} name every team, and query.hideTenants is on; use an admin's "
            "token, or use kubectl runs explain for your own runs"
        )
        raise RequestRefused(403, "Forbidden", said, kind=resource.plural, group=resource.group)


def visible(backend: Backend, request: Request, resource: Resource) -> Matches | None:
    """Return the filter that passes the objects which the caller may see; None if it may see
    all."""
    caller = request.caller
    if not _hides(backend, caller):
        return None
    if resource.kind == "Lease":
        return lambda obj: caller.sees(_namespace_of_run(obj))
    if resource.kind == "Reservation":
        return lambda obj: caller.sees(text_at(part(obj, "metadata"), "namespace"))
    if resource.kind == "Namespace":
        return lambda obj: _sees_namespace(caller, text_at(part(obj, "metadata"), "name"))
    return None


def redacted(backend: Backend, request: Request, resource: Resource, body: bytes) -> bytes:
    """Return the encoded object as the caller may see it: of a Reservation without the odds and
    releases, because these name other tenants."""
    if resource.kind not in REDACTED or not _hides(backend, request.caller):
        return body
    obj = decode(body)
    status = {key: value for key, value in part(obj, "status").items() if key not in _OF_OTHERS}
    return encode({**obj, "status": status})


def _hides(backend: Backend, caller: Caller) -> bool:
    return backend.hides_tenants and not caller.is_trusted


def _namespace_of_run(lease: Wire) -> str:
    # "" is the cluster, which all may see; a lease without a run belongs to nobody.
    return text_at(part(part(lease, "spec"), "runRef"), "namespace") or "-"


def _sees_namespace(caller: Caller, name: str) -> bool:
    return name in _COMMON or caller.sees(name)
