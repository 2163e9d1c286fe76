"""Discovery: the documents that list groups, versions and resources.

They exist in an aggregated form and in the older form; some kubectl commands still read the older
one. Built once at start from the table in `resources`. kubectl recognises the form by the content
type.
"""

import hashlib
from collections.abc import Iterable

from leasehold.adapters.api.resources import Resource, groups
from leasehold.adapters.http.messages import JSON, Request, Response, encode
from leasehold.core.names import Wire

AGGREGATED = f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

# Answered in the same request and never stored: who am I, what may I do.
REVIEWS = {
    "authentication.k8s.io": (("selfsubjectreviews", "SelfSubjectReview"),),
    "authorization.k8s.io": (
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ),
}


class Discovery:
    """The discovery documents by path, in the aggregated form and in the older one."""

    def __init__(self) -> None:
        ours = groups()
        core = {version: found for (group, version), found in ours.items() if not group}
        named = {(group, version): found for (group, version), found in ours.items() if group}
        self._aggregated = {
            "api": _document([_group("", core)]),
            "apis": _document(
                [
                    *(_group(group, {version: found}) for (group, version), found in named.items()),
                    *(_review_group(group, kinds) for group, kinds in REVIEWS.items()),
                ]
            ),
        }
        names = [*named, *((group, "v1") for group in REVIEWS)]
        self._plain = {
            "api": encode({"kind": "APIVersions", "versions": list(core)}),
            "apis": encode(
                {
                    "kind": "APIGroupList",
                    "apiVersion": "v1",
                    "groups": [_old_group(group, version) for group, version in names],
                }
            ),
        }
        for group, version in names:
            described = {"kind": "APIGroup", "apiVersion": "v1", **_old_group(group, version)}
            self._plain[f"apis/{group}"] = encode(described)
        for (group, version), found in ours.items():
            place = f"apis/{group}/{version}" if group else f"api/{version}"
            self._plain[place] = _old_list(place, [row for each in found for row in _old(each)])
        for group, kinds in REVIEWS.items():
            rows = [
                {
                    "name": plural,
                    "singularName": kind.lower(),
                    "namespaced": False,
                    "kind": kind,
                    "verbs": ["create"],
                }
                for plural, kind in kinds
            ]
            self._plain[f"apis/{group}/v1"] = _old_list(f"apis/{group}/v1", rows)

    def answer(self, request: Request, place: str) -> Response | None:
        """Return the document at a path, in the form that the caller prefers; None if there is no
        document at this path."""
        body = self._plain.get(place)
        if body is None:
            return None
        accept = request.header(b"accept").replace(" ", "").lower()
        if place in self._aggregated and "as=apigroupdiscoverylist" in accept and "v=v2" in accept:
            return cached(request, self._aggregated[place], AGGREGATED)
        return cached(request, body, JSON)


def cached(request: Request, body: bytes, content_type: str, *, for_ever: bool = False) -> Response:
    """Return the body with an ETag, or 304 if the caller has this body already. If `for_ever` is
    False, clients must ask again each time whether the body has changed."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"'.encode()
    keep = b"public, max-age=31536000, immutable" if for_ever else b"public"
    headers = [(b"etag", tag), (b"cache-control", keep), (b"vary", b"Accept")]
    if tag in request.headers.get(b"if-none-match", b""):
        return Response(304, b"", content_type, headers)
    return Response(200, body, content_type, headers)


def _document(items: list[Wire]) -> bytes:
    return encode(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }
    )


def _group(name: str, versions: dict[str, list[Resource]]) -> Wire:
    return {
        "metadata": {"name": name} if name else {},
        "versions": [
            {
                "version": version,
                "freshness": "Current",
                "resources": [_aggregated(each) for each in found],
            }
            for version, found in versions.items()
        ],
    }


def _review_group(name: str, kinds: Iterable[tuple[str, str]]) -> Wire:
    rows = [
        {
            "resource": plural,
            "scope": "Cluster",
            "singularResource": kind.lower(),
            "responseKind": {"group": name, "version": "v1", "kind": kind},
            "verbs": ["create"],
        }
        for plural, kind in kinds
    ]
    version: Wire = {"version": "v1", "freshness": "Current", "resources": rows}
    return {"metadata": {"name": name}, "versions": [version]}


def _aggregated(resource: Resource) -> Wire:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.served_kind}
    found: Wire = {
        "resource": resource.plural,
        "scope": "Namespaced" if resource.is_namespaced else "Cluster",
        "singularResource": resource.singular,
        "responseKind": kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    if resource.subresources:
        found["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": (
                    {"group": each.group, "version": each.version, "kind": each.kind}
                    if each.kind
                    else kind
                ),
                "verbs": list(each.verbs),
            }
            for each in resource.subresources
        ]
    return found


def _old(resource: Resource) -> list[Wire]:
    row: Wire = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced,
        "kind": resource.served_kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    rows = [row]
    for each in resource.subresources:
        part: Wire = {
            "name": f"{resource.plural}/{each.name}",
            "singularName": "",
            "namespaced": resource.is_namespaced,
            "kind": each.kind or resource.served_kind,
            "verbs": list(each.verbs),
        }
        if each.group:
            part["group"] = each.group
            part["version"] = each.version
        rows.append(part)
    return rows


def _old_list(place: str, rows: list[Wire]) -> bytes:
    return encode(
        {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": place.removeprefix("apis/").removeprefix("api/"),
            "resources": rows,
        }
    )


def _old_group(group: str, version: str) -> Wire:
    named = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [named], "preferredVersion": named}
