"""What of an object its schema does not know, or knows otherwise: unknown fields and wrong types.

Called before a write. Kubernetes' words for it are `fieldValidation`: Strict refuses unknown
fields, Warn drops them with a warning, Ignore drops them. The rules of Runs and Budgets are
`core.objects`' and give better advice; here their types are looked at only outside spec and status.
"""

from collections.abc import Iterator
from functools import cache

from leasehold.adapters.rest.backend import Refused
from leasehold.adapters.rest.messages import Request, bad_request, wrong_option
from leasehold.adapters.rest.resources import Resource
from leasehold.adapters.rest.schema_words import OPEN
from leasehold.adapters.rest.schemas import USER_SCHEMAS
from leasehold.adapters.rest.schemas_ledger import METADATA, SYSTEM_SCHEMAS
from leasehold.core.objects.problems import joined, shown
from leasehold.core.objects.wire import part
from leasehold.ports.store import Wire

_TYPES: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_OF_STORE = ("deletionGraceMs",)  # how a deletion is noted; it is never told to anybody
_SHOWN_MAX = 16


@cache
def schema_of(kind: str) -> Wire:
    """The whole object, metadata and all."""
    known = USER_SCHEMAS.get(kind) or SYSTEM_SCHEMAS[kind]
    head: Wire = {
        "apiVersion": {"type": "string", "description": "Group and version of the kind."},
        "kind": {"type": "string", "description": "The kind of object this is."},
        "metadata": METADATA,
    }
    return {**known, "properties": {**head, **part(known, "properties")}}


def check_fields(request: Request, resource: Resource, obj: Wire) -> None:
    """Does with unknown fields of `obj` what the caller asked for; raises `Refused` 400 for what
    cannot be an object of its kind at all."""
    mode = request.query.get("fieldValidation", "") or "Warn"
    if mode not in ("Strict", "Warn", "Ignore"):
        remedy = f"{mode[:80]!r}: write Strict, Warn or Ignore"
        raise wrong_option(request, "fieldValidation", "FieldValueNotSupported", remedy)
    schema = schema_of(resource.kind)
    # A status is not written here, so nothing in it can be a mistake.
    body: Wire = {key: value for key, value in obj.items() if key != "status"}
    unknown = [] if _knows(schema, body) else list(_unknown(body, schema, ""))
    if unknown and mode == "Strict":
        raise _strict(unknown)
    for path, holder, key in unknown:
        if holder is body:
            obj.pop(key, None)
        else:
            holder.pop(key, None)
        if mode == "Warn":
            request.warn(f'unknown field "{path}"')
    checked: Wire = obj if resource.kind not in USER_SCHEMAS else {"metadata": obj.get("metadata")}
    wrong = next(_wrong(checked, schema, ""), None)
    if wrong is not None:
        raise bad_request(
            f"{resource.kind} in version {resource.version!r} cannot be read: {wrong}"
        )


def _strict(unknown: list[tuple[str, Wire, str]]) -> Refused:
    listed = ", ".join(f'unknown field "{path}"' for path, _, _ in unknown[:_SHOWN_MAX])
    more = f", and {len(unknown) - _SHOWN_MAX} more" if len(unknown) > _SHOWN_MAX else ""
    return bad_request(f"strict decoding error: {listed}{more}")


def _knows(schema: Wire, value: object) -> bool:
    """Whether there is nothing unknown; most objects are right, and this makes no paths."""
    if isinstance(value, list):
        items = part(schema, "items")
        return all(_knows(items, each) for each in value)
    if not isinstance(value, dict) or "properties" not in schema:
        return True
    fields, is_open = part(schema, "properties"), schema.get(OPEN)
    return all(
        _knows(part(fields, key), each) if key in fields else bool(is_open)
        for key, each in value.items()
    )


def _unknown(value: object, schema: Wire, path: str) -> Iterator[tuple[str, Wire, str]]:
    """Path, the mapping it is in, and the key; nothing under an unknown field is looked at."""
    if isinstance(value, list):
        items = part(schema, "items")
        for index, each in enumerate(value):
            yield from _unknown(each, items, joined(path, index))
        return
    if not isinstance(value, dict) or "properties" not in schema:
        return
    fields = part(schema, "properties")
    for key, each in value.items():
        if key in fields:
            yield from _unknown(each, part(fields, key), joined(path, key))
        elif not schema.get(OPEN) and key not in _OF_STORE:
            yield joined(path, key), value, key


def _wrong(value: object, schema: Wire, path: str) -> Iterator[str]:
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    legal = _TYPES[wanted]
    if not isinstance(value, legal) or (isinstance(value, bool) and bool not in legal):
        yield f"{path}: {shown(value)}: write {_article(str(wanted))}"
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            place = joined(path, index)
            if each is None:
                yield f"{place}: null: write no empty members"
            yield from _wrong(each, part(schema, "items"), place)
    elif isinstance(value, dict):
        fields, others = part(schema, "properties"), part(schema, "additionalProperties")
        for key, each in value.items():
            place = joined(path, key)
            if each is None and others:
                yield f"{place}: null: write a value or leave it out"
            yield from _wrong(each, part(fields, key) or others, place)


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aio' else 'a'} {word}"
