"""The settings that decisions depend on, as one record; `shell.config` reads it from a file."""

from enum import StrEnum

import msgspec

from leasehold.core.units import DAY, HOUR, MINUTE, SECOND, Millis


class CutPolicy(StrEnum):
    """What may be cut for a waiting run (Q10)."""

    LOTTERY = "Lottery"
    RECLAIM = "Reclaim"  # only what the family rule gives back to an owner
    NEVER = "Never"


class Policy(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Every default is the documented one. Spans are milliseconds."""

    activation_lead: Millis = 15 * MINUTE
    patience: Millis = 24 * HOUR  # from the beginning of a wait to the start by cuts
    reservation_max_wait: Millis = 24 * HOUR
    reservation_depth: int = 256
    reservation_depth_per_owner: int = 8
    reservation_money_depth: int = 256  # of runs that are short of money
    reservation_money_depth_per_owner: int = 32
    overdraft_grace: Millis = 15 * MINUTE
    accounting_horizon: Millis = 24 * HOUR
    min_tenure: Millis | None = None  # None: 2 h, or twice the checkpoint, at most 24 h
    cuts: CutPolicy = CutPolicy.LOTTERY
    owned_last: bool = False
    bind_timeout: Millis = 2 * MINUTE
    start_timeout: Millis = 20 * MINUTE  # where a run names none: from its leases to running
    bind_attempts: int = 5
    bind_backoff: Millis = 10 * SECOND
    bind_backoff_max: Millis = 10 * MINUTE
    bind_blocked_for: Millis = HOUR
    retry_backoff: Millis = 30 * SECOND
    retry_backoff_max: Millis = 30 * MINUTE
    victim_timeout: Millis = 15 * MINUTE  # the key `drain.timeout`: how long victims are waited for
    grace_max: Millis = HOUR  # of any runtime.gracePeriod
    filler_grace_max: Millis = 5 * SECOND
    resize_interval: Millis = 10 * MINUTE
    swap_settle: Millis = 10 * MINUTE
    restart_pause: Millis = 10 * SECOND  # between two restarts of a pod in place
    # flavor or *, and after how much silence it counts as dead; None, or no entry: never
    node_failure_after: tuple[tuple[str, Millis | None], ...] = ()
    forbid_reciprocal_lending: bool = False
    binder_enabled: bool = True
    spares_on_reserved: bool = False  # where other schedulers would take a spare's GPUs for free
    gpu_resource: str = "nvidia.com/gpu"
    clock_jump_max: Millis = 5 * SECOND
    batch_bytes_max: int = 512 * 1024
    odds_exact_bundles_max: int = 6
    odds_seeds: int = 1000
    keep_closed: Millis = 7 * DAY
    max_objects: int = 500_000
    archive: str = ""
