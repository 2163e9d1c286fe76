"""Tends one run: closes leases whose pods ended, and marks leases as ending at limits and on
request.

Called for every run with news or a due alarm. This module decides what a pod's end means,
`failures` what a node's end means.
"""

from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import cancel_reservation
from leasehold.control.running.draining import leave_drained_nodes
from leasehold.control.running.failures import handle_losses
from leasehold.control.running.life import UnitStanding, is_over, units_of
from leasehold.control.running.open_leases import (
    end_all,
    end_unit,
    gone_at,
    is_bound,
    is_gone,
    leases_not_ending,
    live_units,
    pod_of,
)
from leasehold.control.turn import Turn
from leasehold.core.facts import (
    Cause,
    Closed,
    ClosureReason,
    Gang,
    Lease,
    Opened,
    Pod,
    PodPhase,
    Role,
    Run,
    Uid,
)
from leasehold.core.placement.swap import vacancies
from leasehold.core.preemption.victims import protected_until
from leasehold.core.units import Instant, plural
from leasehold.core.verdicts import Refusal
from leasehold.core.world.book import WHOLE, Attempt
from leasehold.core.world.width import active_gpus, desired_gpus, open_leases
from leasehold.core.world.world import World

REASON_CHARS_MAX = 200  # of a kubelet's message, in the ledger


def tend(turn: Turn, uid: Uid) -> None:
    """Bring a run's leases in line with its pods, nodes and limits."""
    world = turn.world
    if uid in world.gone_runs and not world.open_by_run.get(uid):
        world.drop_run(uid)  # its end was reported in the turn that closed its last lease
    run = world.wanted_run(uid)
    world.work.call_off(uid)
    _note_bound(turn, uid)
    _close_refused(turn, uid)
    _close_what_is_over(turn, uid)
    handle_losses(turn, uid)
    if run is None:
        _end_orphans(turn, uid)
        return
    _bind_or_give_up(turn, run)
    _release_spares(turn, run)  # before the limit: if all pods ended well, it was not exceeded
    _stop_if_asked(turn, run)
    _stop_at_limit(turn, run)
    leave_drained_nodes(turn, run)
    _release_spares(turn, run)
    _wake_at_end_of_protection(turn, run)
    _sort(turn, run)


def _note_bound(turn: Turn, uid: Uid) -> None:
    """Note the units whose pods have all been accepted by their nodes. From then on the unit is
    Running."""
    world = turn.world
    book = world.books.get(uid)
    if book is None or not world.open_by_run.get(uid):
        return
    units: dict[int, list[Lease]] = {}
    for lease in open_leases(world, uid):
        if lease.role is not Role.SPARE:
            units.setdefault(world.unit_of(uid, lease.group), []).append(lease)
    for unit, leases in units.items():
        number = leases[0].attempt
        if is_bound(world, uid, unit, number) or _is_taken_back(book.units[unit].last, leases):
            continue
        pods = [pod_of(world, lease) for lease in leases]
        if all(pod is not None and pod.is_bound for pod in pods):
            world.fold_bound(uid, unit, number)
            turn.touched[uid] = None
            if any(lease.ending for lease in leases):
                continue  # no notice: after a restart, a bind that was known before is found again
            lease = leases[0]
            gpus = sum(each.gpus for each in leases)
            turn.tell(
                "Run", lease.run_key, NoticeReason.RUNNING, f"all pods bound, {plural(gpus, 'GPU')}"
            )


def _is_taken_back(attempt: Attempt | None, leases: list[Lease]) -> bool:
    """Return whether these leases are what is left of a start that could not be bound.

    If a pod failed by itself, its gang mates also end with `Fail`; but those had been bound.
    """
    cause = attempt.cause if attempt is not None else None
    return cause is not Cause.EXIT and any(
        lease.ending is not None and lease.ending.why.reason is Closed.FAIL for lease in leases
    )


def _close_what_is_over(turn: Turn, uid: Uid) -> None:
    world = turn.world
    failed: dict[int, list[Lease]] = {}
    for lease in open_leases(world, uid):
        if lease.ending is not None:
            if is_gone(world, lease):
                _close_ending(turn, lease)
            continue
        pod = pod_of(world, lease)
        if pod is None or not pod.has_ended or pod.key in world.lost_pods:
            continue
        if pod.phase is PodPhase.SUCCEEDED:
            turn.close(lease.name, end=gone_at(turn, lease), why=Closed.COMPLETED)
        elif not pod.reason and not _may_restart(turn, lease):
            failed.setdefault(world.unit_of(uid, lease.group), []).append(lease)
    for unit, culprits in failed.items():
        for lease in culprits:
            turn.close(lease.name, end=gone_at(turn, lease), why=Closed.FAIL, cause=Cause.EXIT)
        end_unit(turn, uid, unit, Closed.FAIL)
        turn.tell(
            "Run", _key(world, uid), Refusal.RETRYING, "a pod failed; its whole gang is stopped"
        )


def _close_refused(turn: Turn, uid: Uid) -> None:
    """Close leases whose objects the store refuses for good, because they must not block the
    ledger."""
    world = turn.world
    for lease in leases_not_ending(world, uid):
        if lease.name in world.refused_leases:
            end = turn.now
            turn.close(lease.name, end=end, why=Closed.FAIL, cause=Cause.REFUSED)
            end_unit(turn, uid, world.unit_of(uid, lease.group), Closed.FAIL)
            return


def _close_ending(turn: Turn, lease: Lease) -> None:
    """Close an ending lease. The reason is the one it was marked with, whatever the exit code."""
    assert lease.ending is not None, lease.name
    why, cause = lease.ending.why, None
    unit = turn.world.unit_of(lease.uid, lease.group)
    if why.unstarted:
        cause = Cause.UNSTARTED
    elif why.reason is Closed.FAIL and not is_bound(turn.world, lease.uid, unit, lease.attempt):
        cause = Cause.REJECTED
    turn.close(lease.name, end=gone_at(turn, lease), why=why, cause=cause)


def _key(world: World, uid: Uid) -> str:
    run = world.runs.get(uid)
    return run.key if run is not None else uid


def _may_restart(turn: Turn, lease: Lease) -> bool:
    """Return whether a failed pod is restarted in place: its run was swapped or resized shortly
    before (E3).

    A swap or resize of the attempt before does not count, even if it ended that attempt at the very
    instant at which the present one began.
    """
    world, uid = turn.world, lease.uid
    book = world.book(uid)
    attempt = world.attempt_of(lease)
    at = book.swapped_at
    if at is None or attempt is None or at < attempt.started:
        return False
    if at == attempt.started and book.units[world.unit_of(uid, lease.group)].was_ended_at(at):
        return False
    return gone_at(turn, lease) <= at + world.policy.swap_settle


def restarts(turn: Turn, uid: Uid) -> list[Pod]:
    """Return the pods that failed within `swap.settle`. They are removed and created again in
    place."""
    found = {}
    for lease in open_leases(turn.world, uid):
        pod = pod_of(turn.world, lease)
        if (
            pod is not None
            and lease.ending is None
            and pod.phase is PodPhase.FAILED
            and not pod.reason
            and _may_restart(turn, lease)
            and _has_paused(turn, pod)
        ):
            found[pod.key] = pod
    return [found[key] for key in sorted(found)]


def _has_paused(turn: Turn, pod: Pod) -> bool:
    """Return whether the pod may be created again: at once the first time, later only after a
    pause."""
    world = turn.world
    uid, at = world.restarted.get(pod.key, (pod.uid, turn.now))
    again_at = at + world.policy.restart_pause
    if uid != pod.uid and turn.now < again_at:
        world.work.alarm(pod.run_uid, again_at)
        turn.wake(again_at)
        return False
    if uid != pod.uid or pod.key not in world.restarted:
        world.fold_restart(pod, turn.now)
    return True


def _end_orphans(turn: Turn, uid: Uid) -> None:
    """End the leases of a run whose object is gone."""
    end_all(turn, leases_not_ending(turn.world, uid), Closed.CANCELED, grace=0)


def _bind_or_give_up(turn: Turn, run: Run) -> None:
    """Undo a start unless all its pods are bound within the bind timeout (B2).

    If a node accepted a pod but cannot start it, the bind has not failed: the attempt has.
    """
    world = turn.world
    failing: dict[int, str] = {}
    unstarted: dict[int, tuple[Lease, Pod]] = {}  # by unit
    for lease in leases_not_ending(world, run.uid):
        pod = pod_of(world, lease)
        if lease.role is Role.SPARE or (pod is not None and pod.is_bound):
            continue
        if pod is not None and pod.phase is PodPhase.FAILED and pod.reason:
            failing[lease.group] = f"{lease.node} rejected pod {lease.pod}: {pod.reason}"
            end = gone_at(turn, lease)
            turn.close(lease.name, end=end, why=Closed.FAIL, cause=Cause.REJECTED)
        elif not _is_late(turn, lease, by := _due(world, run, lease, pod)):
            world.work.alarm(run.uid, by)
        elif pod is not None and pod.waits_for is not None and lease.reason is Opened.START:
            unstarted.setdefault(world.unit_of(run.uid, lease.group), (lease, pod))
        else:
            failing.setdefault(lease.group, _too_late(lease, pod))
    for lease, pod in unstarted.values():
        _fail_to_start(turn, lease, pod)
    for group, why in failing.items():
        _take_back(turn, run, group)
        turn.tell(
            "Run",
            run.key,
            Refusal.BIND_FAILING,
            f"{why}; the whole start is undone and tried again later",
        )


def _fail_to_start(turn: Turn, lease: Lease, pod: Pod) -> None:
    """Fail a unit whose pod could not be started.

    Only one lease carries the pod's message, because a batch has no room for one per lease.
    """
    why = " ".join((pod.waits_for or "its kubelet gives no reason").split())[:REASON_CHARS_MAX]
    end_all(turn, [lease], ClosureReason(reason=Closed.FAIL, detail=why))
    end_unit(turn, lease.uid, turn.world.unit_of(lease.uid, lease.group), Closed.FAIL)
    words = f"{_too_late(lease, pod)}; its whole gang is stopped"
    turn.tell("Run", lease.run_key, Refusal.RETRYING, words)


def _due(world: World, run: Run, lease: Lease, pod: Pod | None) -> Instant:
    """Return when the pod must be bound.

    If its node has accepted it, return when it must have started: pulling its image may take long.
    """
    if pod is None or pod.waits_for is None:
        return lease.start + world.policy.bind_timeout
    return lease.start + (run.spec.start_timeout or world.policy.start_timeout)


def _too_late(lease: Lease, pod: Pod | None) -> str:
    if pod is None or pod.waits_for is None:
        return f"pod {lease.pod} was not bound in time"
    why = pod.waits_for or "its kubelet gives no reason"
    return f"{lease.node} did not start pod {lease.pod} in time: {why}"


def _is_late(turn: Turn, lease: Lease, by: Instant) -> bool:
    """Return whether the pod missed the deadline `by`.

    A pod that runs on a spare after a swap has no deadline, because its gang is running.
    """
    return (
        turn.time_trusted
        and lease.reason in (Opened.START, Opened.GROW)
        and turn.now >= by
        and not _has_run(turn.world, lease)
    )


def _has_run(world: World, lease: Lease) -> bool:
    """Return whether the lease's pod has run before and is only restarted in place.

    The deadline for a bind does not apply to such a pod.
    """
    if f"{lease.namespace}/{lease.pod}" in world.restarted:
        return True
    unit = world.unit_of(lease.uid, lease.group)
    return lease.reason is Opened.START and is_bound(world, lease.uid, unit, lease.attempt)


def _take_back(turn: Turn, run: Run, group: int) -> None:
    """End the leases of the whole unit whose group could not be bound.

    If a running gang grew by that group, only this group ends.
    """
    mates = [lease for lease in leases_not_ending(turn.world, run.uid) if lease.group == group]
    if not any(lease.reason is Opened.GROW for lease in mates):
        mates = leases_not_ending(turn.world, run.uid, turn.world.unit_of(run.uid, group))
    end_all(turn, mates, Closed.FAIL)
    turn.again = True


def _stop_if_asked(turn: Turn, run: Run) -> None:
    if run.spec.stop or run.deleting:
        if leases_not_ending(turn.world, run.uid):
            turn.tell("Run", run.key, NoticeReason.CANCELED, "cancelled by its user")
        end_unit(turn, run.uid, WHOLE, Closed.CANCELED)


def _stop_at_limit(turn: Turn, run: Run) -> None:
    if run.spec.max_duration is None:
        return
    for unit, attempt in live_units(turn.world, run.uid):
        limit = attempt.started + run.spec.max_duration
        if not turn.time_trusted or turn.now < limit:
            turn.world.work.alarm(run.uid, limit)
            continue
        if leases_not_ending(turn.world, run.uid, unit):
            end_unit(turn, run.uid, unit, Closed.TIME_LIMIT)
            turn.tell("Run", run.key, NoticeReason.TIME_LIMIT, "runtime.maxDuration is reached")


def _wake_at_end_of_protection(turn: Turn, run: Run) -> None:
    """Wake when the run may be drawn again: a waiting run may find a site then (Q5)."""
    world = turn.world
    until = protected_until(world, run) if world.open_by_run.get(run.uid) else None
    if until is not None and until > turn.now:
        world.work.alarm(run.uid, until)


def _release_spares(turn: Turn, run: Run) -> None:
    """Close the spares of a unit whose pods are all gone."""
    world = turn.world
    for unit, attempt in live_units(world, run.uid):
        leases = [
            lease
            for lease in open_leases(world, run.uid)
            if world.unit_of(run.uid, lease.group) == unit
        ]
        if all(lease.role is Role.SPARE for lease in leases):
            if vacancies(world, run.uid, unit) and leases_not_ending(world, run.uid, unit):
                continue  # a lost pod comes back on a spare once its filler is gone
            for lease in leases:
                why = lease.ending.why if lease.ending else attempt.why
                turn.close(lease.name, end=turn.now, why=why or Closed.COMPLETED)


def _sort(turn: Turn, run: Run) -> None:
    """Note in the work list whether the run has waiting units, and whether its width must change.

    If the run is over, its refusal is forgotten and its reservation cancelled.
    """
    world = turn.world
    units = units_of(world, run)
    waiting = any(where.standing is UnitStanding.WAITING for where in units.values())
    world.work.file(run.uid, is_pending=waiting, is_elastic=_wishes(world, run))
    if is_over(world, run):
        world.memory.forget_refusal(run.uid)
        cancel_reservation(turn, run, "the run is over")


def _wishes(world: World, run: Run) -> bool:
    """Return whether the run is elastic, running, and not as wide as desired."""
    if run.spec.malleable is None or run.spec.gang is Gang.GROUP or run.spec.stop or run.deleting:
        return False
    live = live_units(world, run.uid)
    return (
        bool(live)
        and not live[0][1].completed
        and active_gpus(world, run.uid) != desired_gpus(run.spec)
    )
