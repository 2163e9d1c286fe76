"""Permission checks on resources by role; each refusal names a remedy.

Called before every request, and by self-subject reviews, so that both give the same answer. Verbs
on owners are checked by `core.objects.rights`; this module turns a missing right into a refusal.
"""

from leasehold.adapters.api.resources import READ, Resource, Subresource
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest.paths import Target
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.rights import Right, missing_right


def check(caller: Caller, verb: str, target: Target) -> None:
    """Raise `RequestRefused` 403 unless the caller may use the verb on the target."""
    why = why_not(caller, verb, target.resource, target.subresource, target.namespace)
    if why:
        raise _forbidden(caller, verb, target, why)


def check_rights(caller: Caller, target: Target, needed: list[Right]) -> None:
    """Raise `RequestRefused` 403 if the caller lacks a right in `needed`. The message names the
    first missing right and how to get it."""
    missing = missing_right(caller, needed)
    if missing is None:
        return
    verb, owner = missing
    why = (
        f"this request needs the verb {verb} on owner {owner}; ask an administrator for a token "
        f"made with `leasehold token create --user {caller.user} --{verb} '{owner}'`"
    )
    raise _forbidden(caller, "write", target, why)


def why_not(
    caller: Caller,
    verb: str,
    resource: Resource,
    subresource: Subresource | None,
    namespace: str | None,
) -> str:
    """Return why the caller may not use the verb on the resource; "" if it may. `namespace` None:
    all namespaces."""
    if not _sees(caller, verb, resource, namespace):
        where = "all namespaces" if namespace is None else f"namespace {namespace}"
        return (
            f"the token of {caller.user} does not cover {where}; ask an administrator for a "
            "token made with `leasehold token create --namespace`"
        )
    if caller.role is CallerRole.SYSTEM:
        return ""
    if subresource is not None:
        if verb in subresource.verbs and (
            caller.role in subresource.roles or (verb in READ and subresource.name == "status")
        ):
            return ""
        return subresource.refusal
    if verb in READ:
        return ""
    if verb in resource.writers.get(caller.role, ()):
        return ""
    return resource.refusal


def _sees(caller: Caller, verb: str, resource: Resource, namespace: str | None) -> bool:
    if resource.is_public and verb in READ:
        return True
    if namespace is None:
        return caller.is_trusted or "*" in caller.namespaces
    return caller.sees(namespace)


def _forbidden(caller: Caller, verb: str, target: Target, why: str) -> RequestRefused:
    resource, name = target.resource, target.name
    what = f"{resource.qualified}" + (f' "{name}"' if name else "")
    part = "" if target.subresource is None else f"/{target.subresource.name}"
    return RequestRefused(
        403,
        "Forbidden",
        f'{what} is forbidden: User "{caller.user}" cannot {verb} {resource.plural}{part}: {why}',
        kind=resource.plural,
        name=name,
        group=resource.group,
    )
