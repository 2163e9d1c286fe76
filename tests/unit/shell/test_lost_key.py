"""After the lottery's key is lost, what was announced under it is announced again.

So every draw can be proven.
"""

from tests.unit.shell.plant import Plant

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.reservations import State
from leasehold.core.units import HOUR, MINUTE
from leasehold.sim.scenario.ledger import at_once, objects_of

OTHER = b"o" * 32


def lotteries(plant: Plant) -> list[Wire]:
    found = [part(each, "spec") for each in objects_of(plant.store, "Resolution")]
    return [part(each, "lottery") for each in found if each.get("lottery")]


def test_reservation_is_announced_again_under_a_new_key_before_its_lottery() -> None:
    plant = Plant(nodes=1)
    plant.submit("a/long")
    plant.wait(MINUTE)
    plant.submit("b/next")
    plant.wait(MINUTE)
    [before] = plant.world.reservations.values()
    plant.key = OTHER
    plant.control.crash()
    plant.wait(MINUTE)
    assert plant.world.reservations[before.subject].state is State.CANCELED
    assert "another lottery key" in plant.world.reservations[before.subject].message
    assert [each for each in plant.told if "Run b/next AnnouncedAnew" in each]
    plant.wait(3 * HOUR)
    assert plant.views()["b/next"] == ("Running", "Running", 8)
    assert len(lotteries(plant)) == 1
    assert plant.problems() == []


def test_restart_with_the_same_key_announces_nothing_again() -> None:
    plant = Plant(nodes=1)
    plant.submit("a/long")
    plant.wait(MINUTE)
    plant.submit("b/next")
    plant.wait(MINUTE)
    plant.control.crash()
    plant.wait(MINUTE)
    [reservation] = plant.world.reservations.values()
    assert reservation.state is State.PENDING
    assert not [each for each in plant.told if "AnnouncedAnew" in each]


def test_overdraft_is_announced_again_under_a_new_key() -> None:
    plant = Plant(nodes=2, owners="a")
    plant.submit("a/one")
    plant.submit("a/two")
    plant.wait(MINUTE)
    budget = at_once(plant.store.get("Budget", "a", "a"))
    part(budget, "spec")["envelopes"] = [{"name": "e", "flavor": "H", "concurrency": 8}]
    at_once(plant.store.update(budget))
    plant.wait(MINUTE)
    [known] = plant.world.overdrafts.values()
    plant.key = OTHER
    plant.control.crash()
    plant.wait(MINUTE)
    [again] = plant.world.overdrafts.values()
    assert (again.subject, again.since) == (known.subject, known.since)
    assert again.batch > known.batch
    plant.wait(HOUR)
    assert len(lotteries(plant)) == 1
    assert plant.problems() == []
