"""What may change in an object that exists.

Called by the store's admission check and the scenario runner, after the new object has passed its
own check. Compares two objects and returns a problem for each changed field that may not change.
It never looks at anything else: whether a longer run is still covered is decided by `control`.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from leasehold.core.facts import RunSpec
from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.wire import part, whole_at

IMMUTABLE_KINDS = frozenset({"Lease", "Resolution", "Reservation", "LedgerBatch"})
EDITABLE_AFTER_ADMISSION = (
    "spec.malleable.desiredTotalGPUs",
    "spec.funding.sponsors",
    "spec.stop",
    "spec.runtime.maxDuration",
)


def check_edit(old: object, new: object, *, is_admitted: bool = False) -> list[Problem]:
    """Every changed field that may not change, by path. `is_admitted`: whoever asks knows that a
    Run was, also if its status does not say so yet."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [Problem(path="", value=shown(new), remedy="write an object")]
    if old.get("kind") != new.get("kind"):
        return [Problem(path="kind", value=shown(new.get("kind")), remedy="a kind cannot change")]
    kind = old.get("kind")
    if kind == "Budget":
        return _check_budget(old, new)
    if kind == "Run":
        return _check_run(old, new, is_admitted=is_admitted)
    if isinstance(kind, str) and kind in IMMUTABLE_KINDS:
        problems = _changes(old, new, "spec", f"the spec of a {kind} never changes")
        if kind == "Lease" and part(old, "status").get("closed") is True:
            problems += _changes(old, new, "status", "a closed lease stays as it was closed")
        return problems
    return []


def as_admitted(known: RunSpec, edited: RunSpec) -> RunSpec:
    """What of an edit counts for a run that was admitted as `known`: no more than may be edited.

    An edit may be accepted while the run waits and be seen when it runs: its leases are of the
    spec that was decided about, and everything that is computed from them stays so."""
    malleable, funding = known.malleable, known.funding
    if malleable is not None and edited.malleable is not None:
        desired = edited.malleable.desired_gpus
        width = desired - malleable.min_gpus
        if (
            0 <= width <= malleable.max_gpus - malleable.min_gpus
            and not width % malleable.step_gpus
        ):
            malleable = replace(malleable, desired_gpus=desired)
    if funding.allow_borrow:
        funding = replace(funding, sponsors=edited.funding.sponsors)
    return replace(
        known,
        malleable=malleable,
        funding=funding,
        stop=edited.stop,
        max_duration=edited.max_duration,
    )


def _check_budget(old: dict[str, object], new: dict[str, object]) -> list[Problem]:
    before, after = part(old, "spec").get("owner"), part(new, "spec").get("owner")
    if before == after:
        return []
    remedy = f"a Budget's owner cannot be edited; write {shown(before)} or make another Budget"
    return [Problem(path="spec.owner", value=shown(after), remedy=remedy)]


def _check_run(
    old: dict[str, object], new: dict[str, object], *, is_admitted: bool
) -> list[Problem]:
    if part(old, "spec").get("stop") is True and part(new, "spec").get("stop") is not True:
        remedy = "a run that was cancelled stays so; write true, or submit another run"
        return [
            Problem(path="spec.stop", value=shown(part(new, "spec").get("stop")), remedy=remedy)
        ]
    if not is_admitted and (whole_at(part(old, "status"), "attempt") or 0) < 1:
        return []
    editable = ", ".join(path.removeprefix("spec.") for path in EDITABLE_AFTER_ADMISSION)
    remedy = f"after admission only {editable} can be edited"
    found = _changes(old, new, "spec", remedy)
    return [problem for problem in found if not _is_editable(problem.path)]


def _is_editable(path: str) -> bool:
    return any(path == free or path.startswith(f"{free}[") for free in EDITABLE_AFTER_ADMISSION)


def _changes(
    old: dict[str, object], new: dict[str, object], key: str, remedy: str
) -> list[Problem]:
    return [
        Problem(path=path, value=shown(value), remedy=remedy)
        for path, value in _changed_leaves(old.get(key), new.get(key), key)
    ]


def _changed_leaves(old: object, new: object, path: str) -> Iterator[tuple[str, object]]:
    """Each leaf that differs and its new value; one that went away has the value null."""
    if isinstance(old, dict | None) and isinstance(new, dict | None):
        before: dict[object, object] = old or {}
        after: dict[object, object] = new or {}
        for key in [*before, *(key for key in after if key not in before)]:
            yield from _changed_leaves(before.get(key), after.get(key), joined(path, key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new)):
            yield from _changed_leaves(one, other, joined(path, index))
    elif old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, new
