"""Turns a caller's body into an object to be stored, or refuses it.

Called by `writes` and `patching` for every incoming object. It checks that the object matches the
URL and that its namespace exists. It also checks that the caller has the rights on the object's
owners, and that the control plane accepts the object. The store's own rules are checked later, by
the store.
"""

import secrets

from leasehold.adapters.api.resources import NAMESPACES, Resource
from leasehold.adapters.http.messages import Request, bad_request
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.adapters.rest.access import check_rights
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.statuses import invalid
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import CallerRole
from leasehold.core.objects.budget import budget_warnings, check_budget
from leasehold.core.objects.manifests import USER_KINDS
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.readers import namespace as dns_label
from leasehold.core.objects.rights import rights_needed
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.store import NotFound

CONTENTS = f"{GROUP}/contents"  # finalizer that keeps a Namespace until it is empty
NAME_CHARS_MAX = 253
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so that no words are formed
_SUFFIX_CHARS = 5
_OURS = f"{GROUP}/"


def check_identity(target: Target, obj: Wire) -> None:
    """Fill in fields that follow from the URL; refuse an object that contradicts the URL."""
    resource = target.resource
    for key, wanted in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        found = obj.get(key)
        if found is None or found == "":
            raise bad_request(f"the object has no {key}; add {key}: {wanted}")
        if found != wanted:
            raise bad_request(
                f"the {key} of the object ({str(found)[:80]}) differs from the one in the "
                f"URL ({wanted})"
            )
    metadata = obj.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise bad_request("metadata is not a mapping; use a mapping with at least a name")
    if metadata.get("uid") == "":  # same as absent
        del metadata["uid"]
    namespace = metadata.get("namespace") or ""
    if resource.is_namespaced:
        if namespace not in ("", target.namespace):
            raise bad_request(
                f"the namespace of the object ({str(namespace)[:80]}) differs from the one in "
                f"the URL ({target.namespace})"
            )
        metadata["namespace"] = target.namespace
    elif namespace:
        raise bad_request(f"{resource.plural} are not in a namespace; leave metadata.namespace out")
    else:
        metadata.pop("namespace", None)
    if target.name and metadata.get("name") != target.name:
        raise bad_request(
            f"the name of the object ({str(metadata.get('name'))[:80]}) differs from the one in "
            f"the URL ({target.name[:NAME_CHARS_MAX]})"
        )


def prepare_new(request: Request, target: Target, obj: Wire) -> None:
    """Generate the name of a new object if needed, and remove fields that only the server may
    set."""
    metadata = part(obj, "metadata")
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"):
        metadata.pop(key, None)
    if not metadata.get("name"):
        prefix = metadata.get("generateName")
        if not isinstance(prefix, str) or not prefix:
            why = "this field is required, unless metadata.generateName is set"
            raise invalid(target.resource, "", [("metadata.name", why)])
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(_SUFFIX_CHARS))
        metadata["name"] = prefix[: NAME_CHARS_MAX - _SUFFIX_CHARS] + suffix
    if request.caller.role is not CallerRole.SYSTEM:
        kept = [each for each in list_at(metadata, "finalizers") if not _is_our_finalizer(each)]
        _set_or_drop(metadata, "finalizers", kept)
    if target.resource.kind == "Namespace":
        _prepare_namespace(metadata)


def keep_finalizers(request: Request, old: Wire, new: Wire) -> None:
    """Keep leasehold's finalizers in `new` as they were in `old`, whatever the caller sends. Only
    leasehold removes them, when their purpose is fulfilled."""
    if request.caller.role is CallerRole.SYSTEM:
        return
    before = list_at(part(old, "metadata"), "finalizers")
    metadata = part(new, "metadata")
    asked = [each for each in list_at(metadata, "finalizers") if not _is_our_finalizer(each)]
    kept = [each for each in before if _is_our_finalizer(each) or each in asked]
    _set_or_drop(metadata, "finalizers", kept + [each for each in asked if each not in kept])


def check_namespace(backend: Backend, target: Target, obj: Wire) -> None:
    """Raise `RequestRefused` unless the namespace exists and is not being deleted."""
    if not target.resource.is_namespaced:
        return
    name = target.namespace or ""
    try:
        body = backend.store.stored("Namespace", "", name)
    except NotFound:
        message = f'namespaces "{name}" not found; create it with `kubectl create namespace`'
        raise RequestRefused(404, "NotFound", message, kind=NAMESPACES.plural, name=name) from None
    if b'"deletionTimestamp"' in body:
        resource, own = target.resource, text_at(part(obj, "metadata"), "name")
        going = f"namespace {name} is being terminated"
        raise RequestRefused(
            403,
            "Forbidden",
            f'{resource.qualified} "{own}" is forbidden: unable to create new content in '
            f"namespace {name} because it is being terminated",
            [RefusalCause("NamespaceTerminating", going, "metadata.namespace")],
            kind=resource.plural,
            name=own,
            group=resource.group,
        )


async def check_write(
    backend: Backend, request: Request, target: Target, old: Wire | None, new: Wire
) -> None:
    """Check the caller's rights on owners, and the rules that depend on the World. Objects of kinds
    that users do not write pass unchecked."""
    if new.get("kind") not in USER_KINDS:
        return
    check_rights(request.caller, target, rights_needed(old, new))
    if request.caller.role is CallerRole.SYSTEM:
        return
    problems = await backend.judge(request.caller, old, new)
    if problems:
        name = text_at(part(new, "metadata"), "name")
        raise invalid(target.resource, name, problems)


def warn_of(request: Request, resource: Resource, obj: Wire) -> None:
    """Add a warning to the answer for each setting that is legal but probably not intended."""
    if resource.kind == "Budget" and not check_budget(obj):
        for problem in budget_warnings(obj):
            request.warn(f"{problem.path}: {problem.value}: {problem.remedy}")


def _prepare_namespace(metadata: Wire) -> None:
    name = metadata["name"]
    try:
        dns_label(name)
    except WrongValue as wrong:
        raise invalid(NAMESPACES, str(name), [("metadata.name", wrong.remedy)]) from None
    labels = metadata.get("labels")
    if labels is None or isinstance(labels, dict):
        metadata["labels"] = {**(labels or {}), "kubernetes.io/metadata.name": name}
    metadata["finalizers"] = [*list_at(metadata, "finalizers"), CONTENTS]


def _is_our_finalizer(each: object) -> bool:
    return isinstance(each, str) and each.startswith(_OURS)


def _set_or_drop(metadata: Wire, key: str, value: list[object]) -> None:
    if value:
        metadata[key] = value
    else:
        metadata.pop(key, None)
