"""The questions people ask, answered as lines of text from the World alone."""

from leasehold.core.facts import Uid
from leasehold.core.units import Instant
from leasehold.core.world import World


def cover_lines(world: World, uid: Uid) -> list[str]:
    return [f"{step.envelope}: {step.verdict}" for step in world.traces.get(uid, ())]


def explain(world: World, uid: Uid, now: Instant) -> list[str]:
    return []
