"""The simulation kernel: virtual time, seeded order, crashes."""

import os
import subprocess
import sys

import pytest

from leasehold.sim.kernel import Deadlock, Kernel, Livelock, Process


def trace_of(seed: int | None) -> list[str]:
    """Return the order in which five tasks that sleep and yield make progress."""
    kernel = Kernel(1000, seed)
    process = kernel.process("p")
    trace: list[str] = []

    async def work(name: str, span: int) -> None:
        for turn in range(3):
            await process.clock.sleep(span)
            trace.append(f"{name}{turn}@{kernel.now}")
            await process.clock.sleep(0)
            trace.append(f"{name}{turn}+")

    for name in ("alpha", "beta", "gamma", "delta", "epsilon"):
        process.tasks.spawn(name, work(name, 10))
    kernel.advance_to(2000)
    return trace


def sleeper(process: Process, trace: list[str], name: str, ms: int) -> None:
    async def work() -> None:
        await process.clock.sleep(ms)
        trace.append(name)

    process.tasks.spawn(name, work())


def test_without_a_seed_tasks_run_in_order_of_readiness() -> None:
    assert trace_of(None)[:3] == ["alpha0@1010", "beta0@1010", "gamma0@1010"]


def test_seed_decides_the_task_order_and_seeds_differ() -> None:
    assert trace_of(3) == trace_of(3)
    assert len({tuple(trace_of(seed)) for seed in range(10)}) == 10


def test_task_order_does_not_depend_on_pythons_hash_seed() -> None:
    code = "from tests.unit.test_kernel import trace_of; print(trace_of(5))"
    outputs = set()
    for hash_seed in ("0", "1", "77", "random"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "src:."}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_timers_fire_in_order_of_time_and_then_of_creation() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    trace: list[str] = []
    for name, ms in (("late", 30), ("first", 10), ("second", 10), ("now", 0)):
        sleeper(process, trace, name, ms)
    kernel.settle()
    assert trace == ["now"]
    assert kernel.next_timer() == 10
    kernel.advance_to(29)
    assert trace == ["now", "first", "second"]
    assert kernel.now == 29
    kernel.advance_to(30)
    assert trace[-1] == "late"
    assert kernel.next_timer() is None


def test_abandoned_timers_are_forgotten() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    signal = process.tasks.signal()

    async def wait() -> None:
        for _ in range(5000):
            signal.set()
            await signal.wait(1_000_000)
            await process.clock.sleep(0)
            process.tasks.spawn("set", set_it())
            await signal.wait(1_000_000)

    async def set_it() -> None:
        signal.set()

    kernel.complete(wait(), process=process)
    assert kernel.now == 0
    assert kernel.next_timer() is None


def test_tasks_of_a_crashed_process_never_run_again() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    trace: list[str] = []

    async def work() -> None:
        try:
            await process.clock.sleep(10)
            trace.append("never")
        finally:
            await process.clock.sleep(10)
            trace.append("never, either")

    process.tasks.spawn("work", work())
    kernel.settle()
    process.crash()
    kernel.advance_to(100)
    assert trace == []
    assert kernel.failure is None
    sleeper(process, trace, "reborn", 1)
    kernel.advance_to(200)
    assert trace == ["reborn"]


def test_task_that_crashes_its_own_process_does_not_continue() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    trace: list[str] = []

    async def stubborn() -> None:
        await process.clock.sleep(1)
        try:
            process.crash()
        finally:
            process.tasks.spawn("ghost", ghost())
        trace.append("never")

    async def ghost() -> None:
        trace.append("never")

    process.tasks.spawn("stubborn", stubborn())
    sleeper(process, trace, "beside it", 5)
    sleeper(kernel.process("other"), trace, "other", 5)
    kernel.advance_to(10)
    assert trace == ["other"]


def test_paused_process_catches_up_after_it_is_resumed() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    trace: list[str] = []
    sleeper(process, trace, "work", 5)
    kernel.settle()
    process.pause()
    kernel.advance_to(50)
    assert trace == []
    process.resume()
    kernel.settle()
    assert trace == ["work"]


def test_clock_jump_affects_only_its_own_process() -> None:
    kernel = Kernel(1_000_000)
    one, other = kernel.process("one"), kernel.process("other")
    one.clock.jump(-5000)
    kernel.advance_to(1_000_100)
    assert (one.clock.now(), one.clock.monotonic()) == (995_100, 100)
    assert (other.clock.now(), other.clock.monotonic()) == (1_000_100, 100)


def test_sleep_is_measured_by_the_drifting_clock() -> None:
    kernel = Kernel(0)
    slow = kernel.process("slow", drift_ppm=-100_000)

    async def nap() -> int:
        await slow.clock.sleep(900)
        return slow.clock.monotonic()

    assert kernel.complete(nap(), process=slow) == 900
    assert kernel.now == 1000


@pytest.mark.parametrize(("ppm", "woken"), [(-900_000, 500 + 5_000), (1_000_000, 500 + 250)])
def test_sleeper_whose_clock_begins_to_drift_wakes_by_that_clock(ppm: int, woken: int) -> None:
    """Half of the second was left when the drift began; the other process is not affected."""
    kernel = Kernel(0)
    ends: dict[str, int] = {}

    async def nap(process: Process) -> None:
        await process.clock.sleep(1_000)
        ends[process.name] = kernel.now

    one, other = kernel.process("one"), kernel.process("other")
    for process in (one, other):
        process.tasks.spawn("nap", nap(process))
    kernel.advance_to(500)
    one.clock.drift(ppm)
    kernel.advance_to(10_000)
    assert ends == {"one": woken, "other": 1_000}


def test_livelock_names_the_spinning_tasks() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")

    async def spin() -> None:
        while True:
            await process.clock.sleep(0)

    process.tasks.spawn("spin", spin())
    with pytest.raises(Livelock) as livelock:
        kernel.settle(max_steps=5000)
    assert livelock.value.names == ("p:spin",)
    kernel.close()


def test_failed_task_stops_the_kernel_permanently() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    trace: list[str] = []

    async def fail() -> None:
        raise ValueError("broken")

    process.tasks.spawn("fail", fail())
    sleeper(process, trace, "after", 0)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            kernel.advance_to(10)
    assert isinstance(kernel.failure, ValueError)
    kernel.close()
    assert trace == []


def test_waiting_for_a_signal_that_never_comes_is_a_deadlock() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    with pytest.raises(Deadlock):
        kernel.complete(process.tasks.signal().wait(None), process=process)
    kernel.close()


def test_a_signal_may_be_waited_for_by_one_task_only() -> None:
    kernel = Kernel(0)
    process = kernel.process("p")
    signal = process.tasks.signal()
    process.tasks.spawn("one", signal.wait(None))
    process.tasks.spawn("two", signal.wait(None))
    with pytest.raises(AssertionError):
        kernel.settle()
    kernel.close()


def test_signal_after_a_waiter_crashed_wakes_the_next_waiter() -> None:
    kernel = Kernel(0)
    one, two = kernel.process("one"), kernel.process("two")
    signal = one.tasks.signal()
    one.tasks.spawn("wait", signal.wait(None))
    kernel.settle()
    one.crash()
    signal.set()
    assert kernel.complete(signal.wait(5), process=two) is True
