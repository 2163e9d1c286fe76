"""The statuses of Runs and Budgets, computed from the World when something about them has changed.

The shell writes them after a commit. Only three fields are ever read back: the attempt that was
once fully bound (`boundAttempt`), when the Run arrived (`arrived`), and the result of its dry run
(`podRequests`).
"""

from leasehold.control.reservations import present
from leasehold.control.running.open_leases import live_units
from leasehold.control.views.numbers import envelope_view, run_view, spent_by
from leasehold.core.facts import Budget, Phase, Relation, Run
from leasehold.core.names import Wire
from leasehold.core.objects.quantity import format_milli
from leasehold.core.units import GpuMs, Instant, format_gpu_hours, format_instant
from leasehold.core.world.book import WHOLE
from leasehold.core.world.width import desired_gpus, maximum_gpus, minimum_gpus, open_leases
from leasehold.core.world.world import World

_NEAR = 90  # percent of a cap at which a Budget is NearLimit


def run_status(world: World, run: Run, now: Instant) -> Wire:
    view = run_view(world, run.uid, now)
    reservation = present(world, run)
    status: Wire = {
        "phase": str(view.phase),
        "message": view.message,
        "attempt": view.attempt,
        "boundAttempt": world.bound.get((run.uid, WHOLE), 0),
        "width": {
            "min": minimum_gpus(run.spec),
            "max": maximum_gpus(run.spec),
            "desired": desired_gpus(run.spec),
            "allocated": view.gpus,
            "spares": view.spares,
            "pending": view.pending,
        },
        "funding": _funding(world, run, now),
        "leases": [lease.name for lease in open_leases(world, run.uid)],
        "conditions": _conditions(world, run, view.phase, view.because, view.message),
        "submitted": format_instant(run.created),
        "arrived": {"instant": format_instant(run.created), "number": run.number},
    }
    if run.spec.is_amended:
        cpu, memory = run.spec.cpu_milli, run.spec.memory_bytes
        status["podRequests"] = {"cpu": format_milli(cpu), "memory": str(memory)}
    if view.started is not None:
        status["started"] = format_instant(view.started)
    if view.ended is not None:
        status["ended"] = format_instant(view.ended)
    if reservation is not None:
        planned: Wire = {"name": reservation.name}
        if reservation.starts:  # a blocked one may never have had a start
            planned["earliestStart"] = format_instant(reservation.starts)
        status["reservation"] = planned
    return status


def _funding(world: World, run: Run, now: Instant) -> Wire:
    gpus = dict.fromkeys(Relation, 0)
    by_payer: dict[tuple[str, str], int] = {}
    for lease in open_leases(world, run.uid):
        gpus[lease.relation] += lease.gpus
        if lease.relation is Relation.BORROWED:
            key = (lease.payer_owner, lease.payer)
            by_payer[key] = by_payer.get(key, 0) + lease.gpus
    spent = spent_by(world, run.uid, now)
    hours: dict[Relation, GpuMs] = dict.fromkeys(Relation, 0)
    for (_, relation), amount in spent.items():
        hours[relation] += amount
    return {
        "ownedGPUs": gpus[Relation.OWNED],
        "sharedGPUs": gpus[Relation.SHARED],
        "borrowedGPUs": gpus[Relation.BORROWED],
        "ownedGPUHours": format_gpu_hours(hours[Relation.OWNED]),
        "sharedGPUHours": format_gpu_hours(hours[Relation.SHARED]),
        "borrowedGPUHours": format_gpu_hours(hours[Relation.BORROWED]),
        "sponsors": [
            {
                "owner": owner,
                "envelope": payer,
                "gpus": count,
                "gpuHours": format_gpu_hours(spent.get((payer, Relation.BORROWED), 0)),
            }
            for (owner, payer), count in sorted(by_payer.items())
        ],
    }


def _conditions(world: World, run: Run, phase: Phase, because: str, message: str) -> list[Wire]:
    live = bool(live_units(world, run.uid))
    bound = phase is Phase.RUNNING
    blocked = not live and phase is Phase.PENDING

    def condition(kind: str, holds: bool, reason: str = "", text: str = "") -> Wire:
        status = "True" if holds else "False"
        return {"type": kind, "status": status, "reason": reason or kind, "message": text}

    conditions = [
        condition("Admitted", live),
        condition("Bound", bound),
        condition("Running", phase is Phase.RUNNING),
    ]
    if phase is Phase.COMPLETED:
        conditions.append(condition("Completed", True, because, message))
    if phase is Phase.FAILED:
        conditions.append(condition("Failed", True, because, message))
    if because in ("RandomPreempt", "Overdrawn", "ReclaimedBySpare"):
        conditions.append(condition("Preempted", True, because, message))
    if because == "Starting":
        conditions.append(condition("Starting", True, because, message))
    if blocked:
        conditions.append(condition("Blocked", True, because, message))
    return conditions


def budget_status(world: World, budget: Budget, now: Instant) -> Wire:
    envelopes: list[Wire] = []
    overdrawn = near = False
    used = 0
    for envelope in budget.envelopes:
        view = envelope_view(world, envelope.key, now)
        used += view.used
        account = world.accounts.of(envelope.key)
        spare = sum(
            world.leases[name].gpus
            for name in world.open_by_payer.get(envelope.key, ())
            if world.leases[name].role == "Spare"
        )
        row: Wire = {
            "name": envelope.key.rpartition("/")[2],
            "used": view.used,
            "spare": spare,
            "lent": [
                {"borrower": owner, "gpus": gpus}
                for owner, gpus in sorted(account.borrowers.items())
            ],
            "headroom": max(0, view.free),
            "gpuHoursUsed": format_gpu_hours(view.gpu_ms),
            "gpuHoursCommitted": format_gpu_hours(view.committed_ms),
        }
        if view.left_ms is not None:
            row["gpuHoursLeft"] = format_gpu_hours(max(0, view.left_ms))
        known = world.overdrafts.get(envelope.key)
        if known is not None:
            row["overdrawnSince"] = format_instant(known.since)
        overdrawn = overdrawn or view.overdrawn > 0
        near = near or view.used * 100 >= envelope.concurrency * _NEAR
        envelopes.append(row)
    announced = _announced_cuts(world, budget)
    word = "Overdrawn" if overdrawn or announced else "NearLimit" if near else "Healthy"
    most = sum(envelope.concurrency for envelope in budget.envelopes)
    return {
        "state": word,
        "gpus": f"{used}/{most}",
        "envelopeCount": len(envelopes),
        "envelopes": envelopes,
        "conditions": [{"type": word, "status": "True", "reason": word, "message": announced}],
    }


def _announced_cuts(world: World, budget: Budget) -> str:
    """Return which envelopes and aggregates of a Budget are overdrawn, and when preemption starts.

    Overdrawn aggregates are reported nowhere else.
    """
    return "; ".join(
        f"{subject} is overdrawn, preemption starts at "
        f"{format_instant(overdraft.since + world.policy.overdraft_grace)}"
        for subject, overdraft in sorted(world.overdrafts.items())
        if subject.rpartition("/")[0] == budget.key
    )
