"""Handles fields that are not in the schema: `fieldValidation`, with Kubernetes' values.

Called before a write. Strict rejects unknown fields, Warn drops them with a warning, Ignore drops
them. The default is Strict for Runs and Budgets, where Kubernetes would warn: a misspelt budget
limit must not be dropped. In the spec and status of Runs and Budgets, types are not checked here,
because `core.objects` checks them with better messages.
"""

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.api.schemas import schema_of
from leasehold.adapters.api.schemas_users import USER_SCHEMAS
from leasehold.adapters.api.shapes import knows, unknown, wrong
from leasehold.adapters.http.messages import Request, bad_request, wrong_option
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire

_SHOWN_MAX = 16


def check_fields(request: Request, resource: Resource, obj: Wire) -> None:
    """Reject or drop the unknown fields of `obj`, as the caller requested. Raise `RequestRefused`
    400 for a rejected field, or if a field has the wrong type."""
    is_ours = resource.kind in USER_SCHEMAS
    mode = request.query.get("fieldValidation", "") or ("Strict" if is_ours else "Warn")
    if mode not in ("Strict", "Warn", "Ignore"):
        remedy = f"{mode[:80]!r}: use Strict, Warn or Ignore"
        raise wrong_option(request, "fieldValidation", "FieldValueNotSupported", remedy)
    schema = schema_of(resource.kind)
    # A status is not written here, so it cannot contain mistakes.
    body: Wire = {key: value for key, value in obj.items() if key != "status"}
    strangers = [] if knows(schema, body) else list(unknown(body, schema, ""))
    if strangers and mode == "Strict":
        raise _strict(strangers)
    for path, holder, key in strangers:
        if holder is body:
            obj.pop(key, None)
        else:
            holder.pop(key, None)
        if mode == "Warn":
            request.warn(f'unknown field "{path}"')
    checked: Wire = obj if not is_ours else {"metadata": obj.get("metadata")}
    first = next(wrong(checked, schema, ""), None)
    if first is not None:
        raise bad_request(
            f"{resource.kind} in version {resource.version!r} cannot be read: {first}"
        )


def _strict(strangers: list[tuple[str, Wire, str]]) -> RequestRefused:
    listed = ", ".join(f'unknown field "{path}"' for path, _, _ in strangers[:_SHOWN_MAX])
    more = f", and {len(strangers) - _SHOWN_MAX} more" if len(strangers) > _SHOWN_MAX else ""
    return bad_request(f"strict decoding error: {listed}{more}")
