"""hours: decide whether an envelope has so many GPU-hours left that they cannot be a limit.

Most envelopes have. A decision about them need not be repeated when only time has passed.
"""

from leasehold.core.facts import EnvelopeKey
from leasehold.core.requests import StartRequest
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def has_ample_hours(world: World, request: StartRequest, key: EnvelopeKey, *, now: Instant) -> bool:
    """Return whether the envelope has so many GPU-hours left that they limit no plan.

    They must last even if the envelope pays for as many GPUs as it may until every plan has been
    made again. If they do not, answers about the envelope change with time alone: leases without a
    limit use up hours, and a start needs fewer hours as the end of a window or a planned start
    comes nearer.

    Example: 200 GPUs, a horizon of 24 h and three times a `reservation.maxWait` of 24 h need at
    most 200 x 96 = 19,200 GPU-hours. If at least that is left, the hours are ample.
    """
    policy, envelope = world.policy, world.envelopes.get(key)
    if envelope is None or not envelope.caps_hours:
        return True
    account = world.accounts.of(key)
    last = max((term.committed_to or 0 for term in account.terms), default=0)
    longest = max(policy.accounting_horizon, request.span or 0, last - now)
    most = envelope.concurrency * (longest + 3 * policy.reservation_max_wait)
    caps = (envelope.max_gpu_ms, envelope.lending.max_gpu_ms)
    return account.used_ms(now) + most <= min(cap for cap in caps if cap is not None)
