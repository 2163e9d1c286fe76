"""What is spoken for, by whom, in the order of the line."""

from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.holds import Hold, Room
from leasehold.core.decisions.pack import Want
from leasehold.core.units import FOREVER

WANT = Want(flavor="H", groups=(0,), pods=1, spares=0, pod_gpus=1)


def test_a_part_of_it_is_in_the_order_of_the_whole() -> None:
    """Whoever is put into the room ahead comes in the order of the line; a set of runs has none."""
    agenda = Agenda()
    for uid in ("first", "second", "third"):
        agenda.hold(uid, [Hold(uid=uid, node="n", gpus=1, start=0)])
        agenda.promise(Room(uid=uid, start=0, end=FOREVER, want=WANT, pods=(("d", 1),)))

    part = agenda.only(["third", "first"])

    assert [room.uid for room in part.rooms(but="", start=0, end=1)] == ["first", "third"]
    assert [hold.uid for hold in part.holds_on("n", but="")] == ["first", "third"]
