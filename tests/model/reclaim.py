"""An owner takes its own envelope back from its family, at its reservation's activation.

Only if that is all its run is short of, together with the cuts it would then need: both are
rehearsed on a copy, and the reclaim is committed first. Another payer first; else shrinks and the
lottery among those leases alone.
"""

from copy import copy, deepcopy
from typing import Any

from tests.model.admit import Place, Refusal, admit_in, places_of
from tests.model.cuts import Cut, Scope, draw, drop_spares, give_back, shrink_in_rounds, would_do
from tests.model.debts import last_bound_first, move, other_payers
from tests.model.money import Segment
from tests.model.places import Room
from tests.model.resolve import Case, think_through
from tests.model.view import Claim, View
from tests.model.world import Lease, Run, World


def shared_leases(world: World, run: Run) -> list[Lease]:
    """What the family has of the owner's own envelopes, of those that pay where the run may go."""
    own = {
        envelope.name
        for envelope in world.envelopes()
        if envelope.owner == run.owner
        and envelope.flavor == run.flavor
        and envelope.is_open(world.now)
        and any(envelope.covers(place) for place in places_of(world, run))
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
    view = View(world, world.now, claims, gone, resolving=True)
    bins = {(n.name, "free"): n.gpus for n in world.nodes.values() if n.usable}
    domain_of = {node.name: node.domain for node in world.nodes.values()}
    plan = admit_in(view, run, groups, Room(run, bins, domain_of, set()))
    return not (isinstance(plan, Refusal) and plan.of_money)


def where_to_reclaim(world: World, run: Run, groups: list[int], claims: list[Claim]) -> Run | None:
    """Rehearse: would the run start then, with the cuts it would need? Wherever it is paid for
    first; if there is no room there, in one location after the other. The answer is the run as it
    would be if it asked for that location."""
    places = places_of(world, run)
    for place in (None, *places) if len(places) > 1 else (None,):
        asked = run if place is None else _only_in(run, place)
        if _would_start(world, run, asked, groups, claims):
            return asked
    return None


def could_reclaim(world: World, run: Run, groups: list[int], claims: list[Claim]) -> bool:
    return where_to_reclaim(world, run, groups, claims) is not None


def _only_in(run: Run, place: Place) -> Run:
    alone = copy(run)
    alone.selector = {**run.selector, "region": place[0], "cluster": place[1]}
    return alone


def _would_start(
    world: World, run: Run, asked: Run, groups: list[int], claims: list[Claim]
) -> bool:
    if not shared_leases(world, asked) or is_funded(world, asked, groups, claims, frozenset()):
        return False  # what it lacks is kept for others ahead, not used by its family
    trial = deepcopy(world)
    cuts = take_back(trial, asked, groups, claims, rehearse=True)
    if cuts is None:
        return False
    gone = frozenset(number for cut in cuts for number in cut.leases)
    return think_through(Case(trial, trial.runs[run.key], groups, claims, world.now, absent=gone))


def take_back(
    world: World, run: Run, groups: list[int], claims: list[Claim], *, rehearse: bool = False
) -> list[Cut] | None:
    """Refinances, and says whom to cut; None: that would not bring the money.

    Thought through on a copy: a lease that others could pay for stays where it is if its run is
    drawn for the sake of another lease.
    """
    trial = deepcopy(world)
    moved: dict[int, list[Segment]] = {}
    was: dict[int, int] = {}  # on the copy: a lease that others pay for -> what it was
    own = frozenset(each.name for each in world.envelopes() if each.owner == run.owner)
    for lease in last_bound_first(shared_leases(trial, run)):
        if is_funded(trial, run, groups, claims, frozenset()):
            break
        segments = other_payers(trial, lease, claims, without=own)
        if segments is not None:
            before = len(trial.leases)
            move(trial, lease, segments)
            moved[lease.number] = segments
            was.update(dict.fromkeys(range(before, len(trial.leases)), lease.number))
    cuts = _whom_to_cut(trial, world.seeds, run, groups, claims, rehearse=rehearse)
    if cuts is None:
        return None
    for cut in cuts:
        cut.leases = sorted({was.get(number, number) for number in cut.leases})
    gone = {number for cut in cuts for number in cut.leases}
    for number, segments in moved.items():
        if number not in gone:
            move(world, world.leases[number], segments)
    return cuts


def _whom_to_cut(
    world: World, seeds: Any, run: Run, groups: list[int], claims: list[Claim], *, rehearse: bool
) -> list[Cut] | None:
    if is_funded(world, run, groups, claims, frozenset()):
        return []
    among = {lease.number for lease in shared_leases(world, run)}

    def enough(gone: frozenset[int]) -> bool:
        return is_funded(world, run, groups, claims, gone)

    scope = Scope(lambda lease: lease.number in among, enough, world.now, run.key)
    if rehearse:
        return list(scope.cuts) if would_do(world, scope) else None
    drop_spares(world, scope)
    shrink_in_rounds(world, scope)
    draw(world, scope, lambda: seeds("Overdraft", run.key, world.now))
    if not enough(scope.gone()):
        return None
    give_back(scope)
    return [cut for cut in scope.cuts if not cut.returned]
