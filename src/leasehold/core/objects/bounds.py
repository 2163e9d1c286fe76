"""Upper limits for every list, mapping and text in a manifest that a user controls.

Checked by `manifests` before anything else, so that one Run with twenty thousand sponsors cannot
slow down every decision. Stored objects are read without these limits: an object from before a
limit was lowered stays valid and can still be edited elsewhere.
"""

from collections.abc import Iterator

from leasehold.core.facts import Record
from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.wire import canonical

EACH = "[]"  # in a path: every member of the list
TEXT_CHARS_MAX = 128 * 1024 - 1  # of one text; the limit of Linux for an argument or a variable
RUN_SPEC_BYTES_MAX = 256 * 1024  # every pod of the run carries a copy of its template
# A decision walks all groups of a sweep (4,096 of them in about 10 ms), and a start writes a lease
# and an object per pod. A gang of more than about 1,100 pods does not fit a ledger batch anyway.
RUN_GROUPS_MAX = 4_096
RUN_PODS_MAX = 16_384  # including spares


class Bound(Record, frozen=True):
    """The most members that the list or mapping at a path may have."""

    path: str
    most: int


_METADATA = (
    Bound(path="metadata.labels", most=64),
    Bound(path="metadata.annotations", most=256),
    Bound(path="metadata.finalizers", most=32),
    Bound(path="metadata.ownerReferences", most=32),
)
_CONTAINERS = "spec.template.spec.containers"
RUN = (
    *_METADATA,
    Bound(path="spec.funding.sponsors", most=64),
    Bound(path="spec.template.metadata.labels", most=64),
    Bound(path="spec.template.metadata.annotations", most=256),
    Bound(path=_CONTAINERS, most=16),
    Bound(path=f"{_CONTAINERS}[].command", most=4096),
    Bound(path=f"{_CONTAINERS}[].args", most=4096),
    Bound(path=f"{_CONTAINERS}[].env", most=1024),
    Bound(path=f"{_CONTAINERS}[].ports", most=64),
    Bound(path="spec.template.spec.initContainers", most=16),
    Bound(path="spec.template.spec.tolerations", most=64),
)
BUDGET = (
    *_METADATA,
    Bound(path="spec.parents", most=16),
    Bound(path="spec.namespaces", most=256),
    Bound(path="spec.envelopes", most=256),
    Bound(path="spec.envelopes[].lending.to", most=64),
    # Every payment checks the caps over all their members.
    Bound(path="spec.aggregateCaps", most=64),
    Bound(path="spec.aggregateCaps[].envelopes", most=64),
)
BOUNDS = {"Run": RUN, "Budget": BUDGET}


def check_bounds(raw: object) -> list[Problem]:
    """Return a problem for every list and mapping with too many members; nothing else is
    checked."""
    kind = raw.get("kind") if isinstance(raw, dict) else None
    bounds = BOUNDS.get(kind, ()) if isinstance(kind, str) else ()
    return [problem for bound in bounds for problem in _over(raw, bound)]


def check_sizes(raw: dict[object, object]) -> list[Problem]:
    """Return problems for texts that are too long, and for a Run that is too large.

    The rest of the object must have been checked.
    """
    spec = raw.get("spec")
    size = len(canonical(spec))
    found = []
    if size > TEXT_CHARS_MAX:  # otherwise no text in it can be longer
        found += list(_long(spec, "spec"))
    if raw.get("kind") == "Run" and size > RUN_SPEC_BYTES_MAX:
        remedy = f"use at most {RUN_SPEC_BYTES_MAX}; put large values into files"
        found.append(Problem(path="spec", value=f"{size} bytes", remedy=remedy))
    return found


def _over(raw: object, bound: Bound) -> Iterator[Problem]:
    for path, found in _at(raw, bound.path.split("."), ""):
        if isinstance(found, list | dict) and len(found) > bound.most:
            yield Problem(path=path, value=shown(found), remedy=f"use at most {bound.most}")


def _at(raw: object, steps: list[str], path: str) -> Iterator[tuple[str, object]]:
    if not steps:
        yield path, raw
        return
    key = steps[0].removesuffix(EACH)
    found = raw.get(key) if isinstance(raw, dict) else None
    place = joined(path, key)
    if not steps[0].endswith(EACH):
        yield from _at(found, steps[1:], place)
    elif isinstance(found, list):
        for index, member in enumerate(found):
            yield from _at(member, steps[1:], joined(place, index))


def _long(value: object, path: str) -> Iterator[Problem]:
    if isinstance(value, str):
        if len(value) > TEXT_CHARS_MAX:
            remedy = f"use at most {TEXT_CHARS_MAX} characters; put the value in a file"
            yield Problem(path=path, value=f"{len(value)} characters", remedy=remedy)
    elif isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _long(member, joined(path, key))
