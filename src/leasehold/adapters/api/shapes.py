"""Compares an object with its schema: yields unknown fields and wrong types, by path.

Called before a write; the caller decides what to do about a difference.
"""

from collections.abc import Iterator

from leasehold.adapters.api.schema_words import OPEN
from leasehold.core.names import Wire
from leasehold.core.objects.problems import joined, shown
from leasehold.core.objects.wire import part

_TYPES: dict[object, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_OF_STORE = ("deletionGraceMs",)  # internal note of a deletion, never shown


def knows(schema: Wire, value: object) -> bool:
    """Return whether the schema knows all fields of `value`. Paths are not computed, because most
    objects have no unknown field."""
    if isinstance(value, list):
        items = part(schema, "items")
        return all(knows(items, each) for each in value)
    if not isinstance(value, dict) or "properties" not in schema:
        return True
    fields, is_open = part(schema, "properties"), schema.get(OPEN)
    return all(
        knows(part(fields, key), each) if key in fields else bool(is_open)
        for key, each in value.items()
    )


def unknown(value: object, schema: Wire, path: str) -> Iterator[tuple[str, Wire, str]]:
    """Yield each unknown field as (path, the mapping that has it, its key). Fields below an unknown
    field are not reported."""
    if isinstance(value, list):
        items = part(schema, "items")
        for index, each in enumerate(value):
            yield from unknown(each, items, joined(path, index))
        return
    if not isinstance(value, dict) or "properties" not in schema:
        return
    fields = part(schema, "properties")
    for key, each in value.items():
        if key in fields:
            yield from unknown(each, part(fields, key), joined(path, key))
        elif not schema.get(OPEN) and key not in _OF_STORE:
            yield joined(path, key), value, key


def wrong(value: object, schema: Wire, path: str) -> Iterator[str]:
    """Yield a message for each value of the wrong type."""
    wanted = schema.get("type")
    if value is None or wanted is None:
        return
    legal = _TYPES[wanted]
    if not isinstance(value, legal) or (isinstance(value, bool) and bool not in legal):
        yield f"{path}: {shown(value)}: use {_article(str(wanted))}"
        return
    if isinstance(value, list):
        for index, each in enumerate(value):
            place = joined(path, index)
            if each is None:
                yield f"{place}: null: remove empty members"
            yield from wrong(each, part(schema, "items"), place)
    elif isinstance(value, dict):
        fields, others = part(schema, "properties"), part(schema, "additionalProperties")
        for key, each in value.items():
            place = joined(path, key)
            if each is None and others:
                yield f"{place}: null: use a value or leave it out"
            yield from wrong(each, part(fields, key) or others, place)


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aio' else 'a'} {word}"
