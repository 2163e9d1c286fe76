"""Checks edits that depend on the World: a longer limit must be covered by the run's payers."""

from leasehold.control.running.open_leases import live_units
from leasehold.core.facts import Envelope, EnvelopeKey, Relation, Uid
from leasehold.core.objects.run import check_run, run_from_wire
from leasehold.core.units import GpuMs, Instant, Millis, format_gpu_hours
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World

Problems = list[tuple[str, str]]
Amounts = tuple[GpuMs, GpuMs]  # (all, lent part)
_PATH = "spec.runtime.maxDuration"


def uncovered_edit(world: World, uid: Uid, new: object, now: Instant) -> Problems:
    """Return why a longer `runtime.maxDuration` of a live Run cannot be paid for; empty if it
    can."""
    run = world.runs.get(uid)
    live = live_units(world, uid)
    if run is None or not live or check_run(new):
        return []  # nothing to check here; a malformed edit is refused elsewhere
    old_span, new_span = run.spec.max_duration, run_from_wire(new).spec.max_duration
    if old_span == new_span:
        return []
    for payer, more in sorted(_more(world, uid, old_span, new_span, now).items()):
        left = _left(world, world.envelopes[payer], now)
        for needs, has in zip(more, left, strict=True):
            if has is not None and needs > max(0, has):
                said = (
                    f"{payer} has {format_gpu_hours(max(0, has))} GPU-hours left, the longer "
                    f"limit needs {format_gpu_hours(needs)} more"
                )
                return [(_PATH, said)]
    return []


def _more(
    world: World, uid: Uid, old_span: Millis | None, new_span: Millis | None, now: Instant
) -> dict[EnvelopeKey, Amounts]:
    """Return the GPU-hours that each payer would have to commit in addition."""
    more: dict[EnvelopeKey, Amounts] = {}
    for lease in open_leases(world, uid):
        attempt = world.attempt_of(lease)
        envelope = world.envelopes.get(lease.payer)
        if attempt is None or envelope is None or lease.ending is not None:
            continue
        old_end, new_end = (
            now + world.policy.accounting_horizon if span is None else attempt.started + span
            for span in (old_span, new_span)
        )
        extra = lease.gpus * (min(new_end, envelope.end) - max(now, min(old_end, envelope.end)))
        if extra > 0:
            lent = extra if lease.relation is Relation.BORROWED else 0
            total = more.get(lease.payer, (0, 0))
            more[lease.payer] = (total[0] + extra, total[1] + lent)
    return more


def _left(world: World, envelope: Envelope, now: Instant) -> tuple[GpuMs | None, GpuMs | None]:
    """Return the envelope's GPU-hours that are not used, committed or claimed by plans and holds.

    The second number is what is left under its cap on lent hours. None if there is no such cap.
    """
    account = world.accounts.of(envelope.key)
    committed = account.committed_ms(
        now, until=envelope.end, horizon=world.policy.accounting_horizon
    )
    held = sum(each.gpu_ms for each in world.memory.claims if each.payer == envelope.key)
    lent_held = sum(
        each.gpu_ms for each in world.memory.claims if each.payer == envelope.key and each.borrowed
    )
    cap, lent_cap = envelope.max_gpu_ms, envelope.lending.max_gpu_ms
    spoken_for = account.used_ms(now) + committed[0] + held
    lent = account.lent_used_ms(now) + committed[1] + lent_held
    return (
        None if cap is None else cap - spoken_for,
        None if lent_cap is None else lent_cap - lent,
    )
