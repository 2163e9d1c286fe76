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
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Try = Callable[[Wish], Admitted | Refused]


class Some(Record):
    """Groups that can start, and how."""

    wish: Wish
    plan: Admitted
    one_by_one: bool = False  # all that wait were refused together, and so will the others be


def some_of(
    world: World,
    run: Run,
    groups: tuple[int, ...],
    agenda: Agenda,
    *,
    now: Instant,
    try_: Try,
    most: int | None = None,
    one_by_one: bool = False,
) -> Some | Refused:
    """The next of a sweep's waiting groups to start, lowest index first, or why none can. `most`:
    no more than so many, as when room was made for those alone. `one_by_one`: all of them together
    were refused a moment ago, and one has started since."""
    asked = groups[:most]
    whole = wish_for(world, run, asked)
    chooses = not (whole.want.spread or whole.want.own_domains)  # where all of it will be
    if not chooses:
        return _next_of(world, run, asked, try_, one_by_one=one_by_one)
    every = all_waiting_groups(world, run)
    if asked == every:
        answer = try_(whole)
        if isinstance(answer, Admitted):
            return Some(wish=whole, plan=answer)
        if len(asked) == 1:
            return answer
    roomy = _domains_for(world, wish_for(world, run, every), agenda, now=now)
    found = _widest(world, run, asked, roomy, try_) if roomy else None
    return found if isinstance(found, Some) else _widest(world, run, asked, (), try_)


def _next_of(
    world: World, run: Run, groups: tuple[int, ...], try_: Try, *, one_by_one: bool
) -> Some | Refused:
    """Return all groups if they fit together, or as many of the first as one batch holds; failing
    that, the first alone."""
    count = 1 if one_by_one else len(groups)
    while True:
        wish = wish_for(world, run, groups[:count])
        answer = try_(wish)
        if isinstance(answer, Admitted):
            # The others of a filler may fit together beside what a spare leaves free.
            alone = count == 1 and len(groups) > 1 and not run.spec.opportunistic
            return Some(wish=wish, plan=answer, one_by_one=alone)
        if count == 1:
            return answer
        count = count // 2 if answer.reason is Refusal.GANG_TOO_LARGE else 1


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
