"""hours — whether the GPU-hours of an envelope can be what a waiting run lacks.

Most caps are far away. A question that GPU-hours cannot decide need not look at them, nor be asked
again when only time has passed.
"""

from leasehold.core.facts import EnvelopeKey
from leasehold.core.requests import StartRequest
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def has_ample_hours(world: World, wish: StartRequest, key: EnvelopeKey, *, now: Instant) -> bool:
    """Return whether an envelope has hours left, whatever it pays for until plans have had time to
    be made again. All others change by the passing of time alone: leases without a limit use them,
    and a start costs less of them as a window or a planned start comes near.

    Example: 200 GPUs, 24 h of horizon and three times 24 h of `reservation.maxWait` need 19,200
    GPU-hours at most. With more than that left of the cap the hours are ample.
    """
    policy, envelope = world.policy, world.envelopes.get(key)
    if envelope is None or not envelope.caps_hours:
        return True
    account = world.accounts.of(key)
    last = max((term.committed_to or 0 for term in account.terms), default=0)
    longest = max(policy.accounting_horizon, wish.span or 0, last - now)
    most = envelope.concurrency * (longest + 3 * policy.reservation_max_wait)
    caps = (envelope.max_gpu_ms, envelope.lending.max_gpu_ms)
    return account.used_ms(now) + most <= min(cap for cap in caps if cap is not None)
