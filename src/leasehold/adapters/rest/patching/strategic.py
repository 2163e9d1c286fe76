"""Strategic merge patch, the default of `kubectl patch`.

Called by `patching`, also for our kinds, whose templates contain pod lists. Mappings are merged.
Lists with a known merge key are merged by that key, lists of names as sets; other lists are
replaced. The directives `$patch`, `$setElementOrder`, `$retainKeys` and `$deleteFromPrimitiveList`
are supported. Pure.
"""

from copy import deepcopy

from leasehold.adapters.http.messages import bad_request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire

# Merge keys by list field, from the Go types of core/v1.
MERGE_KEYS = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "containerStatuses": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "podIPs": "ip",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
SETS = frozenset({"finalizers"})

_ORDER, _DELETE, _RETAIN, _PATCH = (
    "$setElementOrder/",
    "$deleteFromPrimitiveList/",
    "$retainKeys",
    "$patch",
)


def strategic_merge(document: Wire, patch: Wire) -> Wire:
    """Return the document after the patch; raise `RequestRefused` 400 if the patch is invalid."""
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: deepcopy(value) for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _bad(f"$patch: {str(directive)[:40]!r} is not a directive")
    merged = dict(document)
    retained = patch.get(_RETAIN)
    if retained is not None:
        kept = _list(retained, _RETAIN)
        merged = {key: value for key, value in merged.items() if key in kept}
    for key, value in patch.items():
        if key.startswith(_DELETE):
            field = key.removeprefix(_DELETE)
            gone = _list(value, key)
            merged[field] = [each for each in _list(merged.get(field), field) if each not in gone]
        elif not key.startswith("$"):
            _merge_field(merged, key, value)
    for key, value in patch.items():
        if key.startswith(_ORDER):
            field = key.removeprefix(_ORDER)
            if isinstance(merged.get(field), list):
                merged[field] = _ordered(field, _list(merged[field], field), _list(value, key))
    return merged


def _merge_field(merged: Wire, key: str, value: object) -> None:
    before = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        merged[key] = strategic_merge(before if isinstance(before, dict) else {}, value)
    elif isinstance(value, list) and key in MERGE_KEYS:
        merged[key] = _merge_list(key, _list(before, key), value)
    elif isinstance(value, list) and key in SETS:
        known = _list(before, key)
        merged[key] = [*known, *(each for each in value if each not in known)]
    else:
        merged[key] = deepcopy(value)


def _merge_list(field: str, before: list[object], patch: list[object]) -> list[object]:
    key = MERGE_KEYS[field]
    members = [_mapping(each, field) for each in patch]
    replaces = any(each.get(_PATCH) == "replace" and key not in each for each in members)
    merged = [] if replaces else [_mapping(each, field) for each in before]
    for each in members:
        directive = each.get(_PATCH)
        if directive == "replace" and key not in each:
            continue
        if key not in each:
            raise _bad(f"a member of {field} has no {key}, which is its merge key")
        place = next((at for at, old in enumerate(merged) if old.get(key) == each[key]), None)
        if directive == "delete":
            merged = [old for old in merged if old.get(key) != each[key]]
        elif place is None:
            merged.append(strategic_merge({}, each))
        else:
            merged[place] = strategic_merge(merged[place], each)
    return list(merged)


def _ordered(field: str, members: list[object], order: list[object]) -> list[object]:
    """Return `members` with those named in `order` in that order; the others keep their
    positions."""
    key = MERGE_KEYS.get(field)

    def name(member: object) -> object:
        return member.get(key) if key and isinstance(member, dict) else member

    names = [name(each) for each in order]
    listed = sorted(
        (each for each in members if name(each) in names), key=lambda each: names.index(name(each))
    )
    result: list[object] = []
    for each in members:
        result.append(listed.pop(0) if name(each) in names else each)
    return result


def _list(value: object, field: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise _bad(f"{field[:80]} is not a list")
    return value


def _mapping(value: object, field: str) -> Wire:
    if not isinstance(value, dict):
        raise _bad(f"a member of {field} is not an object")
    return value


def _bad(why: str) -> RequestRefused:
    return bad_request(f"the strategic merge patch cannot be applied: {why}")
