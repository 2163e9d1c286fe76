"""The last changes of one kind, in memory, for watches.

Kept by `adapters.memory` as all that it has, and by `adapters.sqlite` in front of its file: most
watches are up to date and want only what was just written.
"""

from bisect import bisect_right

from leasehold.adapters.objects.storage import PastChange
from leasehold.ports.store import WatchExpired


class History:
    def __init__(self, size_max: int, *, after: int = 0) -> None:
        """`after`: of changes up to this version it knows nothing."""
        self._size_max = size_max
        self._dropped_version = after  # of the newest that is forgotten
        self._versions: list[int] = []
        self._changes: list[PastChange] = []

    def next_changes(self, after: int, count: int) -> list[PastChange]:
        """Raises `WatchExpired` if the first of them may have been forgotten."""
        if after < self._dropped_version:
            raise WatchExpired
        position = bisect_right(self._versions, after)
        return self._changes[position : position + count]

    def add(self, change: PastChange) -> None:
        self._versions.append(change.version)
        self._changes.append(change)
        # Twice as many as are kept, so that a change does not move the whole list each time.
        if len(self._changes) >= 2 * self._size_max:
            count = len(self._changes) - self._size_max
            self._dropped_version = self._versions[count - 1]
            del self._versions[:count]
            del self._changes[:count]
