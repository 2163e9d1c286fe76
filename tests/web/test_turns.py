"""Queries of visitors get limited turns, so that no visitor can block the scheduler."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leasehold.web.dependencies import NotShown
from leasehold.web.rate_limit import BURST_S, WAIT_S_MAX, WAITING_MAX, RateLimit


class Hours:
    """A clock that advances only by work and by rest."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0
        self.rests: list[float] = []
        self.turns = RateLimit(now=lambda: self.now, work=lambda: self.worked, sleep=self.rest)

    async def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    def asks(self, seconds: float) -> Callable[[], Awaitable[str]]:
        async def ask() -> str:
            self.work(seconds)
            return "answer"

        return ask


def test_visitor_is_throttled_to_half_a_core_after_a_burst() -> None:
    hours = Hours()

    async def story() -> None:
        for _ in range(40):
            assert await hours.turns.take("ann", hours.asks(0.5)) == "answer"

    asyncio.run(story())
    assert hours.rests  # after the burst
    assert hours.worked <= BURST_S + hours.now / 2
    assert max(hours.rests) <= WAIT_S_MAX


def test_throttled_visitor_does_not_delay_another() -> None:
    hours = Hours()

    async def story() -> None:
        for _ in range(10):
            await hours.turns.take("ann", hours.asks(1.0))
        rested = list(hours.rests)
        await hours.turns.take("bob", hours.asks(1.0))
        assert hours.rests == rested

    asyncio.run(story())


def test_cpu_time_of_other_work_during_a_query_does_not_count() -> None:
    hours = Hours()

    async def asks() -> str:
        await asyncio.sleep(0)  # the scheduler works meanwhile
        return "answer"

    async def story() -> None:
        async def decides() -> None:
            hours.work(100.0)

        busy = asyncio.ensure_future(decides())
        await hours.turns.take("ann", asks)
        await busy
        await hours.turns.take("ann", asks)

    asyncio.run(story())
    assert hours.worked == 100.0
    assert hours.rests == []


def test_queries_of_a_visitor_run_one_by_one_and_too_many_are_refused() -> None:
    hours, under_way, most = Hours(), 0, 0

    async def asks() -> str:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return "answer"

    async def story() -> None:
        asked = [asyncio.ensure_future(hours.turns.take("ann", asks)) for _ in range(WAITING_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(NotShown) as refused:
            await hours.turns.take("ann", asks)
        assert refused.value.status == 429
        assert await asyncio.gather(*asked) == ["answer"] * WAITING_MAX
        assert await hours.turns.take("ann", asks) == "answer"

    asyncio.run(story())
    assert most == 1


def test_failed_or_cancelled_query_frees_its_turn() -> None:
    hours = Hours()

    async def fails() -> str:
        await asyncio.sleep(0)
        raise NotShown(403, "no")

    async def lasts() -> str:
        await asyncio.sleep(60)
        return "late"

    async def story() -> None:
        with pytest.raises(NotShown):
            await hours.turns.take("ann", fails)
        gone = asyncio.ensure_future(hours.turns.take("ann", lasts))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert await hours.turns.take("ann", hours.asks(0.1)) == "answer"

    asyncio.run(story())
