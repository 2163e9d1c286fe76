"""Rebuild a World from the facts of another: every index from scratch.

`invariants` compares the result with the World that was maintained step by step.
"""

from leasehold.core.facts import ledger_order
from leasehold.core.world.world import World


def rebuilt(world: World) -> World:
    new = World(world.policy)
    new.fold_head(world.head)
    new.carry(world.carried)
    for budget in world.budgets.values():
        new.put_budget(budget)
    for state in world.fleet.nodes.values():
        new.put_node(state.node)
    for run in world.runs.values():
        new.put_run(run)
    new.uid_of = dict(world.uid_of)
    for resolution in world.resolutions.values():
        new.fold_resolution(resolution)
    for lease in sorted(world.leases.values(), key=ledger_order):
        (new.fold_open if lease.is_open else new.fold_closed_lease)(lease)
    for reservation in sorted(world.reservations.values(), key=lambda each: each.batch):
        new.fold_reservation(reservation)
    for pod in world.pods.values():
        new.put_pod(pod)
    new.overdrafts = dict(world.overdrafts)
    new.lowered = world.lowered.copied()
    new.budget_facts = dict(world.budget_facts)
    new.node_facts = dict(world.node_facts)
    new.node_changes = world.node_changes
    return new
