"""Following a kind: existing objects, every change, and existing objects again after a break."""

from leasehold.adapters.following import follow
from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import Listing, WatchEvent
from leasehold.sim.faulty import Faults, FaultyStore
from leasehold.sim.kernel import Kernel


def thing(name: str) -> Wire:
    return {"apiVersion": "v1", "kind": "Run", "metadata": {"name": name}, "spec": {}}


def names(wires: list[Wire]) -> list[str]:
    return [str(part(wire, "metadata")["name"]) for wire in wires]


class Followed:
    def __init__(self, *, since: int | None = None, **rates: float) -> None:
        self.kernel = Kernel(0)
        server, client = self.kernel.process("server"), self.kernel.process("client")
        self.real = MemoryStore(server.tasks, server.clock)
        faults = Faults(3, {kind.replace("_", "-"): rate for kind, rate in rates.items()})
        store = FaultyStore(self.real, client, faults)
        self.seen: list[object] = []
        self.there: set[str] = set()
        self._server = server
        client.tasks.spawn(
            "follower",
            follow(store, client.clock, "Run", listed=self._list, changed=self._hear, since=since),
        )
        self.kernel.settle()

    def _list(self, listing: Listing) -> None:
        self.seen.append(names(listing.items))
        self.there = set(names(listing.items))

    def _hear(self, event: WatchEvent) -> None:
        [name] = names([event.object])
        self.seen.append((event.type, name))
        (self.there.discard if event.type == "DELETED" else self.there.add)(name)

    def write(self, name: str, *, gone: bool = False) -> None:
        work = (
            self.real.delete("Run", "", name, uid=None) if gone else self.real.create(thing(name))
        )
        self.kernel.complete(work, process=self._server)  # type: ignore[arg-type]
        self.kernel.advance_to(self.kernel.now + 500)
        self.kernel.settle()


def test_follow_lists_objects_and_then_reports_every_change() -> None:
    followed = Followed()
    followed.write("a")
    followed.write("b")
    followed.write("a", gone=True)
    assert followed.seen == [[], ("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_follow_since_a_version_does_not_list_again() -> None:
    followed = Followed(since=0)
    followed.write("a")
    assert followed.seen == [("ADDED", "a")]


def test_follower_knows_all_objects_despite_breaks_and_refusals() -> None:
    followed = Followed(watch_break=0.4, watch_repeat=0.2, read_refuse=0.3)
    for index in range(60):
        followed.write(f"r{index}")
        if index % 3 == 0:
            followed.write(f"r{index}", gone=True)
    followed.kernel.advance_to(followed.kernel.now + 60_000)
    followed.kernel.settle()
    assert followed.there == {f"r{index}" for index in range(60) if index % 3}
    lists = [each for each in followed.seen if isinstance(each, list)]
    assert len(lists) > 5, "the watch never broke"
