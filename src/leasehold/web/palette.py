"""The colour of each owner: the same on every page while the set of owners is the same.

There are twelve hues, which differ enough even with the common kinds of colour blindness. Owners
get them in the order of their names. The colours are defined in `static/style.css`. No information
is given by colour alone.
"""

from collections.abc import Iterable

HUES = 12


class Palette:
    def __init__(self, owners: Iterable[str]) -> None:
        self.owners = sorted(set(owners))
        self._places = {owner: place % HUES for place, owner in enumerate(self.owners)}

    def hue(self, owner: str) -> int:
        """Return the hue of an owner. The hue of an owner outside the set is derived from the
        name."""
        found = self._places.get(owner)
        return sum(owner.encode()) % HUES if found is None else found
