"""Empties nodes under drain: pods that can leave without loss are told to leave; the others stay.

Called while a run is tended. Level-triggered: marks are in the ledger and the drain is in the Node
object, so a restart continues where this stopped. A moving pod's rank starts elsewhere only when
its lease has closed, i.e. when the pod is gone: `failures` then finds the vacancy and swaps the
spare in, as after a node failure.
"""

from leasehold.control.reasons import NoticeReason
from leasehold.control.running.failures import make_way
from leasehold.control.running.open_leases import end_all, end_unit, leases_not_ending
from leasehold.control.turn import Turn
from leasehold.core.facts import Closed, ClosureReason, Run
from leasehold.core.placement.drain import (
    DrainAction,
    DrainPlan,
    how_to_leave,
    places_to_leave,
    spares_to_drop,
)


def leave_drained_nodes(turn: Turn, run: Run) -> None:
    """Tell leases of the run on nodes under drain to end.

    Spares come first, so that no pod moves to them any more. Then come pods, node by node.
    """
    world = turn.world
    if not world.fleet.draining or run.uid in turn.quarantined:
        return
    for spare in spares_to_drop(world, run.uid):
        end_all(turn, [spare], ClosureReason(reason=Closed.DROP_SPARE, detail=spare.node))
        _tell(turn, run, spare.node, f"its spare of group {spare.group} is given up")
    for node, unit in places_to_leave(world, run.uid):
        if any(each.node == node for each in leases_not_ending(world, run.uid, unit)):
            _leave(turn, run, node, unit, how_to_leave(world, run, node, unit))


def _leave(turn: Turn, run: Run, node: str, unit: int, leaving: DrainPlan) -> None:
    if leaving.way is DrainAction.WAIT:
        return
    if leaving.way is DrainAction.REQUEUE:
        end_unit(turn, run.uid, unit, ClosureReason(reason=Closed.SWAP, detail=node))
        _tell(
            turn,
            run,
            node,
            "the run is stopped and requeued; it will start again from its checkpoint",
        )
        return
    spares = [spare for takeover in leaving.takeovers for spare in takeover.spares]
    if not make_way(turn, spares):
        return  # no pod stops before its new place is free
    for takeover in leaving.takeovers:
        first = takeover.failed[0]
        end_all(turn, list(takeover.failed), ClosureReason(reason=Closed.SWAP, detail=node))
        _tell(
            turn,
            run,
            node,
            f"group {first.group} pod {first.index} moves to its spare on {takeover.node}",
        )
    given_up = [
        each for each in leases_not_ending(turn.world, run.uid) if each.group in leaving.groups
    ]
    end_all(turn, given_up, ClosureReason(reason=Closed.SHRINK, detail=node))
    for group in leaving.groups:
        _tell(turn, run, node, f"group {group} is given up, and the run continues without it")


def _tell(turn: Turn, run: Run, node: str, what: str) -> None:
    asker = turn.world.fleet.nodes[node].node.drained_by
    turn.tell("Run", run.key, NoticeReason.DRAIN, f"node {node} is drained by {asker}: {what}")
    turn.tell("Node", node, NoticeReason.DRAIN, f"{run.key}: {what}")
