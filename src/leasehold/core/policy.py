"""The settings that decisions depend on, as one record; `shell.config` reads them from a file."""

from enum import StrEnum

import msgspec

from leasehold.core.units import DAY, HOUR, MINUTE, SECOND, Millis


class CutPolicy(StrEnum):
    """What may be preempted for a waiting run (Q10)."""

    LOTTERY = "Lottery"
    RECLAIM = "Reclaim"  # only by the family rule (O5)
    NEVER = "Never"


class Policy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The settings, with their documented defaults. Spans are in milliseconds."""

    activation_lead: Millis = 15 * MINUTE
    patience: Millis = 24 * HOUR  # from the beginning of a wait to the start by preemption (Q5)
    reservation_max_wait: Millis = 24 * HOUR
    reservation_depth: int = 256
    reservation_depth_per_owner: int = 8
    reservation_money_depth: int = 256  # for runs that need money (Q9)
    reservation_money_depth_per_owner: int = 32
    overdraft_grace: Millis = 15 * MINUTE
    accounting_horizon: Millis = 24 * HOUR
    min_tenure: Millis | None = None  # None: 2 h, or twice the checkpoint, at most 24 h
    cuts: CutPolicy = CutPolicy.LOTTERY
    owned_last: bool = False
    bind_timeout: Millis = 2 * MINUTE
    # from Start leases to running; default for runs that set none
    start_timeout: Millis = 20 * MINUTE
    bind_attempts: int = 5
    bind_backoff: Millis = 10 * SECOND
    bind_backoff_max: Millis = 10 * MINUTE
    bind_blocked_for: Millis = HOUR
    retry_backoff: Millis = 30 * SECOND
    retry_backoff_max: Millis = 30 * MINUTE
    # the key `drain.timeout`: how long to wait for victims (A4)
    victim_timeout: Millis = 15 * MINUTE
    grace_max: Millis = HOUR  # upper bound for runtime.gracePeriod
    filler_grace_max: Millis = 5 * SECOND
    resize_interval: Millis = 10 * MINUTE
    swap_settle: Millis = 10 * MINUTE
    restart_pause: Millis = 10 * SECOND  # between two in-place restarts of a pod
    # (flavor or "*", silence after which a node counts as dead); None or no entry: never (S1)
    node_failure_after: tuple[tuple[str, Millis | None], ...] = ()
    forbid_reciprocal_lending: bool = False
    binder_enabled: bool = True
    # whether spares are allowed where other schedulers could take their GPUs
    spares_on_reserved: bool = False
    gpu_resource: str = "nvidia.com/gpu"
    clock_jump_max: Millis = 5 * SECOND
    batch_bytes_max: int = 512 * 1024
    odds_exact_bundles_max: int = 6
    odds_seeds: int = 1000
    keep_closed: Millis = 7 * DAY
    max_objects: int = 500_000
    archive: str = ""
