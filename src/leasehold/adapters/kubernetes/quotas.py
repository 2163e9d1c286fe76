"""Checks whether a namespace's ResourceQuotas can ever admit a whole gang.

A dry run on the server checks one pod only. Example: a gang of sixteen pods and a quota for twelve;
every dry run passes, and the server would admit the first twelve. The quota's present use is not
counted, because it may end.
"""

from collections.abc import Iterable

from leasehold.core.names import Wire
from leasehold.core.objects.quantity import asked, milli
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.trial import Trial

PODS = ("pods", "count/pods")


def quota_problem(quotas: Iterable[Wire], trial: Trial, answer: Wire) -> str:
    """Return why the gang can never be admitted; "" if it can. `answer` is one of the gang's pods
    as the server would create it. Quotas with a scope are ignored, because they may not apply to
    our pods."""
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
                f"{said} allows {most} of {name}, but the {trial.count} pods of the Run need "
                f"{_written(needed)} together; request less, or have the quota raised and then "
                "edit the Run"
            )
    return ""


def _needed(name: str, trial: Trial, answer: Wire) -> int:
    """Return how much of the quota's resource `name` the whole gang needs, in thousandths; 0 if its
    pods do not use that resource."""
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
