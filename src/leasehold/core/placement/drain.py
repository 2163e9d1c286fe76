"""drain: decide how each run leaves a node under drain without losing work (S5).

Decides for one unit of a run (all of it, or one group of a sweep) on one node. In this order: its
pods move to spares; an elastic run gives up their groups; a run with a checkpoint is requeued;
otherwise the drain waits for its end. `control.running.draining` carries it out, and the question
`drain` shows it. A cordon alone triggers nothing.
"""

from enum import StrEnum

from leasehold.core.facts import Gang, Lease, Record, Role, Run, Uid
from leasehold.core.placement.swap import Takeover, awaits_takeover, moving, swap, vacancies
from leasehold.core.world.width import minimum_gpus, open_leases
from leasehold.core.world.world import World


class DrainAction(StrEnum):
    """How a unit leaves a node under drain, in order of preference."""

    SWAP = "swap"
    SHRINK = "shrink"
    REQUEUE = "requeue"
    WAIT = "wait"


class DrainPlan(Record):
    """How one unit leaves one node. Pods move to spares only if all of the unit can leave."""

    way: DrainAction
    takeovers: tuple[Takeover, ...] = ()
    groups: tuple[int, ...] = ()  # groups that an elastic run gives up
    why: str = ""  # why the way is WAIT


def places_to_leave(world: World, uid: Uid) -> list[tuple[str, int]]:
    """Return the (node, unit) pairs of the run on draining nodes whose pods are not ending yet."""
    return sorted(
        {
            (lease.node, world.unit_of(uid, lease.group))
            for lease in open_leases(world, uid)
            if lease.node in world.fleet.draining and _is_standing(lease)
        }
    )


def how_to_leave(world: World, run: Run, node: str, unit: int) -> DrainPlan:
    """Return the first way, in order of preference, in which all pods of this unit leave `node`."""
    pods_here = [
        lease
        for lease in open_leases(world, run.uid)
        if lease.node == node
        and _is_standing(lease)
        and world.unit_of(run.uid, lease.group) == unit
    ]
    if not world.policy.binder_enabled:
        return DrainPlan(way=DrainAction.WAIT, why="binder.enabled is false")
    if not _is_heard(world, node):
        return DrainPlan(way=DrainAction.WAIT, why=f"the agent of node {node} does not answer")
    takeovers: list[Takeover] = []
    stranded: list[int] = []
    for group in sorted({lease.group for lease in pods_here}):
        found = _spares_for(world, unit, [lease for lease in pods_here if lease.group == group])
        if found is None:
            stranded.append(group)
        else:
            takeovers += found
    if not stranded:
        return DrainPlan(way=DrainAction.SWAP, takeovers=tuple(takeovers))
    if _lives_without(world, run, stranded):
        return DrainPlan(way=DrainAction.SHRINK, takeovers=tuple(takeovers), groups=tuple(stranded))
    if run.spec.checkpoint is None:
        spares = "too few spares" if run.spec.spares_per_group else "no spare"
        return DrainPlan(
            way=DrainAction.WAIT, why=f"it has no runtime.checkpoint, and {spares} to move to"
        )
    silent = sorted(
        {
            lease.node
            for lease in open_leases(world, run.uid)
            if _is_standing(lease)
            and world.unit_of(run.uid, lease.group) == unit
            and not _is_heard(world, lease.node)
        }
    )
    if silent:
        return DrainPlan(
            way=DrainAction.WAIT,
            why=f"it also runs on node {silent[0]}, whose agent does not answer",
        )
    return DrainPlan(way=DrainAction.REQUEUE)


def spares_to_drop(world: World, uid: Uid) -> list[Lease]:
    """Return spares of the run on draining nodes, except those that a pod is about to take over."""
    if not world.policy.binder_enabled:
        return []
    return [
        lease
        for lease in open_leases(world, uid)
        if lease.node in world.fleet.draining
        and lease.role is Role.SPARE
        and lease.ending is None
        and not awaits_takeover(world, lease)
    ]


def will_be_taken_over(world: World, spare: Lease) -> bool:
    """Return whether a lost pod, or one that leaves a draining node, will take over this spare."""
    if awaits_takeover(world, spare):
        return True
    run = world.runs.get(spare.uid)
    if run is None or not world.fleet.draining:
        return False
    return any(
        spare.name == each.name
        for node, unit in places_to_leave(world, spare.uid)
        for takeover in how_to_leave(world, run, node, unit).takeovers
        for each in takeover.spares
    )


def _is_standing(lease: Lease) -> bool:
    """Return whether a pod runs under the lease and has not been told to end."""
    return lease.ending is None and lease.role is not Role.SPARE


def _is_heard(world: World, node: str) -> bool:
    """Return whether the node answers, so that a signal to stop would reach it.

    A pod on a silent node is not told to stop, because it might neither stop nor count as running.
    """
    state = world.fleet.nodes.get(node)
    return state is not None and state.node.ready


def _spares_for(world: World, unit: int, pods_here: list[Lease]) -> list[Takeover] | None:
    """Return takeovers for these pods of one group, or None if there are too few spares.

    Spares that other pods of the group will take over are not used.
    """
    uid, group = pods_here[0].uid, pods_here[0].group
    pods: dict[str, list[Lease]] = {}
    for lease in pods_here:
        pods.setdefault(lease.pod, []).append(lease)
    promised = [*vacancies(world, uid, unit).get(group, []), *moving(world, uid, group)]
    found = swap(world, [*promised, *pods.values()], lasting=True)
    return None if found is None else found[len(promised) :]


def _lives_without(world: World, run: Run, groups: list[int]) -> bool:
    """Return whether an elastic run stays at or above its minimum without `groups`.

    False for `gang: Group`: each group would start again from nothing, which needs a checkpoint.
    """
    if run.spec.malleable is None or run.spec.gang is Gang.GROUP:
        return False
    leases = [lease for lease in open_leases(world, run.uid) if _is_standing(lease)]
    left = sum(lease.gpus for lease in leases if lease.group not in groups)
    return left >= minimum_gpus(run.spec) and all(
        _is_heard(world, lease.node) for lease in leases if lease.group in groups
    )
