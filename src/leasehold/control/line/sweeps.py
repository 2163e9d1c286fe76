"""Groups that start alone: which of a sweep's waiting groups start together now, and where.

All that wait, if they fit. Else one after the other, where the others are before anywhere else. If
they may not leave one domain, the first start chooses it for all: one that can hold the whole sweep
before one that cannot, and as many groups as money and GPUs allow there.
"""

from collections.abc import Callable

from leasehold.control.line.wishes import all_waiting_groups, wish_for
from leasehold.core.decisions.admit import Wish, as_found_by
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.pack import candidate_pools, pods_room, shape_of
from leasehold.core.facts import Record, Run
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Try = Callable[[Wish], Admitted | Refused]


class Some(Record):
    """Groups that can start, and how."""

    wish: Wish
    plan: Admitted


def some_of(
    world: World,
    run: Run,
    groups: tuple[int, ...],
    agenda: Agenda,
    *,
    now: Instant,
    try_: Try,
    most: int | None = None,
) -> Some | Refused:
    """The next of a sweep's waiting groups to start, lowest index first, or why none can. `most`:
    no more than so many, as when room was made for those alone."""
    asked = groups[:most]
    whole = wish_for(world, run, asked)
    every = all_waiting_groups(world, run)
    chooses = not (whole.want.spread or whole.want.own_domains)  # where all of it will be
    if asked == every or not chooses:
        answer = try_(whole)
        if isinstance(answer, Admitted):
            return Some(wish=whole, plan=answer)
        if len(asked) == 1:
            return answer
    if not chooses:
        first = wish_for(world, run, asked[:1])
        answer = try_(first)
        return Some(wish=first, plan=answer) if isinstance(answer, Admitted) else answer
    roomy = _domains_for(world, wish_for(world, run, every), agenda, now=now)
    found = _widest(world, run, asked, roomy, try_) if roomy else None
    return found if isinstance(found, Some) else _widest(world, run, asked, (), try_)


def _widest(
    world: World, run: Run, groups: tuple[int, ...], within: tuple[str, ...], try_: Try
) -> Some | Refused:
    """As many of the first groups as fit together: where some of them fit, fewer do."""
    wish = wish_for(world, run, groups[:1], within)
    answer = try_(wish)
    if isinstance(answer, Refused):
        return answer
    best = Some(wish=wish, plan=answer)
    low, high = 2, len(groups)
    while low <= high:
        middle = (low + high) // 2
        wish = wish_for(world, run, groups[:middle], within)
        answer = try_(wish)
        if isinstance(answer, Admitted):
            best = Some(wish=wish, plan=answer)
            low = middle + 1
        else:
            high = middle - 1
    return best


def _domains_for(world: World, wish: Wish, agenda: Agenda, *, now: Instant) -> tuple[str, ...]:
    """Domains with free GPUs for every waiting group, whoever pays."""
    want = wish.want
    mark = world.what_if.mark()
    as_found_by(world, wish, agenda, start=now)
    needed = (want.pods + want.spares) * len(want.groups)
    found = tuple(
        pool.domain
        for pool in candidate_pools(world.fleet, want, locations_for(world, wish.run.spec))
        if pods_room(world.fleet, pool, shape_of(want)) >= needed
    )
    world.what_if.undo(mark)
    return found
