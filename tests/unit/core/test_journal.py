"""What the journal reports as changed between two passes of the queue."""

from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.core.facts import Closed, Closure, ClosureReason, Ending
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.world import World


def _world() -> World:
    world = a_world([a_node("n0"), a_node("n1")], [a_budget("t")])
    for number, span in ((0, 2 * HOUR), (1, None)):
        run = a_run(f"r{number}", "t", span=span)
        world.put_run(run)
        world.fold_open(a_lease(run, f"n{number}", range(4), batch=1, index=0))
    world.journal.take(NOW)
    return world


def test_journal_of_a_new_world_reports_everything_as_changed() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    assert world.journal.take(NOW).is_all
    assert world.journal.is_empty


def test_node_and_payer_count_as_changed_when_a_lease_closes() -> None:
    world = _world()
    name = next(name for name, lease in world.leases.items() if lease.node == "n1")
    payer = world.leases[name].payer
    world.fold_close(name, Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=2))
    changes = world.journal.take(NOW)
    assert (changes.nodes, changes.payers, changes.is_all) == ({"n1"}, {payer}, False)


def test_node_counts_as_changed_when_a_known_end_has_passed() -> None:
    world = _world()
    assert world.journal.take(NOW + HOUR - 1).nodes == frozenset()
    assert world.journal.take(NOW + HOUR).nodes == {"n0"}


def test_node_counts_as_changed_when_a_lease_is_marked_and_at_its_deadline() -> None:
    world = _world()
    name = next(name for name, lease in world.leases.items() if lease.node == "n1")
    why = ClosureReason(reason=Closed.SHRINK)
    world.fold_ending(name, Ending(why=why, deadline=NOW + MINUTE, batch=2, at=NOW))
    assert world.journal.take(NOW).nodes == {"n1"}
    assert world.journal.take(NOW + MINUTE).nodes == {"n1"}


def test_everything_counts_as_changed_when_a_node_or_budget_changes() -> None:
    world = _world()
    world.put_node(a_node("n2"))
    assert world.journal.take(NOW).is_all
    world.put_budget(a_budget("u"))
    assert world.journal.take(NOW).is_all
    world.put_node(world.fleet.nodes["n2"].node)
    assert world.journal.is_empty
