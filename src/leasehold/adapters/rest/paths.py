"""Parses a Kubernetes API path: a collection, an object, or a subresource.

Called by `app` for everything under `/api/v1` and `/apis`. Pure. A name is only ever used as a
lookup key, never as a file path.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from leasehold.adapters.api.resources import NAMESPACES, Resource, Subresource, resource_at
from leasehold.adapters.http.refusal import RequestRefused

SEGMENTS_MAX = 16


_LOG_IN = "log in to the node for that"
# Unsupported subresources, with an alternative. Replicas of a Run would be read as pods.
_NOT_OFFERED = {
    ("Pod", "exec"): _LOG_IN,
    ("Pod", "attach"): _LOG_IN,
    ("Pod", "portforward"): _LOG_IN,
    ("Pod", "proxy"): _LOG_IN,
    ("Pod", "ephemeralcontainers"): f"a pod is one process, {_LOG_IN}",
    ("Run", "scale"): "the width of a Run is counted in GPUs: use `kubectl runs grow NAME --to "
    "GPUS` or `kubectl runs shrink`",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. `namespace` is "" for an object without namespace, None for all
    namespaces; `name` "" is the whole collection."""

    resource: Resource
    namespace: str | None
    name: str = ""
    subresource: Subresource | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        return self.resource.kind, self.namespace or "", self.name


def no_such_path() -> RequestRefused:
    return RequestRefused(404, "NotFound", "the server could not find the requested resource")


def parse_target(segments: Sequence[str]) -> Target:
    """Parse `api/v1/…` or `apis/GROUP/VERSION/…`; raise `RequestRefused` 404 if the path is
    unknown."""
    if len(segments) > SEGMENTS_MAX:
        raise no_such_path()
    if segments[0] == "api" and len(segments) > 2:
        group, version, rest = "", segments[1], list(segments[2:])
    elif segments[0] == "apis" and len(segments) > 3:
        group, version, rest = segments[1], segments[2], list(segments[3:])
    else:
        raise no_such_path()
    if rest[0] == "namespaces" and len(rest) > 2:
        found = resource_at(group, version, rest[2])
        if found is not None and found.is_namespaced:
            return _target(found, rest[1], rest[3:])
        if group:
            raise no_such_path()
        return _target(NAMESPACES, "", rest[1:])
    found = resource_at(group, version, rest[0])
    if found is None or not all(rest):
        raise no_such_path()
    if found.is_namespaced:
        if len(rest) > 1:  # a namespaced object requested without its namespace
            raise no_such_path()
        return Target(found, None)
    return _target(found, "", rest[1:])


def _target(resource: Resource, namespace: str, rest: list[str]) -> Target:
    if not all(rest) or (resource.is_namespaced and not namespace) or len(rest) > 2:
        raise no_such_path()
    if not rest:
        return Target(resource, namespace)
    if len(rest) == 1:
        return Target(resource, namespace, rest[0])
    subresource = resource.subresource(rest[1])
    if subresource is None:
        why = _NOT_OFFERED.get((resource.kind, rest[1]))
        if why:
            message = f"{resource.plural}/{rest[1]} is not supported; {why}"
            raise RequestRefused(405, "MethodNotAllowed", message)
        raise no_such_path()
    return Target(resource, namespace, rest[0], subresource)
