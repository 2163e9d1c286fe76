"""Get and list; stored bytes are passed on unchanged if possible.

Called by `app` through `handlers`. An object is decoded only if the request has a selector or asks
for a table, or if the store's own fields must be removed. Otherwise a list of ten thousand objects
is just the stored bytes, joined.
"""

import base64
from collections.abc import Sequence

import msgspec

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.messages import (
    Request,
    Response,
    bad_request,
    encode,
    wrong_option,
)
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.objects.storage import NamespacedName, decode
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.hiding import REDACTED, check_hidden, redacted, visible
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.selectors import Matches, parse_selectors, selected_name
from leasehold.adapters.rest.statuses import expired, refusal_of
from leasehold.adapters.rest.tables import (
    Form,
    asked_form,
    included,
    metadata_list,
    metadata_of,
    table,
)
from leasehold.core.names import Wire
from leasehold.core.objects.pod import MOVED_ENV
from leasehold.core.objects.wire import list_at, part
from leasehold.ports.store import NotFound

SCANNED = 1000  # objects examined at a time for a page

_GRACE = b'"deletionGraceMs"'  # the store's note of a deletion
# The agent's note of environment values that differ from the spec
_MOVED = f'"{MOVED_ENV}"'.encode()


def get(backend: Backend, request: Request, target: Target) -> Response:
    resource = target.resource
    check_hidden(backend, request, resource)
    form, include = asked_form(request, is_list=False), included(request)
    try:
        body = told(resource, backend.store.stored(*target.key))
    except NotFound as error:
        raise refusal_of(error, resource, target.name) from None
    is_visible = visible(backend, request, resource)
    if is_visible is not None and not is_visible(decode(body)):
        # Same as for a missing object: even its existence is private.
        raise refusal_of(NotFound(*target.key), resource, target.name)
    body = redacted(backend, request, resource, body)
    if form is Form.WHOLE:
        return Response(200, body)
    obj = decode(body)
    if form is Form.METADATA:
        return Response(200, encode(metadata_of(obj)))
    version = str(part(obj, "metadata").get("resourceVersion", ""))
    now = backend.clock.now()
    return Response(200, encode(table(resource, [obj], version=version, now=now, include=include)))


def list_(backend: Backend, request: Request, target: Target) -> Response:
    resource = target.resource
    form, include = asked_form(request, is_list=True), included(request)
    matches = selection(backend, request, resource)
    limit, token = request.number("limit") or 0, request.query.get("continue", "")
    if token and request.query.get("resourceVersion", "") not in ("", "0"):
        raise bad_request("the continue token already names the version; leave resourceVersion out")
    going_on = ""
    if (limit or token) and selected_name(request.query.get("fieldSelector", "")) is None:
        page = ListPage(backend, target, matches, limit=limit, token=token)
        bodies: Sequence[bytes] = page.bodies
        version, going_on = page.version, page.going_on
    else:
        bodies, version = stored(backend, request, target)
        if matches is not None:
            bodies = [body for body in bodies if matches(decode(body))]
    if not token:
        check_version(backend, request, version)
    if resource.kind in REDACTED:
        bodies = [redacted(backend, request, resource, body) for body in bodies]
    if form is Form.WHOLE:
        return Response(200, _joined(resource, bodies, version, going_on))
    now = backend.clock.now()
    objects = [decode(body) for body in bodies]
    if form is Form.METADATA:
        shown = metadata_list(objects, version=str(version))
    else:
        shown = table(resource, objects, version=str(version), now=now, include=include)
    if going_on:
        part(shown, "metadata")["continue"] = going_on
    return Response(200, encode(shown))


class ListPage:
    """One page of a list. Its continue token contains the last name of the page, and the version at
    which the first page was read. A watch from that version reports everything that changed between
    pages."""

    def __init__(
        self, backend: Backend, target: Target, matches: Matches | None, *, limit: int, token: str
    ) -> None:
        resource = target.resource
        namespace = target.namespace if resource.is_namespaced else None
        first, place = _read_token(token)
        self.bodies: list[bytes] = []
        self.going_on = ""
        count = min(limit or SCANNED, SCANNED) if matches is None else SCANNED
        while True:
            found, version = backend.store.stored_page(
                resource.kind, namespace, after=place, count=count
            )
            first = first or version
            for where, raw in found:
                place = where
                body = told(resource, raw)
                if matches is None or matches(decode(body)):
                    self.bodies.append(body)
                if limit and len(self.bodies) == limit:
                    break
            is_full = bool(limit) and len(self.bodies) == limit
            if is_full or len(found) < count:
                break
        self.version = first
        if is_full and backend.store.stored_page(resource.kind, namespace, after=place, count=1)[0]:
            self.going_on = _write_token(first, place)


def _write_token(version: int, place: NamespacedName) -> str:
    return base64.urlsafe_b64encode(encode([version, *place])).decode("ascii")


def _read_token(token: str) -> tuple[int, NamespacedName]:
    if not token:
        return 0, ("", "")
    try:
        raw = base64.urlsafe_b64decode(token.encode("ascii"))
        version, namespace, name = msgspec.json.decode(raw, type=tuple[int, str, str])
    except (ValueError, msgspec.DecodeError):
        raise bad_request("the continue token is not from this server; list without it") from None
    return version, (namespace, name)


def selection(backend: Backend, request: Request, resource: Resource) -> Matches | None:
    """Return the filter for objects that the request selects and the caller may see; None if that
    is every object."""
    check_hidden(backend, request, resource)
    asked = parse_selectors(
        resource, request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    )
    seen = visible(backend, request, resource)
    if asked is None or seen is None:
        return asked or seen
    return lambda obj: seen(obj) and asked(obj)


def stored(backend: Backend, request: Request, target: Target) -> tuple[Sequence[bytes], int]:
    """Return the objects among which selectors choose, encoded as callers see them, and their
    version. If the field selector names one object, return at most that one."""
    resource = target.resource
    name = selected_name(request.query.get("fieldSelector", ""))
    if name is None or target.namespace is None:
        namespace = target.namespace if resource.is_namespaced else None
        bodies, version = backend.store.stored_all(resource.kind, namespace)
        return [told(resource, body) for body in bodies], version
    version = backend.store.version  # before the read: the object may only be newer
    try:
        body = backend.store.stored(resource.kind, target.namespace, name)
    except NotFound:
        return [], version
    return [told(resource, body)], version


def check_version(backend: Backend, request: Request, current: int) -> None:
    """Refuse a `resourceVersion` that cannot be served. Only the present version is available:
    older ones are not kept, and a higher one is not from this server."""
    match = request.query.get("resourceVersionMatch", "")
    if match not in ("", "NotOlderThan", "Exact"):
        remedy = f"{match[:80]!r}: use NotOlderThan or Exact"
        raise wrong_option(request, "resourceVersionMatch", "FieldValueNotSupported", remedy)
    asked = request.number("resourceVersion")
    if match and asked is None and not request.query.get("sendInitialEvents"):
        raise _wrong_match(request, "resourceVersionMatch needs a resourceVersion")
    if match == "Exact" and not asked:
        raise _wrong_match(request, "resourceVersion 0 cannot be matched exactly; use NotOlderThan")
    if asked is None:
        return
    if asked > max(current, backend.store.version):
        raise expired(
            f"resourceVersion {asked} is not from this server; list without resourceVersion"
        )
    if match == "Exact" and asked != current:
        raise expired(
            f"only the current version, {current}, is available; list without resourceVersion"
        )


def _wrong_match(request: Request, why: str) -> RequestRefused:
    return wrong_option(request, "resourceVersionMatch", "FieldValueForbidden", why)


def told(resource: Resource, body: bytes) -> bytes:
    """Return the encoded object as callers see it, without the store's own fields."""
    if resource.kind == "Namespace" or resource.shown_kind or _GRACE in body or _MOVED in body:
        return encode(told_object(resource, decode(body)))
    return body


def told_object(resource: Resource, obj: Wire) -> Wire:
    metadata = part(obj, "metadata")
    metadata.pop("deletionGraceMs", None)
    if resource.shown_kind:
        return {**obj, "kind": resource.shown_kind}
    if resource.kind == "Namespace":
        phase = "Terminating" if "deletionTimestamp" in metadata else "Active"
        return {**obj, "status": {**part(obj, "status"), "phase": phase}}
    moved = part(obj, "status").get(MOVED_ENV) if resource.kind == "Pod" else None
    return _with_env(obj, moved) if isinstance(moved, dict) else obj


def _with_env(pod: Wire, moved: Wire) -> Wire:
    """Return the pod with the environment values that its process really got, as recorded in its
    status."""
    status = {key: value for key, value in part(pod, "status").items() if key != MOVED_ENV}
    containers = []
    for container in list_at(part(pod, "spec"), "containers"):
        if isinstance(container, dict):
            env = [
                {**each, "value": moved[each["name"]]}
                if isinstance(each, dict) and each.get("name") in moved
                else each
                for each in list_at(container, "env")
            ]
            container = {**container, "env": env} if env else container
        containers.append(container)
    return {**pod, "spec": {**part(pod, "spec"), "containers": containers}, "status": status}


def _joined(resource: Resource, bodies: Sequence[bytes], version: int, going_on: str) -> bytes:
    more = f',"continue":"{going_on}"' if going_on else ""
    head = (
        f'{{"kind":"{resource.served_kind}List","apiVersion":"{resource.api_version}",'
        f'"metadata":{{"resourceVersion":"{version}"{more}}},"items":['
    )
    return b"".join((head.encode(), b",".join(bodies), b"]}"))
