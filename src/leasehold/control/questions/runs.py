"""`runs`: the runs, their phase, width and payers."""

from collections.abc import Callable, Collection

from leasehold.control.questions.answers.runs import (
    PayerGpus,
    PlannedStart,
    RunFunding,
    RunRow,
    RunWidth,
)
from leasehold.control.questions.formats import gpu_time, instant
from leasehold.control.reservations import present
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Run
from leasehold.core.objects.owners import glob_admits
from leasehold.core.units import Instant
from leasehold.core.world.width import desired_gpus, maximum_gpus, minimum_gpus
from leasehold.core.world.world import World


def run_list(
    world: World,
    now: Instant,
    *,
    sees: Callable[[str], bool],
    namespace: str = "",
    owner: str = "",
    name: str = "",
    phases: Collection[str] = (),
) -> list[RunRow]:
    """Return the runs of visible namespaces (`sees`) by namespace and name, optionally only in
    `phases`."""
    visible: dict[str, bool] = {}
    rows = []
    keys = sorted(world.uid_of) if not (namespace and name) else [f"{namespace}/{name}"]
    for key in keys:
        run = world.runs.get(world.uid_of.get(key, ""))
        if run is None or namespace not in ("", run.namespace) or name not in ("", run.name):
            continue
        if run.namespace not in visible:
            visible[run.namespace] = sees(run.namespace)
        if visible[run.namespace] and (not owner or glob_admits(owner, run.spec.owner)):
            row = run_row(world, run, now)
            if not phases or row.phase in phases:
                rows.append(row)
    return rows


def run_row(world: World, run: Run, now: Instant) -> RunRow:
    view = run_view(world, run.uid, now)
    payers: dict[str, int] = {}
    nodes: dict[str, None] = {}
    for name in world.open_by_run.get(run.uid, ()):
        lease = world.leases[name]
        payers[lease.payer] = payers.get(lease.payer, 0) + lease.gpus
        nodes[lease.node] = None
    reservation = present(world, run)
    return RunRow(
        namespace=run.namespace,
        name=run.name,
        owner=run.spec.owner,
        flavor=run.spec.flavor,
        phase=str(view.phase),
        reason=view.because,
        message=view.message,
        attempt=view.attempt,
        created=instant(run.created),
        started=instant(view.started),
        ended=instant(view.ended),
        width=RunWidth(
            min=minimum_gpus(run.spec),
            max=maximum_gpus(run.spec),
            desired=desired_gpus(run.spec),
            allocated=view.gpus,
            spares=view.spares,
            pending=view.pending,
        ),
        funding=RunFunding(owned=view.owned, shared=view.shared, borrowed=view.borrowed),
        payers=[PayerGpus(envelope=key, gpus=gpus) for key, gpus in sorted(payers.items())],
        nodes=sorted(nodes),
        reservation=None
        if reservation is None
        else PlannedStart(
            name=reservation.name,
            state=str(reservation.state),
            starts=instant(reservation.starts or None),
            confidence=str(reservation.confidence),
        ),
        **gpu_time(view.gpu_ms),
    )
