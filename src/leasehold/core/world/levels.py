"""The number of GPUs left over time, and its minimum in a time span.

Plans take GPUs at one instant and give them back at another. `calendar` and `outlook` use this for
a node's GPUs, `accounts` for an envelope's. The minimum takes one sweep over the instants, however
many plans there are.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

from leasehold.core.units import Instant

# (instant, GPUs fewer from then on); negative: GPUs given back. In sorted order, GPUs given back at
# an instant come before GPUs taken at it, so that no intermediate level is too low.
Drop = tuple[Instant, int]


def fewest(left: int, drops: Iterable[Drop], *, start: Instant, stop: Instant) -> int:
    """Return the fewest GPUs that are left at any instant of [start, stop); `start` always counts.

    `left`: GPUs at first. `drops`: (instant, GPUs fewer from then on).
    Example: left 8, drops (10, 4) and (20, -4): 4 in [5, 15), 8 in [20, 30).
    """
    later = []
    for drop in drops:
        if drop[0] <= start:
            left -= drop[1]
        elif drop[0] < stop:
            later.append(drop)
    lowest = left
    later.sort()
    for _, gpus in later:
        left -= gpus
        lowest = min(lowest, left)
    return lowest


def fewest_from_each(
    left: int, drops: Iterable[Drop], *, starts: Sequence[Instant], span: int
) -> list[int]:
    """Return `fewest` for each span of length `span` that begins at one of `starts`.

    `starts` must be sorted. One sweep over the instants keeps the minimum of a sliding window.
    """
    instants, levels = [], []
    level = left
    for at, gpus in sorted(drops):
        level -= gpus
        instants.append(at)
        levels.append(level)
    found = []
    window: deque[int] = deque()  # indices of levels; each level is lower than all later ones
    seen = 0
    for start in starts:
        stop = start + span
        while seen < len(instants) and instants[seen] < stop:
            while window and levels[window[-1]] >= levels[seen]:
                window.pop()
            window.append(seen)
            seen += 1
        first = bisect_right(instants, start)
        while window and window[0] < first:
            window.popleft()
        at_start = levels[first - 1] if first else left
        found.append(min(at_start, levels[window[0]]) if window else at_start)
    return found
