"""Leases that are only supposed to be there, in a what-if."""

from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.core.decisions.swap import awaits_takeover
from leasehold.core.facts import Gang, Role
from leasehold.core.world.supposed import suppose


def test_nobody_takes_over_the_spare_of_a_group_that_has_never_started() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    run = a_run("sweep", groups=2, spares=4, gang=Gang.GROUP)
    world.put_run(run)
    first = a_lease(run, "n0", range(4), batch=1, index=0)
    spare = a_lease(run, "n0", range(4, 8), batch=2, index=1, group=1, role=Role.SPARE, start=NOW)
    mark = world.what_if.mark()
    suppose(world, [spare])
    assert not awaits_takeover(world, spare)
    world.what_if.undo(mark)
    world.fold_open(first)
    mark = world.what_if.mark()
    suppose(world, [spare])
    assert not awaits_takeover(world, spare)
    world.what_if.undo(mark)
