"""Building blocks for schemas, so that the schemas read as tables.

Used by the schema modules only. Each one takes the description first, so that every field has one
for `kubectl explain`.
"""

from leasehold.core.names import Wire

OPEN = "x-kubernetes-preserve-unknown-fields"


def mapping(
    about: str, fields: Wire, *, required: tuple[str, ...] = (), is_open: bool = False
) -> Wire:
    """Return the schema of an object with these fields; if `is_open`, it may have other fields
    too."""
    found: Wire = {"type": "object", "description": about, "properties": fields}
    if required:
        found["required"] = list(required)
    if is_open:
        found[OPEN] = True
    return found


def anything(about: str) -> Wire:
    """Return the schema of an object with arbitrary fields."""
    return {"type": "object", "description": about, OPEN: True}


def text(about: str, *choices: str) -> Wire:
    found: Wire = {"type": "string", "description": about}
    if choices:
        found["enum"] = list(choices)
    return found


def instant(about: str) -> Wire:
    return {"type": "string", "format": "date-time", "description": about}


def whole(about: str) -> Wire:
    return {"type": "integer", "format": "int64", "description": about}


def number(about: str) -> Wire:
    return {"type": "number", "description": about}


def flag(about: str) -> Wire:
    return {"type": "boolean", "description": about}


def many(about: str, item: Wire) -> Wire:
    return {"type": "array", "description": about, "items": item}


def named(about: str, item: Wire, *, key: str = "name") -> Wire:
    """Return the schema of a list whose items have distinct keys. A server-side apply merges the
    items by that key."""
    return {
        **many(about, item),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": [key],
    }


def distinct(about: str) -> Wire:
    """Return the schema of a list of distinct strings."""
    return {**many(about, TEXT), "x-kubernetes-list-type": "set"}


def table(about: str, value: Wire) -> Wire:
    """Return the schema of a mapping from strings to values of the schema `value`."""
    return {"type": "object", "description": about, "additionalProperties": value}


TEXT: Wire = {"type": "string"}
CONDITION = mapping(
    "One aspect of the object's state; `kubectl wait --for=condition=TYPE` waits for it.",
    {
        "type": text("The type of the condition."),
        "status": text("Whether the condition is true.", "True", "False", "Unknown"),
        "reason": text("The reason, as one word for programs."),
        "message": text("One sentence for people."),
        "lastTransitionTime": instant("When the status last changed."),
        "observedGeneration": whole(
            "The metadata.generation that the condition was computed from."
        ),
    },
    required=("type", "status"),
    is_open=True,
)
