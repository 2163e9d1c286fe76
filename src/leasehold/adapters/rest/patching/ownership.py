"""`managedFields`: which manager set which field, and server-side apply.

Called by `patching`. A manager owns the leaves that it applied; a list is one leaf. An apply sets
the manager's fields, and removes those that the manager owned and no longer lists. It is refused if
another manager owns one of the fields with a different value, unless it is forced. Other writes
take over the fields that they change, if the object has `managedFields`. Pure.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass

from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, text_at

APPLY, UPDATE = "Apply", "Update"
BEFORE = "before-first-apply"  # owner of the fields that existed before the first apply

Path = tuple[str, ...]
Leaves = frozenset[Path]

# Fields that nobody owns: the server writes them, and a status has its own writers.
_SERVERS = frozenset(
    {
        "creationTimestamp",
        "deletionGraceMs",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generateName",
        "generation",
        "managedFields",
        "name",
        "namespace",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)


@dataclass(frozen=True, slots=True)
class Manager:
    name: str
    operation: str
    fields: Leaves
    time: str

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.operation


def leaves(obj: Wire) -> Leaves:
    """Return the paths of all fields of the object that a manager can own."""
    found: set[Path] = set()
    for key, value in obj.items():
        if key == "metadata" and isinstance(value, dict):
            for name, inner in value.items():
                if name not in _SERVERS:
                    found.update(_leaves(inner, ("metadata", name)))
        elif key not in ("apiVersion", "kind", "status", "metadata"):
            found.update(_leaves(value, (key,)))
    return frozenset(found)


def apply(live: Wire, applied: Wire, *, manager: str, force: bool, time: str) -> Wire:
    """Return the object after `manager` applied its fields. Raise 409 if other managers own some of
    them, unless `force` is True."""
    managers = managers_of(live)
    if not managers:
        managers = [Manager(BEFORE, UPDATE, leaves(live), time)]
    mine = leaves(applied)
    conflicts = [
        (other.name, path)
        for other in managers
        if other.key != (manager, APPLY)
        for path in sorted(other.fields & mine)
        if _at(live, path) != _at(applied, path)
    ]
    if conflicts and not force:
        raise _conflict(conflicts)
    lost = {path for _, path in conflicts}
    others = [
        Manager(each.name, each.operation, each.fields - lost, each.time)
        for each in managers
        if each.key != (manager, APPLY)
    ]
    known = next((each for each in managers if each.key == (manager, APPLY)), None)
    before = frozenset() if known is None else known.fields
    kept = frozenset().union(*(each.fields for each in others))
    result = deepcopy(live)
    for path in sorted(before - mine - kept):
        _drop(result, path)
    for path in sorted(mine):
        _set(result, path, _at(applied, path))
    if known is not None and before == mine and result == live:
        time = known.time  # a repeated apply changes nothing, not even the time
    return with_managers(result, [*others, Manager(manager, APPLY, mine, time)])


def first_applied(applied: Wire, *, manager: str, time: str) -> Wire:
    """Return the new object that an apply creates if there is none."""
    return with_managers(deepcopy(applied), [Manager(manager, APPLY, leaves(applied), time)])


def after_update(old: Wire, new: Wire, *, manager: str, time: str) -> Wire:
    """Return `new` with `manager` as owner of the fields that it changed. An object without
    `managedFields` is returned unchanged."""
    managers = managers_of(new)
    if not managers:
        return new
    there = leaves(new)
    changed = frozenset(path for path in there if _at(old, path) != _at(new, path))
    gone = leaves(old) - there
    if not changed and not gone:
        return new
    key = (manager, UPDATE)
    mine = next((each.fields for each in managers if each.key == key), frozenset())
    others = [
        Manager(each.name, each.operation, each.fields - changed - gone, each.time)
        for each in managers
        if each.key != key
    ]
    return with_managers(new, [*others, Manager(manager, UPDATE, (mine | changed) - gone, time)])


def managers_of(obj: Wire) -> list[Manager]:
    return [
        Manager(
            text_at(entry, "manager"),
            text_at(entry, "operation"),
            frozenset(_read_fields(part(entry, "fieldsV1"), ())),
            text_at(entry, "time"),
        )
        for entry in list_at(part(obj, "metadata"), "managedFields")
        if isinstance(entry, dict) and text_at(entry, "manager")
    ]


def with_managers(obj: Wire, managers: list[Manager]) -> Wire:
    entries = [
        {
            "manager": each.name,
            "operation": each.operation,
            "apiVersion": obj.get("apiVersion"),
            "time": each.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _write_fields(each.fields),
        }
        for each in managers
        if each.fields
    ]
    return {**obj, "metadata": {**part(obj, "metadata"), "managedFields": entries}}


def _leaves(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    else:
        yield path


def _at(obj: object, path: Path) -> object:
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def _set(obj: Wire, path: Path, value: object) -> None:
    for key in path[:-1]:
        inner = obj.get(key)
        if not isinstance(inner, dict):
            inner = obj[key] = {}
        obj = inner
    obj[path[-1]] = deepcopy(value)


def _drop(obj: Wire, path: Path) -> None:
    """Remove a leaf, and every mapping that becomes empty by this."""
    inner = obj.get(path[0])
    if len(path) == 1:
        obj.pop(path[0], None)
    elif isinstance(inner, dict):
        _drop(inner, path[1:])
        if not inner:
            del obj[path[0]]


def _read_fields(raw: Wire, path: Path) -> Iterator[Path]:
    for key, inner in raw.items():
        if key.startswith("f:"):
            below = (*path, key[2:])
            if isinstance(inner, dict) and inner:
                yield from _read_fields(inner, below)
            else:
                yield below


def _write_fields(fields: Leaves) -> Wire:
    found: Wire = {}
    for path in sorted(fields):
        at = found
        for key in path:
            at = at.setdefault(f"f:{key}", {})  # type: ignore[assignment]
    return found


def _conflict(conflicts: list[tuple[str, Path]]) -> RequestRefused:
    causes = [
        RefusalCause("FieldManagerConflict", f'conflict with "{name}"', "." + ".".join(path))
        for name, path in conflicts
    ]
    listed = ", ".join(f"{each.message}: {each.field}" for each in causes[:8])
    count = f"{len(causes)} conflict{'s' if len(causes) > 1 else ''}"
    return RequestRefused(409, "Conflict", f"Apply failed with {count}: {listed}", causes)
