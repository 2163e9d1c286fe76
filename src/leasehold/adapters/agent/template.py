"""Rejects by path what this machine cannot honour in a Run's pod template.

Called at admission, after the checks of `core.objects.template`, which apply everywhere. A local
process has no image, no volumes, no second container and no network of its own. `image` and
`imagePullPolicy` are accepted and ignored, so that the same manifest also runs on a cluster; the
agent reports this in an event.
"""

from collections.abc import Iterator

from leasehold.adapters.agent.variables import below, problem_of_source
from leasehold.core.names import Wire
from leasehold.core.objects.quantity import CPU, MEMORY
from leasehold.core.objects.wire import list_at, part

Found = Iterator[tuple[str, str]]

_POD_FIELDS = frozenset(
    {"containers", "restartPolicy", "terminationGracePeriodSeconds", "tolerations"}
)
_CONTAINER_FIELDS = frozenset(
    {
        "name",
        "image",
        "imagePullPolicy",
        "command",
        "args",
        "env",
        "workingDir",
        "resources",
        "ports",
    }
)
_WHY = {
    "initContainers": "a process has no init containers; do this at the start of the command",
    "volumes": "jobs use the files of this machine directly; leave this out",
    "volumeMounts": "jobs use the files of this machine directly; leave this out",
    "imagePullSecrets": "no image is pulled; leave this out",
    "securityContext": "jobs run as the Unix user of their namespace; leave this out",
    "hostNetwork": "all jobs share the machine's network; leave this out",
    "envFrom": "there are no config maps and secrets on this machine; use env",
    "serviceAccountName": "there are no service accounts on this machine; leave this out",
    "livenessProbe": "processes are not probed; leave this out",
    "readinessProbe": "processes are not probed; leave this out",
    "startupProbe": "processes are not probed; leave this out",
    "lifecycle": "there are no hooks; handle SIGTERM in the command instead",
}
_ELSE = "a process of this machine cannot have this field; leave it out"


def problems_of_template(run: Wire) -> list[tuple[str, str]]:
    """Return (path, why) of every field of the template that this machine could only ignore."""
    if run.get("kind") != "Run":
        return []
    path = "spec.template.spec"
    spec = part(run, "spec")
    if spec and spec.get("template") is None:
        return [("spec.template", "add a pod template with a command")]
    return list(_in_pod(part(part(spec, "template"), "spec"), path))


def _in_pod(pod: Wire, path: str) -> Found:
    yield from _unknown(pod, path, _POD_FIELDS)
    if pod.get("restartPolicy", "Never") not in ("Never", "", None):
        why = "a pod is never restarted on its own; leave this out, and see spec.runtime.retries"
        yield f"{path}.restartPolicy", why
    containers = list_at(pod, "containers")
    for index, container in enumerate(containers):
        place = f"{path}.containers[{index}]"
        if index:
            yield place, "a pod is one process here; start others from its command"
        elif isinstance(container, dict):
            yield from _in_container(container, place)


def _in_container(container: Wire, path: str) -> Found:
    yield from _unknown(container, path, _CONTAINER_FIELDS)
    for field in ("command", "args"):
        written = container.get(field)
        if written is None and field == "args":
            continue
        is_list = isinstance(written, list) and all(isinstance(each, str) for each in written)
        if not is_list:
            yield f"{path}.{field}", _COMMAND if written is None else "use a list of strings"
        elif field == "command" and not written:
            yield f"{path}.{field}", _COMMAND
        elif any("\0" in each for each in list_at(container, field) if isinstance(each, str)):
            yield f"{path}.{field}", "a command must not contain a zero byte"
    folder = container.get("workingDir")
    if folder and not (isinstance(folder, str) and folder.startswith("/") and "\0" not in folder):
        yield f"{path}.workingDir", "use an absolute path"
    yield from _in_variables(list_at(container, "env"), f"{path}.env")
    for where in ("limits", "requests"):
        for resource in part(part(container, "resources"), where):
            if resource not in (CPU, MEMORY):
                why = "only cpu and memory can be limited on this machine; leave this out"
                yield f"{path}.resources.{where}.{resource}", why


_COMMAND = "add a command: there is no image that could provide one"


def _in_variables(variables: list[object], path: str) -> Found:
    for index, variable in enumerate(variables):
        if not isinstance(variable, dict):
            continue
        name, value = variable.get("name"), variable.get("value")
        place = f"{path}[{index}]"
        if isinstance(name, str) and (not name or "=" in name or "\0" in name):
            yield f"{place}.name", f"{name!r} is not a valid variable name"
        if value is not None and (not isinstance(value, str) or "\0" in value):
            yield f"{place}.value", "use a string; put a number in quotes"
        source = variable.get("valueFrom")
        if source is None:
            continue
        if value:
            yield f"{place}.valueFrom", "the variable has a value too; leave out one of the two"
        problem = problem_of_source(source)
        if problem is not None:
            yield below(f"{place}.valueFrom", problem[0]), problem[1]


def _unknown(members: Wire, path: str, known: frozenset[str]) -> Found:
    """Report unknown fields, except those whose value is empty or false."""
    for field, value in members.items():
        if field not in known and value not in (None, False, "", [], {}):
            yield f"{path}.{field}", _WHY.get(field, _ELSE)
