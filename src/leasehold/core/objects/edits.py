"""Which fields of an existing object may be edited.

`adapters.api.rules` turns these tables into rules of the resource definitions, and the embedded
store asks `check_edit`, so that both modes refuse the same edits. A test compares them.

A Run's spec is fixed when the Run is created, except for four fields. If everything could be edited
until the Run starts, an edit could arrive while the leases of the old spec are being committed, and
only the controller that committed them would know the old spec.

`control` decides whether the payers still cover a Run whose limit became longer.
"""

from collections.abc import Iterator

from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.wire import part

IMMUTABLE_KINDS = frozenset({"Lease", "Resolution", "Reservation", "LedgerBatch"})
# Every field of these specs may change, except the ones named here.
FIXED_FIELDS = {"Budget": ("spec.owner",)}
# No field of a Run's spec may change, except these.
EDITABLE_IN_A_RUN = (
    "spec.malleable.desiredTotalGPUs",
    "spec.funding.sponsors",
    "spec.stop",
    "spec.runtime.maxDuration",
)


RUN_REMEDY = (
    f"of a Run only {', '.join(path.removeprefix('spec.') for path in EDITABLE_IN_A_RUN)} can be "
    "edited; delete the Run and submit another"
)
STOP_REMEDY = "a cancelled run cannot be resumed; submit another run"
OWNER_REMEDY = "a Budget's owner cannot be edited; make another Budget"


def check_edit(old: object, new: object) -> list[Problem]:
    """Return a problem, with its path, for every changed field that may not change."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [Problem(path="", value=shown(new), remedy="use an object")]
    if old.get("kind") != new.get("kind"):
        return [Problem(path="kind", value=shown(new.get("kind")), remedy="a kind cannot change")]
    kind = old.get("kind")
    if kind == "Budget":
        changes = _changes(old, new, "spec", OWNER_REMEDY)
        return [problem for problem in changes if problem.path in FIXED_FIELDS["Budget"]]
    if kind == "Run":
        return _check_run(old, new)
    if isinstance(kind, str) and kind in IMMUTABLE_KINDS:
        problems = _changes(old, new, "spec", f"the spec of a {kind} never changes")
        if kind == "Lease" and part(old, "status").get("closed") is True:
            problems += _changes(old, new, "status", "the status of a closed lease never changes")
        return problems
    return []


def _check_run(old: dict[str, object], new: dict[str, object]) -> list[Problem]:
    stop = part(new, "spec").get("stop")
    if part(old, "spec").get("stop") is True and stop is not True:
        return [Problem(path="spec.stop", value=shown(stop), remedy=STOP_REMEDY)]
    found = _changes(old, new, "spec", RUN_REMEDY)
    return [problem for problem in found if not _is_editable(problem.path)]


def _is_editable(path: str) -> bool:
    """Return whether the field may be edited. True also for a mapping that contains an editable
    field, because the mapping may appear or disappear while empty."""
    return any(
        path == free or path.startswith(f"{free}[") or free.startswith(f"{path}.")
        for free in EDITABLE_IN_A_RUN
    )


def _changes(
    old: dict[str, object], new: dict[str, object], key: str, remedy: str
) -> list[Problem]:
    return [
        Problem(path=path, value=shown(value), remedy=remedy)
        for path, value in _changed_leaves(old.get(key), new.get(key), key)
    ]


def _changed_leaves(old: object, new: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield each leaf that differs, with its new value (None if removed). An empty mapping is a
    leaf."""
    if (old is None and new == {}) or (old == {} and new is None):
        yield path, new
    elif isinstance(old, dict | None) and isinstance(new, dict | None):
        before: dict[object, object] = old or {}
        after: dict[object, object] = new or {}
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _changed_leaves(before.get(key), after.get(key), joined(path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new)):
            yield from _changed_leaves(one, other, joined(path, index))
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, new
