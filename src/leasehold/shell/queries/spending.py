"""A cache for the answers about how envelopes spend over time.

Computing such an answer reads every lease, and an open dashboard page requests one after every
change. Called by `query`.
"""

from leasehold.control.questions.answers.money import BurnAnswer
from leasehold.control.questions.burn import burn
from leasehold.core.units import SECOND, Instant, Millis
from leasehold.core.world.world import World

LASTS: Millis = 30 * SECOND
KEPT_MAX = 64


class SpendingCache:
    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[Instant, World, BurnAnswer]] = {}

    def of(self, world: World, now: Instant, *, owner: str, namespace: str) -> BurnAnswer:
        known = self._kept.get((owner, namespace))
        if known is not None and known[1] is world and now - known[0] <= LASTS:
            return known[2]
        found = burn(world, now, owner=owner, namespace=namespace)
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[owner, namespace] = (now, world, found)
        return found
