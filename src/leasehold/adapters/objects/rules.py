"""A Kubernetes API server's generic checks, and those of our resource definitions.

Called by `writes`, for every store of ours. Pure: looks at one object, or at an object before and
after, and returns problems as (JSON path, message). Never repairs.
"""

import re
from typing import cast

from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.edits import IMMUTABLE_KINDS

OBJECT_BYTES_MAX = 3 * 1024 * 1024 // 2
TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

Problems = list[tuple[str, str]]


def problems_of(obj: Wire) -> Problems:
    """Return the problems that one object has, whatever else is stored."""
    metadata = part(obj, "metadata")
    problems: Problems = []
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str) or not obj[field]:
            problems.append((field, "is required"))
    name, namespace = metadata.get("name"), metadata.get("namespace", "")
    if not isinstance(name, str) or len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        problems.append(
            ("metadata.name", f"{name!r} is not a DNS subdomain of at most 253 characters")
        )
    if namespace != "" and not _is_label(namespace):
        why = f"{namespace!r} is not a DNS label of at most 63 characters"
        problems.append(("metadata.namespace", why))
    labels = metadata.get("labels", {})
    if not isinstance(labels, dict):
        return [*problems, ("metadata.labels", "is not a mapping")]
    for label, value in labels.items():
        if not _is_label_key(label):
            problems.append((f"metadata.labels[{label}]", "is not a qualified name"))
        if value != "" and not _is_qualified(value):
            why = (
                f"{value!r} is not a label value: use at most 63 letters, digits, '-', '_' and '.'"
            )
            problems.append((f"metadata.labels[{label}]", why))
    if obj.get("kind") == "Node":
        problems += _problems_of_node(obj.get("spec"))
    return problems


def _problems_of_node(spec: object) -> Problems:
    """Return problems in the fields of a Node that users write, taints and cordon, if they could be
    misread."""
    if spec is None:
        return []
    if not isinstance(spec, dict):
        return [("spec", "is not a mapping")]
    problems: Problems = []
    if not isinstance(spec.get("unschedulable", False), bool):
        problems.append(("spec.unschedulable", "use true or false"))
    taints = spec.get("taints")
    if taints is not None and not isinstance(taints, list):
        return [*problems, ("spec.taints", "use a list of taints")]
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints or []):
        path = f"spec.taints[{index}]"
        if not isinstance(taint, dict):
            problems.append((path, "use key, value and effect"))
            continue
        key, value, effect = taint.get("key"), taint.get("value"), taint.get("effect")
        if not isinstance(key, str) or not _is_label_key(key):
            problems.append((f"{path}.key", f"{key!r} is not a qualified name"))
        if value not in (None, "") and not _is_qualified(value):
            problems.append((f"{path}.value", f"{value!r} is not a label value"))
        if effect not in TAINT_EFFECTS:
            listed = ", ".join(TAINT_EFFECTS)
            problems.append((f"{path}.effect", f"{effect!r}: use one of {listed}"))
        elif (str(key), str(effect)) in seen:
            problems.append((path, "another taint has this key and effect; remove one of them"))
        seen.add((str(key), str(effect)))
    return problems


def problems_of_change(old: Wire, new: Wire) -> Problems:
    """Return the changes between `old` and `new` that an update must not make."""
    problems: Problems = []
    if _is_ours(new) and new["kind"] in IMMUTABLE_KINDS and new.get("spec") != old.get("spec"):
        problems.append(("spec", "is immutable"))
    before, after = part(old, "metadata"), part(new, "metadata")
    if "deletionTimestamp" in before:
        known = _finalizers(before)
        added = [finalizer for finalizer in _finalizers(after) if finalizer not in known]
        if added:
            problems.append(
                (
                    "metadata.finalizers",
                    f"{added[0]} cannot be added to an object that is being deleted",
                )
            )
    return problems


def problems_of_status(old: Wire, new: Wire) -> Problems:
    """Return forbidden changes of a Lease's status: `ending` cannot change once it is set, and
    nothing can change once the lease is closed."""
    if not _is_ours(new) or new["kind"] != "Lease":
        return []
    before, after = part(old, "status"), part(new, "status")
    if before.get("closed") and after != before:
        return [("status", "is final once the lease is closed")]
    if "ending" in before and after.get("ending") != before["ending"]:
        return [("status.ending", "cannot change once it is set")]
    return []


def stamp_conditions(before: Wire, after: Wire, now: str) -> None:
    """Give each condition without a `lastTransitionTime` one: the earlier time if the condition had
    the same status before, otherwise `now`."""
    known: dict[tuple[object, object], object] = {}
    for each in _mappings(before.get("conditions")):
        known[each.get("type"), each.get("status")] = each.get("lastTransitionTime")
    for each in _mappings(after.get("conditions")):
        if "lastTransitionTime" not in each:
            since = known.get((each.get("type"), each.get("status")))
            each["lastTransitionTime"] = since or now


def _mappings(value: object) -> list[Wire]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def key_of(obj: Wire) -> tuple[str, str, str]:
    metadata = part(obj, "metadata")
    return (
        str(obj.get("kind", "")),
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
    )


def part(obj: Wire, field: str) -> Wire:
    """Return the mapping in a field of an object; empty if the field is absent or has another
    type."""
    found = obj.get(field)
    return cast(Wire, found) if isinstance(found, dict) else {}


def integer(value: object) -> int:
    assert isinstance(value, int), f"{value!r} was written by us and is an integer"
    return value


def content(obj: Wire) -> Wire:
    """Return the part of an object whose changes increase `generation`: all but metadata and
    status."""
    return {field: obj[field] for field in obj if field not in ("metadata", "status")}


def reset_status(obj: Wire) -> None:
    """Drop the status of a new object, as the server does, because a status is written separately.
    A Node keeps its status, and a Pod becomes Pending."""
    if obj["kind"] == "Node":
        return
    obj.pop("status", None)
    if obj["kind"] == "Pod":
        obj["status"] = {"phase": "Pending"}


def fill_in(obj: Wire) -> None:
    """Set the one default field of a pod that clients read without checking whether it exists."""
    if obj["kind"] == "Pod" and isinstance(obj.get("spec"), dict):
        part(obj, "spec").setdefault("securityContext", {})


def grace_of(obj: Wire, asked_ms: int | None, *, default: int) -> int:
    """Return for how long, in ms, a deletion waits for the kubelet. It is 0 for everything but a
    pod that is bound to a node and has not ended."""
    spec, status = part(obj, "spec"), part(obj, "status")
    is_finished = status.get("phase") in ("Succeeded", "Failed")
    if obj["kind"] != "Pod" or not spec.get("nodeName") or is_finished:
        return 0
    if asked_ms is not None:
        return max(asked_ms, 0)
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds * 1000 if isinstance(seconds, int) else default


def is_gone(obj: Wire) -> bool:
    """Return whether deletion was requested and nothing delays it any more."""
    metadata = part(obj, "metadata")
    return (
        "deletionTimestamp" in metadata
        and metadata["deletionGraceMs"] == 0
        and not _finalizers(metadata)
    )


def add_finalizer(metadata: Wire, finalizer: str) -> None:
    held = _finalizers(metadata)
    if finalizer not in held:
        metadata["finalizers"] = [*held, finalizer]


def _finalizers(metadata: Wire) -> list[object]:
    found = metadata.get("finalizers", [])
    return found if isinstance(found, list) else []


def _is_ours(obj: Wire) -> bool:
    return str(obj.get("apiVersion", "")).startswith(f"{GROUP}/")


def _is_label(text: object) -> bool:
    return isinstance(text, str) and len(text) <= 63 and _LABEL.fullmatch(text) is not None


def _is_qualified(text: object) -> bool:
    return isinstance(text, str) and len(text) <= 63 and _QUALIFIED.fullmatch(text) is not None


def _is_label_key(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return _is_qualified(name)
