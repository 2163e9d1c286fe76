"""A short-lived cache of answers: many pages in many windows ask the same questions.

An answer is valid until something happens, and at most for a moment, because it contains durations
up to now. It is reused only for the same visitor.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping

from leasehold.web.dependencies import PageDependencies, Reply, Visitor
from leasehold.web.rate_limit import RateLimit

FRESH_S = 1.0
KEPT = 64

_Key = tuple[int, str, tuple[tuple[str, str], ...]]


class AnswerCache:
    def __init__(self, house: PageDependencies) -> None:
        self._house = house
        self._ask = house.ask
        self._turns = RateLimit()
        # The visitor is kept alive with its answer, so that its id() is not reused.
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
