"""Answers that were just given: many pages of many windows ask the same, and are told the same.

An answer is good as long as nothing happened, and for a moment only, since time is in it too. It is
kept for the visitor that it was given to, and nobody else.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping

from leasehold.web.house import House, Reply, Visitor
from leasehold.web.turns import Turns

FRESH_S = 1.0
KEPT = 64

_Key = tuple[int, str, tuple[tuple[str, str], ...]]


class Remembered:
    def __init__(self, house: House) -> None:
        self._house = house
        self._ask = house.ask
        self._turns = Turns()
        # The visitor is kept with its answer: its identity stays its own as long as that is there.
        self._kept: OrderedDict[_Key, tuple[Visitor, str, float, Reply]] = OrderedDict()

    async def ask(self, visitor: Visitor, question: str, params: Mapping[str, str]) -> Reply:
        key = (id(visitor), question, tuple(sorted(params.items())))
        version = self._house.news.name
        found = self._kept.get(key)
        if found is not None and found[1] == version and time.monotonic() < found[2]:
            return found[3]
        answered = await self._turns.take(
            visitor.user, lambda: self._ask(visitor, question, params)
        )
        self._kept.pop(key, None)
        self._kept[key] = (visitor, version, time.monotonic() + FRESH_S, answered)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answered
