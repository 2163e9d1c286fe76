"""Prometheus metrics: counters of committed facts, gauges computed from the World.

The loop reports its turns here; `/metrics` serves the text. Plans are never counted. No gauge is
stored: each scrape computes all gauges from the current World.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import envelope_view
from leasehold.core.facts import Closed, Lease, Relation, Role, parse_why
from leasehold.core.ledger.batch import Batch
from leasehold.core.reservations import State
from leasehold.core.units import HOUR, SECOND, GpuMs, Instant
from leasehold.core.verdicts import Refusal
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.shell.observe.costs import DecisionCosts

PREFIX = "leasehold"
DECIDES = "1 if this process is the leader, otherwise 0."
# The answer of a replica that has never led.
IDLE = (
    f"# HELP {PREFIX}_decides {DECIDES}\n# TYPE {PREFIX}_decides gauge\n{PREFIX}_decides 0.0\n"
).encode()
_SPANS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """All metrics of one process: counters that reported turns increase, and times of the loop's
    steps."""

    def __init__(
        self,
        world: Callable[[], World | None],
        clock: Clock,
        *,
        decides: Callable[[], bool] = lambda: True,
        gaps: Callable[[], int] = lambda: 0,
    ) -> None:
        """`decides` returns whether this process takes decisions now. `gaps` returns how many
        committed batches are missing in the store."""
        self._registry = CollectorRegistry()
        self._borrowed = Borrowed()
        self._registry.register(Gauges(world, clock, self._borrowed, decides, gaps))
        self._costs = DecisionCosts()
        self._registry.register(self._costs)
        self._decided = 0.0  # CPU seconds of the last decision
        self._begun: dict[str, float] = {}
        self._admissions = self._counter("run_admissions", "Runs admitted or refused.", "result")
        self._closed = self._counter("leases_closed", "Leases closed, by reason.", "reason")
        self._attempts = self._counter("borrowing_attempts", "Envelopes asked to sponsor a run.")
        self._denied = self._counter(
            "borrowing_denied", "Envelopes that were asked to sponsor a run and refused.", "reason"
        )
        self._resolutions = self._counter(
            "resolver_invocations", "Resolutions published, by cause.", "cause"
        )
        self._dropped = self._counter("resolver_spares_dropped", "Spares dropped by Resolutions.")
        self._shrinks = self._counter("resolver_shrinks", "Groups given up in Resolutions.")
        self._draws = self._counter("resolver_lottery_draws", "Bundles drawn in lotteries.")
        self._swaps = self._counter(
            "spare_swaps", "Spares that replaced pods of a failed or drained node."
        )
        self._fillers = self._counter(
            "filler_preemptions", "Fillers preempted because their spare was needed."
        )
        self._drift = self._counter(
            "drift_found", "Records that disagreed with each other.", "kind"
        )
        self._contained = self._counter(
            "contained_failures", "Failures contained to one object.", "kind"
        )
        self._notifications = self._counter(
            "notifications", "Messages to webhooks and commands.", "outcome"
        )
        self._alerts = self._counter("alerts", "Alerts raised by the control loop.")
        self._seconds = {
            step: Histogram(
                f"{PREFIX}_{step}_seconds", says, buckets=_SPANS, registry=self._registry
            )
            for step, says in (
                ("decide", "CPU time of one decision, with the check of its invariants."),
                ("commit", "Time to commit one batch."),
                ("bind", "Time from the lease until all pods of its gang run."),
            )
        }

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def begin(self, step: str) -> None:
        self._begun[step] = _time_of(step)

    def end(self, step: str) -> None:
        seconds = _time_of(step) - self._begun.pop(step)
        self._seconds[step].observe(seconds)
        if step == "decide":
            self._decided = seconds

    def after_turn(self, turn: Turn) -> None:
        self._costs.note(turn, self._decided)
        for batch in turn.batches:
            self._count_batch(turn.world, batch)
        for resolution in turn.resolutions:
            self._resolutions.labels(resolution.cause).inc()
            self._dropped.inc(len(resolution.spares))
            self._shrinks.inc(len(resolution.shrunk))
            if resolution.lottery is not None:
                self._draws.inc(len(resolution.lottery.draws))
        for notice in turn.notices:
            if notice.reason is NoticeReason.RUNNING:
                self._observe_bind(turn, notice.subject)
            elif notice.reason is NoticeReason.ADMITTED:
                self._admissions.labels("success").inc()
                self._count_borrowing(turn.world, notice.subject)
            elif isinstance(notice.reason, Refusal):
                self._admissions.labels("failure").inc()
                self._count_borrowing(turn.world, notice.subject)

    def note_drift(self, kind: str) -> None:
        self._drift.labels(kind).inc()

    def note_contained(self, kind: str) -> None:
        self._contained.labels(kind).inc()

    def note_notification(self, outcome: str) -> None:
        self._notifications.labels(outcome).inc()

    def note_alert(self) -> None:
        self._alerts.inc()

    def _count_batch(self, world: World, batch: Batch) -> None:
        for closing in batch.closed:
            self._borrowed.settle(world.leases[closing.lease])
            reason = parse_why(closing.reason).reason
            self._closed.labels(str(reason)).inc()
            if reason is Closed.RECLAIMED:
                self._fillers.inc()
            # A spare, consumed; a drained lease has its node appended
            elif closing.reason == Closed.SWAP:
                self._swaps.inc()
        assert world.head.seq >= batch.seq, "only what is committed is counted"

    def _observe_bind(self, turn: Turn, key: str) -> None:
        uid = turn.world.uid_of.get(key)
        book = turn.world.books.get(uid) if uid is not None else None
        if book is not None and book.started is not None:
            self._seconds["bind"].observe(max(0, turn.now - book.started) / SECOND)

    def _count_borrowing(self, world: World, key: str) -> None:
        uid = world.uid_of.get(key)
        for step in world.memory.traces.get(uid, ()) if uid is not None else ():
            if step.relation is Relation.BORROWED:
                self._attempts.inc()
                if not step.taken:
                    self._denied.labels(str(step.verdict)).inc()

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", says, labels, registry=self._registry)


def _time_of(step: str) -> float:
    """Return the current time in seconds, by the clock that times this step. A decision only
    computes, so CPU time is measured, and a busy machine does not count. A commit mostly waits, so
    wall time is measured."""
    return time.thread_time() if step == "decide" else time.perf_counter()


class Borrowed:
    """A metric of the GPU-hours that sponsors paid since this process started, by borrower and
    payer."""

    def __init__(self) -> None:
        self._settled: dict[tuple[str, str], GpuMs] = {}
        self._shown: dict[tuple[str, str], GpuMs] = {}

    def settle(self, lease: Lease) -> None:
        if lease.relation is Relation.BORROWED and lease.end is not None:
            pair = (lease.owner, lease.payer)
            self._settled[pair] = self._settled.get(pair, 0) + lease.gpu_ms(lease.end)

    def collect(self, world: World, now: Instant) -> Metric:
        spent = dict(self._settled)
        for names in world.open_by_run.values():
            for lease in map(world.leases.__getitem__, names):
                if lease.relation is Relation.BORROWED:
                    pair = (lease.owner, lease.payer)
                    spent[pair] = spent.get(pair, 0) + lease.gpu_ms(now)
        hours = CounterMetricFamily(
            f"{PREFIX}_borrowed_gpu_hours",
            "GPU-hours paid by sponsors.",
            labels=["owner", "sponsor"],
        )
        for pair, amount in sorted(spent.items()):
            # A lease may turn out to have ended before the last scrape, but a counter must not
            # fall.
            self._shown[pair] = max(amount, self._shown.get(pair, 0))
            hours.add_metric(list(pair), self._shown[pair] / HOUR)
        return hours


class Gauges(Collector):
    """All gauges. Each scrape computes them from the current World."""

    def __init__(
        self,
        world: Callable[[], World | None],
        clock: Clock,
        borrowed: "Borrowed",
        decides: Callable[[], bool],
        gaps: Callable[[], int],
    ) -> None:
        self._decides = decides
        self._gaps = gaps
        self._world = world
        self._clock = clock
        self._borrowed = borrowed

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        yield _gauge("decides", DECIDES, float(self._decides()))
        yield _gauge(
            "ledger_gaps", "Committed batches that are missing in the store.", self._gaps()
        )
        world = self._world()
        if world is None:
            return
        now = max(self._clock.now(), world.head.instant)
        yield _gauge("tenure_epoch", "The epoch of the leader.", world.head.epoch)
        yield _gauge("ledger_head", "The number of the last batch.", world.head.seq)
        yield from _leases(world)
        yield self._borrowed.collect(world, now)
        yield from _budgets(world, now)
        yield _reservations(world, now)


def _leases(world: World) -> Iterator[Metric]:
    by_role = dict.fromkeys(Role, 0)
    borrowed: dict[tuple[str, str], int] = {}
    for names in world.open_by_run.values():
        for name in names:
            lease = world.leases[name]
            by_role[lease.role] += 1
            if lease.relation is Relation.BORROWED:
                pair = (lease.owner, lease.payer)
                borrowed[pair] = borrowed.get(pair, 0) + lease.gpus
    opened = GaugeMetricFamily(f"{PREFIX}_leases_open", "Open leases.", labels=["role"])
    for role, count in by_role.items():
        opened.add_metric([str(role)], count)
    yield opened
    yield _gauge("spares_active", "Open spare leases.", by_role[Role.SPARE])
    gpus = GaugeMetricFamily(
        f"{PREFIX}_borrowed_gpus_current",
        "GPUs paid by a sponsor now.",
        labels=["owner", "sponsor"],
    )
    for (owner, payer), amount in sorted(borrowed.items()):
        gpus.add_metric([owner, payer], amount)
    yield gpus


def _budgets(world: World, now: Instant) -> Iterator[Metric]:
    names = ["owner", "envelope", "state"]
    gpus = GaugeMetricFamily(f"{PREFIX}_budget_gpus", "GPUs of an envelope.", labels=names)
    hours = GaugeMetricFamily(
        f"{PREFIX}_budget_gpu_hours", "GPU-hours of an envelope.", labels=names
    )
    ratio = GaugeMetricFamily(
        f"{PREFIX}_lending_cap_used_ratio",
        "Share of the lendable GPUs that are lent.",
        labels=["envelope"],
    )
    for key in sorted(world.envelopes):
        envelope, view = world.envelopes[key], envelope_view(world, key, now)
        for state, amount in (
            ("used", view.used),
            ("lent", view.lent),
            ("free", view.free),
            ("cap", envelope.concurrency),
            ("overdrawn", view.overdrawn),
        ):
            gpus.add_metric([envelope.owner, key, state], amount)
        for state, spent in (
            ("used", view.gpu_ms),
            ("committed", view.committed_ms),
            ("left", view.left_ms),
            ("cap", envelope.max_gpu_ms),
        ):
            if spent is not None:
                hours.add_metric([envelope.owner, key, state], spent / HOUR)
        lending = envelope.lending
        if lending.allow:
            most = lending.max_concurrency or envelope.concurrency
            ratio.add_metric([key], view.lent / most)
    yield from (gpus, hours, ratio)


def _reservations(world: World, now: Instant) -> Metric:
    until = GaugeMetricFamily(
        f"{PREFIX}_reservation_seconds_until_start",
        "Seconds until the planned start of a run.",
        labels=["run"],
    )
    for run in world.runs.values():
        reservation = present(world, run)
        if reservation is not None and reservation.state in (State.PENDING, State.ACTIVATING):
            until.add_metric([run.key], max(0, reservation.starts - now) / SECOND)
    return until


def _gauge(name: str, says: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_{name}", says, value=value)
