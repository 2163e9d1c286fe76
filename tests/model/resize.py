"""Elastic runs: grow in whole steps toward the desired width, shrink when the user lowers it.

At most one resize per `resize.interval`; forced shrinks do not count. Growing comes after starting
pending runs, in order of submission, only with what no reservation holds.
"""

from tests.model.admit import Place, Plan, borrowed_by, own_domains, place_of, places_of
from tests.model.cuts import width
from tests.model.life import mark, settle
from tests.model.money import Segment, cover
from tests.model.places import Room, room_for
from tests.model.start import open_plan
from tests.model.story import FOREVER
from tests.model.view import View
from tests.model.world import Run, World


def resizable(world: World) -> list[Run]:
    """Elastic runs that run whole, with nothing on its way out or in."""
    found = []
    for run in sorted(world.runs.values(), key=lambda run: run.order):
        unit = run.units[0]
        if (
            run.elastic
            and not run.is_sweep
            and unit.standing == "live"
            and not unit.fate
            and not unit.swaps
            and not any(lease.ending for lease in world.leases_of(run))
            and not _is_being_completed(world, run)
            and not run.stop
        ):
            found.append(run)
    return found


def _is_being_completed(world: World, run: Run) -> bool:
    """A rank that has ended well is not started anew."""
    return any(
        lease.run == run.key
        and lease.attempt == run.units[0].attempt
        and lease.role != "Spare"
        and lease.closed == "Completed"
        for lease in world.leases
    )


def may_resize(world: World, run: Run) -> bool:
    return run.resized is None or world.now >= run.resized + world.config["resize.interval"]


def shrink(world: World) -> bool:
    """Groups that borrowed money pays for go first, then the highest index."""
    for run in resizable(world):
        groups = sorted({x.group for x in world.leases_of(run) if x.role != "Spare"})
        over = (width(world, run) - run.desired) // run.group_gpus
        if over <= 0 or not may_resize(world, run):
            continue
        borrowed = {x.group for x in world.leases_of(run) if x.relation == "Borrowed"}
        groups.sort(key=lambda group: (group in borrowed, group), reverse=True)
        for lease in world.leases_of(run):
            if lease.group in groups[:over]:
                mark(world, lease, "Shrink")
        run.resized = world.now
        settle(world, run)
        return True
    return False


def grow(world: World) -> bool:
    """As many whole steps as fit at once; from off the grid back onto it."""
    for run in resizable(world):
        plan = growth(world, run)
        if plan is not None:
            open_plan(world, run, plan, "Grow")
            run.resized = world.now
            settle(world, run)
            world.note(f"{run.key} grows by {len(plan.spots)} pods")
            return True
    return False


def growth(world: World, run: Run) -> Plan | None:
    """What it would grow by now."""
    now, target = width(world, run), run.desired
    while target > now and may_resize(world, run):
        plan = _plan_growth(world, run, (target - now) // run.group_gpus)
        if plan is not None:
            return plan
        target -= run.step
    return None


def _plan_growth(world: World, run: Run, count: int) -> Plan | None:
    """The run's own domains first, then money. One of its own for all, else group by group."""
    view = View(world, world.now, [c for c in world.claims if c.run != run.key])
    limit = None if run.limit is None else run.units[0].started + run.limit
    until = FOREVER if limit is None else limit
    room = room_for(view, run, until=until)
    used = {x.group for x in world.leases_of(run)}
    groups = [index for index in range(len(used) + count) if index not in used][:count]
    home = own_domains(world, run)
    whole = [domain for domain in home if domain in room.domains() and room.holds(domain, count)]
    for domain in sorted(whole, key=lambda d: (room.left_in(d), d)):
        plan = _place(view, run, room.copy(), groups, [domain], until)
        if plan is not None:
            return plan
    domains = home if not run.spread else room.domains()
    return _place(view, run, room.copy(), groups, domains, until)


def _place(
    view: View, run: Run, room: Room, groups: list[int], domains: list[str], until: int
) -> Plan | None:
    plan = Plan()
    home = own_domains(view.world, run)
    for group in groups:
        bills = _bills(view, run, room, plan, until)

        def rank(
            domain: str, bills: dict[Place, list[Segment]] = bills
        ) -> tuple[bool, int, int, int, str]:
            bill = bills[place_of(domain)]
            away = domain not in home
            borrowed = sum(gpus for _, gpus, kind in bill if kind == "Borrowed")
            shared = sum(gpus for _, gpus, kind in bill if kind == "Shared")
            costs = (borrowed, shared) if away else (0, 0)
            return (away, *costs, room.left_in(domain), domain)

        there = set(room.domains())
        fitting = [d for d in domains if d in there and place_of(d) in bills and room.holds(d, 1)]
        if not fitting:
            return None
        best = min(fitting, key=rank)
        plan.spots += room.put_group(group, best)
        place = place_of(best)
        plan.bills[place] = plan.bills.get(place, []) + bills[place]
    return plan


def _bills(view: View, run: Run, room: Room, plan: Plan, until: int) -> dict[Place, list[Segment]]:
    """Who would pay for one group more, in each location where somebody would."""
    found: dict[Place, list[Segment]] = {}
    for place in places_of(view.world, run):
        bill = cover(
            view, run, room.gpus_of_group(), place,
            until=until, taken=plan.segments(), borrowed=borrowed_by(view.world, run),
        )  # fmt: skip
        if not bill.missing:
            found[place] = bill.segments
    return found
