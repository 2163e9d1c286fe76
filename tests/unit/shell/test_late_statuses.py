"""A late status, from a deposed controller or over a slow network, does not stay."""

import pytest
from tests.unit.shell.plant import Plant

from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, version_at
from leasehold.core.units import MINUTE, SECOND
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.effects import Effects
from leasehold.shell.loop.status_cache import StatusCache
from leasehold.sim.scenario.ledger import at_once, key_of, objects_of

PLACE = ("Run", "a", "one", "u1")
OF_EACH: list[tuple[str, Wire]] = [
    ("Run", {"phase": "Pending"}),
    ("Budget", {"envelopes": []}),
    ("Reservation", {"state": "Released"}),
]


def a_plant(*, is_shared: bool = False) -> Plant:
    """Start one run, and let another wait for it with a plan, until every status is written."""
    plant = Plant(nodes=1, is_shared=is_shared)
    plant.submit("a/one", lasts=50 * MINUTE, runtime={"maxDuration": "1h"})
    plant.submit("b/two", lasts=50 * MINUTE, runtime={"maxDuration": "1h"})
    plant.wait(5 * MINUTE)
    return plant


def stored(plant: Plant, kind: str) -> Wire:
    """Return the first object of this kind."""
    return min(objects_of(plant.store, kind), key=key_of)


def write_late(plant: Plant, kind: str, status: Wire) -> Wire:
    """Write a status that was sent long ago; return the object as it was before."""
    before = stored(plant, kind)
    namespace, _, name = key_of(before).rpartition("/")
    at_once(plant.store.patch_status(kind, namespace, name, status, version=None))
    return before


def steady(obj: Wire) -> Wire:
    """Return an object's status without amounts that grow by themselves and without conditions."""
    status = part(obj, "status")
    rows = [
        {name: row[name] for name in ("name", "used", "headroom")}
        for row in list_at(status, "envelopes")
        if isinstance(row, dict)
    ]
    names = ("phase", "attempt", "width", "leases", "state", "commitment", "earliestStart")
    return {**{name: status.get(name) for name in names}, "envelopes": rows}


@pytest.mark.parametrize(("kind", "late"), OF_EACH)
def test_late_status_by_another_writer_is_corrected(kind: str, late: Wire) -> None:
    plant = a_plant()
    before = write_late(plant, kind, late)
    plant.wait(SECOND)
    assert steady(stored(plant, kind)) == steady(before)


def test_own_status_writes_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[tuple[str, bool]] = []
    hear = Effects.hear

    def noting(effects: Effects, kind: str, obj: Wire) -> bool:
        heard.append((kind, hear(effects, kind, obj)))
        return heard[-1][1]

    monkeypatch.setattr(Effects, "hear", noting)
    plant = a_plant()
    plant.submit("a/three")
    plant.wait(MINUTE)
    assert {kind for kind, _ in heard} == {"Run", "Budget", "Reservation"}
    assert not any(is_others for _, is_others in heard)


@pytest.mark.parametrize(("kind", "late"), OF_EACH)
def test_controller_unaware_of_its_deposition_keeps_successors_status(
    kind: str, late: Wire
) -> None:
    plant = a_plant(is_shared=True)
    at_once(Ledger(plant.store, plant.user.clock).seal())
    write_late(plant, kind, late)
    written = version_at(part(stored(plant, kind), "metadata"))
    plant.kernel.settle()
    assert any(words.startswith("deposed") for words in plant.told)
    assert version_at(part(stored(plant, kind), "metadata")) == written


def test_status_counts_as_our_own_up_to_the_version_of_the_answer() -> None:
    said = StatusCache()
    assert not said.hear(PLACE, 7), "what was never written is owed anyway"
    said.note(PLACE, {"phase": "Running"}, {"metadata": {"resourceVersion": "9"}})
    assert said.says(PLACE, {"phase": "Running"})
    assert not said.hear(PLACE, 9), "it is the one that we wrote"
    assert not said.hear(PLACE, 8), "we have written over it"
    assert said.hear(PLACE, 10)
    assert said.is_disputed(PLACE)
    assert not said.says(PLACE, {"phase": "Running"})
    said.note(PLACE, {"phase": "Running"}, {"metadata": {"resourceVersion": "11"}})
    assert not said.is_disputed(PLACE)
