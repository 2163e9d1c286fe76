"""PATCH in four media types: read the object, change it, write it if nothing else has changed it.

Called through `handlers`. A conflict with another writer is retried here, unless the caller
specified a version. A server-side apply may also create an object.
"""

from leasehold.adapters.http.bodies import (
    as_mapping,
    check_plain,
    json_value,
    unsupported,
    yaml_value,
)
from leasehold.adapters.http.messages import (
    Request,
    Response,
    bad_request,
    json_response,
    wrong_option,
)
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.adapters.rest.access import check
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.field_validation import check_fields
from leasehold.adapters.rest.incoming import check_identity
from leasehold.adapters.rest.options import field_manager, is_rehearsal
from leasehold.adapters.rest.patching.json_patches import json_patch, merge_patch
from leasehold.adapters.rest.patching.ownership import apply, first_applied
from leasehold.adapters.rest.patching.strategic import strategic_merge
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.reads import told_object
from leasehold.adapters.rest.statuses import invalid, refusal_of
from leasehold.adapters.rest.writes import APPLY_PATCH, create_object, store_update, write_status
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import format_instant
from leasehold.ports.store import Conflict, NotFound, StoreError

TRIES = 8

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = APPLY_PATCH


async def patch(backend: Backend, request: Request, target: Target) -> Response:
    media = request.media_type
    resource = target.resource
    legal = (JSON_PATCH, MERGE_PATCH, APPLY, STRATEGIC)
    if media not in legal:
        raise unsupported(media, *legal)
    is_rehearsal(request)
    body = await request.body()
    asked = yaml_value(body) if media == APPLY else json_value(body)
    field_manager(request)
    if media == APPLY:
        if not request.query.get("fieldManager"):
            remedy = "is required for an apply patch"
            raise wrong_option(request, "fieldManager", "FieldValueRequired", remedy)
        check_identity(target, as_mapping(asked))
    elif request.query.get("force"):
        remedy = "only an apply patch can have force; leave it out"
        raise wrong_option(request, "force", "FieldValueForbidden", remedy)
    for _ in range(TRIES):
        try:
            old = await backend.store.get(*target.key)
        except NotFound as error:
            if media != APPLY or target.subresource is not None:
                raise refusal_of(error, resource, target.name) from None
            return await _create(backend, request, target, as_mapping(asked))
        new = _changed(backend, request, target, old, asked)
        _check_same(target, old, new)
        try:
            made = await _write(backend, request, target, old, new)
        except Conflict:
            continue  # another writer was faster; the caller specified no version
        except StoreError as error:
            raise refusal_of(error, resource, target.name) from None
        return json_response(told_object(resource, made))
    raise refusal_of(Conflict(*target.key), resource, target.name)


def _changed(backend: Backend, request: Request, target: Target, old: Wire, asked: object) -> Wire:
    """Return the object after the patch, which the media type describes."""
    media = request.media_type
    shown = told_object(target.resource, {**old, "metadata": dict(part(old, "metadata"))})
    if media == JSON_PATCH:
        new = json_patch(shown, asked)
    elif media == MERGE_PATCH:
        new = merge_patch(shown, as_mapping(asked))
    elif media == STRATEGIC:
        new = strategic_merge(shown, as_mapping(asked))
    elif target.subresource is not None:
        new = merge_patch(shown, {"status": as_mapping(asked).get("status") or {}})
    else:
        applied = as_mapping(asked)
        check_fields(request, target.resource, applied)
        new = apply(
            shown,
            applied,
            manager=field_manager(request),
            force=request.flag("force"),
            time=format_instant(backend.clock.now()),
        )
    if not isinstance(new, dict):
        raise bad_request("after the patch the result is not an object")
    check_plain(new)
    return new


def _check_same(target: Target, old: Wire, new: Wire) -> None:
    """Refuse a patch that changes the object's identity. A version or uid in the patch must be the
    present one."""
    before, after = part(old, "metadata"), new.get("metadata")
    if not isinstance(after, dict):
        raise bad_request("after the patch the object has no metadata")
    for key in ("apiVersion", "kind"):
        if new.get(key) != old.get(key):
            raise bad_request(f"a patch cannot change {key}")
    for key in ("name", "namespace"):
        if after.get(key) != before.get(key):
            raise bad_request(f"a patch cannot change metadata.{key}")
    if after.get("uid") not in (None, "", before["uid"]):
        raise invalid(target.resource, target.name, [("metadata.uid", "an object keeps its uid")])
    if after.get("resourceVersion") not in (None, "", before["resourceVersion"]):
        raise refusal_of(Conflict(*target.key), target.resource, target.name)
    after["resourceVersion"] = before["resourceVersion"]
    after["uid"] = before["uid"]


async def _write(backend: Backend, request: Request, target: Target, old: Wire, new: Wire) -> Wire:
    if target.subresource is not None:
        version = text_at(part(old, "metadata"), "resourceVersion")
        rehearse = is_rehearsal(request)
        return await write_status(backend, target, new, version=version, rehearse=rehearse)
    if request.media_type != APPLY:
        _check_patched(request, target, new)
    return await store_update(backend, request, target, old, new)


def _check_patched(request: Request, target: Target, new: Wire) -> None:
    """Check the fields of the patched object. A mistake for which PUT would answer 400 is answered
    with 422 here."""
    try:
        check_fields(request, target.resource, new)
    except RequestRefused as refused:
        if refused.code != 400:
            raise
        cause = RefusalCause("FieldValueInvalid", refused.message, "patch")
        raise RequestRefused(422, "Invalid", refused.message, [cause]) from None


async def _create(backend: Backend, request: Request, target: Target, applied: Wire) -> Response:
    check(request.caller, "create", target)
    time = format_instant(backend.clock.now())
    check_fields(request, target.resource, applied)
    made = first_applied(applied, manager=field_manager(request), time=time)
    rehearse = is_rehearsal(request)
    return await create_object(backend, request, target, made, rehearse=rehearse)
