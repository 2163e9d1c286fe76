"""Whoever would cut others leaves those ahead the room that they will have made."""

from msgspec.structs import replace
from tests.properties.worlds import (
    HOUR,
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    occupy,
)
from tests.unit.test_lottery import a_resolution

from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.holds import Room
from leasehold.core.decisions.odds import Preview, preview
from leasehold.core.facts import Run, Selector
from leasehold.core.units import FOREVER, MINUTE
from leasehold.core.verdicts import Refused
from leasehold.core.world.world import World


def seen_from_quarter_past(*, room_from: int) -> Preview | Refused:
    """Eight GPUs are wanted at a quarter past, and somebody ahead will have four. On one node is a
    run that may be cut; on the other, half of which is foreign, a protected one that ends ten past.
    """
    world = a_world([a_node("n0"), a_node("n1")], [a_budget("t")])
    occupy(world, "n1", 4)
    free = a_run("free", group_gpus=8, pod_gpus=8)
    guest = a_run("guest", span=HOUR + 10 * MINUTE)
    world.fold_resolution(replace(a_resolution(), batch=1, beneficiary_uid=guest.uid))
    for run, node, gpus in ((free, "n0", 8), (guest, "n1", 4)):
        world.put_run(run)
        world.fold_open(a_lease(run, node, range(gpus), batch=2, index=gpus))
    ahead = a_run("ahead", created=1)
    late = a_run("late", group_gpus=8, pod_gpus=8, created=2)
    world.put_run(ahead)
    world.put_run(late)
    agenda = Agenda()
    promise(agenda, world, ahead, start=room_from, a=1)
    return seen(world, late, agenda, at=NOW + 15 * MINUTE)


def promise(agenda: Agenda, world: World, run: Run, *, start: int, **pods: int) -> None:
    """Room for so many pods of the run in each of these domains."""
    want = a_wish(world, run).want
    where = tuple((f"r/c/{domain}", count) for domain, count in pods.items())
    agenda.promise(Room(uid=run.uid, start=start, end=FOREVER, want=want, pods=where))


def seen(world: World, run: Run, agenda: Agenda, *, at: int) -> Preview | Refused:
    wish = a_wish(world, run)
    return preview(world, wish, agenda, at=at, now=NOW, may_sample=lambda: False)


def test_what_ends_later_is_no_room_for_one_that_starts_before() -> None:
    assert isinstance(seen_from_quarter_past(room_from=NOW + 5 * MINUTE), Refused)


def test_what_has_ended_by_then_is_room_for_one_ahead() -> None:
    assert isinstance(seen_from_quarter_past(room_from=NOW + 12 * MINUTE), Preview)


def seen_beside(*ahead: str) -> Preview | Refused:
    """Four of the eight GPUs of b are wanted; all of a and b may be cut. Of those ahead one will
    have the eight of a, and one a pod of four in each."""
    world = a_world([a_node("n0", "a"), a_node("n1", "b")], [a_budget("t")])
    for number, node in enumerate(("n0", "n1")):
        run = a_run(f"there-{node}", group_gpus=8, pod_gpus=8)
        world.put_run(run)
        world.fold_open(a_lease(run, node, range(8), batch=1, index=number))
    whole = a_run("whole", group_gpus=8, pod_gpus=8, created=1)
    both = a_run("both", groups=2, created=2)
    late = a_run("late", created=3, selector=Selector(domain="b"))
    for run in (whole, both, late):
        world.put_run(run)
    agenda = Agenda()
    if "whole" in ahead:
        promise(agenda, world, whole, start=NOW + MINUTE, a=1)
    if "both" in ahead:
        promise(agenda, world, both, start=NOW + 2 * MINUTE, a=1, b=1)
    return seen(world, late, agenda, at=NOW)


def test_one_ahead_that_is_in_the_way_of_another_elsewhere_counts() -> None:
    """With all of a gone, the pod that was to be there needs the rest of b."""
    assert isinstance(seen_beside("whole"), Preview)
    assert isinstance(seen_beside("both"), Preview)
    assert isinstance(seen_beside("whole", "both"), Refused)
