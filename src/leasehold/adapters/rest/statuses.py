"""Refusals as Kubernetes `Status` documents, and store errors as refusals.

Called by `app` for all errors, and by handlers that treat an error specially. Of a 422, kubectl
prints only the causes; so each problem becomes a cause.
"""

from collections.abc import Sequence
from functools import partial

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.messages import Response, json_response
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.core.names import Wire
from leasehold.ports import store

_REASONS = (
    ("this field is required", "FieldValueRequired"),
    ("is required", "FieldValueRequired"),
    ("immutable", "FieldValueForbidden"),
    ("is final once", "FieldValueForbidden"),
    ("cannot change once", "FieldValueForbidden"),
    ("to an object that is being deleted", "FieldValueForbidden"),
)


def status_response(refused: RequestRefused) -> Response:
    response = json_response(failure(refused), refused.code)
    if refused.code == 401:
        response.headers.append((b"www-authenticate", b"Bearer"))
    if refused.code == 413:  # the rest of the body is not read
        response.headers.append((b"connection", b"close"))
    return response


def failure(refused: RequestRefused) -> Wire:
    details: Wire = {
        key: value
        for key, value in (
            ("name", refused.name),
            ("group", refused.group),
            ("kind", refused.kind),
        )
        if value
    }
    if refused.causes:
        details["causes"] = [_cause(each) for each in refused.causes]
    status: Wire = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": refused.message,
        "reason": refused.reason,
        "code": refused.code,
    }
    # Always present: kubectl debug reads it without checking.
    status["details"] = details
    return status


def success(resource: Resource, name: str, uid: str) -> Wire:
    """Return the answer to a deletion that removed the object at once (no finalizer keeps it)."""
    details: Wire = {"name": name, "kind": resource.plural}
    if resource.group:
        details["group"] = resource.group
    if uid:
        details["uid"] = uid
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def refusal_of(error: store.StoreError, resource: Resource, name: str) -> RequestRefused:
    """Return the refusal for a store error while reading or writing `name`."""
    what = f'{resource.qualified} "{name}"'
    about = partial(RequestRefused, kind=resource.plural, name=name, group=resource.group)
    match error:
        case store.NotFound():
            return about(404, "NotFound", f"{what} not found")
        case store.AlreadyExists():
            return about(409, "AlreadyExists", f"{what} already exists")
        case store.Conflict():
            message = (
                f"Operation cannot be fulfilled on {what}: the object has been modified; "
                "please apply your changes to the latest version and try again"
            )
            return about(409, "Conflict", message)
        case store.Invalid(problems=problems):
            return invalid(resource, name, problems)
        case store.Forbidden():
            return about(403, "Forbidden", f"{what} is forbidden by the store")
        case store.WatchExpired():
            return expired("the requested version is no longer available; list again")
        case store.OutcomeUnknown():
            message = (
                f"the disk did not confirm the write of {what}; read the object again before "
                "anything else"
            )
            return about(504, "Timeout", message)
        case _:
            return RequestRefused(
                503, "ServiceUnavailable", f"the store cannot be used now: {error}"
            )


def invalid(resource: Resource, name: str, problems: Sequence[tuple[str, str]]) -> RequestRefused:
    causes = [RefusalCause(reason_of(why), why, path) for path, why in problems]
    listed = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    listed = f"[{listed}]" if len(causes) > 1 else listed
    kind = f"{resource.served_kind}.{resource.group}" if resource.group else resource.served_kind
    return RequestRefused(
        422,
        "Invalid",
        f'{kind} "{name}" is invalid: {listed}',
        causes,
        kind=resource.served_kind,
        name=name,
        group=resource.group,
    )


def expired(message: str) -> RequestRefused:
    return RequestRefused(410, "Expired", message)


def reason_of(why: str) -> str:
    for words, reason in _REASONS:
        if words in why:
            return reason
    return "FieldValueInvalid"


def _cause(cause: RefusalCause) -> Wire:
    found: Wire = {"reason": cause.reason, "message": cause.message}
    if cause.field:
        found["field"] = cause.field
    return found
