"""The faulty store injects the faults that a real one has, counts them, and stops on request."""

from contextlib import suppress

import pytest

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import (
    Conflict,
    Create,
    NotFound,
    OutcomeUnknown,
    PatchStatus,
    Unavailable,
    WatchExpired,
    Write,
)
from leasehold.sim.faulty import KINDS, Faults, FaultyStore
from leasehold.sim.kernel import Kernel


class World:
    def __init__(self, **rates: float) -> None:
        self.kernel = Kernel(0)
        server = self.kernel.process("server")
        self.client = self.kernel.process("client")
        self.faults = Faults(1, {kind.replace("_", "-"): rate for kind, rate in rates.items()})
        self.real = MemoryStore(server.tasks, server.clock)
        self.store = FaultyStore(self.real, self.client, self.faults)

    def names(self) -> list[str]:
        listing = self.kernel.complete(self.real.list("Run"), process=self.kernel.process("eye"))
        return [str(item["metadata"]["name"]) for item in listing.items]  # type: ignore[index]


def thing(name: str = "a") -> Wire:
    return {"apiVersion": "v1", "kind": "Run", "metadata": {"name": name}, "spec": {}}


@pytest.mark.parametrize(
    ("fault", "error", "happened"),
    [
        ("refuse", Unavailable, False),
        ("lose_request", OutcomeUnknown, False),
        ("lose_answer", OutcomeUnknown, True),
    ],
)
def test_write_fault_raises_its_error_and_only_a_lost_answer_writes(
    fault: str, error: type[Exception], happened: bool
) -> None:
    world = World(**{fault: 1.0})
    with pytest.raises(error):
        world.kernel.complete(world.store.create(thing()), process=world.client)
    assert world.names() == (["a"] if happened else [])
    assert world.faults.effects == {fault.replace("_", "-"): 1}
    world.faults.stop()
    world.kernel.complete(world.store.create(thing("b")), process=world.client)


@pytest.mark.parametrize(("fault", "happened"), [("kill_before", False), ("kill_after", True)])
def test_process_is_killed_before_or_after_its_write(fault: str, happened: bool) -> None:
    world = World(**{fault: 1.0})
    trace: list[str] = []

    async def work() -> None:
        try:
            await world.store.create(thing())
        finally:
            world.faults.stop()
            await world.store.create(thing("from-the-grave"))
        trace.append("never")

    world.client.tasks.spawn("work", work())
    world.kernel.settle()
    assert trace == []
    assert world.client.incarnation == 1
    assert world.names() == (["a"] if happened else [])


def test_injected_conflict_really_changes_the_stored_object() -> None:
    world = World(conflict=1.0)

    async def story() -> None:
        made = await world.store.create(thing())
        with pytest.raises(Conflict):
            await world.store.update({**made, "spec": {"n": 1}})
        touched = await world.store.get("Run", "", "a")
        assert touched["metadata"] != made["metadata"]
        version = int(str(touched["metadata"]["resourceVersion"]))  # type: ignore[index]
        with pytest.raises(Conflict):
            await world.store.patch_status("Run", "", "a", {"x": 1}, version=version)
        await world.store.patch_status("Run", "", "a", {"x": 1}, version=None)
        await world.store.delete("Run", "", "a", uid=None)
        with pytest.raises(NotFound):
            await world.store.update(touched)

    world.kernel.complete(story(), process=world.client)
    assert world.faults.effects["conflict"] == 2


def test_watches_keep_their_order_despite_lag_repeats_and_breaks() -> None:
    world = World(watch_lag=0.5, watch_repeat=0.3, watch_break=0.05, slow=0.5)
    seen: list[str] = []

    async def follow() -> None:
        version = 0
        while "r29" not in seen:
            watch = world.store.watch("Run", version)
            try:
                while "r29" not in seen:
                    metadata = (await watch.next()).object["metadata"]
                    assert isinstance(metadata, dict)
                    version = int(metadata["resourceVersion"])
                    seen.append(metadata["name"])
            except WatchExpired:
                continue

    async def write() -> None:
        for number in range(30):
            await world.store.create(thing(f"r{number}"))

    world.client.tasks.spawn("write", write())
    world.kernel.complete(follow(), process=world.client)
    assert list(dict.fromkeys(seen)) == [f"r{number}" for number in range(30)]
    assert len(seen) > 30
    assert world.kernel.now > 1000
    for kind in ("watch-lag", "watch-repeat", "watch-break", "slow"):
        assert world.faults.effects[kind] > 0


def test_injected_read_refusal_raises_unavailable() -> None:
    world = World(read_refuse=1.0)
    for read in (world.store.get("Run", "", "a"), world.store.list("Run")):
        with pytest.raises(Unavailable):
            world.kernel.complete(read, process=world.client)


def test_reordered_writes_keep_their_order_only_per_object() -> None:
    world = World(reorder=1.0)
    writes: list[Write] = [Create(thing(f"r{index}")) for index in range(8)]
    writes += [PatchStatus("Run", "", f"r{index}", {"n": index}) for index in range(8)]

    answers = world.kernel.complete(world.store.write_all(writes), process=world.client)

    names = [part(answer, "metadata").get("name") for answer in answers]
    assert names == [f"r{index}" for _ in range(2) for index in range(8)]
    listing = world.kernel.complete(world.real.list("Run"), process=world.client)
    assert [each["status"] for each in listing.items] == [{"n": index} for index in range(8)]
    made = sorted(listing.items, key=lambda each: str(part(each, "metadata")["uid"]))
    assert made != listing.items


def test_every_declared_fault_affects_at_least_one_store_call() -> None:
    """A rate that nothing consumes would look like a test that found nothing."""
    counted: set[str] = set()
    for kind in KINDS:
        world = World(**{kind.replace("-", "_"): 1.0 if kind != "watch-repeat" else 0.5})

        async def story(world: World = world) -> None:
            for call in (
                lambda: world.store.create(thing()),
                lambda: world.store.list("Run"),
                lambda: world.store.watch("Run", 0).next(),
                lambda: world.store.write_all([Create(thing(f"r{i}")) for i in range(8)]),
            ):
                try:
                    await call()
                except (Unavailable, OutcomeUnknown, WatchExpired):
                    continue
            stored = await world.real.list("Run")
            if stored.items:
                with suppress(Conflict, Unavailable, OutcomeUnknown):
                    await world.store.update({**stored.items[0], "spec": {"n": 2}})
                watch = world.store.watch("Run", 0)
                for _ in range(2):
                    try:
                        await watch.next()
                    except WatchExpired:
                        break

        world.client.tasks.spawn("story", story())
        world.kernel.advance_to(60_000)
        counted.update(world.faults.effects)
    assert counted == set(KINDS)


def test_rate_of_one_fault_does_not_change_when_another_fault_strikes() -> None:
    def refused(**rates: float) -> list[bool]:
        faults = Faults(9, rates)
        outcomes = []
        for _ in range(50):
            faults.strikes("slow", "p")
            outcomes.append(faults.strikes("refuse", "p"))
        return outcomes

    assert refused(refuse=0.3) == refused(refuse=0.3, slow=0.5)
