"""releases: when the slots of a node come free, as far as that is known.

`entries` uses it so that it reserves no GPU for a plan that a lease will free in time; `outlook`
uses it to find the first instant at which a pod fits. A slot under two leases (a spare and its
filler) is free when both have ended.
"""

from collections.abc import Collection

from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.world import World


def releases_on(
    world: World, node: str, *, after: Instant, gone: Collection[str] = ()
) -> dict[int, Instant]:
    """Return slot -> instant at which the slot comes free; FOREVER if no end is known.

    A lease whose known end is not later than `after` is overdue: it counts as never ending.
    `gone`: leases whose slots the caller has already freed.
    """
    found: dict[int, Instant] = {}
    for name in world.open_by_node.get(node, ()):
        if name not in gone:
            at = world.terms[name].frees_at
            known = at if at > after else FOREVER
            for slot in world.leases[name].slots:
                found[slot] = max(known, found.get(slot, 0))
    return found
