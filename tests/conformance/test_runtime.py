"""What every runtime promises (`ports.runtime`): the simulation's kernel and asyncio alike."""

import gc
from collections.abc import Callable, Coroutine

import pytest
from tests.conformance.harness import RUNTIMES

from leasehold.ports.runtime import Clock, Tasks

Main = Callable[[Clock, Tasks], Coroutine[object, object, object]]
Run = Callable[[Main], object]


@pytest.fixture(params=sorted(RUNTIMES))
def run(request: pytest.FixtureRequest) -> Run:
    return RUNTIMES[request.param]


def test_sleep_takes_at_least_the_requested_time(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> int:
        before = clock.monotonic()
        await clock.sleep(5)
        await clock.sleep(0)
        await clock.sleep(-5)
        return clock.monotonic() - before

    slept = run(main)
    assert isinstance(slept, int)
    assert 5 <= slept < 2000


def test_signal_set_before_the_wait_is_not_lost(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> list[bool]:
        signal = tasks.signal()
        signal.set()
        signal.set()
        return [await signal.wait(None), await signal.wait(1), await signal.wait(0)]

    assert run(main) == [True, False, False]


def test_signal_wakes_its_waiter_before_the_timeout(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> list[bool]:
        signal = tasks.signal()

        async def later() -> None:
            await clock.sleep(2)
            signal.set()

        tasks.spawn("later", later())
        return [await signal.wait(60_000), await signal.wait(1)]

    assert run(main) == [True, False]


def test_a_spawned_task_runs_when_its_parent_waits(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> list[str]:
        trace: list[str] = []

        async def child() -> None:
            trace.append("child")

        tasks.spawn("child", child())
        trace.append("parent")
        await clock.sleep(1)
        return trace

    assert run(main) == ["parent", "child"]


def test_cancelled_task_ends_at_its_await_and_runs_its_cleanup(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> list[str]:
        trace: list[str] = []

        async def child() -> None:
            try:
                await clock.sleep(60_000)
                trace.append("never")
            finally:
                await clock.sleep(1)
                trace.append("tidied")

        task = tasks.spawn("child", child())
        await clock.sleep(1)
        task.cancel()
        await clock.sleep(20)
        task.cancel()
        return trace

    assert run(main) == ["tidied"]


def test_task_that_cancels_itself_ends_at_its_next_await(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> list[str]:
        trace: list[str] = []
        go = tasks.signal()

        async def child() -> None:
            await go.wait(None)
            task.cancel()
            trace.append("goes on to its next await")
            await clock.sleep(0)
            trace.append("never")

        task = tasks.spawn("child", child())
        go.set()
        await clock.sleep(5)
        return trace

    assert run(main) == ["goes on to its next await"]


def test_a_signal_is_free_again_after_its_waiter_was_cancelled(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> bool:
        signal = tasks.signal()

        async def child() -> None:
            await signal.wait(None)

        task = tasks.spawn("child", child())
        await clock.sleep(1)
        task.cancel()
        await clock.sleep(1)
        signal.set()
        return await signal.wait(1000)

    assert run(main) is True


def test_exception_in_a_task_ends_the_runtime(run: Run) -> None:
    async def main(clock: Clock, tasks: Tasks) -> None:
        async def child() -> None:
            raise LookupError("lost")

        tasks.spawn("child", child())
        await clock.sleep(60_000)

    with pytest.raises(LookupError) as failure:
        run(main)
    assert "child" in failure.value.__notes__[0]


def test_task_cancelled_before_it_began_never_runs(run: Run) -> None:
    ran: list[str] = []

    async def main(clock: Clock, tasks: Tasks) -> None:
        async def never() -> None:
            ran.append("never")

        tasks.spawn("never", never()).cancel()
        await clock.sleep(1)

    run(main)
    gc.collect()  # a coroutine that was never awaited would warn here
    assert ran == []
