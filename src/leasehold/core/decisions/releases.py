"""When the slots of a node come free, as far as it is known. A lease is counted once, whoever asks.

`calendar` asks in order to keep no more than plans will miss, `outlook` in order to find the first
instant at which something fits. A slot under two leases (a spare and its filler) is free when both
have ended.
"""

from collections.abc import Collection

from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.world import World


def releases_on(
    world: World, node: str, *, after: Instant, gone: Collection[str] = ()
) -> dict[int, Instant]:
    """By slot; FOREVER if no end is known. Who is overdue may stay for ever.

    `gone`: leases whose slots the asker has given back already; they come free no second time."""
    found: dict[int, Instant] = {}
    for name in world.open_by_node.get(node, ()):
        if name not in gone:
            at = world.terms[name].frees_at
            known = at if at > after else FOREVER
            for slot in world.leases[name].slots:
                found[slot] = max(known, found.get(slot, 0))
    return found
