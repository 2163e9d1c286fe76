"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902), over plain data.

Called by `patching`. Pure: each function returns a new document and leaves its arguments unchanged.
The document's size is checked while a JSON patch is applied, because each `copy` can double it.
"""

from copy import deepcopy

from leasehold.adapters.http.messages import bad_request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire

OPERATIONS_MAX = 10_000
NODES_MAX = 200_000  # limit of values copied by one JSON patch
TEXT_PER_NODE = 32  # so many characters of a text count as one value more

Json = object


def merge_patch(document: Json, patch: Json) -> Json:
    """Return the merged document: mappings are merged, null removes a field, any other value
    replaces it."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Wire, operations: Json) -> Json:
    """Return the document after all operations; raise `RequestRefused` if one fails."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise RequestRefused(
            413, "RequestEntityTooLarge", f"a JSON patch has at most {OPERATIONS_MAX} operations"
        )
    patched = _Patched(deepcopy(document))
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise bad_request(f"operation {index} of the JSON patch is not an object")
        try:
            patched.apply(operation)
        except _Cannot as error:
            raise RequestRefused(
                422,
                "Invalid",
                f"operation {index} of the JSON patch cannot be applied: {error.why}",
            ) from None
    return patched.root


class _Cannot(Exception):  # noqa: N818 - named for the condition
    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class _Patched:
    def __init__(self, root: Json) -> None:
        self.root = root
        self._copied = 0

    def apply(self, operation: Wire) -> None:
        path = _pointer(operation, "path")
        match operation.get("op"):
            case "add":
                self._add(path, deepcopy(_value(operation)))
            case "remove":
                self._remove(path)
            case "replace":
                value = deepcopy(_value(operation))
                if path:
                    self._remove(path)
                self._add(path, value)
            case "move":
                source = _pointer(operation, "from")
                if path[: len(source)] == source and path != source:
                    raise _Cannot("a value cannot be moved into itself")
                self._add(path, self._remove(source))
            case "copy":
                value = self._get(_pointer(operation, "from"))
                self._copied += _count(value)
                if self._copied > NODES_MAX:
                    raise _Cannot(
                        f"the patch copies more than {NODES_MAX} values, or too much text"
                    )
                self._add(path, deepcopy(value))
            case "test":
                if not _equal(self._get(path), _value(operation)):
                    raise _Cannot(f"the test of {_shown(path)} fails")
            case other:
                raise _Cannot(f"{str(other)[:40]!r} is not an operation")

    def _get(self, path: list[str]) -> Json:
        found = self.root
        for at, key in enumerate(path):
            if isinstance(found, dict) and key in found:
                found = found[key]
            elif isinstance(found, list):
                found = found[_index(key, len(found) - 1)]
            else:
                raise _Cannot(f"there is no {_shown(path[: at + 1])}")
        return found

    def _add(self, path: list[str], value: Json) -> None:
        if not path:
            self.root = value
            return
        holder, key = self._get(path[:-1]), path[-1]
        if isinstance(holder, dict):
            holder[key] = value
        elif isinstance(holder, list):
            holder.insert(len(holder) if key == "-" else _index(key, len(holder)), value)
        else:
            raise _Cannot(f"{_shown(path[:-1])} has no members")

    def _remove(self, path: list[str]) -> Json:
        if not path:
            raise _Cannot("the whole object cannot be removed")
        holder, key = self._get(path[:-1]), path[-1]
        if isinstance(holder, dict) and key in holder:
            return holder.pop(key)
        if isinstance(holder, list):
            return holder.pop(_index(key, len(holder) - 1))
        raise _Cannot(f"there is no {_shown(path)}")


def _pointer(operation: Wire, key: str) -> list[str]:
    text = operation.get(key)
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise _Cannot(f"the {key} of the operation is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _value(operation: Wire) -> Json:
    if "value" not in operation:
        raise _Cannot("the operation has no value")
    return operation["value"]


def _index(key: str, most: int) -> int:
    is_index = key.isascii() and key.isdigit() and len(key) < 10 and (key == "0" or key[0] != "0")
    if not is_index or int(key) > most:
        raise _Cannot(f"{key[:40]!r} is not an index of a list of {max(most, 0)}")
    return int(key)


def _equal(one: Json, other: Json) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, true is not equal to 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return one == other


def _count(value: Json) -> int:
    """Return the size of a value as a number of values. A text counts by its length, because each
    copy of it is written out in full."""
    if isinstance(value, dict):
        return 1 + sum(map(_count, value)) + sum(map(_count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(_count, value))
    return 1 + len(value) // TEXT_PER_NODE if isinstance(value, str) else 1


def _shown(path: list[str]) -> str:
    return ("/" + "/".join(path))[:120]
