"""What our statuses said when we last wrote them, and whether another process has written since.

Kept by `effects`. A status write is not fenced. A write that a leader sent before it was deposed,
or that we sent over a slow network, may arrive late and replace a newer status. A watch reports
every write. If its version is later than that of our last write, another writer was last, and the
status must be written again.
"""

import msgspec

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, version_at

# Kind, namespace, name and uid. The uid tells an object from an earlier one of its name, whose
# status may have been the same. Names of reservations are never reused; their uid is "".
Place = tuple[str, str, str, str]


class StatusCache:
    """The status that we last wrote for each object, and the object's version after that write."""

    def __init__(self) -> None:
        self._said: dict[Place, bytes] = {}
        self._versions: dict[Place, int] = {}
        self._disputed: dict[Place, None] = {}

    def says(self, place: Place, status: Wire) -> bool:
        """Return whether our last write for this object had the same status, and none is known
        after it."""
        return self._said.get(place) == _encoded(status)

    def note(self, place: Place, status: Wire, answer: object) -> None:
        """Note a status that we wrote; `answer` is the object that the store returned."""
        self._said[place] = _encoded(status)
        self._versions[place] = version_at(part(answer, "metadata"))
        self._disputed.pop(place, None)

    def is_disputed(self, place: Place) -> bool:
        """Return whether another process was the last to write this object's status."""
        return place in self._disputed

    def hear(self, place: Place, version: int) -> bool:
        """Note a reported write. Return whether it came after our last write, so that our status
        must be written again. False if we have not written this object's status yet."""
        if version <= self._versions.get(place, version):
            return False
        self._said.pop(place, None)
        self._disputed[place] = None
        return True


def _encoded(status: Wire) -> bytes:
    return msgspec.json.encode(status, order="sorted")
