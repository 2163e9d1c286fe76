"""What a write of a Budget or a Run needs: which verb on which owner.

Asked by the REST facade before a user's write, and by whoever explains a refusal; on Kubernetes a
policy says the same. Pure and lenient: an object that is malformed needs nothing here, because the
server refuses it for that. Whether a caller has the right is `core.objects.access`' answer.

Metadata goes with the spec: a finalizer decides whether an object can be deleted, a label who is
counted with whom, so that only who may change the spec may change them.
"""

from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller, OwnerVerb
from leasehold.core.objects.wire import list_at, part, text_at

Right = tuple[OwnerVerb, str]
_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")
# kubectl's own note of what was applied last: it goes with every `kubectl apply`, whatever that
# changes, so that it needs the least right that a change can need.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def rights_needed(old: Wire | None, new: Wire) -> list[Right]:
    """Every (verb, owner) that turning `old` into `new` needs; none for other kinds."""
    kind = new.get("kind")
    if kind == "Budget":
        return _of_budget(old, new)
    if kind == "Run":
        return _of_run(old, new)
    return []


def rights_to_delete(old: Wire) -> list[Right]:
    """Taking a Budget away is the funder's; a Run's deletion spends nothing."""
    owner = text_at(part(old, "spec"), "owner")
    return [(OwnerVerb.FUND, owner)] if old.get("kind") == "Budget" and owner else []


def missing_right(caller: Caller, needed: list[Right]) -> Right | None:
    """The first of them that the caller lacks. Whoever may fund may also lend."""
    for verb, owner in needed:
        if caller.may(verb, owner):
            continue
        if verb is OwnerVerb.LEND and caller.may(OwnerVerb.FUND, owner):
            continue
        return verb, owner
    return None


def _of_run(before: Wire | None, after: Wire) -> list[Right]:
    """An edit of `stop` alone needs no right, because cancelling spends nothing. Any other edit
    needs the right on the owner before and after it."""
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
    if was and was != owner:  # refused by the server too, but not for want of a right
        needed.append(was)
    return [(OwnerVerb.FUND, each) for each in needed]


def _is_above(parent: str, owner: str) -> bool:
    """Whether the parent is on the owner's own path: nobody's leave is needed to be its child."""
    return owner.startswith(f"{parent}:")


def _metadata(obj: Wire, *, but: str = "") -> Wire:
    """What users write there; one annotation may be left out. Empty is as good as not there."""
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
