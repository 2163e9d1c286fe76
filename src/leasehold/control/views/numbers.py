"""The numbers that users see of runs, envelopes and nodes, computed from the World, never stored.

Statuses, the answers of the command line and the expectations of scenarios all use them; "free" and
"used" are computed nowhere else.
"""

from leasehold.control.reservations import present
from leasehold.control.running.life import UnitStanding, phase_of, units_of
from leasehold.control.running.open_leases import is_bound, live_units
from leasehold.core.facts import (
    Closed,
    EnvelopeKey,
    Failed,
    Phase,
    Record,
    Relation,
    Run,
    Uid,
)
from leasehold.core.preemption.overdraft import overdrawn_gpus
from leasehold.core.reservations import Confidence, State
from leasehold.core.units import GpuMs, Instant, format_instant, plural
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.book import Attempt
from leasehold.core.world.width import active_gpus, desired_gpus, open_leases, spare_gpus
from leasehold.core.world.world import World


class RunView(Record):
    """The numbers of a run as users see them; widths in GPUs."""

    phase: Phase
    because: str
    message: str
    gpus: int
    spares: int
    pending: int
    owned: int
    shared: int
    borrowed: int
    gpu_ms: GpuMs
    attempt: int
    started: Instant | None
    ended: Instant | None


class EnvelopeView(Record):
    """The numbers of an envelope as users see them; `free` may be negative."""

    used: int
    lent: int
    free: int
    gpu_ms: GpuMs
    committed_ms: GpuMs
    left_ms: GpuMs | None
    overdrawn: int


class NodeView(Record):
    """The free GPUs of a node, and its state in one word."""

    free: int
    state: str


def run_view(world: World, uid: Uid, now: Instant) -> RunView:
    """Return a run's numbers as of `now`, even if the run was over long before."""
    run = world.runs.get(uid)
    phase, because, message = _explained(world, run, uid)
    shares = dict.fromkeys(Relation, 0)
    for lease in open_leases(world, uid):
        shares[lease.relation] += lease.gpus
    book = world.books.get(uid)
    over = phase in (Phase.COMPLETED, Phase.FAILED)
    gpus = active_gpus(world, uid)
    return RunView(
        phase=phase,
        because=because,
        message=message,
        gpus=gpus,
        spares=spare_gpus(world, uid),
        pending=0 if over or run is None else max(0, desired_gpus(run.spec) - gpus),
        owned=shares[Relation.OWNED],
        shared=shares[Relation.SHARED],
        borrowed=shares[Relation.BORROWED],
        gpu_ms=sum(spent_by(world, uid, now).values()),
        attempt=book.attempt if book else 0,
        started=book.started if book else None,
        ended=book.ended_at if book and over else None,
    )


def spent_by(world: World, uid: Uid, now: Instant) -> dict[tuple[EnvelopeKey, Relation], GpuMs]:
    """Return the GPU-time of a run to date by payer and relation, over all attempts, spares
    included."""
    book = world.books.get(uid)
    spent = dict(book.settled) if book else {}
    for lease in open_leases(world, uid):
        key = (lease.payer, lease.relation)
        spent[key] = spent.get(key, 0) + lease.gpu_ms(now)
    return spent


def envelope_view(world: World, key: EnvelopeKey, now: Instant) -> EnvelopeView:
    account = world.accounts.of(key)
    envelope = world.envelopes.get(key)
    used_ms = account.used_ms(now)
    committed = 0
    left = None
    if envelope is not None:
        horizon = world.policy.accounting_horizon
        committed = account.committed_ms(now, until=envelope.end, horizon=horizon)[0]
        if envelope.max_gpu_ms is not None:
            left = envelope.max_gpu_ms - used_ms - committed
    return EnvelopeView(
        used=account.gpus,
        lent=account.lent,
        free=(envelope.concurrency if envelope else 0) - account.gpus,
        gpu_ms=used_ms,
        committed_ms=committed,
        left_ms=left,
        overdrawn=overdrawn_gpus(world, key, now),
    )


def node_view(world: World, name: str) -> NodeView:
    state = world.fleet.nodes.get(name)
    if state is None:
        return NodeView(free=0, state="gone")
    node = state.node
    word = "ready"
    if node.fenced:
        word = "dead"
    elif not node.ready:
        word = "silent"
    elif node.is_draining:
        word = "draining"
    elif node.cordoned:
        word = "cordoned"
    return NodeView(free=max(0, state.free - world.memory.held.get(name, 0)), state=word)


def _explained(world: World, run: Run | None, uid: Uid) -> tuple[Phase, str, str]:
    if run is None:
        return _of_the_past(world, uid)
    phase, why = phase_of(world, run)
    if phase is Phase.COMPLETED:
        return phase, "Completed", "all pods succeeded"
    if phase is Phase.FAILED:
        return phase, why, _failure_words(world, run, why)
    if phase is Phase.RUNNING:
        if _all_bound(world, run):
            return phase, "Running", _running_words(world, run)
        return Phase.PENDING, *_binding_words(world, run)
    return phase, *_waiting_words(world, run)


def _binding_words(world: World, run: Run) -> tuple[str, str]:
    for key in sorted(world.pods_by_run.get(run.uid, ())):
        pod = world.pods[key]
        if pod.waits_for is not None and not pod.has_ended:
            why = pod.waits_for or "the node has just accepted the pod"
            return "Starting", f"{pod.node} has pod {pod.name} and has not started it yet: {why}"
    return "Binding", "its leases are open; waiting for all pods to be bound"


def _of_the_past(world: World, uid: Uid) -> tuple[Phase, str, str]:
    """Return phase, reason and message of a run whose object is gone, as far as its leases show
    them."""
    book = world.books.get(uid)
    lasts = [unit.last for unit in book.units.values() if unit.last] if book else []
    if lasts and all(not each.open and each.outcome is Closed.COMPLETED for each in lasts):
        return Phase.COMPLETED, "Completed", "completed; the Run was deleted"
    return Phase.FAILED, "Canceled", "the Run was deleted"


def _all_bound(world: World, run: Run) -> bool:
    """Return whether the run counts as running. With `gang: Group`, one running group is enough."""
    bound = [
        is_bound(world, run.uid, unit, each.number) for unit, each in live_units(world, run.uid)
    ]
    return any(bound)


_FAILURES = {
    "WorkloadFailed": "a pod failed and no retries are left",
    "NodeFailure": "a node failed or a pod was deleted, no spare was left, and the run declared no "
    "checkpoint",
    "RandomPreempt": "drawn in a lottery; `explain` shows the draw and which run it was for",
    "ReclaimedBySpare": "the spare that it used was needed, and the run declared no checkpoint",
    "Overdrawn": "its payer was overdrawn, and no other envelope could pay",
    "TimeLimit": "runtime.maxDuration was reached",
    "Canceled": "cancelled by its user",
}


def _failure_words(world: World, run: Run, why: str) -> str:
    units = world.books[run.uid].units.values() if run.uid in world.books else ()
    said = [unstarted_words(each.last) for each in units if each.last and not each.last.open]
    if why == Failed.WORKLOAD and any(said):
        return f"{next(filter(None, said))}, and no retries are left"
    return _FAILURES.get(why, why)


def unstarted_words(attempt: Attempt) -> str:
    """Return what a pod was waiting for, if the attempt ended because the pod could not be started.

    Otherwise return "".
    """
    why = attempt.why.unstarted if attempt.why is not None else ""
    return f"a pod could not be started ({why})" if why else ""


def _running_words(world: World, run: Run) -> str:
    gpus = active_gpus(world, run.uid)
    words = f"{plural(gpus, 'GPU')} bound"
    if gpus < desired_gpus(run.spec):
        cut = _cut_by(world, run)
        words += f", shrunk by resolver ({', '.join(cut)})" if cut else ""
    waiting = [
        key for key, where in units_of(world, run).items() if where.standing is UnitStanding.WAITING
    ]
    if waiting:
        words += f", {len(waiting)} groups wait"
    return words


def _cut_by(world: World, run: Run) -> list[str]:
    """Return the Resolutions that took groups of the run, except groups that have started again."""
    book = world.books.get(run.uid)
    found: dict[str, None] = {}
    for name in book.names if book is not None else ():
        lease = world.leases[name]
        if name not in world.victims or lease.ending is None:
            continue
        if lease.ending.why.reason in (Closed.SHRINK, Closed.RANDOM_PREEMPT):
            unit = book.units.get(world.unit_of(run.uid, lease.group)) if book else None
            if unit is not None and unit.last is not None and unit.last.number == lease.attempt:
                found[world.victims[name]] = None
    return sorted(found, key=lambda name: world.resolutions[name].batch)


def _waiting_words(world: World, run: Run) -> tuple[str, str]:
    refused = world.memory.refusals.get(run.uid)
    if refused is None:
        return "Submitted", "not considered yet"
    if refused.reason in (Refusal.RETRYING, Refusal.BIND_FAILING):
        return str(refused.reason), _pause_words(world, run, refused)
    words = refused.remedy
    reservation = present(world, run)
    if reservation is not None and reservation.state is State.PENDING:
        sure = {
            Confidence.EXACT: "",
            Confidence.WINDOW: " when a budget window opens",
            Confidence.CUTS: " if necessary by preempting other runs",
            Confidence.MONEY: " if budget is available by then",
        }[reservation.confidence]
        words += f"; planned for {format_instant(reservation.starts)}{sure}"
    elif reservation is not None:
        words += f"; its reservation is {reservation.state}"
    return str(refused.reason), words


def _pause_words(world: World, run: Run, refused: Refused) -> str:
    """Return when the run is tried again, and how many retries are left after that."""
    waits = {
        key: where
        for key, where in units_of(world, run).items()
        if where.standing is UnitStanding.WAITING and where.retry_at
    }
    if not waits:
        return refused.remedy
    key = min(waits, key=lambda each: waits[each].retry_at)
    again = f"tried again at {format_instant(waits[key].retry_at)}"
    if refused.reason is Refusal.BIND_FAILING:
        return f"{refused.remedy.partition('; tried again')[0]}; {again}"
    unit = world.books[run.uid].units[key]
    left = run.spec.retries - unit.own_failures()
    what = (unit.last and unstarted_words(unit.last)) or "a pod failed"
    return f"{what}; {again}, and {left} more of {_times(run.spec.retries)} after that"


def _times(retries: int) -> str:
    return "1 retry" if retries == 1 else f"{retries} retries"
