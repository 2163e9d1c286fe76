"""The OpenAPI v3 documents, one per group and version, and their index.

kubectl reads them before writes and for `explain`; the fuzz test reads them to generate requests.
They are built once at start. They leave out strategic merge patches, which would need merge keys;
kubectl has its own merge keys for the kinds that it knows.
"""

import hashlib

from leasehold.adapters.api.resources import Resource, Subresource, groups
from leasehold.adapters.api.schemas import schema_of
from leasehold.adapters.http.messages import encode
from leasehold.adapters.rest.query_document import PLACE, query_document
from leasehold.core.names import Wire

TITLE = "leasehold"
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_VERBS = {"get": "get", "create": "post", "update": "put", "patch": "patch", "delete": "delete"}
_READ = ("fieldSelector", "labelSelector", "resourceVersion", "resourceVersionMatch")
_LIST = (*_READ, "allowWatchBookmarks", "limit", "sendInitialEvents", "timeoutSeconds", "watch")
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_LOG = (
    "container",
    "follow",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "timestamps",
)


def documents() -> dict[str, bytes]:
    """Return the documents by path below `/openapi/v3/`: `api/v1`, `apis/GROUP/VERSION`."""
    found = {}
    for (group, version), resources in groups().items():
        place = f"apis/{group}/{version}" if group else f"api/{version}"
        found[place] = encode(_document(place, version, resources))
    found[PLACE] = encode(query_document())
    return found


def index(documents: dict[str, bytes]) -> bytes:
    """Return the index of the documents. Each URL contains the document's hash, so clients may
    cache it for ever."""
    paths = {
        place: {"serverRelativeURL": f"/openapi/v3/{place}?hash={hash_of(body)}"}
        for place, body in documents.items()
    }
    return encode({"paths": paths})


def hash_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32].upper()


def _document(place: str, version: str, resources: list[Resource]) -> Wire:
    paths: Wire = {}
    schemas: Wire = {}
    for resource in resources:
        schemas[_schema_name(resource)] = _schema(resource)
        paths.update(_paths(place, resource))
    return {
        "openapi": "3.0.0",
        "info": {"title": TITLE, "version": version},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _schema_name(resource: Resource) -> str:
    prefix = "io.davidlangworthy.rq" if resource.is_ours else _of_kubernetes(resource.group)
    return f"{prefix}.{resource.version}.{resource.served_kind}"


def _of_kubernetes(group: str) -> str:
    return f"io.k8s.api.{group.partition('.')[0] or 'core'}"


def _kind(resource: Resource) -> Wire:
    return {"group": resource.group, "version": resource.version, "kind": resource.served_kind}


def _schema(resource: Resource) -> Wire:
    return {
        **schema_of(resource.kind),
        "x-kubernetes-group-version-kind": [_kind(resource)],
    }


def _paths(place: str, resource: Resource) -> Wire:
    where = f"/{place}/namespaces/{{namespace}}" if resource.is_namespaced else f"/{place}"
    collection, single = f"{where}/{resource.plural}", f"{where}/{resource.plural}/{{name}}"
    many: Wire = {"get": _operation(resource, "list", _LIST)}
    if "create" in resource.verbs:
        many["post"] = _operation(resource, "create", _WRITE)
    if "deletecollection" in resource.verbs:
        many["delete"] = _operation(resource, "deletecollection", (*_READ, "dryRun"))
    one: Wire = {
        method: _operation(resource, verb, () if verb == "get" else _WRITE)
        for verb, method in _VERBS.items()
        if verb in resource.verbs and verb != "create"
    }
    found: Wire = {
        collection: {**many, "parameters": _place_parameters(resource, named=False)},
        single: {**one, "parameters": _place_parameters(resource, named=True)},
    }
    if resource.is_namespaced:
        everywhere: Wire = {"get": _operation(resource, "list", _LIST)}
        found[f"/{place}/{resource.plural}"] = everywhere
    for each in resource.subresources:
        found[f"{single}/{each.name}"] = _subresource(resource, each)
    return found


def _subresource(resource: Resource, subresource: Subresource) -> Wire:
    """Return the operations of a subresource. Each is marked with the kind of the subresource's own
    body, if it has one."""
    kind: Wire = _kind(resource)
    if subresource.kind:
        kind = {
            "group": subresource.group,
            "version": subresource.version,
            "kind": subresource.kind,
        }
    queries = _LOG if subresource.name == "log" else _WRITE
    found: Wire = {"parameters": _place_parameters(resource, named=True)}
    for verb in subresource.verbs:
        operation = _operation(resource, verb, queries)
        operation["x-kubernetes-group-version-kind"] = kind
        if subresource.kind:
            operation.pop("requestBody", None)
        found[_VERBS[verb]] = operation
    return found


def _operation(resource: Resource, verb: str, queries: tuple[str, ...]) -> Wire:
    reference: Wire = {"$ref": f"#/components/schemas/{_schema_name(resource)}"}
    answer: Wire = {"description": "OK"}
    if verb in ("get", "create", "update", "patch"):
        answer["content"] = {"application/json": {"schema": reference}}
    found: Wire = {
        "description": f"{verb} {resource.qualified}",
        "x-kubernetes-action": verb,
        "x-kubernetes-group-version-kind": _kind(resource),
        "parameters": [
            {"name": name, "in": "query", "schema": {"type": "string"}} for name in queries
        ],
        "responses": {"200": answer},
    }
    if verb in ("create", "update"):
        found["requestBody"] = {"content": {"application/json": {"schema": reference}}}
    elif verb == "patch":
        found["requestBody"] = {"content": {media: {"schema": {}} for media in _PATCHES}}
    return found


def _place_parameters(resource: Resource, *, named: bool) -> list[Wire]:
    names = (["namespace"] if resource.is_namespaced else []) + (["name"] if named else [])
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
