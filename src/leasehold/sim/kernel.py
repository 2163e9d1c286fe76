"""Runs coroutines in virtual time: no threads, no sleeping; one seed decides every interleaving.

The simulator creates one Kernel, gives each simulated process a clock and tasks, and moves time
with `advance_to`. The kernel knows nothing about what processes do. It never reads a real clock,
and never iterates in an order that depends on a hash.

A task that awaits is *parked* and gets a new token. Whatever wakes the task (timer, signal or
cancellation) must name that token. If two of them try, the token is outdated for the second one,
which then has no effect.
"""

import heapq
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from random import Random
from typing import TypeVar

T = TypeVar("T")

MILLION = 1_000_000
_STALE_TIMERS_MIN = 1024  # smaller heaps are not worth cleaning
_SPIN_SAMPLE = 1000  # steps before a Livelock whose tasks are named


class Livelock(Exception):  # noqa: N818
    """Tasks keep waking each other while time stands still; `names` lists these tasks."""

    def __init__(self, at: int, names: tuple[str, ...]) -> None:
        super().__init__(f"nothing settles at {at}: {', '.join(names)}")
        self.names = names


class Deadlock(Exception):  # noqa: N818
    """The awaited coroutine has not ended, and no timer is left that could wake it."""


class Crashed(BaseException):
    """Raised in a task whose process has crashed. It is not an Exception, so that the task's own
    code cannot handle it."""


class _Cancelled(BaseException):
    """Raised in a task by `cancel`."""


class KernelTask:
    """One coroutine of one start (incarnation) of a process."""

    __slots__ = (
        "_kernel",
        "_over",
        "cancelling",
        "coroutine",
        "incarnation",
        "name",
        "process",
        "sequence",
        "token",
    )

    def __init__(
        self,
        kernel: "Kernel",
        process: "Process",
        name: str,
        coroutine: Coroutine[object, object, object],
    ) -> None:
        self._kernel = kernel
        self._over = False
        self.cancelling = False  # it cancelled itself, and ends at its next await
        self.process = process
        self.incarnation = process.incarnation
        self.name = name
        self.coroutine = coroutine
        self.sequence = kernel._next_sequence()
        self.token = 0

    @property
    def alive(self) -> bool:
        return not self._over and self.incarnation == self.process.incarnation

    def cancel(self) -> None:
        if self._kernel._running is self:
            self.cancelling = True
        elif self.alive:
            self.token += 1
            self._kernel._make_ready(self, _CANCEL)

    def finish(self) -> None:
        self._over = True
        self.process._living.pop(self.sequence, None)


_CANCEL = object()  # makes a step throw instead of send


class _Park:
    """The only thing that coroutines of the kernel await: it yields control until the task is
    woken. The caller must have called `_park_running` before."""

    __slots__ = ()

    def __await__(self) -> Generator[None, object, object]:
        return (yield)


_PARKED = _Park()


class KernelClock:
    """The clock of one process: its wall time may jump, and its rate may differ from the kernel's
    and change."""

    def __init__(self, kernel: "Kernel", drift_ppm: int) -> None:
        self._kernel = kernel
        self._rate = MILLION + drift_ppm
        self._offset = 0
        self._since = kernel.start  # kernel time of the last rate change
        self._passed = 0  # monotonic time until then

    def now(self) -> int:
        return self._kernel.start + self.monotonic() + self._offset

    def monotonic(self) -> int:
        return self._passed + (self._kernel.now - self._since) * self._rate // MILLION

    def jump(self, ms: int) -> None:
        """Move the wall time by `ms`; the monotonic time stays."""
        self._offset += ms

    def drift(self, ppm: int) -> None:
        """Set how much faster the clock runs than the kernel's from now on, in millionths. Timers
        that are already set are moved accordingly."""
        self._passed, self._since = self.monotonic(), self._kernel.now
        before, self._rate = self._rate, MILLION + ppm
        if self._rate != before:
            self._kernel._retime(self, before)

    async def sleep(self, ms: int) -> None:
        task = self._kernel._park_running()
        self._kernel._wake_at(task, self._kernel.now + self.span(max(ms, 0)), value=None)
        await _PARKED

    def span(self, ms: int) -> int:
        """Return how much kernel time must pass until this clock has advanced by at least `ms`."""
        return -(-ms * MILLION // self._rate)


class KernelSignal:
    def __init__(self, kernel: "Kernel") -> None:
        self._kernel = kernel
        self._is_set = False
        self._waiting: tuple[KernelTask, int] | None = None

    def set(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or not self._kernel._wake(*waiting, value=True):
            self._is_set = True

    async def wait(self, timeout_ms: int | None) -> bool:
        if self._is_set:
            self._is_set = False
            return True
        assert not self._has_waiter(), "a signal has one waiter at a time"
        task = self._kernel._park_running()
        self._waiting = (task, task.token)
        if timeout_ms is not None:
            at = self._kernel.now + task.process.clock.span(max(timeout_ms, 0))
            self._kernel._wake_at(task, at, value=False)
        return bool(await _PARKED)

    def _has_waiter(self) -> bool:
        if self._waiting is None:
            return False
        task, token = self._waiting
        return task.alive and task.token == token


class KernelTasks:
    def __init__(self, kernel: "Kernel", process: "Process") -> None:
        self._kernel = kernel
        self._process = process

    def spawn(self, name: str, coroutine: Coroutine[object, object, object]) -> KernelTask:
        running = self._kernel._running
        if running is not None and not running.alive:
            coroutine.close()
            raise Crashed
        task = KernelTask(self._kernel, self._process, name, coroutine)
        self._process._living[task.sequence] = task
        self._kernel._make_ready(task, None)
        return task

    def signal(self) -> KernelSignal:
        return KernelSignal(self._kernel)


class Process:
    """A simulated process. After a crash, the simulator restarts it by spawning new tasks."""

    def __init__(self, kernel: "Kernel", name: str, drift_ppm: int) -> None:
        self._kernel = kernel
        self._living: dict[int, KernelTask] = {}
        self._backlog: list[tuple[KernelTask, object, int]] = []
        self.name = name
        self.incarnation = 0
        self.paused = False
        self.clock = KernelClock(kernel, drift_ppm)
        self.tasks = KernelTasks(kernel, self)

    def crash(self) -> None:
        """Kill all tasks of the process. If one of them is the caller, raise `Crashed` so that it
        stops here."""
        running = self._kernel._running
        suicide = running is not None and running.process is self and running.alive
        dead, self._living, self._backlog = list(self._living.values()), {}, []
        self.incarnation += 1
        self._kernel.crashes += 1
        self.paused = False
        for task in dead:
            if task is not running:
                self._kernel._bury(task)
        if suicide:
            raise Crashed

    def pause(self) -> None:
        """Run no task of this process until `resume`. Its clock goes on, and due timers wait."""
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for task, value, token in backlog:
            if task.token == token:
                self._kernel._make_ready(task, value)


class Kernel:
    """Runs tasks that are ready: in the order in which they became ready, or, with a `seed`, in
    random order."""

    def __init__(self, start: int, seed: int | None = None) -> None:
        self.start = start
        self.now = start
        self.steps = 0
        self.crashes = 0  # of all processes
        self.failure: BaseException | None = None
        self.after_step: Callable[[Process], None] | None = None  # observer of all processes
        self._random = None if seed is None else Random(f"{seed}/sched")
        self._ready: list[tuple[KernelTask, object, int]] = []
        self._head = 0  # of the ready list when used as a queue
        self._timers: list[tuple[int, int, KernelTask, int, object]] = []
        self._timers_max = _STALE_TIMERS_MIN
        self._sequence = 0
        self._running: KernelTask | None = None
        self._processes: dict[str, Process] = {}

    def process(self, name: str, *, drift_ppm: int = 0) -> Process:
        """Return the process of this name; create it at the first call."""
        if name not in self._processes:
            self._processes[name] = Process(self, name, drift_ppm)
        return self._processes[name]

    def settle(self, max_steps: int = MILLION) -> None:
        """Run tasks until none is ready at the current time. Raise `Livelock` after `max_steps`
        steps."""
        self._raise_failure()
        steps_left = max_steps
        spinning: set[str] = set()
        while self._head < len(self._ready):
            task, value, token = self._pop()
            if task.token != token or not task.alive:
                continue
            if task.process.paused:
                task.process._backlog.append((task, value, token))
                continue
            self._step(task, value)
            if self.after_step is not None:
                self.after_step(task.process)
            self._raise_failure()
            steps_left -= 1
            if steps_left < _SPIN_SAMPLE:
                spinning.add(f"{task.process.name}:{task.name}")
                if steps_left < 0:
                    raise Livelock(self.now, tuple(sorted(spinning)))

    def next_timer(self) -> int | None:
        """Return the time of the next timer for which a task still waits; None if there is none."""
        while self._timers:
            at, _, task, token, _ = self._timers[0]
            if task.token == token and task.alive:
                return at
            heapq.heappop(self._timers)
        return None

    def advance_to(self, at: int, max_steps: int = MILLION) -> None:
        """Advance time to `at`. At each time at which timers are due, wake their tasks and run
        until none is ready."""
        assert at >= self.now, "time does not go back"
        self.settle(max_steps)
        while (due := self.next_timer()) is not None and due <= at:
            self.now = due
            while self._timers and self._timers[0][0] == due:
                _, _, task, token, value = heapq.heappop(self._timers)
                self._wake(task, token, value=value)
            self.settle(max_steps)
        self.now = at

    def complete(self, coroutine: Coroutine[object, object, T], *, process: Process) -> T:
        """Run a coroutine to its end as a task of `process`, and return its result. Time advances
        as needed. Raise `Deadlock` if no timer is left."""
        results: list[T] = []
        errors: list[Exception] = []

        async def keep() -> None:
            try:
                results.append(await coroutine)
            except Exception as error:
                errors.append(error)

        process.tasks.spawn("complete", keep())
        self.settle()
        while not results and not errors:
            due = self.next_timer()
            if due is None:
                raise Deadlock(f"at {self.now}")
            self.advance_to(due)
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Crash every process, so that no unfinished coroutine remains after the simulation."""
        for process in self._processes.values():
            process.crash()

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _make_ready(self, task: KernelTask, value: object) -> None:
        self._ready.append((task, value, task.token))

    def _pop(self) -> tuple[KernelTask, object, int]:
        ready = self._ready
        if self._random is not None:
            index = int(self._random.random() * len(ready))
            ready[index], ready[-1] = ready[-1], ready[index]
            return ready.pop()
        entry = ready[self._head]
        self._head += 1
        if self._head == len(ready) or self._head > 1024:
            del ready[: self._head]  # done rarely, so that taking from the front is cheap
            self._head = 0
        return entry

    def _park_running(self) -> KernelTask:
        """Give the running task a new token, which must be named to wake it; return the task."""
        task = self._running
        if task is None or not task.alive:
            raise Crashed
        if task.cancelling:
            task.cancelling = False
            raise _Cancelled
        task.token += 1
        return task

    def _wake(self, task: KernelTask, token: int, *, value: object) -> bool:
        if task.token != token or not task.alive:
            return False
        task.token += 1
        self._make_ready(task, value)
        return True

    def _wake_at(self, task: KernelTask, at: int, *, value: object) -> None:
        if at <= self.now:
            self._wake(task, task.token, value=value)
            return
        entry = (at, self._next_sequence(), task, task.token, value)
        heapq.heappush(self._timers, entry)
        if len(self._timers) > self._timers_max:
            self._timers = [t for t in self._timers if t[2].token == t[3] and t[2].alive]
            heapq.heapify(self._timers)
            self._timers_max = max(_STALE_TIMERS_MIN, 2 * len(self._timers))

    def _retime(self, clock: KernelClock, rate: int) -> None:
        """Move the pending timers of a clock whose rate has changed: the time they had left at the
        old `rate` now passes at the new rate."""
        for index, (at, sequence, task, token, value) in enumerate(self._timers):
            if task.process.clock is clock:
                left = -((self.now - at) * rate // MILLION)
                self._timers[index] = (self.now + clock.span(left), sequence, task, token, value)
        heapq.heapify(self._timers)

    def _step(self, task: KernelTask, value: object) -> None:
        self.steps += 1
        self._running = task
        try:
            if value is _CANCEL:
                task.coroutine.throw(_Cancelled())
            else:
                task.coroutine.send(value)
        except StopIteration:
            task.finish()
        except (_Cancelled, Crashed) as stop:
            expected = isinstance(stop, _Cancelled) or not task.alive
            task.finish()
            if not expected:
                self._fail(task, stop)
        except BaseException as error:
            if task.alive:
                self._fail(task, error)
            task.finish()
        finally:
            self._running = None

    def _fail(self, task: KernelTask, error: BaseException) -> None:
        error.add_note(f"in task {task.process.name}:{task.name} at {self.now}")
        self.failure = error

    def _bury(self, task: KernelTask) -> None:
        """Close the coroutine of a dead task. If its `finally` block awaits anything, that raises
        `Crashed`."""
        outer, self._running = self._running, task
        with suppress(BaseException):  # ignore errors of dead code
            task.coroutine.close()
        self._running = outer
