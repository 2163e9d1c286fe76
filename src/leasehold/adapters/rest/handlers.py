"""Dispatches a request to its handler after checking the caller's verb.

Called by `app` for every resource request.
"""

from leasehold.adapters.http.messages import Answer, Request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest import podparts, reads, writes
from leasehold.adapters.rest.access import check
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.patching import handler as patching
from leasehold.adapters.rest.paths import Target, parse_target
from leasehold.adapters.rest.watches import Watches

_OF_ONE = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_MANY = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}


async def answer(backend: Backend, watches: Watches, request: Request) -> Answer:
    target = parse_target(request.segments)
    verb = _verb(request, target)
    check(request.caller, verb, target)
    if target.subresource is not None and target.subresource.name != "status":
        return await _part(backend, request, target)
    match verb:
        case "get":
            return reads.get(backend, request, target)
        case "list":
            return reads.list_(backend, request, target)
        case "watch":
            return watches.start(request, target)
        case "create":
            return await writes.create(backend, request, target)
        case "update":
            return await writes.update(backend, request, target)
        case "patch":
            return await patching.patch(backend, request, target)
        case "delete":
            return await writes.delete(backend, request, target)
        case _:
            return await writes.delete_collection(backend, request, target)


async def _part(backend: Backend, request: Request, target: Target) -> Answer:
    assert target.subresource is not None, "it was asked for"
    match target.subresource.name:
        case "log":
            return await podparts.log(backend, request, target)
        case "eviction":
            return await podparts.evict(backend, request, target)
        case _:
            return await podparts.bind(backend, request, target)


def _verb(request: Request, target: Target) -> str:
    method = request.method
    if target.subresource is not None:
        verb = "create" if method == "POST" else _OF_ONE.get(method, "")
        legal = target.subresource.verbs
    elif target.name:
        # `watch` on an object's own path is not supported; watch a collection with a name selector.
        verb, legal = _OF_ONE.get(method, ""), target.resource.verbs
    else:
        verb, legal = _OF_MANY.get(method, ""), target.resource.verbs
        if verb == "list" and request.flag("watch"):
            verb = "watch"
        if target.namespace is None and method != "GET":
            verb = ""  # a namespace is required
    if verb not in legal or not verb:
        raise RequestRefused(
            405,
            "MethodNotAllowed",
            f"{method} is not allowed on this resource; it has: {', '.join(legal)}",
        )
    return verb
