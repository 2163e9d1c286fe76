"""What `query.hideTenants` keeps from a caller of the objects that every token may read.

Asked by `reads` and `watches`. The query API answers with pseudonyms; an object of the ledger is
told as it is or not at all, because a half of one would not be what the digests are of. Of leases,
reservations and namespaces a caller sees its own; records that name everybody are an
administrator's.
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
    """Raises `RequestRefused` for what names every team."""
    if resource.kind in _OF_ALL and _hides(backend, request.caller):
        said = (
            f"{resource.qualified} name every team, and query.hideTenants is on; ask with an "
            "admin's token, or kubectl runs explain, which tells what became of your own runs"
        )
        raise RequestRefused(403, "Forbidden", said, kind=resource.plural, group=resource.group)


def visible(backend: Backend, request: Request, resource: Resource) -> Matches | None:
    """Which objects the caller sees; None for all of them."""
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
    """A caller's own Reservation without whose runs may be drawn for it and whose leases end."""
    if resource.kind not in REDACTED or not _hides(backend, request.caller):
        return body
    obj = decode(body)
    status = {key: value for key, value in part(obj, "status").items() if key not in _OF_OTHERS}
    return encode({**obj, "status": status})


def _hides(backend: Backend, caller: Caller) -> bool:
    return backend.hides_tenants and not caller.is_trusted


def _namespace_of_run(lease: Wire) -> str:
    # "" is the cluster, which all may see; a lease without a run is nobody's.
    return text_at(part(part(lease, "spec"), "runRef"), "namespace") or "-"


def _sees_namespace(caller: Caller, name: str) -> bool:
    return name in _COMMON or caller.sees(name)
