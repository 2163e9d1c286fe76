"""How many GPUs are left as time passes, and the fewest there are in a span.

Plans take GPUs from an instant on and give them back at another. Whoever asks whether something
fits between them asks here: `agenda` and `outlook` for a node's GPUs, `accounts` for an envelope's.
One sweep over the instants, however many plans there are.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence

from leasehold.core.units import Instant

# When, and how many fewer there are from then on; negative: so many are given back. Sorted, what
# is given at an instant comes before what is taken at it, so that no step between the two is lower
# than both of its ends.
Drop = tuple[Instant, int]


def fewest(left: int, drops: Iterable[Drop], *, start: Instant, stop: Instant) -> int:
    """The fewest at any instant of [start, stop), of which `start` is always one."""
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
    """The same for many spans of one length; `starts` in order."""
    instants, levels = [], []
    level = left
    for at, gpus in sorted(drops):
        level -= gpus
        instants.append(at)
        levels.append(level)
    found = []
    window: deque[int] = deque()  # places of levels, each lower than all that come after it
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
