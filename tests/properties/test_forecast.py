"""Forecasts, compared with asking again at every time at which something ends."""

from itertools import pairwise

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import (
    FLAVOR,
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
)

from leasehold.core.admission.admit import admit
from leasehold.core.admission.forecast import forecast
from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.calendar.outlook import Outlook
from leasehold.core.facts import Budget, Closed, ClosureReason, Ending
from leasehold.core.requests import StartRequest
from leasehold.core.units import FOREVER, HOUR
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.world import World

# fabric of a node, and the leases on it: GPUs, whole hours until the end (None: unknown),
# whether the lease is already ending
node_rows = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.lists(
            st.tuples(st.integers(1, 4), st.sampled_from((None, 1, 2, 3, 5, 8)), st.booleans()),
            max_size=3,
        ),
    ),
    min_size=1,
    max_size=4,
)
# node, GPUs, first hour, hours that the entry lasts (None: forever)
entry_rows = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(1, 8), st.integers(0, 6), st.sampled_from((None, 1, 4))
    ),
    max_size=3,
)
caps = st.sampled_from(((1000, 0), (1000, 0), (12, 0), (6, 0), (20, 4), (8, 2)))
Rows = list[tuple[str, list[tuple[int, int | None, bool]]]]
Entries = list[tuple[int, int, int, int | None]]
LEASES_PER_NODE = 3


def a_fleet(rows: Rows, cap: tuple[int, int], *, ended_by: int = NOW) -> World:
    """Return the world of these rows, without leases that end by `ended_by`.

    The first lease of each node has another owner, so that its end does not free any budget.
    """
    nodes = [a_node(f"n{i}", row[0]) for i, row in enumerate(rows)]
    world = a_world(nodes, [_purse(cap), a_budget("u")])
    for i, (_, leases) in enumerate(rows):
        slot = 0
        for place, (gpus, hours, marked) in enumerate(leases):
            slots = range(slot, min(8, slot + gpus))
            slot += gpus
            index = i * LEASES_PER_NODE + place
            over = hours is not None and NOW + hours * HOUR <= ended_by
            if not slots or over:
                continue
            span = None if hours is None or marked else (hours + 1) * HOUR
            run = a_run(f"r{index}", "t" if place else "u", span=span)
            world.put_run(run)
            lease = a_lease(run, f"n{i}", slots, batch=1, index=index)
            world.fold_open(lease)
            if marked and hours is not None:
                ending = Ending(
                    why=ClosureReason(reason=Closed.SHRINK),
                    deadline=NOW + hours * HOUR,
                    batch=2,
                    at=NOW,
                )
                world.fold_ending(lease.name, ending)
    return world


def _purse(cap: tuple[int, int]) -> Budget:
    """Return a Budget; `cap` has its GPUs and after how many hours a second envelope opens."""
    gpus, opens = cap
    first = an_envelope("n/t/e", "t", gpus)
    if not opens:
        return a_budget("t", first)
    return a_budget("t", first, replace(an_envelope("n/t/f", "t"), start=NOW + opens * HOUR))


def a_calendar(entries: Entries, nodes: int) -> Calendar:
    calendar = Calendar()
    for i, (node, gpus, begin, lasts) in enumerate(entries):
        entry = Entry(
            uid=f"ahead{i}",
            node=f"n{node % nodes}",
            gpus=gpus,
            start=NOW + begin * HOUR,
            end=FOREVER if lasts is None else NOW + (begin + lasts) * HOUR,
        )
        calendar.enter(entry.uid, [entry])
    return calendar


def by_asking_every_hour(
    rows: Rows, cap: tuple[int, int], calendar: Calendar, request: StartRequest
) -> int | None:
    """All ends and openings are at whole hours, and nothing happens after the tenth."""
    for hour in range(1, 11):
        at = NOW + hour * HOUR
        world = a_fleet(rows, cap, ended_by=at)
        world.put_run(request.run)
        if isinstance(admit(world, request, calendar, start=at, now=at), Admitted):
            return at
    return None


@given(
    rows=node_rows,
    entries=entry_rows,
    cap=caps,
    groups=st.integers(1, 3),
    gpus=st.sampled_from((2, 4, 8)),
    pods=st.integers(1, 2),
    span=st.sampled_from((None, HOUR, 3 * HOUR)),
    spread=st.booleans(),
)
@example(  # room for an hour now, none once the run is funded, room again once leases have ended
    rows=[("a", [(4, 3, False)]), ("a", []), ("a", [])],
    entries=[(1, 8, 2, None)],
    cap=(8, 2),
    groups=1,
    gpus=8,
    pods=2,
    span=HOUR,
    spread=True,
)
@settings(max_examples=150)
def test_forecast_is_the_first_hour_at_which_admit_succeeds(
    rows: Rows,
    entries: Entries,
    cap: tuple[int, int],
    groups: int,
    gpus: int,
    pods: int,
    span: int | None,
    spread: bool,
) -> None:
    world = a_fleet(rows, cap)
    run = a_run("new", groups=groups, group_gpus=gpus * pods, pod_gpus=gpus, span=span,
                spread=spread)  # fmt: skip
    world.put_run(run)
    request, calendar = a_wish(world, run), a_calendar(entries, len(rows))
    refused = admit(world, request, calendar, start=NOW, now=NOW)
    assume(isinstance(refused, Refused))
    assert isinstance(refused, Refused)
    outlook = Outlook(world, calendar, flavor=FLAVOR, gpus=gpus, now=NOW)
    found = forecast(world, request, calendar, outlook=outlook, refused=refused, now=NOW)
    known = found.known
    assert (known.at if known else None) == by_asking_every_hour(rows, cap, calendar, request)
    if known is not None:
        names = {name for _, name in known.releases}
        nodes = {each.node for each in known.plan.packed.places}
        assert {world.leases[name].node for name in names} <= nodes
        assert all(NOW < at <= known.at for at, _ in known.releases)


@given(
    rows=node_rows,
    entries=entry_rows,
    gpus=st.integers(1, 4),
    span=st.sampled_from((1, 2, 5, None)),
    firm=st.integers(0, 4),
)
@settings(max_examples=300)
def test_outlook_node_times_equal_a_count_of_free_gpus_in_each_hour(
    rows: Rows, entries: Entries, gpus: int, span: int | None, firm: int
) -> None:
    world = a_fleet(rows, (1000, 0))
    calendar = a_calendar(entries, len(rows))
    if firm:
        calendar.enter("firm", [Entry(uid="firm", node="n0", gpus=firm, start=NOW)])
    outlook = Outlook(world, calendar, flavor=FLAVOR, gpus=gpus, now=NOW)
    for i, (_, leases) in enumerate(rows):
        free_at = []
        for hour in range(24):
            slot = taken = 0
            for size, hours, _ in leases:
                taken += min(8, slot + size) - min(8, slot) if (hours or 99) > hour else 0
                slot += size
            held = sum(
                size
                for node, size, begin, lasts in entries
                if node % len(rows) == i and begin <= hour < begin + (lasts or 99)
            )
            free_at.append(8 - taken - held - (firm if i == 0 else 0))
        most = [max(0, min(free_at[hour : hour + (span or 24)])) // gpus for hour in range(24)]
        expected = []
        for hour, (before, now) in enumerate(pairwise([0, *most])):
            expected += [NOW + hour * HOUR if hour else 0] * (now - before)
        times = outlook.node_times(f"n{i}", FOREVER if span is None else span * HOUR, "")
        assert times == expected


@given(rows=node_rows, before=entry_rows, after=entry_rows, gpus=st.integers(1, 4))
def test_outlook_corrected_after_calendar_changes_equals_a_new_outlook(
    rows: Rows, before: Entries, after: Entries, gpus: int
) -> None:
    world = a_fleet(rows, (1000, 0))
    calendar = a_calendar(before, len(rows))
    outlook = Outlook(world, calendar, flavor=FLAVOR, gpus=gpus, now=NOW)
    calendar.changed.clear()
    calendar.forget("ahead0")
    calendar.enter(
        "more",
        [Entry(uid="more", node=f"n{node % len(rows)}", gpus=size, start=NOW + begin * HOUR,
             end=FOREVER if lasts is None else NOW + (begin + lasts) * HOUR)
        for node, size, begin, lasts in after],
    )  # fmt: skip
    for name in calendar.changed:
        outlook.correct(name)
    fresh = Outlook(world, calendar, flavor=FLAVOR, gpus=gpus, now=NOW)
    assert outlook.pods == fresh.pods
    for uid, span in (("more", FOREVER), ("nobody", HOUR), ("ahead1", 3 * HOUR)):
        assert outlook.pods_for(uid, span, span) == fresh.pods_for(uid, span, span)
