"""The colour of each owner: the same on every page while the set of owners is the same.

Twelve hues that remain distinguishable with the common kinds of colour blindness, in the order of
their assignment. The colours are defined in `static/style.css`. No information is given by colour
alone.
"""

from collections.abc import Iterable

HUES = 12


class Palette:
    def __init__(self, owners: Iterable[str]) -> None:
        self.owners = sorted(set(owners))
        self._places = {owner: place % HUES for place, owner in enumerate(self.owners)}

    def hue(self, owner: str) -> int:
        """Return the hue of an owner; for an unknown one it is derived from the name."""
        found = self._places.get(owner)
        return sum(owner.encode()) % HUES if found is None else found
