"""What our statuses said when we last wrote them, and whether another process has written since.

Kept by `effects`. A status write is not fenced: one sent by a leader before it was deposed, or by
ourselves over a slow network, may arrive late and replace a newer status. A watch reports every
write; a version later than that of our last write means a different writer, and the status is owed
again.
"""

import msgspec

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, version_at

# Kind, namespace, name and uid. The uid tells an object from an earlier one of its name, whose
# status may have been the same. Names of reservations are never reused; their uid is "".
Place = tuple[str, str, str, str]


class StatusCache:
    """The last written status of each object, and the version after that write."""

    def __init__(self) -> None:
        self._said: dict[Place, bytes] = {}
        self._versions: dict[Place, int] = {}
        self._disputed: dict[Place, None] = {}

    def says(self, place: Place, status: Wire) -> bool:
        """Return whether this status is already written, as far as we know."""
        return self._said.get(place) == _encoded(status)

    def note(self, place: Place, status: Wire, answer: object) -> None:
        """Note a status write and the object that the store returned."""
        self._said[place] = _encoded(status)
        self._versions[place] = version_at(part(answer, "metadata"))
        self._disputed.pop(place, None)

    def is_disputed(self, place: Place) -> bool:
        """Return whether another process wrote the status and we have not rewritten it yet."""
        return place in self._disputed

    def hear(self, place: Place, version: int) -> bool:
        """Note a write; return whether it came after ours. A status never written is owed
        anyway."""
        if version <= self._versions.get(place, version):
            return False
        self._said.pop(place, None)
        self._disputed[place] = None
        return True


def _encoded(status: Wire) -> bytes:
    return msgspec.json.encode(status, order="sorted")
