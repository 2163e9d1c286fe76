"""Measures which Runs cost most decision time: a metric of the costliest, and a line in the log.

`metrics` reports every turn here. Steps are counted per Run (`core/world/steps.py`), and the CPU
time of a turn is divided in proportion to the steps.
"""

from collections.abc import Iterable, Iterator

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from leasehold.control.turn import Turn
from leasehold.core.units import MINUTE, Instant

NAME = "leasehold_decide_run_seconds"
NAMED = 5  # maximum number of runs with a series
SLOW_S = 1.0  # CPU time of a decision above which the log names the costliest run
WINDOW = 5 * MINUTE

_log = structlog.get_logger("leasehold")


class DecisionCosts(Collector):
    """A metric with the CPU seconds that decisions about the costliest runs took, in the current
    time window and the one before it."""

    def __init__(self) -> None:
        self._window = -1
        self._now: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def note(self, turn: Turn, seconds: float) -> None:
        """Add a finished turn. `seconds` is the CPU time of its decision, which is divided among
        the runs."""
        self._move_to(turn.now)
        steps = turn.world.steps
        total = sum(steps.by_run.values())
        costliest = sorted(steps.by_run.items(), key=lambda each: (-each[1], each[0]))
        for uid, count in costliest[:NAMED]:
            run = turn.world.runs.get(uid)
            if run is not None:
                self._now[run.key] = self._now.get(run.key, 0.0) + seconds * count / total
        named = [(turn.world.runs[uid].key, n) for uid, n in costliest if uid in turn.world.runs]
        if seconds >= SLOW_S and named:
            key, count = named[0]
            _log.warning("slow decision", run=key, seconds=round(seconds, 2), steps=count,
                         steps_of_all=total)  # fmt: skip

    def _move_to(self, now: Instant) -> None:
        window = now // WINDOW
        if window != self._window:
            self._before = self._now if window == self._window + 1 else {}
            self._window, self._now = window, {}
        elif len(self._now) > 100 * NAMED:
            most = sorted(self._now.items(), key=lambda each: -each[1])
            self._now = dict(most[:NAMED])

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        found = GaugeMetricFamily(
            NAME, "CPU seconds of decisions about the recently most expensive Runs.", labels=["run"]
        )
        keys = dict.fromkeys([*self._now, *self._before])
        both = {key: self._now.get(key, 0.0) + self._before.get(key, 0.0) for key in keys}
        for key, seconds in sorted(both.items(), key=lambda each: (-each[1], each[0]))[:NAMED]:
            found.add_metric([key], seconds)
        yield found
