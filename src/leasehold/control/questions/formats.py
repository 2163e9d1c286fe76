"""Formats instants, GPU-time and places in answers. Used by every question."""

from collections.abc import Iterable
from functools import lru_cache

from leasehold.control.questions.answers.reasons import PlaceRow
from leasehold.control.questions.answers.shape import GpuTime
from leasehold.core.facts import Lease
from leasehold.core.units import (
    DAY,
    FOREVER,
    HOUR,
    MINUTE,
    SECOND,
    GpuMs,
    Instant,
    Millis,
    format_gpu_hours,
    format_instant,
    format_span,
)
from leasehold.core.world.world import World


def instant(at: Instant | None) -> str | None:
    """Format an instant; None for an instant that has not come or never will.

    The text is that of `format_instant`, computed in a quarter of the time: an answer may have
    hundreds of thousands of instants.
    """
    if at is None or at >= FOREVER:
        return None
    days, rest = divmod(at, DAY)
    hours, rest = divmod(rest, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    seconds, millis = divmod(rest, SECOND)
    return f"{_day(days)}T{hours:02d}:{minutes:02d}:{seconds:02d}.{millis:03d}Z"


@lru_cache(maxsize=4096)
def _day(days: int) -> str:
    return format_instant(days * DAY)[:10]


def moment(at: Instant) -> str:
    """Format an instant in a sentence, to the second."""
    return f"{str(instant(at))[:19]}Z"


def wait_of(span: Millis) -> str:
    """Format a time that is left, for a sentence: `14m59s`; `0s` if none is left."""
    return format_span(max(0, span - span % SECOND))


def gpu_time(amount: GpuMs) -> GpuTime:
    """Return GPU-time exactly in GPU-ms and readably in hours."""
    return {"gpu_ms": amount, "gpu_hours": format_gpu_hours(amount)}


def listed(words: Iterable[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    found = list(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def domain_of(world: World, node: str) -> str:
    state = world.fleet.nodes.get(node)
    return "" if state is None else state.node.domain


def places(world: World, leases: Iterable[Lease]) -> list[PlaceRow]:
    """Return the GPUs per group and node; spares in rows of their own."""
    held: dict[tuple[int, bool, str], int] = {}
    for lease in leases:
        key = (lease.group, lease.role == "Spare", lease.node)
        held[key] = held.get(key, 0) + lease.gpus
    return [
        PlaceRow(
            group=group,
            node=node,
            domain=domain_of(world, node),
            gpus=gpus,
            spare=spare,
        )
        for (group, spare, node), gpus in sorted(held.items())
    ]
