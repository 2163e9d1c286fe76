"""Reservations that are due: room is made, or it is said why not.

One activation per scope at a time, in order of earliest start. What the cuts free, and the free
GPUs and money it was planned with, are held for the beneficiary.
"""

from dataclasses import replace

from tests.model.admit import Plan, Refusal, admit
from tests.model.cuts import Cut
from tests.model.life import apply_cuts
from tests.model.line import avoided, book_what_is_known, groups_to_plan, in_line, ready_units
from tests.model.places import may_go
from tests.model.reclaim import take_back, where_to_reclaim
from tests.model.resolve import Case, carry_out, think_through
from tests.model.view import Claim, View, cost_of_segments, end_of
from tests.model.world import Activation, Booking, Run, World


def activate_due(world: World) -> bool:
    """True if something was cut, moved or blocked."""
    waited_for: set[str] = set()  # domains where somebody waits for his turn
    for run in in_line(world):
        if _is_short_of_gpus_too(world, run) and _activate(world, run, waited_for):
            return True
    for run in sorted(in_line(world), key=_when):
        booking = run.booking
        if (
            booking is None
            or booking.state != "Pending"
            or booking.confidence not in ("needs-cuts", "needs-money")
            or booking.start > world.now
            or not ready_units(world, run)
        ):
            continue
        if _activate(world, run, waited_for):
            return True  # what ends by it, and what starts then, comes before the next
    return False


def _is_short_of_gpus_too(world: World, run: Run) -> bool:
    """It took its envelope back, those who had to go are gone, and it still does not fit."""
    activation = run.activation
    return (
        activation is not None
        and activation.only_money
        and bool(ready_units(world, run))
        and all(world.leases[number].end is not None for number in activation.victims)
    )


def _when(run: Run) -> tuple[int, tuple[int, str, str]]:
    return (run.booking.start if run.booking else 0, run.order)


def _activate(world: World, run: Run, waited_for: set[str]) -> bool:
    """One that has its envelope back does not ask for it again."""
    groups, others = groups_to_plan(world, run), world.ahead.get(run.key, [])
    case = Case(world, run, groups, others, world.now)
    if think_through(case):
        if _is_busy(world, run, set(case.domains.values()), waited_for):
            waited_for.update(case.domains.values())
            return False
        cuts = carry_out(case, lambda: world.seeds("Reservation", run.key, world.now))
        if not cuts:
            return False  # what is going already makes the room
        _begin(world, run, case, cuts)
        return True
    asked = where_to_reclaim(world, run, groups, others) if run.activation is None else None
    if asked is not None:
        if not _reclaim(world, run, asked, groups, others):  # nobody had to go: now for the GPUs
            _activate(world, run, waited_for)
        return True
    nodes = [n for n in world.nodes.values() if n.flavor == run.flavor]
    anywhere = {n.domain for n in nodes if may_go(world, run, n.name)}
    if _is_busy(world, run, anywhere, waited_for):
        waited_for.update(anywhere)
        return False  # the one before it there comes first
    if run.activation is None and book_what_is_known(world, run, others):
        return True
    assert run.booking is not None
    because = run.said if run.said not in ("", "HeldForReservation") else case.reason
    run.activation = None
    world.book(run, Booking("Blocked", because=because), before="")
    world.note(f"{run.key} is blocked: {because}")
    return True


def _is_busy(world: World, run: Run, domains: set[str], waited_for: set[str]) -> bool:
    """Somebody else's activation is under way in one of these domains, or waits there."""
    return bool(domains & waited_for) or any(
        other.activation is not None
        and not other.activation.timed_out
        and other.key != run.key
        and other.flavor == run.flavor
        and domains & set(other.activation.domains.values())
        for other in world.runs.values()
    )


def _begin(world: World, run: Run, case: Case, cuts: list[Cut]) -> None:
    assert case.scope is not None
    gone = frozenset(number for cut in cuts for number in cut.leases)
    plan = case.plan(gone)
    assert plan is not None, "it was rehearsed"
    apply_cuts(world, cuts, "RandomPreempt")
    _hold(world, run, activation_of(world, run, plan, case.domains, sorted(gone)))
    world.note(f"{run.key} is activated: {[(c.kind, c.run, c.group) for c in cuts]}")


def _hold(world: World, run: Run, activation: Activation) -> None:
    assert run.booking is not None
    run.activation = activation
    run.by_resolution = True
    run.booking = world.was[run.key] = replace(run.booking, state="Activating")


def activation_of(
    world: World, run: Run, plan: Plan, domains: dict[int, str], victims: list[int]
) -> Activation:
    """What is held: its nodes and its money; part of it somebody still has to leave."""
    money = Claim(run.key, "hold", world.now, end_of(run, world.now))
    cost_of_segments(world, money, plan.segments(), world.now)
    held: dict[str, int] = {}
    for spot in plan.spots:
        held[spot.node] = held.get(spot.node, 0) + run.pod_gpus
    return Activation(
        run=run.key, at=world.now, domains=domains,
        victims=victims, held=held, spots=plan.spots, bills=plan.bills, money=money.money,
        lent=money.lent, hours=money.hours, lent_hours=money.lent_hours,
    )  # fmt: skip


def _reclaim(world: World, run: Run, asked: Run, groups: list[int], others: list[Claim]) -> bool:
    """The family moves; then, if GPUs are short too, others make room as well. True if anybody has
    to go for the money."""
    cuts = take_back(world, asked, groups, others) or []
    if not cuts:
        return False
    gone = frozenset(number for cut in cuts for number in cut.leases)
    case = Case(world, run, groups, others, world.now, absent=gone)
    can = think_through(case)
    assert can, "it was rehearsed"
    apply_cuts(world, cuts, "Overdrawn")
    assert case.scope is not None
    view = View(world, world.now, others, gone, resolving=True)
    plan: Plan | Refusal | None = admit(view, run, groups, avoids=avoided(run))
    if not isinstance(plan, Plan):
        plan = case.plan(case.scope.gone())
    assert plan is not None, "it was rehearsed"
    domains = {spot.group: world.nodes[spot.node].domain for spot in plan.spots}
    activation = activation_of(world, run, plan, domains, sorted(gone))
    held = _not_missed_before_cuts(case.view(), run, activation.held)
    _hold(world, run, replace(activation, held=held, only_money=True))
    return True


def _not_missed_before_cuts(view: View, run: Run, held: dict[str, int]) -> dict[str, int]:
    """Of the places that it will have after its cuts: what those ahead, whenever they have some of
    a node, leave of it while nobody has been cut."""
    found = dict(held)
    for instant in view.instants(end_of(run, view.at)):
        for name, left in view.beside_claims(run.flavor, instant).items():
            found[name] = min(found.get(name, 0), max(0, left))
    return {name: gpus for name, gpus in found.items() if gpus}
