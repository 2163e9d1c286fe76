"""`drain`: what happens to the runs on a node under drain, one row per run or group.

The future comes from the decision itself (`core.placement.drain`), the past from the leases that
ended there since a given instant.
"""

from typing import TypedDict

from leasehold.control.questions.answers.leases import DrainAnswer, DrainRow
from leasehold.control.questions.explain_drain import heir_of, is_requeued
from leasehold.core.facts import Closed, Lease, Role, Uid
from leasehold.core.placement.drain import DrainAction, DrainPlan, how_to_leave
from leasehold.core.units import Instant
from leasehold.core.world.book import WHOLE
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World

_SPARE = "spare"  # only a spare is there
_END = "end"  # ends for another reason


class _Fate(TypedDict):
    way: str
    state: str
    says: str


def drain(world: World, node: str, since: Instant | None) -> DrainAnswer:
    """Return the runs with leases on the node, and those whose leases there ended since `since`."""
    state = world.fleet.nodes[node].node
    leases = [world.leases[name] for name in world.open_by_node.get(node, ())]
    if since is not None:
        leases += [
            lease
            for lease in world.leases.values()
            if lease.node == node and lease.end is not None and _left_at(lease, lease.end) >= since
        ]
    units: dict[tuple[str, Uid, int], list[Lease]] = {}
    for lease in sorted(leases, key=lambda each: (each.batch, each.name)):
        key = (lease.run_key, lease.uid, world.unit_of(lease.uid, lease.group))
        units.setdefault(key, []).append(lease)
    return DrainAnswer(
        node=node,
        draining=state.is_draining,
        asked_by=state.drained_by,
        gpus=sum(lease.gpus for lease in leases if lease.is_open),
        items=[
            DrainRow(
                run=run,
                group=None if unit == WHOLE else unit,
                gpus=sum(lease.gpus for lease in found if lease.is_open),
                **_row(world, node, unit, found),
            )
            for (run, _, unit), found in sorted(units.items())
        ],
    )


def _left_at(lease: Lease, end: Instant) -> Instant:
    """Return when a lease ended, by the node's clock, but not before the lease was told to end."""
    return end if lease.ending is None else max(end, lease.ending.at)


def _row(world: World, node: str, unit: int, leases: list[Lease]) -> _Fate:
    """Return `way`, `state` (stays, going or gone), and the predicate of a sentence about the
    unit."""
    active = [lease for lease in leases if lease.role is not Role.SPARE]
    if not active:
        return _spares(leases)
    standing = [lease for lease in active if lease.is_open and lease.ending is None]
    run = world.runs.get(active[0].uid)
    if standing and not world.fleet.nodes[node].node.is_draining:
        return _said(DrainAction.WAIT, "stays", "stays, because the node is not being drained")
    if standing and run is not None:
        return _planned(how_to_leave(world, run, node, unit))
    going = [lease for lease in active if lease.is_open]
    return _going(world, going[-1]) if going else _gone(world, active)


def _said(way: str, state: str, says: str) -> _Fate:
    return {"way": str(way), "state": state, "says": says}


def _spares(leases: list[Lease]) -> _Fate:
    if any(lease.is_open for lease in leases):
        return _said(_SPARE, "stays", "holds a spare there")
    return _said(_SPARE, "gone", "gave up its spare")


def _planned(leaving: DrainPlan) -> _Fate:
    """Describe how a unit is going to leave the node.

    A turn carries out every way that is possible at once, so the way shown here waits for
    something.
    """
    places = ", ".join(sorted({takeover.node for takeover in leaving.takeovers}))
    match leaving.way:
        case DrainAction.SWAP:
            return _said(
                DrainAction.SWAP,
                "going",
                f"moves to its spare on {places} as soon as that spare is clear",
            )
        case DrainAction.SHRINK:
            return _said(
                DrainAction.SHRINK, "going", f"gives up {_groups(leaving.groups)} and continues"
            )
        case DrainAction.REQUEUE:
            return _said(DrainAction.REQUEUE, "going", "will be requeued")
        case DrainAction.WAIT:
            return _said(DrainAction.WAIT, "stays", f"stays until it ends by itself: {leaving.why}")


def _groups(groups: tuple[int, ...]) -> str:
    return f"group{'s' if len(groups) > 1 else ''} {', '.join(map(str, groups))}"


def _going(world: World, lease: Lease) -> _Fate:
    why = lease.why
    assert why is not None, lease.name
    if why.drained_node and why.reason is Closed.SWAP:
        if is_requeued(world, lease):
            return _said(DrainAction.REQUEUE, "going", "is stopping, to be requeued")
        return _said(DrainAction.SWAP, "going", "is stopping, to move to its spare")
    if why.drained_node and why.reason is Closed.SHRINK:
        return _said(DrainAction.SHRINK, "going", f"gives up group {lease.group} and continues")
    return _said(_END, "going", f"is ending ({why.reason})")


def _gone(world: World, leases: list[Lease]) -> _Fate:
    last = leases[-1]
    why = last.why
    assert why is not None, last.name
    if not why.drained_node:
        return _said(_END, "gone", f"ended ({why.reason})")
    groups = {
        each.group for each in leases if each.why is not None and each.why.reason is Closed.SHRINK
    }
    if groups:
        return _said(
            DrainAction.SHRINK, "gone", f"gave up {_groups(tuple(sorted(groups)))} and continued"
        )
    if is_requeued(world, last):
        return _said(DrainAction.REQUEUE, "gone", "requeued")
    heirs = {
        heir.node
        for each in leases
        if (heir := heir_of(each, open_leases(world, each.uid))) is not None
    }
    where = f" on {', '.join(sorted(heirs))}" if heirs else ""
    return _said(DrainAction.SWAP, "gone", f"swapped to its spare{where}")
