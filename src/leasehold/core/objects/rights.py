"""The rights that a write of a Budget or a Run needs: which verb on which owner.

Checked by the REST facade before a user's write, and by explanations of refusals; on Kubernetes an
admission policy has the same rules. A malformed object needs no right here, because the server
refuses it anyway. `core.objects.access` decides whether a caller has a right.

Editing metadata needs the same right as editing the spec: a finalizer decides whether the object
can be deleted, and labels decide how it is grouped.
"""

from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, OwnerVerb
from leasehold.core.objects.wire import list_at, part, text_at

Right = tuple[OwnerVerb, str]
_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")
# kubectl's record of what was last applied. Every `kubectl apply` writes it, whatever else it
# changes, so it must need only the least right.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def rights_needed(old: Wire | None, new: Wire) -> list[Right]:
    """Return every (verb, owner) needed to turn `old` into `new`; none for other kinds."""
    kind = new.get("kind")
    if kind == "Budget":
        return _of_budget(old, new)
    if kind == "Run":
        return _of_run(old, new)
    return []


def rights_to_delete(old: Wire) -> list[Right]:
    """Return the rights to delete an object: `fund` for a Budget; none for a Run, which spends
    nothing."""
    owner = text_at(part(old, "spec"), "owner")
    return [(OwnerVerb.FUND, owner)] if old.get("kind") == "Budget" and owner else []


def missing_right(caller: Caller, needed: list[Right]) -> Right | None:
    """Return the first right that the caller lacks. `fund` includes `lend`."""
    for verb, owner in needed:
        if caller.may(verb, owner):
            continue
        if verb is OwnerVerb.LEND and caller.may(OwnerVerb.FUND, owner):
            continue
        return verb, owner
    return None


def _of_run(before: Wire | None, after: Wire) -> list[Right]:
    """Return the rights that a write of a Run needs.

    An edit of `stop` alone needs none, because cancelling spends nothing. Any other edit needs
    `spend` on the owner before and after it.
    """
    old, new = part(before, "spec"), part(after, "spec")
    owners = dict.fromkeys(filter(None, (text_at(old, "owner"), text_at(new, "owner"))))
    is_same = (
        before is not None
        and _without(old, "stop") == _without(new, "stop")
        and _metadata(before) == _metadata(after)
    )
    return [] if is_same else [(OwnerVerb.SPEND, owner) for owner in owners]


def _of_budget(before: Wire | None, after: Wire) -> list[Right]:
    old, new = part(before, "spec"), part(after, "spec")
    owner = text_at(new, "owner")
    if not owner or (before is not None and old == new and _metadata(before) == _metadata(after)):
        return []
    if (
        before is not None
        and _without_lending(old) == _without_lending(new)
        and _metadata(before, but=_APPLIED) == _metadata(after, but=_APPLIED)
    ):
        return [(OwnerVerb.LEND, owner)]
    known = list_at(old, "parents")
    parents = [
        parent
        for parent in list_at(new, "parents")
        if isinstance(parent, str) and parent not in known and not _is_above(parent, owner)
    ]
    needed = [owner, *parents]
    was = text_at(old, "owner")
    if was and was != owner:  # the server refuses it, too, but not for a missing right
        needed.append(was)
    return [(OwnerVerb.FUND, each) for each in needed]


def _is_above(parent: str, owner: str) -> bool:
    """Return whether the parent is on the owner's own path, which needs no permission."""
    return owner.startswith(f"{parent}:")


def _metadata(obj: Wire, *, but: str = "") -> Wire:
    """Return the metadata that users write, without the annotation `but`. Empty parts are left
    out."""
    found = {key: value for key, value in part(obj, "metadata").items() if key in _OF_USERS}
    if isinstance(annotations := found.get("annotations"), dict):
        found["annotations"] = _without(annotations, but)
    return {key: value for key, value in found.items() if value}


def _without_lending(spec: Wire) -> Wire:
    envelopes = [
        _without(each, "lending") if isinstance(each, dict) else each
        for each in list_at(spec, "envelopes")
    ]
    return {**spec, "envelopes": envelopes}


def _without(raw: Wire, key: str) -> Wire:
    return {each: value for each, value in raw.items() if each != key}
