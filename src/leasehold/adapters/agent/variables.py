"""A container's environment and command, with references and sources resolved as in Kubernetes.

Called by `requests`. Variables are resolved in order: `$(NAME)` becomes the value of an earlier
variable, `$$(NAME)` the text `$(NAME)`. A value may come from the pod's own fields and resources.
Secrets and config maps do not exist here; a reference to one is rejected by path.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from leasehold.adapters.agent.limits import CannotStart
from leasehold.core.names import Wire
from leasehold.core.names import Wire as Pod
from leasehold.core.objects.bounds import TEXT_CHARS_MAX
from leasehold.core.objects.problems import shown
from leasehold.core.objects.quantity import CPU, milli
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.wire import list_at, part, text_at

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.\-][A-Za-z0-9_.\-]*)\))")
_MEMBER = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_ADDRESS = "127.0.0.1"
TOGETHER_CHARS_MAX = 2 * 1024 * 1024
_TOO_LONG_TOGETHER = (
    f"with this value, command and environment have over {TOGETHER_CHARS_MAX} characters "
    "together, which is more than a process can get; put some of the values in a file"
)
_SOURCES = {
    "fieldRef": "{fieldPath: metadata.name}",
    "resourceFieldRef": "{resource: limits.cpu}",
}
_ONE_SOURCE = "name one source, fieldRef or resourceFieldRef, or leave this out and use a value"
_FIELDS: dict[str, Callable[[Pod], str]] = {
    "metadata.name": lambda pod: text_at(part(pod, "metadata"), "name"),
    "metadata.namespace": lambda pod: text_at(part(pod, "metadata"), "namespace"),
    "metadata.uid": lambda pod: text_at(part(pod, "metadata"), "uid"),
    "spec.nodeName": lambda pod: text_at(part(pod, "spec"), "nodeName"),
    "spec.serviceAccountName": lambda _: "default",
    "status.hostIP": lambda _: _ADDRESS,
    "status.hostIPs": lambda _: _ADDRESS,
    "status.podIP": lambda _: _ADDRESS,
    "status.podIPs": lambda _: _ADDRESS,
}


def declared(pod: Pod, container: Wire, *, given: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the container declares. `given`: variables that the declared ones
    may refer to."""
    env = dict(given)
    found: dict[str, str] = {}
    size = 0
    for index, variable in enumerate(list_at(container, "env")):
        path = f"spec.containers[0].env[{index}]"
        assert isinstance(variable, dict), path
        name = text_at(variable, "name")
        if variable.get("valueFrom") is not None:
            value = _sourced(pod, container, variable["valueFrom"], f"{path}.valueFrom")
        else:
            value = expand(text_at(variable, "value"), env)
        env[name] = found[name] = value
        size += len(name) + len(value)
        if size > TOGETHER_CHARS_MAX:
            raise CannotStart(f"{path}: {_TOO_LONG_TOGETHER}")
    return found


def words(written: Sequence[object], env: Mapping[str, str]) -> list[str]:
    """Return the words of a command line with their references replaced."""
    found: list[str] = []
    size = 0
    for each in written:
        found.append(expand(str(each), env))
        size += len(found[-1])
        if size > TOGETHER_CHARS_MAX:
            raise CannotStart(f"spec.containers[0].command: {_TOO_LONG_TOGETHER}")
    return found


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replace references to variables; references to unknown ones stay as they are. Raise
    `CannotStart` before the text is longer than a process can receive, because nested references
    can grow without bounds."""
    if "$" not in text:
        return text
    size = len(text)

    def replaced(match: re.Match[str]) -> str:
        nonlocal size
        found = "$" if match[1] == "$" else env.get(match[2], match[0])
        size += len(found) - len(match[0])
        if size > TEXT_CHARS_MAX:
            raise CannotStart(
                f"{text[:40]!r}… has over {TEXT_CHARS_MAX} characters once $({match[2]}) and "
                "other references are replaced, which is more than a process can get; put the "
                "value in a file"
            )
        return found

    return _REFERENCE.sub(replaced, text)


def problem_of_source(source: object) -> tuple[str, str] | None:
    """Return the path below `valueFrom` and the reason if the source is not supported; None if it
    is supported. The path is "" if the problem concerns the whole source."""
    if not isinstance(source, dict):
        return "", f"{shown(source)}: {_ONE_SOURCE}"
    named = {str(kind): value for kind, value in source.items() if value is not None}
    for kind in named:
        if kind not in _SOURCES:
            return kind, "this source does not exist on this machine; use a value"
    if len(named) != 1:
        return "", f"{len(named)} sources: {_ONE_SOURCE}"
    [(kind, value)] = named.items()
    if not isinstance(value, dict):
        return kind, f"{shown(value)}: use a mapping, such as {_SOURCES[kind]}"
    if kind == "fieldRef":
        field = text_at(value, "fieldPath")
        if field not in _FIELDS and not _MEMBER.fullmatch(field):
            return "fieldRef.fieldPath", f"{field!r} is not a pod field that leasehold supports"
        return None
    resource = text_at(value, "resource")
    where, _, what = resource.partition(".")
    if where not in ("limits", "requests") or not what:
        return "resourceFieldRef.resource", f"{resource!r}: use a resource such as limits.cpu"
    try:
        milli(value.get("divisor") or "1")
    except WrongValue as wrong:
        return "resourceFieldRef.divisor", wrong.remedy
    return None


def below(path: str, place: str) -> str:
    return f"{path}.{place}" if place else path


def _sourced(pod: Pod, container: Wire, source: object, path: str) -> str:
    problem = problem_of_source(source)
    if problem is not None:
        raise CannotStart(f"{below(path, problem[0])}: {problem[1]}")
    assert isinstance(source, dict), path
    if source.get("resourceFieldRef") is not None:
        return _amount(container, part(source, "resourceFieldRef"), path)
    field = text_at(part(source, "fieldRef"), "fieldPath")
    member = _MEMBER.fullmatch(field)
    if member is not None:
        return text_at(part(part(pod, "metadata"), member[1]), member[2])
    return _FIELDS[field](pod)


def _amount(container: Wire, reference: Wire, path: str) -> str:
    """Return the container's amount of the resource, divided by the divisor and rounded up.

    A missing request counts as the limit, and a missing limit as 0. Example: `requests.memory` of
    1000Mi with divisor 1Gi gives "1"."""
    where, _, what = text_at(reference, "resource").partition(".")
    resources = part(container, "resources")
    value = part(resources, where).get(what)
    if value is None and where == "requests":
        value = part(resources, "limits").get(what)
    divisor = reference.get("divisor") or "1"
    try:
        amount, unit = milli(0 if value is None else value), milli(divisor)
    except WrongValue as error:
        raise CannotStart(f"{path}.resourceFieldRef: {error}") from error
    if unit == 0:
        unit = 1 if what == CPU else 1000
    return str(-(-amount // unit))
