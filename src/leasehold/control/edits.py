"""Edits that only the World can judge: a longer limit must be covered by those who pay."""

from leasehold.control.open_leases import live_units
from leasehold.core.facts import Uid
from leasehold.core.objects.run import run_from_wire
from leasehold.core.units import FOREVER, Instant, format_gpu_hours
from leasehold.core.width import open_leases
from leasehold.core.world import World

Problems = list[tuple[str, str]]
_PATH = "spec.runtime.maxDuration"


def uncovered_edit(world: World, uid: Uid, new: object, now: Instant) -> Problems:
    """Why raising `runtime.maxDuration` of a running Run cannot be paid for; nothing if it can."""
    run = world.runs.get(uid)
    live = live_units(world, uid)
    if run is None or not live:
        return []
    old_span, new_span = run.spec.max_duration, run_from_wire(new).spec.max_duration
    if old_span is None or old_span == new_span or (new_span or FOREVER) < old_span:
        return []
    horizon = world.policy.accounting_horizon
    more: dict[str, int] = {}
    for lease in open_leases(world, uid):
        attempt = world.attempt_of(lease)
        envelope = world.envelopes.get(lease.payer)
        if attempt is None or envelope is None or lease.ending is not None:
            continue
        old_end = max(now, attempt.started + old_span)
        new_end = now + horizon if new_span is None else attempt.started + new_span
        extra = min(new_end, envelope.end) - min(old_end, envelope.end)
        more[lease.payer] = more.get(lease.payer, 0) + lease.gpus * max(0, extra)
    problems = []
    for payer, extra in sorted(more.items()):
        envelope = world.envelopes[payer]
        if envelope.max_gpu_ms is None:
            continue
        account = world.accounts.of(payer)
        committed = account.committed_ms(now, until=envelope.end, horizon=horizon)[0]
        left = envelope.max_gpu_ms - account.used_ms(now) - committed
        if extra > left:
            problems.append(
                (
                    _PATH,
                    f"{payer} has {format_gpu_hours(left)} GPU-hours left, the longer limit needs "
                    f"{format_gpu_hours(extra)} more",
                )
            )
    return problems[:1]
