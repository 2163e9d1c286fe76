"""What our statuses said when we last wrote them, and whether somebody has written since.

Kept by `effects`. A status follows from commits and is no part of them, so nothing refuses one that
comes late: what somebody sent before it was deposed, or we ourselves over a slow network, may
arrive after what is true by now. A watch tells of every write; one of a later version than our last
answer is not the last that we wrote, and what we have to say is owed again.
"""

import msgspec

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, version_at

# Kind, namespace, name and uid: the last tells an object from an earlier one of its name, whose
# status may have been the same. Names of reservations are never used again, and theirs is "".
Place = tuple[str, str, str, str]


class Said:
    """By object, what we wrote last and the version that it had then."""

    def __init__(self) -> None:
        self._said: dict[Place, bytes] = {}
        self._versions: dict[Place, int] = {}
        self._disputed: dict[Place, None] = {}

    def says(self, place: Place, status: Wire) -> bool:
        """Whether that is what is written there, for all we know."""
        return self._said.get(place) == _encoded(status)

    def note(self, place: Place, status: Wire, answer: object) -> None:
        """It was written, and the store answered with the object."""
        self._said[place] = _encoded(status)
        self._versions[place] = version_at(part(answer, "metadata"))
        self._disputed.pop(place, None)

    def is_disputed(self, place: Place) -> bool:
        """Whether somebody else's word stands there, and we have not answered it yet."""
        return place in self._disputed

    def hear(self, place: Place, version: int) -> bool:
        """Of a write; whether it is later than ours. What was never written is owed anyway."""
        if version <= self._versions.get(place, version):
            return False
        self._said.pop(place, None)
        self._disputed[place] = None
        return True


def _encoded(status: Wire) -> bytes:
    return msgspec.json.encode(status, order="sorted")
