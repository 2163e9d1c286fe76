"""The calendar: which runs respect which entries, and what the entries keep of a node."""

import pytest
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_wish, a_world

from leasehold.core.admission.admit import as_found_by
from leasehold.core.calendar.entries import Calendar, Entry, kept_gpus, uid_beside, uid_of_run
from leasehold.core.units import FOREVER, HOUR, MINUTE
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import World

PAYER = "n/t/e"


def an_entry(
    uid: str, gpus: int = 2, *, start: int = NOW, end: int = FOREVER, node: str = "n0"
) -> Entry:
    return Entry(uid=uid, node=node, gpus=gpus, start=start, end=end)


def a_claim(uid: str, gpus: int = 2, *, start: int = NOW, end: int = FOREVER) -> Claim:
    return Claim(
        uid=uid, payer=PAYER, start=start, end=end, gpus=gpus, borrowed=False, gpu_ms=gpus * HOUR
    )


def of(*entries: Entry) -> Calendar:
    calendar = Calendar()
    for entry in entries:
        calendar.enter(entry.uid, [entry])
    return calendar


def test_entries_are_found_by_run_and_node_until_forgotten() -> None:
    here, there = an_entry("a"), an_entry("a", node="n1")
    calendar = of(here, there, an_entry("b"))
    calendar.enter("a", claims=[a_claim("a")])
    assert calendar.entries_of("a") == (here, there)
    assert calendar.nodes() == ["n0", "n1"]
    assert calendar.uids == {"a", "b"}
    calendar.forget("a")
    assert not calendar.has("a")
    assert calendar.nodes() == ["n0"]
    assert calendar.claims == {}
    calendar.forget("a")
    assert calendar.uids == {"b"}


def test_calendar_counts_changes_and_removals_and_lists_changed_nodes() -> None:
    """Cached answers are computed again when these counters change."""
    calendar = of(an_entry("a"))
    assert (calendar.changes, calendar.releases, list(calendar.changed)) == (1, 0, ["n0"])
    calendar.changed.clear()
    calendar.forget("nobody")
    assert (calendar.changes, calendar.releases, list(calendar.changed)) == (1, 0, [])
    calendar.forget("a")
    assert (calendar.changes, calendar.releases, list(calendar.changed)) == (2, 1, ["n0"])


def test_a_run_respects_all_entries_but_its_own() -> None:
    calendar = of(an_entry("a"), an_entry("b"))
    assert [each.uid for each in calendar.entries_on("n0", "a")] == ["b"]
    assert [each.uid for each in calendar.entries_on("n0", "c")] == ["a", "b"]
    assert calendar.entries_on("n1", "c") == []


def test_only_runs_with_a_short_limit_may_use_a_kept_site() -> None:
    """Q10: a limit is short if it is at most `patience`."""
    calendar = Calendar()
    calendar.enter("a", [an_entry("a")], [a_claim("a")], passable_by=HOUR)
    assert calendar.entries_on("n0", "b", HOUR) == []
    assert [each.uid for each in calendar.entries_on("n0", "b", HOUR + 1)] == ["a"]
    assert [each.uid for each in calendar.entries_on("n0", "b")] == ["a"]
    world = a_world([a_node("n0")], [a_budget("t")])
    for span, claims in ((HOUR, 0), (HOUR + 1, 1)):
        with world.what_if.opened():
            calendar.respect(world, "b", span)
            assert len(world.accounts.claims_on(PAYER)) == claims
    calendar.forget("a")
    calendar.enter("a", [an_entry("a")])
    assert len(calendar.entries_on("n0", "b", HOUR)) == 1, "the new entry is not passable"


def test_claims_of_other_runs_are_respected_and_own_claims_are_not() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    calendar = Calendar()
    for uid in ("a", "b"):
        calendar.enter(uid, claims=[a_claim(uid)])
    with world.what_if.opened():
        calendar.respect(world, "a")
        assert [each.uid for each in world.accounts.claims_on(PAYER)] == ["b"]
    assert world.accounts.claims_on(PAYER) == []


def test_calendar_ends_lists_known_future_ends_of_entries_and_claims() -> None:
    calendar = of(
        an_entry("a", end=NOW + HOUR),
        an_entry("b"),
        an_entry("c", start=NOW - HOUR, end=NOW),
    )
    calendar.enter("d", claims=[a_claim("d", end=NOW + MINUTE), a_claim("d")])
    assert [at for at in calendar.ends if at > NOW] == [NOW + MINUTE, NOW + HOUR]


def test_last_start_is_latest_start_of_claims_on_envelope() -> None:
    calendar = Calendar()
    assert calendar.last_start(PAYER) == 0
    calendar.enter("a", claims=[a_claim("a", start=NOW + HOUR), a_claim("a", start=NOW + 2)])
    assert calendar.last_start(PAYER) == NOW + HOUR
    calendar.forget("a")
    assert calendar.last_start(PAYER) == 0


def test_calendar_of_some_runs_keeps_order_of_whole_calendar() -> None:
    calendar = of(*(an_entry(uid) for uid in ("first", "second", "third")))
    calendar.enter("third", claims=[a_claim("third")], passable_by=HOUR)
    part = calendar.only(["third", "first"])
    assert [each.uid for each in part.entries_on("n0", "")] == ["first", "third"]
    assert list(part.claims) == ["third"]
    assert [each.uid for each in part.entries_on("n0", "", HOUR)] == ["first"]


def test_uid_beside_differs_by_group_and_maps_back_to_its_run() -> None:
    assert uid_of_run(uid_beside("u", 3)) == "u"
    assert uid_of_run("u") == "u"
    assert uid_beside("u", 3) != uid_beside("u", 4)


def a_busy_node() -> World:
    """Eight GPUs: three leased until an hour from now, two without a known end, three free."""
    world = a_world([a_node("n0")], [a_budget("t")])
    ends, stays = a_run("ends", span=2 * HOUR), a_run("stays")
    for run, slots, index in ((ends, range(3), 0), (stays, range(3, 5), 1)):
        world.put_run(run)
        world.fold_open(a_lease(run, "n0", slots, batch=1, index=index))
    return world


# entries: GPUs, start, end (hours); how many hours a run takes from now; GPUs that it must leave
MISSED = [
    ([(2, 0, 5)], 1, 2),
    ([(2, 2, 5)], 1, 0),  # over before it begins
    ([(2, 2, 5)], 2, 0),
    ([(3, 2, 5)], 3, 0),  # by then three more are free
    ([(4, 2, 5)], 3, 1),
    ([(6, 2, None)], None, 3),
    ([(2, 0, 1), (2, 1, 5)], 3, 2),  # one after the other; the second uses GPUs that come free
    ([(2, 0, 1), (6, 1, 5)], 3, 3),
    ([(2, 0, 3), (3, 2, 5)], 4, 2),
    ([(1, -2, 0)], None, 0),  # over
]


@pytest.mark.parametrize(("rows", "hours", "expected"), MISSED)
def test_kept_gpus_counts_free_gpus_that_later_entries_need(
    rows: list[tuple[int, int, int | None]], hours: int | None, expected: int
) -> None:
    entries = [
        an_entry(
            f"u{index}",
            gpus,
            start=NOW + start * HOUR,
            end=FOREVER if end is None else NOW + end * HOUR,
        )
        for index, (gpus, start, end) in enumerate(rows)
    ]
    end = FOREVER if hours is None else NOW + hours * HOUR
    world = a_busy_node()
    assert kept_gpus(world, "n0", entries, start=NOW, end=end, gone=()) == expected


def test_kept_gpus_ignores_leases_that_count_as_ended() -> None:
    world = a_busy_node()
    entries = [an_entry("u", 4, start=NOW + 2 * HOUR)]
    found = [
        kept_gpus(world, "n0", entries, start=NOW, end=FOREVER, gone=gone)
        for gone in ((), ("ends-1-0",))
    ]
    assert found == [1, 4]


def test_kept_gpus_are_recounted_when_lease_ends_in_a_what_if() -> None:
    """The entry ahead needs four GPUs in two hours, and leases that end by then count towards them.

    If such a lease ends now, its GPUs are free, but the entry needs them.
    """
    world = a_busy_node()
    run = a_run("r")
    world.put_run(run)
    calendar = of(an_entry("ahead", 4, start=NOW + 2 * HOUR))
    state = world.fleet.nodes["n0"]
    ending, staying = world.leases["ends-1-0"], world.leases["stays-1-1"]
    with world.what_if.opened():
        kept = as_found_by(world, a_wish(world, run), calendar, start=NOW)
        assert state.free == 2
        assert (kept.gain(ending), kept.gain(staying)) == (0, 2)
        kept.end(staying)
        assert state.free == 4
        kept.end(ending)
        assert state.free == 4
        kept.restore(staying)
        assert state.free == 2
        kept.restore(ending)
        assert state.free == 2
    assert state.free == 3
