"""E. Elastic runs: they grow in whole steps toward their desired width, and shrink down to it."""

from tests.model.bind import open_leases
from tests.model.calendar import Calendar, Entry
from tests.model.facts import Place, Placement, Run, Segment, World
from tests.model.life import mark, restart_in_place
from tests.model.money import Bill, cover
from tests.model.packing import Room, own_domains, place_of, places_of, room_for
from tests.model.resolve import width
from tests.model.story import FOREVER, HOUR


def resizable(world: World) -> list[Run]:
    """Return the elastic `gang: Run` runs without a lease that is ending or being replaced."""
    return [
        run
        for run in sorted(world.runs.values(), key=lambda run: run.order)
        if run.elastic
        and not run.is_sweep
        and not run.stop
        and run.units[0].standing == "live"
        and not run.units[0].fate
        and not run.units[0].swaps
        and not any(lease.ending for lease in world.leases_of(run))
        and not _is_finishing(world, run)
    ]


def _is_finishing(world: World, run: Run) -> bool:
    """Return whether a pod of the run has completed; it is not started again."""
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
    """E2: shrink runs, first by groups that borrowed money pays for, then by the highest index."""
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
        restart_in_place(world, run)
        return True
    return False


def grow(world: World, ahead: list[Entry]) -> bool:
    """E1: grow runs by as many whole steps as fit at once, behind the whole queue."""
    for run in resizable(world):
        now, target = width(world, run), run.desired
        while target > now and may_resize(world, run):
            placement = _growth(world, run, (target - now) // run.group_gpus, ahead)
            if placement is not None:
                open_leases(world, run, placement, "Grow")
                run.resized = world.now
                restart_in_place(world, run)
                world.note(f"{run.key} grows by {len(placement.spots)} pods")
                return True
            target -= run.step
    return False


def _growth(world: World, run: Run, count: int, ahead: list[Entry]) -> Placement | None:
    """Place `count` more groups: all in one of the run's own domains if possible, otherwise group
    by group, own domains first, then by money."""
    calendar = Calendar(world, run, ahead)
    limit = FOREVER if run.limit is None else run.units[0].started + run.limit
    until = limit if limit == FOREVER else limit + min(run.grace, HOUR)
    room = room_for(calendar, world.now, until=until)
    used = {x.group for x in world.leases_of(run)}
    groups = [index for index in range(len(used) + count) if index not in used][:count]
    home = own_domains(world, run)
    whole = [d for d in home if d in room.domains() and room.groups_in(d) >= count]
    for domain in sorted(whole, key=lambda d: (room.left_in(d), d)):
        placement = _place(calendar, room.copy(), groups, [domain], (limit, until))
        if placement is not None:
            return placement
    return _place(
        calendar, room.copy(), groups, room.domains() if run.spread else home, (limit, until)
    )


def _place(
    calendar: Calendar, room: Room, groups: list[int], domains: list[str], ends: tuple[int, int]
) -> Placement | None:
    placement, home = Placement(), own_domains(calendar.world, room.run)
    for group in groups:
        bills = _bills(calendar, room, placement.segments(), ends)

        def rank(domain: str, bills: dict[Place, Bill] = bills) -> tuple[bool, int, int, int, str]:
            bill, away = bills[place_of(domain)], domain not in home
            money = (bill.by("Borrowed"), bill.by("Shared")) if away else (0, 0)
            return (away, *money, room.left_in(domain), domain)

        there = set(room.domains())
        fitting = [d for d in domains if d in there and place_of(d) in bills and room.groups_in(d)]
        if not fitting:
            return None
        best = min(fitting, key=rank)
        placement.spots += room.put(group, best)
        place = place_of(best)
        placement.bills[place] = placement.bills.get(place, []) + bills[place].segments
    return placement


def _bills(
    calendar: Calendar, room: Room, taken: list[Segment], ends: tuple[int, int]
) -> dict[Place, Bill]:
    """Return the payers of one more group in each location that has payers."""
    found = {
        place: cover(
            calendar,
            room.gpus_of_group(),
            place,
            at=calendar.world.now,
            limit=ends[0],
            until=ends[1],
            taken=taken,
        )
        for place in places_of(calendar.world, calendar.run)
    }
    return {place: bill for place, bill in found.items() if not bill.missing}
