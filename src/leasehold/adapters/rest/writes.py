"""Create, update and delete, for one object or a collection.

Called through `handlers`, after the caller's verb was checked. Every write is one call of the
store. A dry run makes the same store call with `rehearse=True`, so the same rules apply.
"""

from collections.abc import Awaitable

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.bodies import read_object
from leasehold.adapters.http.messages import Request, Response, json_response
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.objects.storage import decode
from leasehold.adapters.rest.access import check_rights
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.field_validation import check_fields
from leasehold.adapters.rest.incoming import (
    CONTENTS,
    check_identity,
    check_namespace,
    check_write,
    keep_finalizers,
    prepare_new,
    warn_of,
)
from leasehold.adapters.rest.options import (
    DeleteOptions,
    delete_options,
    field_manager,
    is_rehearsal,
)
from leasehold.adapters.rest.patching.ownership import after_update
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.reads import selection, stored, told_object
from leasehold.adapters.rest.statuses import refusal_of, success
from leasehold.core.names import Wire
from leasehold.core.objects.rights import rights_to_delete
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import format_instant
from leasehold.ports.store import AlreadyExists, Conflict, NotFound, StoreError

NAME_TRIES = 8
APPLY_PATCH = "application/apply-patch+yaml"  # updates `managedFields` itself
KEPT_NAMESPACES = ("default", "leasehold-system")


async def create(backend: Backend, request: Request, target: Target) -> Response:
    rehearse = is_rehearsal(request)
    field_manager(request)
    obj = await read_object(request)
    return await create_object(backend, request, target, obj, rehearse=rehearse)


async def create_object(
    backend: Backend, request: Request, target: Target, obj: Wire, *, rehearse: bool
) -> Response:
    resource = target.resource
    check_identity(target, obj)
    check_fields(request, resource, obj)
    check_namespace(backend, target, obj)
    is_named = bool(part(obj, "metadata").get("name"))
    for attempt in range(NAME_TRIES):
        tried = decode_copy(obj)
        prepare_new(request, target, tried)
        name = text_at(part(tried, "metadata"), "name")
        if not attempt:
            await check_write(backend, request, target, None, tried)
        try:
            made = await backend.store.create(tried, rehearse=rehearse)
            break
        except AlreadyExists as error:
            if is_named or attempt == NAME_TRIES - 1:
                raise refusal_of(error, resource, name) from None
        except StoreError as error:
            raise refusal_of(error, resource, name) from None
    warn_of(request, resource, made)
    return json_response(told_object(resource, made), 201)


async def update(backend: Backend, request: Request, target: Target) -> Response:
    """Handle PUT. It replaces everything but the status; a PUT of the subresource `status` replaces
    only the status."""
    resource = target.resource
    rehearse = is_rehearsal(request)
    field_manager(request)
    obj = await read_object(request)
    check_identity(target, obj)
    old = await _read(backend, target)
    if target.subresource is not None:
        version = text_at(part(obj, "metadata"), "resourceVersion") or None
        written = write_status(backend, target, obj, version=version, rehearse=rehearse)
        return json_response(told_object(resource, await refusing(written, target)))
    check_fields(request, resource, obj)
    metadata = part(obj, "metadata")
    if not metadata.get("resourceVersion") and not resource.is_ours:
        metadata["resourceVersion"] = part(old, "metadata")["resourceVersion"]
    known = part(old, "metadata").get("managedFields")
    if known is not None:
        metadata.setdefault("managedFields", known)
    made = await refusing(store_update(backend, request, target, old, obj), target)
    return json_response(told_object(resource, made))


async def store_update(
    backend: Backend, request: Request, target: Target, old: Wire, new: Wire
) -> Wire:
    """Do what PUT and PATCH have in common at the end: check the new object and store it. Raise the
    store's errors unchanged."""
    keep_finalizers(request, old, new)
    await check_write(backend, request, target, old, new)
    time = format_instant(backend.clock.now())
    if request.media_type != APPLY_PATCH:
        new = after_update(old, new, manager=field_manager(request), time=time)
    made = await backend.store.update(new, rehearse=is_rehearsal(request))
    warn_of(request, target.resource, made)
    return made


async def write_status(
    backend: Backend, target: Target, obj: Wire, *, version: str | None, rehearse: bool
) -> Wire:
    """Write a status; raise the store's errors unchanged."""
    if version is not None and not (version.isascii() and version.isdigit() and len(version) < 19):
        raise Conflict(*target.key)
    return await backend.store.patch_status(
        *target.key,
        part(obj, "status"),
        version=None if version is None else int(version),
        stamp=False,
        rehearse=rehearse,
    )


async def refusing(call: Awaitable[Wire], target: Target) -> Wire:
    try:
        return await call
    except StoreError as error:
        raise refusal_of(error, target.resource, target.name) from None


async def delete(backend: Backend, request: Request, target: Target) -> Response:
    options = await delete_options(request)
    return json_response(await delete_object(backend, request, target, options))


async def delete_object(
    backend: Backend, request: Request, target: Target, options: DeleteOptions
) -> Wire:
    """Delete an object. Return the object if a finalizer or a grace period still keeps it,
    otherwise a Status."""
    resource = target.resource
    old = await _read(backend, target)
    check_rights(request.caller, target, rights_to_delete(old))
    metadata = part(old, "metadata")
    uid = text_at(metadata, "uid")
    if options.uid not in (None, uid) or options.version not in (None, metadata["resourceVersion"]):
        raise refusal_of(Conflict(*target.key), resource, target.name)
    if resource.kind == "Namespace":
        await _hold_contents(backend, target, old, rehearse=options.rehearse)
    try:
        await backend.store.delete(
            *target.key,
            uid=uid,
            grace_ms=options.grace_ms,
            version=None if options.version is None else int(options.version),
            rehearse=options.rehearse,
        )
        left = await backend.store.get(*target.key)
    except NotFound:
        return _gone(resource, target.name, old)
    except StoreError as error:
        raise refusal_of(error, resource, target.name) from None
    if text_at(part(left, "metadata"), "uid") != uid or (
        options.rehearse and not list_at(metadata, "finalizers")
    ):
        return _gone(resource, target.name, old)
    return told_object(resource, left)


def _gone(resource: Resource, name: str, old: Wire) -> Wire:
    """Return the answer to the deletion of an object that is gone: a Status; for a pod its last
    state, as clients expect."""
    if resource.kind == "Pod":
        return told_object(resource, old)
    return success(resource, name, text_at(part(old, "metadata"), "uid"))


async def delete_collection(backend: Backend, request: Request, target: Target) -> Response:
    options = await delete_options(request)
    matches = selection(backend, request, target.resource)
    bodies, version = stored(backend, request, target)
    objects = [decode(body) for body in bodies]
    chosen = [obj for obj in objects if matches is None or matches(obj)]
    for obj in chosen:
        one = Target(target.resource, target.namespace, text_at(part(obj, "metadata"), "name"))
        try:
            await delete_object(backend, request, one, options)
        except RequestRefused as error:
            if error.code != 404:  # removed meanwhile
                raise
    listed: Wire = {
        "kind": f"{target.resource.served_kind}List",
        "apiVersion": target.resource.api_version,
        "metadata": {"resourceVersion": str(version)},
        "items": chosen,
    }
    return json_response(listed)


async def _hold_contents(backend: Backend, target: Target, old: Wire, *, rehearse: bool) -> None:
    """Give the namespace the finalizer that keeps it until it is empty, unless it has that
    finalizer. Refuse namespaces that may not be deleted."""
    if target.name in KEPT_NAMESPACES:
        message = f'namespaces "{target.name}" is forbidden: this namespace may not be deleted'
        raise RequestRefused(403, "Forbidden", message, kind="namespaces", name=target.name)
    finalizers = list_at(part(old, "metadata"), "finalizers")
    if CONTENTS in finalizers or rehearse or "deletionTimestamp" in part(old, "metadata"):
        return
    metadata = {**part(old, "metadata"), "finalizers": [*finalizers, CONTENTS]}
    await refusing(backend.store.update({**old, "metadata": metadata}), target)


def decode_copy(obj: Wire) -> Wire:
    """Return a copy whose metadata can be changed without changing the original."""
    return {**obj, "metadata": dict(part(obj, "metadata"))}


async def _read(backend: Backend, target: Target) -> Wire:
    return await refusing(backend.store.get(*target.key), target)
