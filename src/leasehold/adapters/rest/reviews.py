"""Self-subject reviews: who the caller is and what it may do.

Called by `app` for the groups `authentication.k8s.io` and `authorization.k8s.io`, for `kubectl auth
whoami` and `can-i`. Verbs on owners are answered too, as the virtual resource `owners` of our
group.
"""

from leasehold.adapters.api.resources import ALL_VERBS, RESOURCES, Resource, resource_at
from leasehold.adapters.http.bodies import read_object
from leasehold.adapters.http.messages import Request, Response, bad_request, json_response
from leasehold.adapters.http.refusal import RefusalCause, RequestRefused
from leasehold.adapters.rest.access import why_not
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller, CallerRole, OwnerVerb
from leasehold.core.objects.rights import missing_right
from leasehold.core.objects.wire import part, text_at

PATHS = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi",
    "/query",
    "/readyz",
    "/version",
)


async def review(request: Request, group: str, plural: str) -> Response | None:
    """Answer a review that was POSTed; None if there is no such kind of review."""
    answers = {
        ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", _whoami),
        ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", _can_i),
        ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", _rules),
    }
    found = answers.get((group, plural))
    if found is None:
        return None
    kind, answer = found
    body = await read_object(request)
    if body.get("kind", kind) != kind:
        raise bad_request(f"the body is not a {kind}")
    spec = part(body, "spec")
    document: Wire = {
        "kind": kind,
        "apiVersion": f"{group}/v1",
        "metadata": {},
        "status": answer(request.caller, spec),
    }
    if kind != "SelfSubjectReview":
        document["spec"] = spec
    return json_response(document, 201)


def _whoami(caller: Caller, _: Wire) -> Wire:
    extra: Wire = {
        f"{GROUP}/{key}": list(values)
        for key, values in (
            ("namespaces", caller.namespaces),
            ("fund", caller.fund),
            ("spend", caller.spend),
            ("lend", caller.lend),
        )
        if values
    }
    info: Wire = {
        "username": caller.user,
        "groups": ["system:authenticated", f"leasehold:{caller.role}"],
    }
    if extra:
        info["extra"] = extra
    return {"userInfo": info}


def _can_i(caller: Caller, spec: Wire) -> Wire:
    path = part(spec, "nonResourceAttributes")
    if path:
        asked = text_at(path, "path")
        known = any(asked == each or asked.startswith(f"{each}/") for each in PATHS)
        is_allowed = known and text_at(path, "verb") in ("get", "head")
        return _verdict("" if is_allowed else "only GET of the served paths is allowed")
    wanted = part(spec, "resourceAttributes")
    if not wanted:
        why = "use one of resourceAttributes and nonResourceAttributes"
        cause = RefusalCause("FieldValueInvalid", why, "spec.resourceAttributes")
        raise RequestRefused(
            422,
            "Invalid",
            f"spec.resourceAttributes: {why}",
            [cause],
            group="authorization.k8s.io",
        )
    return _verdict(_why_not(caller, wanted))


def _why_not(caller: Caller, asked: Wire) -> str:
    group, plural, verb = (text_at(asked, key) for key in ("group", "resource", "verb"))
    name, namespace = text_at(asked, "name"), text_at(asked, "namespace")
    # kubectl does not split the name of a resource that is missing in discovery.
    if (group, plural) in ((GROUP, "owners"), ("", f"owners.{GROUP}")):
        if verb not in list(OwnerVerb):
            return f"the verbs on owners are {', '.join(OwnerVerb)}"
        missing = missing_right(caller, [(OwnerVerb(verb), name)])
        return "" if missing is None else f"the token does not have {verb} on {name or 'any owner'}"
    if caller.role is CallerRole.SYSTEM:
        return ""
    if "*" in (group, plural, verb):
        return _why_not_all(caller, group, plural, verb)
    resource = resource_at(group, text_at(asked, "version") or "v1", plural)
    if resource is None:
        return "there is no such resource here"
    if verb not in (*ALL_VERBS,):
        return f"the verbs are {', '.join(ALL_VERBS)}"
    subresource = resource.subresource(text_at(asked, "subresource"))
    if text_at(asked, "subresource") and subresource is None:
        return "there is no such subresource here"
    return why_not(caller, verb, resource, subresource, _place(resource, namespace))


def _why_not_all(caller: Caller, group: str, plural: str, verb: str) -> str:
    """Return why the caller may not do everything that a `*` in the request covers; "" if it
    may."""
    for resource in RESOURCES:
        if group not in ("*", resource.group) or plural not in ("*", resource.plural):
            continue
        for each in ALL_VERBS if verb == "*" else (verb,):
            why = why_not(caller, each, resource, None, _place(resource, ""))
            if why:
                return why
    return ""


def _place(resource: Resource, namespace: str) -> str | None:
    return (namespace or None) if resource.is_namespaced else ""


def _verdict(why: str) -> Wire:
    return {"allowed": True} if not why else {"allowed": False, "reason": why}


def _rules(caller: Caller, spec: Wire) -> Wire:
    namespace = text_at(spec, "namespace")
    rules: list[Wire] = []
    for resource in RESOURCES:
        place = _place(resource, namespace)
        parts = [(resource.plural, resource.verbs, None)]
        parts += [
            (f"{resource.plural}/{each.name}", each.verbs, each)  # type: ignore[misc]
            for each in resource.subresources
        ]
        for plural, verbs, subresource in parts:
            allowed = [
                verb for verb in verbs if not why_not(caller, verb, resource, subresource, place)
            ]
            if allowed:
                rules.append(
                    {"verbs": allowed, "apiGroups": [resource.group], "resources": [plural]}
                )
    for verb in OwnerVerb:
        globs = ("*",) if caller.is_trusted else getattr(caller, verb.value)
        if globs and caller.role is not CallerRole.VIEWER:
            rules.append(
                {
                    "verbs": [verb.value],
                    "apiGroups": [GROUP],
                    "resources": ["owners"],
                    "resourceNames": list(globs),
                }
            )
    paths = [path for each in PATHS for path in (each, f"{each}/*")]
    return {
        "resourceRules": rules,
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": paths}],
        "incomplete": False,
    }
