"""The latest changes of one kind, in memory, for watches.

`adapters.memory` has no other history. `adapters.sqlite` uses it as a cache of the file, because
most watches are up to date and need only the latest changes.
"""

from bisect import bisect_right

from leasehold.adapters.objects.storage import PastChange
from leasehold.ports.store import WatchExpired


class History:
    def __init__(self, size_max: int, *, after: int = 0) -> None:
        """`after`: the history begins after this version; earlier changes count as dropped."""
        self._size_max = size_max
        self._dropped_version = after  # version of the newest dropped change
        self._versions: list[int] = []
        self._changes: list[PastChange] = []

    def next_changes(self, after: int, count: int) -> list[PastChange]:
        """Return at most `count` changes that follow version `after`. Raise `WatchExpired` if the
        first of them may have been dropped."""
        if after < self._dropped_version:
            raise WatchExpired
        position = bisect_right(self._versions, after)
        return self._changes[position : position + count]

    def add(self, change: PastChange) -> None:
        self._versions.append(change.version)
        self._changes.append(change)
        # Trim only at twice the size, so that not every change moves the whole list.
        if len(self._changes) >= 2 * self._size_max:
            count = len(self._changes) - self._size_max
            self._dropped_version = self._versions[count - 1]
            del self._versions[:count]
            del self._changes[:count]
