"""Whether a namespace's ResourceQuotas can ever hold a whole gang.

A server that is asked about one pod answers about one pod: of a gang of sixteen, with room for
twelve, it would take the first twelve. What is used up just now is no matter, it may be free later.
"""

from collections.abc import Iterable

from leasehold.core.names import Wire
from leasehold.core.objects.quantity import asked, milli
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.trial import Trial

PODS = ("pods", "count/pods")


def quota_problem(quotas: Iterable[Wire], trial: Trial, answer: Wire) -> str:
    """Why the gang can never be there, or nothing. `answer` is one of its pods as it would be made;
    a quota that is only for some pods says nothing of ours."""
    for quota in quotas:
        spec = part(quota, "spec")
        if list_at(spec, "scopes") or part(spec, "scopeSelector"):
            continue
        for name, most in part(spec, "hard").items():
            needed = _needed(name, trial, answer)
            try:
                if needed <= milli(most):
                    continue
            except WrongValue:
                continue
            said = f"the ResourceQuota {text_at(part(quota, 'metadata'), 'name')} of its namespace"
            return (
                f"{said} allows {most} of {name}, and its {trial.count} pods need "
                f"{_written(needed)} together; ask for less, or have it raised and edit the Run"
            )
    return ""


def _needed(name: str, trial: Trial, answer: Wire) -> int:
    """In thousandths; 0 of what is none of ours."""
    if name in PODS:
        return 1000 * trial.count
    kind, dot, resource = name.partition(".")
    if not dot or kind not in ("requests", "limits"):
        kind, resource = "requests", name
    if resource == trial.gpu_resource:
        return 1000 * trial.gpus
    if kind == "limits":
        return trial.count * _limits(part(answer, "spec"), resource)
    [one] = asked(part(answer, "spec"), (resource, milli))
    return trial.count * one


def _limits(spec: Wire, resource: str) -> int:
    found = 0
    for container in list_at(spec, "containers"):
        limits = part(part(container, "resources"), "limits")
        found += milli(limits[resource]) if resource in limits else 0
    return found


def _written(thousandths: int) -> str:
    return f"{thousandths}m" if thousandths % 1000 else str(thousandths // 1000)
