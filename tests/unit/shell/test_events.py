"""Events on the objects concerned, written by the Teller from turns of the product's loop."""

from collections.abc import Sequence

from tests.unit.shell.plant import Plant

from leasehold.control.turn import Turn
from leasehold.core.names import Wire
from leasehold.core.units import HOUR, MINUTE
from leasehold.ports.store import Answers, Unavailable, Write
from leasehold.shell.observe.events import KEEP, EventWriter, Occurrence
from leasehold.sim.machines import NodeIs
from leasehold.sim.scenario.ledger import at_once, objects_of


class Telling:
    def __init__(self, **plant: object) -> None:
        self._teller: EventWriter | None = None
        self.plant = Plant(on_turn=self._after_turn, **plant)  # type: ignore[arg-type]
        process = self.plant.user
        self._teller = EventWriter(self.plant.store, process.clock, process.tasks)
        process.tasks.spawn("events", self._teller.run())
        self.plant.wait(1)

    def _after_turn(self, turn: Turn) -> None:
        if self._teller is not None:
            self._teller.after_turn(turn)

    @property
    def teller(self) -> EventWriter:
        assert self._teller is not None
        return self._teller

    def events(self, name: str) -> dict[str, Wire]:
        """Return the events of the object of that name, by reason."""
        found: dict[str, Wire] = {}
        for event in objects_of(self.plant.store, "Event"):
            involved = event["involvedObject"]
            assert isinstance(involved, dict)
            if involved["name"] == name:
                found[str(event["reason"])] = event
        return found


def happening(message: str = "why") -> Occurrence:
    return Occurrence(kind="Run", namespace="a", name="x", uid="u", reason="Said", message=message)


def test_run_has_events_from_admission_to_completion() -> None:
    telling = Telling(nodes=1)
    telling.plant.submit("a/one", lasts=MINUTE)
    telling.plant.wait(2 * MINUTE)
    told = telling.events("one")
    assert {"Admitted", "Running", "Completed"} <= set(told)
    assert told["Completed"]["type"] == "Normal"
    involved = told["Admitted"]["involvedObject"]
    assert isinstance(involved, dict)
    assert involved == {
        "apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "namespace": "a", "name": "one",
        "uid": telling.plant.world.uid_of["a/one"],
    }  # fmt: skip


def test_refusal_event_is_a_warning() -> None:
    telling = Telling(nodes=1, concurrency=4, owners="a")
    telling.plant.submit("a/one")
    telling.plant.wait(MINUTE)
    told = telling.events("one")
    assert told["ConcurrencyExhausted"]["type"] == "Warning"


def test_preemption_event_names_the_beneficiary() -> None:
    telling = Telling()
    telling.plant.submit("a/fixed")
    telling.plant.submit("b/fixed")
    telling.plant.wait(MINUTE)
    telling.plant.submit("b/big", resources={"gpuType": "H", "totalGPUs": 16, "gpusPerPod": 8})
    telling.plant.wait(20 * MINUTE)
    cut = telling.events("fixed")["Preempted"]
    assert cut["type"] == "Warning"
    assert "for b/big" in str(cut["message"])
    assert "RandomPreempt" in str(cut["message"])


def test_repeated_event_is_counted() -> None:
    telling = Telling()
    for _ in range(3):
        telling.teller.tell(happening())
    telling.plant.wait(MINUTE)
    telling.teller.tell(happening())
    telling.teller.tell(happening("another"))
    telling.plant.wait(MINUTE)
    found = [event for event in objects_of(telling.plant.store, "Event")
             if event["reason"] == "Said"]  # fmt: skip
    assert sorted((event["message"], event["count"]) for event in found) == [
        ("another", 1), ("why", 4),
    ]  # fmt: skip
    first = next(event for event in found if event["message"] == "why")
    assert str(first["firstTimestamp"]) < str(first["lastTimestamp"])


def test_old_events_are_deleted() -> None:
    telling = Telling()
    telling.teller.tell(happening())
    telling.plant.wait(KEEP // 2)
    assert telling.events("x")
    telling.plant.wait(KEEP + HOUR)
    assert not telling.events("x")


def test_unused_node_has_an_event_with_the_missing_labels() -> None:
    telling = Telling(nodes=1)
    telling.plant.submit("a/one")
    telling.plant.wait(MINUTE)
    assert not telling.events("bare")
    store = telling.plant.store
    bare: Wire = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "bare"},
        "status": {"allocatable": {"nvidia.com/gpu": "8"}},
    }
    at_once(store.create(bare))
    telling.plant.wait(MINUTE)
    (told,) = [each for each in objects_of(store, "Event") if each["reason"] == "NotUsed"]
    assert told["message"] == (
        "the node is not used, because it lacks label region, label cluster, label fabric.domain, "
        "label gpu.flavor"
    )


def test_event_type_is_as_given_or_follows_from_the_reason() -> None:
    telling = Telling()
    for name, reason, said in (
        ("oom", "OOMKilled", "Warning"),
        ("fine", "ImageIgnored", "Normal"),
        ("mild", "Failed", "Normal"),
        ("ours", "Failed", ""),
        ("said", "Said", ""),
    ):
        told = Occurrence(
            kind="Pod", namespace="a", name=name, uid="u", reason=reason, message="why", type=said
        )
        telling.teller.tell(told)
    telling.plant.wait(MINUTE)
    types = {name: [event["type"] for event in telling.events(name).values()]
             for name in ("oom", "fine", "mild", "ours", "said")}  # fmt: skip
    assert types == {
        "oom": ["Warning"], "fine": ["Normal"], "mild": ["Normal"], "ours": ["Warning"],
        "said": ["Normal"],
    }  # fmt: skip


def test_drain_has_events_on_the_node_and_on_the_drained_run() -> None:
    telling = Telling(nodes=2)
    telling.plant.submit("a/one", runtime={"checkpoint": "5m"})
    telling.plant.wait(MINUTE)
    node = next(iter(telling.plant.world.open_by_node))
    telling.plant.fleet.set_node(node, NodeIs.DRAINING)
    telling.plant.wait(MINUTE)
    assert set(telling.events(node)) == {"Draining", "Drain", "Drained"}
    assert "the story drains the node" in str(telling.events(node)["Draining"]["message"])
    told = telling.events("one")["Drain"]
    assert f"node {node} is drained by the story: the run is stopped and requeued" in str(
        told["message"]
    )
    assert told["type"] == "Normal"


def test_warning_refused_by_the_store_is_written_later() -> None:
    telling = Telling(nodes=1)
    store = telling.plant.store
    write_all = store.write_all

    async def refuse(writes: Sequence[Write]) -> Answers:
        return [Unavailable() for _ in writes]

    store.write_all = refuse  # type: ignore[method-assign]
    lost = Occurrence(
        kind="Pod",
        namespace="a",
        name="x",
        uid="u",
        reason="LogDropped",
        message="much",
        type="Warning",
    )
    for _ in range(2):
        telling.teller.tell(lost)
        telling.teller.tell(happening("of no weight"))
        telling.plant.wait(MINUTE)
    store.write_all = write_all  # type: ignore[method-assign]
    telling.plant.wait(MINUTE)
    told = telling.events("x")
    assert set(told) == {"LogDropped"}
    assert told["LogDropped"]["count"] == 2


def test_object_with_the_longest_name_can_have_events() -> None:
    telling = Telling(nodes=1)
    name = "n" + "-" * 250 + "n1"
    telling.teller.tell(
        Occurrence(kind="Run", namespace="a", name=name, uid="u", reason="Said", message="why")
    )
    telling.plant.wait(MINUTE)
    assert set(telling.events(name)) == {"Said"}
