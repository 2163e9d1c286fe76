"""An owner takes its own envelope back from its family, at its reservation's activation.

Only if that is all its run is short of, together with the cuts it would then need: both are
rehearsed on a copy, and the reclaim is committed first. Another payer first; else shrinks and the
lottery among those leases alone.
"""

from copy import deepcopy

from tests.model.cuts import Cut, Scope, draw, drop_spares, give_back, shrink_in_rounds, would_do
from tests.model.debts import last_bound_first, move, other_payers
from tests.model.resolve import Case, think_through
from tests.model.view import Claim, View
from tests.model.world import Lease, Run, World


def shared_leases(world: World, run: Run) -> list[Lease]:
    """What the family has of the owner's own envelopes."""
    own = {
        envelope.name
        for envelope in world.envelopes()
        if envelope.owner == run.owner
        and envelope.flavor == run.flavor
        and envelope.is_open(world.now)
    }
    return [
        lease
        for lease in world.open_leases()
        if lease.payer in own and lease.relation == "Shared" and not lease.ending
    ]


def is_funded(
    world: World, run: Run, groups: list[int], claims: list[Claim], gone: frozenset[int]
) -> bool:
    """Whether money is there for the run, wherever GPUs are, without these leases."""
    from tests.model.admit import Refusal, admit_in
    from tests.model.places import Room

    view = View(world, world.now, claims, gone, resolving=True)
    bins = {(n.name, "free"): n.gpus for n in world.nodes.values() if n.usable}
    domain_of = {node.name: node.domain for node in world.nodes.values()}
    plan = admit_in(view, run, groups, Room(run, bins, domain_of, set()))
    return not (isinstance(plan, Refusal) and plan.of_money)


def could_reclaim(world: World, run: Run, groups: list[int], claims: list[Claim]) -> bool:
    """Rehearse: would the run start then, with the cuts it would need?"""
    if not shared_leases(world, run):
        return False
    trial = deepcopy(world)
    again = trial.runs[run.key]
    cuts = take_back(trial, again, groups, claims, rehearse=True)
    if cuts is None:
        return False
    gone = frozenset(number for cut in cuts for number in cut.leases)
    case = Case(trial, again, groups, claims, world.now, absent=gone)
    return think_through(case)


def take_back(
    world: World, run: Run, groups: list[int], claims: list[Claim], *, rehearse: bool = False
) -> list[Cut] | None:
    """Refinances, and says whom to cut; None: that would not bring the money."""
    gone: frozenset[int] = frozenset()
    own = frozenset(each.name for each in world.envelopes() if each.owner == run.owner)
    for lease in last_bound_first(shared_leases(world, run)):
        if is_funded(world, run, groups, claims, gone):
            return []
        segments = other_payers(world, lease, claims, without=own)
        if segments is not None:
            move(world, lease, segments)
    if is_funded(world, run, groups, claims, gone):
        return []
    among = {lease.number for lease in shared_leases(world, run)}

    def enough(gone: frozenset[int]) -> bool:
        return is_funded(world, run, groups, claims, gone)

    scope = Scope(lambda lease: lease.number in among, enough, world.now, run.key)
    if rehearse:
        return list(scope.cuts) if would_do(world, scope) else None
    drop_spares(world, scope)
    shrink_in_rounds(world, scope)
    draw(world, scope, lambda: world.seeds("Overdraft", run.key, world.now))
    if not enough(scope.gone()):
        return None
    give_back(scope)
    return [cut for cut in scope.cuts if not cut.returned]
