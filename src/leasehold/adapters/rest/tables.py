"""Objects as rows of a `Table` for `kubectl get`, or as metadata only.

Called by lists, gets and watches whose request asks for this form. Each resource defines its
columns. Ages are computed here, by the server's clock, because kubectl prints cells unchanged.
"""

from collections.abc import Iterable
from enum import Enum, unique

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.messages import Request, bad_request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.units import Instant

CELL_CHARS_MAX = 1024
_METADATA, _METADATA_LIST = "partialobjectmetadata", "partialobjectmetadatalist"
_INCLUDES = ("None", "Metadata", "Object")


@unique
class Form(Enum):
    """The form in which a request wants objects: whole, as a table, or only their metadata."""

    WHOLE = "Object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


def asked_form(request: Request, *, is_list: bool) -> Form:
    """Return the first form in the request's Accept header that is supported; raise
    `RequestRefused` 406 if none is."""
    accept = request.header(b"accept")
    if not accept or accept in ("application/json", "*/*"):
        return Form.WHOLE
    forms = {"table": Form.TABLE, _METADATA_LIST if is_list else _METADATA: Form.METADATA}
    for each in accept.lower().split(","):
        media, *parameters = [word.strip() for word in each.split(";")]
        if media not in ("application/json", "*/*", "application/*"):
            continue
        asked = next((word[3:] for word in parameters if word.startswith("as=")), "")
        if not asked:
            return Form.WHOLE
        if asked in forms and "g=meta.k8s.io" in parameters:
            return forms[asked]
    raise not_acceptable()


def not_acceptable() -> RequestRefused:
    return RequestRefused(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, "
        "application/json;as=Table;v=v1;g=meta.k8s.io, "
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    )


def included(request: Request) -> str:
    """Return how much of each object the caller wants in a table's row, besides the cells."""
    asked = request.query.get("includeObject", "") or "Metadata"
    if asked not in _INCLUDES:
        raise bad_request(f"includeObject={asked[:80]!r}; use one of {', '.join(_INCLUDES)}")
    return asked


def table(
    resource: Resource, objects: Iterable[Wire], *, version: str, now: Instant, include: str
) -> Wire:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": _definitions(resource),
        "rows": [_row(resource, obj, now=now, include=include) for obj in objects],
    }


def event_table(
    resource: Resource, obj: Wire, *, now: Instant, include: str, is_first: bool
) -> Wire:
    """Return the table with one row that a watch sends for an event. Only the first table of a
    watch has column definitions."""
    version = part(obj, "metadata").get("resourceVersion")
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": _definitions(resource) if is_first else [],
        "rows": [_row(resource, obj, now=now, include=include)],
    }


def _definitions(resource: Resource) -> list[Wire]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": "name" if column.name == "Name" and not column.wide else "",
            "description": column.about,
            "priority": 1 if column.wide else 0,
        }
        for column in resource.columns
    ]


def _row(resource: Resource, obj: Wire, *, now: Instant, include: str) -> Wire:
    row: Wire = {"cells": [_cell(column.cell(obj, now)) for column in resource.columns]}
    if include == "Object":
        row["object"] = obj
    elif include == "Metadata":
        row["object"] = metadata_of(obj)
    return row


def metadata_of(obj: Wire) -> Wire:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj.get("metadata"),
    }


def metadata_list(objects: Iterable[Wire], *, version: str) -> Wire:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "items": [metadata_of(obj) for obj in objects],
    }


def _cell(value: object) -> object:
    """Return the cell on one line and not too long. kubectl would cut it at the first line
    break."""
    if not isinstance(value, str):
        return value
    text = " ".join(value.splitlines()) if "\n" in value or "\r" in value else value
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"
