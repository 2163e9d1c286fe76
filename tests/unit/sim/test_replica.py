"""A lagging replica: its answers were true once, and are never older than its reader knows."""

import pytest

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import Wire
from leasehold.core.objects.tenure import KIND, NAMESPACE
from leasehold.core.units import SECOND
from leasehold.ports.store import NotFound
from leasehold.sim.kernel import Kernel
from leasehold.sim.replica import LAG_MAX, LaggingReplica, StaleStore
from leasehold.sim.scenario.ledger import at_once

START = 1_767_225_600_000


class Site:
    def __init__(self) -> None:
        self.kernel = Kernel(START)
        user = self.kernel.process("user")
        self.replica = LaggingReplica(1, 1.0, lambda: self.kernel.now)
        self.store = MemoryStore(user.tasks, user.clock, on_change=self.replica.on_change)
        self.stale = StaleStore(self.store, "c1", self.replica, got=(KIND,), listed=("Pod",))
        self.count = 0

    def write(self, kind: str, name: str) -> None:
        """Advance a second, and write the object with the next count."""
        self.kernel.advance_to(self.kernel.now + SECOND)
        namespace = NAMESPACE if kind == KIND else "t"
        self.count += 1
        labels = {"count": str(self.count)}
        try:
            obj = at_once(self.store.get(kind, namespace, name))
        except NotFound:
            metadata: Wire = {"namespace": namespace, "name": name, "labels": labels}
            version = "v1" if kind == "Pod" else "coordination.k8s.io/v1"
            at_once(self.store.create({"apiVersion": version, "kind": kind, "metadata": metadata}))
            return
        metadata = dict(obj["metadata"])  # type: ignore[call-overload]
        at_once(self.store.update({**obj, "metadata": {**metadata, "labels": labels}}))


def count_of(obj: Wire) -> int:
    return int(obj["metadata"]["labels"]["count"])  # type: ignore[call-overload, index]


def test_get_may_return_a_slightly_older_version() -> None:
    site = Site()
    for _ in range(20):
        site.write(KIND, "main")
    got = {count_of(at_once(site.stale.get(KIND, NAMESPACE, "main"))) for _ in range(50)}
    assert min(got) == 20 - LAG_MAX // SECOND
    assert len(got) > 2
    assert site.replica.effects["stale-read"] > 0


def test_get_is_current_for_other_kinds_and_after_the_lag_is_stopped() -> None:
    site = Site()
    for _ in range(3):
        site.write("Pod", "p")
    assert {count_of(at_once(site.stale.get("Pod", "t", "p"))) for _ in range(20)} == {3}
    site.write(KIND, "main")
    site.write(KIND, "main")
    site.replica.stop()
    assert {count_of(at_once(site.stale.get(KIND, NAMESPACE, "main"))) for _ in range(20)} == {5}


def test_get_may_miss_an_object_created_a_moment_ago() -> None:
    site = Site()
    site.write("Pod", "p")
    site.kernel.advance_to(site.kernel.now + LAG_MAX)
    site.write(KIND, "main")
    with pytest.raises(NotFound):
        at_once(site.stale.get(KIND, NAMESPACE, "main"))
    site.kernel.advance_to(site.kernel.now + LAG_MAX)
    assert count_of(at_once(site.stale.get(KIND, NAMESPACE, "main"))) == 2


def test_list_is_never_older_than_what_its_reader_has_seen() -> None:
    site = Site()
    seen, versions = 0, []
    for round_ in range(30):
        site.write("Pod", f"p{round_}")
        listing = at_once(site.stale.list("Pod"))
        assert len(listing.items) >= seen
        seen = len(listing.items)
        versions.append(round_ + 1 - seen)
    assert max(versions) > 0
    assert site.replica.effects["stale-read"] > 0
