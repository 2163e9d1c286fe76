"""A node's silence is measured by the controller's own clock, from when the controller saw it."""

import pytest
from msgspec.structs import replace
from tests.unit.shell.plant import Plant

from leasehold.core.facts import Node
from leasehold.core.policy import Policy
from leasehold.core.units import SECOND, Millis
from leasehold.shell.loop.folding import as_heard
from leasehold.sim.machines import NodeIs

AFTER: Millis = 60 * SECOND
SILENT = Node(
    name="n0", flavor="H", region="r", cluster="c", fabric="a", gpus=8,
    ready=False, not_ready_since=1_000, uid="u1",
)  # fmt: skip


def a_plant() -> Plant:
    """Start a run, and let its node fall silent."""
    plant = Plant(policy=Policy(node_failure_after=(("*", AFTER),)))
    plant.submit("a/one", sparesPerGroup=8)
    plant.wait(10 * SECOND)
    plant.fleet.set_node(plant.leases()[0].node, NodeIs.SILENT)
    plant.wait(0)
    return plant


def closed(plant: Plant) -> list[str]:
    return [str(lease.closed.why) for lease in plant.leases() if lease.closed is not None]


def test_silent_node_counts_as_failed_after_the_configured_time() -> None:
    plant = a_plant()
    plant.wait(AFTER - 1)
    assert closed(plant) == []
    plant.wait(1)
    assert "NodeFailure" in closed(plant)


@pytest.mark.parametrize("ahead", [-45 * SECOND, 45 * SECOND])
def test_restarted_controller_with_another_clock_waits_as_long(ahead: Millis) -> None:
    """By its clock the node has been silent for nearly a minute, or will be silent in future."""
    plant = a_plant()
    plant.wait(10 * SECOND)
    plant.control.crash()
    plant.control.clock.jump(ahead)
    plant.wait(AFTER - 1)
    assert closed(plant) == []
    plant.wait(max(-ahead, 0) + 1)
    assert "NodeFailure" in closed(plant)


def test_clock_jump_during_silence_does_not_make_the_silence_longer() -> None:
    plant = Plant(policy=Policy(node_failure_after=(("*", AFTER),)))
    plant.submit("a/one", sparesPerGroup=8)
    plant.wait(10 * SECOND)
    plant.kernel.process("nodes").clock.jump(-60 * SECOND)  # their clock does not matter either
    plant.control.clock.jump(-30 * SECOND)
    plant.fleet.set_node(plant.leases()[0].node, NodeIs.SILENT)
    plant.wait(10 * SECOND)
    plant.control.clock.jump(30 * SECOND)
    plant.wait(AFTER - 10 * SECOND - 1)
    assert closed(plant) == []
    plant.wait(2 * SECOND)
    assert "NodeFailure" in closed(plant)


def test_silence_starts_again_after_the_node_was_heard_or_replaced() -> None:
    first = as_heard(SILENT, None, 5_000)
    assert first.unheard_since == 5_000
    assert as_heard(SILENT, first, 9_000).unheard_since == 5_000
    later = replace(SILENT, not_ready_since=7_000)
    assert as_heard(later, first, 9_000).unheard_since == 9_000, "it was heard in between"
    other = replace(SILENT, uid="u2")
    assert as_heard(other, first, 9_000).unheard_since == 9_000, "another machine of its name"
    back = replace(SILENT, ready=True, not_ready_since=None)
    assert as_heard(back, first, 9_000).unheard_since is None
