"""The pod template of a Run: which parts are read, and which must be refused.

Called by `run`. The template is kept as written; only CPU, memory and tolerations are read, for
placement. Fields that would conflict with our placement or with the GPUs we add are refused by
path. Other pod fields are passed on unchecked.
"""

from collections.abc import Iterator

from leasehold.core.facts import Record, Toleration
from leasehold.core.names import Wire
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.labels import check_labels
from leasehold.core.objects.problems import Problem, joined, shown
from leasehold.core.objects.quantity import CPU, MEMORY, asked, milli, units
from leasehold.core.objects.wire import canonical

DEPTH_MAX = 32
NEVER = "Never"
_SECONDS = readers.whole(0, 2**31 - 1)
WHOLE_BITS_MAX = 63  # the range of every JSON reader on the way

PLACEMENT = {
    "affinity": "leasehold places the pods; use spec.locality.selector and leave this out",
    "nodeName": "leasehold places the pods; use spec.locality.selector and leave this out",
    "nodeSelector": "leasehold places the pods; use spec.locality.selector and leave this out",
    "resourceClaims": "leasehold assigns the GPUs; leave this out",
    "schedulerName": "leasehold places the pods; leave this out",
    "schedulingGates": "leasehold starts the pods when a Budget pays for them; leave this out",
    "topologySpreadConstraints": "leasehold places the pods; use spec.locality and leave this out",
    "priorityClassName": "the queue decides which run starts first; leave this out",
    "activeDeadlineSeconds": "use spec.runtime.maxDuration and leave this out",
}


class Template(Record, frozen=True):
    """A pod template, and the requests of one pod that placement needs."""

    raw: bytes = b"{}"
    cpu_milli: int = 0
    memory_bytes: int = 0
    tolerations: tuple[Toleration, ...] = ()


def read_template(spec: Fields, *, required: bool) -> Template:
    """Return the template under a Run's spec; undefined if problems were noted."""
    template = spec.inside("template", required=required)
    if template.is_void:
        return Template()
    before = len(spec.problems)
    if not _is_json(template.members, DEPTH_MAX):
        spec.problems.extend(_not_json(template.members, template.path, DEPTH_MAX))
        return Template()
    check_labels(template.inside("metadata"))
    pod = template.inside("spec")
    template.finish()
    if pod.is_void:
        if not template.is_wrong("spec"):
            template.note("spec", "use a pod spec with at least one container")
        return Template()
    tolerations = _check_pod(pod)
    if len(spec.problems) > before:
        return Template()
    podspec: Wire = {str(key): value for key, value in pod.members.items()}
    cpu_milli, memory_bytes = asked(podspec, (CPU, milli), (MEMORY, units))
    return Template(
        raw=canonical(template.members),
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        tolerations=tolerations,
    )


def _check_pod(pod: Fields) -> tuple[Toleration, ...]:
    for key, remedy in PLACEMENT.items():
        if pod.has(key):
            pod.note(key, remedy)
    if pod.take("restartPolicy", readers.text, NEVER) != NEVER:
        pod.note("restartPolicy", f"use {NEVER}, or leave it out; see spec.runtime.retries")
    pod.take("terminationGracePeriodSeconds", _SECONDS, None)
    containers = pod.each("containers")
    if not containers and not pod.is_wrong("containers"):
        pod.note("containers", "add at least one container")
    names: set[str] = set()
    for container in [*containers, *pod.each("initContainers")]:
        name = container.need("name", readers.namespace)
        if name is not None and name in names:
            container.note("name", "another container has this name; use another name")
        names.add(name or "")
        _check_container(container)
    return tuple(_read_toleration(each) for each in pod.each("tolerations"))


def _check_container(container: Fields) -> None:
    container.take("image", readers.text, None)
    for key in ("imagePullPolicy", "workingDir"):
        container.take(key, readers.text_or_none, None)
    for key in ("command", "args"):
        container.take(key, readers.texts, None)
    for variable in container.each("env"):
        variable.need("name", readers.text)
        variable.take("value", readers.text_or_none, None)
    for port in container.each("ports"):
        if port.has("hostPort"):
            port.note(
                "hostPort",
                "several pods can run on one host, so host ports are not allowed; leave this out",
            )
    resources = container.inside("resources")
    if resources.has("claims"):
        resources.note("claims", "leasehold assigns the GPUs; leave this out")
    for where in ("requests", "limits"):
        amounts = resources.inside(where)
        for resource in amounts.members:
            if isinstance(resource, str) and resource.endswith("/gpu"):
                amounts.note(resource, "leasehold adds the GPUs itself; leave this out")
        amounts.take(CPU, milli, 0)
        amounts.take(MEMORY, units, 0)


def _read_toleration(fields: Fields) -> Toleration:
    return Toleration(
        key=fields.take("key", readers.text_or_none, ""),
        operator=fields.take("operator", readers.text, "Equal"),
        value=fields.take("value", readers.text_or_none, ""),
        effect=fields.take("effect", readers.text_or_none, ""),
    )


def _is_json(value: object, depth: int) -> bool:
    """Return whether the value is plain JSON; the fast check. `_not_json` reports why not."""
    if isinstance(value, str):
        return _is_sound(value)
    if isinstance(value, dict):
        return depth > 0 and all(
            isinstance(key, str) and _is_sound(key) and _is_json(member, depth - 1)
            for key, member in value.items()
        )
    if isinstance(value, list):
        return depth > 0 and all(_is_json(member, depth - 1) for member in value)
    if isinstance(value, int):
        return value.bit_length() <= WHOLE_BITS_MAX
    return value is None


def _not_json(value: object, path: str, depth: int) -> Iterator[Problem]:
    """Yield a problem for everything that JSON could not store and return unchanged."""
    remedy = ""
    if isinstance(value, dict | list):
        if depth == 0:
            remedy = f"nest at most {DEPTH_MAX} deep"
        else:
            members = value.items() if isinstance(value, dict) else enumerate(value)
            for key, member in members:
                place = joined(path, key)
                if isinstance(value, dict) and not (isinstance(key, str) and _is_sound(key)):
                    yield Problem(path=place, value=shown(key), remedy="keys must be strings")
                yield from _not_json(member, place, depth - 1)
    elif isinstance(value, str):
        remedy = "" if _is_sound(value) else "use strings without lone surrogates"
    elif isinstance(value, float):
        remedy = "" if abs(value) < float("inf") else "use a finite number"
    elif isinstance(value, int):
        remedy = "" if value.bit_length() <= WHOLE_BITS_MAX else "use a number of at most 64 bits"
    elif value is not None:
        remedy = "use a string, a number, true, false, a list or a mapping"
    if remedy:
        yield Problem(path=path, value=shown(value), remedy=remedy)


def _is_sound(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= each <= "\udfff" for each in text)
