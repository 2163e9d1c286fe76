"""Which colour an owner has: the same on every page, as long as the owners are the same.

Twelve hues that people with the common kinds of colour blindness can tell apart in the order in
which they are given out; the colours themselves are in `static/style.css`. No page says anything by
colour alone.
"""

from collections.abc import Iterable

HUES = 12


class Palette:
    def __init__(self, owners: Iterable[str]) -> None:
        self.owners = sorted(set(owners))
        self._places = {owner: place % HUES for place, owner in enumerate(self.owners)}

    def hue(self, owner: str) -> int:
        """An owner that nobody named before gets its hue from its name."""
        found = self._places.get(owner)
        return sum(owner.encode()) % HUES if found is None else found
