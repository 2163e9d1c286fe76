"""Creates the Run of a job, as its owner would have submitted it."""

from collections.abc import Iterable, Mapping

from leasehold.core.facts import Budget, Node, Run, Uid
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.units import Instant, Millis, format_instant, format_span
from leasehold.sim.replay.jobs import Job, Known

NAMESPACE = "replay"  # for owners without a Budget


class UnknownFlavor(Exception):  # noqa: N818 - named for the condition
    """A job names a flavor that no node has, or names none although the fleet has several."""


class RunMaker:
    """Creates the Runs of jobs, in namespaces where their owners may spend, with groups that fit
    into one domain."""

    def __init__(
        self,
        nodes: Iterable[Node],
        budgets: Iterable[Budget],
        known: Known,
        checkpoint: Millis | None,
    ) -> None:
        self._known = known
        self._checkpoint = checkpoint
        self._widest = _widest(nodes)
        self._namespaces: dict[str, str] = {}
        for budget in sorted(budgets, key=lambda each: each.key):
            self._namespaces.setdefault(budget.owner, budget.namespace)

    def run_of(self, job: Job, index: int) -> Run:
        """Return the Run of a job as a store would return it after its creation."""
        flavor = _flavor_of(job, self._widest)
        runtime: Wire = {}
        limit = self._known(job)
        if limit is not None:
            runtime["maxDuration"] = format_span(limit)
        if self._checkpoint is not None:
            runtime["checkpoint"] = format_span(self._checkpoint)
        spec: Wire = {
            "owner": job.owner,
            "resources": {"gpuType": flavor, "totalGPUs": job.gpus},
            "locality": {"groupGPUs": _group(job.gpus, self._widest[flavor])},
            "runtime": runtime,
        }
        namespace = self._namespaces.get(job.owner, NAMESPACE)
        return run_from_wire(
            _manifest(namespace, job.name, f"replay-{index:07d}", job.submit, spec)
        )


def check_flavors(nodes: Iterable[Node], jobs: Iterable[Job]) -> None:
    """Raise `UnknownFlavor` if it is not clear which flavor of the fleet a job needs."""
    widest = _widest(nodes)
    for job in {job.flavor: job for job in jobs}.values():
        _flavor_of(job, widest)


def _widest(nodes: Iterable[Node]) -> dict[str, int]:
    """Return, by flavor, the number of GPUs in the largest domain."""
    domains: dict[tuple[str, str], int] = {}
    for node in nodes:
        key = (node.flavor, node.domain)
        domains[key] = domains.get(key, 0) + node.gpus
    widest: dict[str, int] = {}
    for (flavor, _), gpus in domains.items():
        widest[flavor] = max(gpus, widest.get(flavor, 0))
    return widest


def _flavor_of(job: Job, widest: Mapping[str, int]) -> str:
    """Return the job's flavor. If it names none, return the only flavor of the fleet. Raise
    `UnknownFlavor`."""
    flavors = ", ".join(sorted(widest))
    if job.flavor in widest:
        return job.flavor
    if job.flavor:
        raise UnknownFlavor(
            f"no node has the GPU type {job.flavor} of {job.name}; the fleet has {flavors}"
        )
    if len(widest) > 1:
        raise UnknownFlavor(f"the fleet has {flavors}; name the GPU type of the jobs with --flavor")
    return next(iter(widest))


def _group(gpus: int, widest: int) -> int:
    """Return the size of the job's groups: the largest size that divides the job evenly and fits
    into one domain of `widest` GPUs.

    Example: 12 GPUs with domains of 8 GPUs give groups of 6.
    """
    if gpus <= widest:
        return gpus
    return next(size for size in range(widest, 0, -1) if gpus % size == 0)


def _manifest(namespace: str, name: str, uid: Uid, created: Instant, spec: Wire) -> Wire:
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "creationTimestamp": format_instant(created),
            "resourceVersion": "1",
            "generation": 1,
            "finalizers": [],
        },
        "spec": spec,
    }
