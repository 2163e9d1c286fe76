"""What the users of a run are notified about: it started, was preempted, or ended.

Pure: depends on a committed turn and on which runs were over before. Sent by
`shell.observe.notifications`.
"""

from leasehold.control.running.life import is_over
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Opened, Record, Run, Uid
from leasehold.core.names import Wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant, format_gpu_hours, format_instant
from leasehold.core.world.world import World

EVENTS = ("start", "cut", "end")


class RunNews(Record):
    """One event of a run; `wire` is the whole notification."""

    event: str
    namespace: str
    wire: Wire


class EndedRuns:
    """Remembers which runs are over, so that each end is reported once."""

    def __init__(self) -> None:
        self._over: set[Uid] | None = None  # None: no turn was seen yet

    def news_of(self, turn: Turn) -> list[RunNews]:
        """Return the news of a committed turn: starts, then preemptions, then ends."""
        world = turn.world
        began: dict[Uid, None] = {}
        closed: dict[Uid, None] = {}
        for batch in turn.batches:
            for lease in batch.opened:
                if lease.reason is Opened.START:
                    began[lease.uid] = None
            for closing in batch.closed:
                if closing.lease in world.leases:
                    closed[world.leases[closing.lease].uid] = None
        if self._over is None:
            # Runs that were over before this process began are not reported again.
            self._over = {
                uid for uid, run in world.runs.items() if uid not in closed and is_over(world, run)
            }
        found = [
            _told(world, world.runs[uid], "start", turn.now) for uid in began if uid in world.runs
        ]
        for resolution in turn.resolutions:
            found += _cuts(world, resolution, turn.now)
        for uid in {**turn.touched, **closed}:
            run = world.runs.get(uid)
            if run is None:
                self._over.discard(uid)
            elif uid not in self._over and is_over(world, run):
                self._over.add(uid)
                found.append(_told(world, run, "end", turn.now))
        return found


def _cuts(world: World, resolution: Resolution, now: Instant) -> list[RunNews]:
    gpus: dict[Uid, int] = {}
    reasons: dict[Uid, set[str]] = {}
    for name in resolution.victims:
        lease = world.leases[name]
        gpus[lease.uid] = gpus.get(lease.uid, 0) + lease.gpus
        if lease.ending is not None:
            reasons.setdefault(lease.uid, set()).add(str(lease.ending.why.reason))
    found = []
    for uid, count in gpus.items():
        run = world.runs.get(uid)
        if run is not None:
            told = _told(world, run, "cut", now)
            cut: Wire = {
                "gpus": count,
                "reasons": sorted(reasons.get(uid, ())),
                "resolution": resolution.name,
                "beneficiary": resolution.beneficiary,
            }
            found.append(
                RunNews(event="cut", namespace=run.namespace, wire={**told.wire, "cut": cut})
            )
    return found


def _told(world: World, run: Run, event: str, now: Instant) -> RunNews:
    view = run_view(world, run.uid, now)
    nodes = {world.leases[name].node for name in world.open_by_run.get(run.uid, ())}
    wire: Wire = {
        "event": event,
        "at": format_instant(now),
        "namespace": run.namespace,
        "run": run.name,
        "uid": run.uid,
        "owner": run.spec.owner,
        "phase": str(view.phase),
        "reason": view.because,
        "message": view.message,
        "attempt": view.attempt,
        "gpus": view.gpus,
        "nodes": sorted(nodes),
        "gpuHours": format_gpu_hours(view.gpu_ms),
    }
    return RunNews(event=event, namespace=run.namespace, wire=wire)
