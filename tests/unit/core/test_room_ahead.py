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

from leasehold.core.decisions.agenda import Agenda, Room
from leasehold.core.decisions.odds import Preview, preview
from leasehold.core.units import FOREVER, MINUTE
from leasehold.core.verdicts import Refused


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
    want = a_wish(world, ahead).want
    agenda.promise(
        Room(uid=ahead.uid, start=room_from, end=FOREVER, want=want, pods=(("r/c/a", 1),))
    )
    return preview(
        world,
        a_wish(world, late),
        agenda,
        at=NOW + 15 * MINUTE,
        now=NOW,
        may_sample=lambda: False,
    )


def test_what_ends_later_is_no_room_for_one_that_starts_before() -> None:
    assert isinstance(seen_from_quarter_past(room_from=NOW + 5 * MINUTE), Refused)


def test_what_has_ended_by_then_is_room_for_one_ahead() -> None:
    assert isinstance(seen_from_quarter_past(room_from=NOW + 12 * MINUTE), Preview)
