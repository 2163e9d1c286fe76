"""The whole content of a World, as plain values that can be compared."""

from enum import Enum

import msgspec

from leasehold.core.world.steps import Steps
from leasehold.core.world.world import World

_REMEMBERED = ("_tree", "in_place")
_KEPT = "_kept"  # what the queue remembers from walk to walk


def photograph(world: World) -> object:
    """Return the content of a World as plain values, without caches that any question may fill."""
    world.fleet.by_free("", "", "")  # sorts domains, as a question may
    fields = {name: each for name, each in vars(world).items() if name not in _REMEMBERED}
    return _plain(fields, set())


def _plain(value: object, above: set[int]) -> object:
    if value is None or isinstance(value, str | int | bytes | Enum):
        return value
    if id(value) in above:
        return "(above)"
    inside = {*above, id(value)}
    if isinstance(value, dict):
        # Decisions sort what they take from an index, so its own order says nothing.
        plain = [(_plain(key, inside), _plain(each, inside)) for key, each in value.items()]
        return sorted(plain, key=lambda pair: repr(pair[0]))
    if isinstance(value, list | tuple):
        return [_plain(each, inside) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, msgspec.Struct):
        return repr(value)
    if isinstance(value, Steps):  # the counts are reset when the next turn begins
        return (value.most, sorted(value.over))
    fields = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            fields[name] = getattr(value, name)
    fields.pop(_KEPT, None)
    return [(name, _plain(each, inside)) for name, each in sorted(fields.items())]
