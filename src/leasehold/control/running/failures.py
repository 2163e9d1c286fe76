"""Handles failed nodes and deleted pods: spares take over, or the group or gang is given up (S1 to
S4).

Only positive evidence counts: the Node object is gone, the node is fenced, or (if configured) it
has been silent for long enough. A failure never ends another run's paid work, except the filler on
a spare that is needed.
"""

from collections.abc import Iterable

from leasehold.control.reasons import NoticeReason
from leasehold.control.running.open_leases import (
    end_all,
    end_unit,
    gone_at,
    leases_not_ending,
    live_units,
)
from leasehold.control.turn import Turn
from leasehold.core.facts import Cause, Closed, ClosureReason, Gang, Lease, Role, Run, Uid
from leasehold.core.placement.swap import Takeover, swap, vacancies
from leasehold.core.preemption.victims import fillers_on
from leasehold.core.units import Instant
from leasehold.core.world.book import WHOLE
from leasehold.core.world.fleet import NodeState
from leasehold.core.world.width import minimum_gpus, open_leases
from leasehold.core.world.world import World


def handle_losses(turn: Turn, uid: Uid) -> None:
    """Close the run's lost leases, then let spares take over.

    Without enough spares, the group or the whole unit is given up.
    """
    world = turn.world
    lost = [lease for lease in open_leases(world, uid) if _is_lost(turn, lease)]
    for lease in lost:
        _close_lost(turn, lease)
    run = world.wanted_run(uid)
    if run is None:
        return
    if lost:
        _tell(turn, run, lost)
    for unit, _ in live_units(world, uid):
        if leases_not_ending(world, uid, unit):
            _mend(turn, run, unit)


def _tell(turn: Turn, run: Run, lost: list[Lease]) -> None:
    deleted = [lease for lease in lost if turn.world.leases[lease.name].cause is Cause.DELETED]
    if deleted:
        pods = ", ".join(sorted({lease.pod for lease in deleted}))
        turn.tell(
            "Run",
            run.key,
            NoticeReason.POD_DELETED,
            f"another client deleted {pods} while its lease was open",
        )
    if len(lost) > len(deleted):
        gone = len(lost) - len(deleted)
        turn.tell(
            "Run",
            run.key,
            NoticeReason.NODE_FAILURE,
            f"the run lost {gone} of its leases with their node",
        )


def node_has_failed(world: World, name: str, now: Instant) -> bool:
    state = world.fleet.nodes.get(name)
    if state is None or state.node.fenced:
        return True
    deadline = silence_deadline(world, state)
    return deadline is not None and now >= deadline


def silence_deadline(world: World, state: NodeState) -> Instant | None:
    """Return when a silent node counts as dead; None if never, which is the default (S1).

    The time counts from the later of two stamps, the node's own and ours. So a node whose clock is
    behind does not count as dead too early.
    """
    spans = dict(world.policy.node_failure_after)
    after = spans.get(state.node.flavor, spans.get("*"))
    if after is None or state.node.ready or state.node.not_ready_since is None:
        return None
    return max(state.node.not_ready_since, state.node.unheard_since or 0) + after


def _is_lost(turn: Turn, lease: Lease) -> bool:
    world = turn.world
    if f"{lease.namespace}/{lease.pod}" in world.lost_pods:
        return True
    state = world.fleet.nodes.get(lease.node)
    if state is not None and not state.node.ready:
        deadline = silence_deadline(world, state)
        if deadline is not None:
            world.work.alarm(lease.uid, deadline)
            if not turn.time_trusted:
                return state.node.fenced
    return node_has_failed(world, lease.node, turn.now)


def _close_lost(turn: Turn, lease: Lease) -> None:
    if lease.ending is not None:
        turn.close(lease.name, end=gone_at(turn, lease), why=lease.ending.why)
    elif node_has_failed(turn.world, lease.node, turn.now):
        turn.close(lease.name, end=gone_at(turn, lease), why=Closed.NODE_FAILURE)
    else:
        turn.close(lease.name, end=gone_at(turn, lease), why=Closed.FAIL, cause=Cause.DELETED)


def _mend(turn: Turn, run: Run, unit: int) -> None:
    world = turn.world
    for group, lost in vacancies(world, run.uid, unit).items():
        left = [lease for lease in leases_not_ending(world, run.uid) if lease.group == group]
        takeovers = swap(world, lost) if left else None
        if takeovers is not None:
            for takeover in takeovers:
                _take_over(turn, run, takeover)
        elif left or not _lives_without(world, run):
            _give_up(turn, run, unit, group, lost)
            if unit == WHOLE and not leases_not_ending(world, run.uid):
                return


def _take_over(turn: Turn, run: Run, takeover: Takeover) -> None:
    """Move a lost pod to its spare, once no filler is left on the spare.

    Fillers are told to end, with a short grace period.
    """
    if not make_way(turn, takeover.spares):
        return
    first = takeover.failed[0]
    for spare in takeover.spares:
        turn.close(spare.name, end=turn.now, why=Closed.SWAP)
        turn.open_swap(first, spare, first.index)
    turn.tell(
        "Run",
        run.key,
        NoticeReason.SWAP,
        f"group {first.group} pod {first.index} moved from {first.node} to its spare on "
        f"{takeover.node}",
    )
    turn.again = True


def make_way(turn: Turn, spares: Iterable[Lease]) -> bool:
    """Return whether no filler is left on these spares; if one is, tell it and its gang to end.

    Only the fillers' pods on these spares get the shortened grace period.
    """
    world = turn.world
    taken = [spare for spare in spares if _fillers(world, spare)]
    fresh = {lease.name: lease for spare in taken for lease in fillers_on(world, spare)}
    there = {_pod(lease) for spare in taken for lease in _fillers(world, spare)}
    hurried = [lease for lease in fresh.values() if _pod(lease) in there]
    end_all(turn, hurried, Closed.RECLAIMED, grace=world.policy.filler_grace_max)
    others = [lease for lease in fresh.values() if _pod(lease) not in there]
    end_all(turn, others, Closed.RECLAIMED)
    return not taken


def _pod(lease: Lease) -> tuple[Uid, int, int]:
    return lease.uid, lease.group, lease.index


def _fillers(world: World, spare: Lease) -> list[Lease]:
    return [
        lease
        for name in sorted(world.open_by_node.get(spare.node, ()))
        if (lease := world.leases[name]).role is Role.BORROWED
        and set(lease.slots) & set(spare.slots)
    ]


def _lives_without(world: World, run: Run) -> bool:
    """Return whether an elastic run reaches its minimum with the groups that are left."""
    if run.spec.malleable is None:
        return False
    width = sum(lease.gpus for lease in _active(world, run.uid))
    return width >= minimum_gpus(run.spec)


def _active(world: World, uid: Uid) -> list[Lease]:
    return [lease for lease in leases_not_ending(world, uid) if lease.role is not Role.SPARE]


def _give_up(turn: Turn, run: Run, unit: int, group: int, lost: list[list[Lease]]) -> None:
    """Give up the group if the run can live without it; otherwise end the whole unit, in one
    batch."""
    world = turn.world
    leases = [lease for pod in lost for lease in pod]
    whys = [lease.closed.why for lease in leases if lease.closed is not None]
    assert len(whys) == len(leases), run.key
    if all(why.reason is Closed.SWAP for why in whys):
        _give_up_drained(turn, run, unit, group, whys[0].drained_node)
        return
    deleted = all(lease.cause is Cause.DELETED for lease in leases)
    reason = Closed.FAIL if deleted else Closed.NODE_FAILURE
    if run.spec.gang is Gang.GROUP or _is_elastic_without(world, run, group):
        mates = [lease for lease in leases_not_ending(world, run.uid) if lease.group == group]
        end_all(turn, mates, reason)
        turn.tell(
            "Run",
            run.key,
            NoticeReason.GROUP_LOST,
            f"group {group} is given up, because no spare was left",
        )
        return
    end_unit(turn, run.uid, unit, reason)
    after = "it is requeued" if run.spec.checkpoint is not None else "the run fails"
    turn.tell("Run", run.key, NoticeReason.NODE_FAILURE, f"no spare for group {group}: {after}")


def _give_up_drained(turn: Turn, run: Run, unit: int, group: int, node: str) -> None:
    """Give up a group whose pod left a drained node and whose spare is gone.

    This is no failure: an elastic run goes on without the group, any other is requeued.
    """
    world = turn.world
    if run.spec.gang is Gang.RUN and _is_elastic_without(world, run, group):
        mates = [lease for lease in leases_not_ending(world, run.uid) if lease.group == group]
        end_all(turn, mates, ClosureReason(reason=Closed.SHRINK, detail=node))
        after = "the run continues without it"
    else:
        end_unit(turn, run.uid, unit, ClosureReason(reason=Closed.SWAP, detail=node))
        after = "it is requeued"
    said = f"node {node} was drained, and the spare for group {group} is gone: {after}"
    turn.tell("Run", run.key, NoticeReason.DRAIN, said)


def _is_elastic_without(world: World, run: Run, group: int) -> bool:
    others = sum(lease.gpus for lease in _active(world, run.uid) if lease.group != group)
    return run.spec.malleable is not None and others >= minimum_gpus(run.spec)
