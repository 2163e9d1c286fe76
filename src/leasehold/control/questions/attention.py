"""`attention`: problems that need action, each with a remedy and its section of the runbook.

Nodes and overdrafts are shown to every caller, runs and reservations only in visible namespaces.
"""

from collections.abc import Callable, Iterator

from leasehold.control.questions.answers.fleet import AttentionAnswer, AttentionRow
from leasehold.control.questions.explain import time_may_help
from leasehold.control.questions.fleet import state_of
from leasehold.control.questions.formats import instant, moment
from leasehold.core.reservations import State
from leasehold.core.units import plural
from leasehold.core.world.world import World

_NODES = {
    "Fenced": ("remove the node, or repair it and add it again", "A failed node"),
    "NotReady": ("check the machine; if it is dead, run leasehold fence", "A failed node"),
    "Unusable": ("correct the labels of the node, so that it can be used", "A failed node"),
    "Draining": ("wait, or stop the drain with leasehold drain --undo", "Drain"),
}


def attention(world: World, *, sees: Callable[[str], bool]) -> AttentionAnswer:
    items = [*_nodes(world), *_overdrafts(world), *_blocked(world, sees), *_stuck(world, sees)]
    return AttentionAnswer(items=items)


def _nodes(world: World) -> Iterator[AttentionRow]:
    for name in sorted(world.fleet.nodes):
        state = world.fleet.nodes[name]
        word, says = state_of(state)
        if word in _NODES:
            remedy, section = _NODES[word]
            yield AttentionRow(
                kind="Node",
                subject=name,
                reason=word,
                says=f"{plural(state.node.gpus, 'GPU')}: {says}",
                remedy=remedy,
                runbook=section,
                since=instant(state.node.not_ready_since),
            )


def _overdrafts(world: World) -> Iterator[AttentionRow]:
    for subject, known in sorted(world.overdrafts.items()):
        cuts = moment(known.since + world.policy.overdraft_grace)
        yield AttentionRow(
            kind="Budget",
            subject=subject,
            reason="Overdrawn",
            says=f"runs that it pays for are preempted from {cuts} on",
            remedy="raise its caps, or end runs that it pays for",
            runbook="LeaseholdOverdrawn",
            since=instant(known.since),
        )


def _blocked(world: World, sees: Callable[[str], bool]) -> Iterator[AttentionRow]:
    for key in sorted(world.reservations):
        each = world.reservations[key]
        if each.state is State.BLOCKED and sees(each.namespace):
            yield AttentionRow(
                kind="Reservation",
                subject=each.run_key,
                reason=each.reason,
                says=each.message,
                remedy="; ".join(each.remedies),
                runbook="LeaseholdActivationStuck",
                since=instant(each.since),
            )


def _stuck(world: World, sees: Callable[[str], bool]) -> Iterator[AttentionRow]:
    """Yield a row for each pending run that waiting does not help."""
    for uid in world.work.pending:
        run, refused = world.runs.get(uid), world.memory.refusals.get(uid)
        if run is None or refused is None or time_may_help(refused) or not sees(run.namespace):
            continue
        yield AttentionRow(
            kind="Run",
            subject=run.key,
            reason=str(refused.reason),
            says=refused.says,
            remedy=refused.remedy,
            runbook="",
            since=instant(run.created),
        )
