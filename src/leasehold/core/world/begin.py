"""When the pods of leases began to run: what lies before that was paid for, and was no work.

Asked when a lease is closed, and by reports for those that are open.
"""

from leasehold.core.facts import Lease
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.world import World


def starting_until(world: World, lease: Lease) -> Instant | None:
    """Of an open lease: `FOREVER` if its pod has not begun to run. None if that took no time, or
    nobody saw how long; a spare has no pod."""
    if not lease.pod or lease.pod_key not in world.began_at:
        return None
    began = world.began_at[lease.pod_key]
    if began is None:
        return FOREVER
    return began if began > lease.start else None
