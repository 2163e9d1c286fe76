"""What every Store promises about deletion: finalizers, the grace of pods, and conflicts."""

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.things import meta, pod, thing, version

from leasehold.core.objects.wire import part
from leasehold.ports.store import Conflict, Delete, Invalid, NotFound


def test_deletion_of_an_object_written_since_is_a_conflict(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        known = version(await store.create(thing("a")))
        await store.patch_status("Run", "team", "a", {"phase": "Running"}, version=None)
        with pytest.raises(Conflict):
            await store.delete("Run", "team", "a", uid=None, version=known)
        [refused] = await store.write_all([Delete("Run", "team", "a", None, version=known)])
        assert isinstance(refused, Conflict)
        latest = version(await store.get("Run", "team", "a"))
        assert await store.write_all([Delete("Run", "team", "a", None, version=latest)]) == [None]
        with pytest.raises(NotFound):
            await store.get("Run", "team", "a")

    harness.run(story())


def test_finalizer_keeps_a_deleted_object_until_it_is_removed(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        held = thing()
        meta(held)["finalizers"] = ["x/y"]
        await store.create(held)
        await store.delete("Run", "team", "a", uid=None)
        await store.delete("Run", "team", "a", uid=None)
        going = await store.get("Run", "team", "a")
        assert "deletionTimestamp" in meta(going)
        more = {**going, "metadata": {**meta(going), "finalizers": ["x/y", "x/z"]}}
        with pytest.raises(Invalid):
            await store.update(more)
        await store.update({**going, "metadata": {**meta(going), "finalizers": []}})
        with pytest.raises(NotFound):
            await store.get("Run", "team", "a")

    harness.run(story())


def test_deleted_pod_on_a_node_stays_until_a_delete_without_grace(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(pod())
        await store.delete("Pod", "team", "p", uid=None, grace_ms=1500)
        going = meta(await store.get("Pod", "team", "p"))
        assert going["deletionGracePeriodSeconds"] == 2
        # A store that also keeps milliseconds keeps the requested ones.
        assert going.get("deletionGraceMs", 1500) == 1500
        await store.delete("Pod", "team", "p", uid=None, grace_ms=9000)
        assert meta(await store.get("Pod", "team", "p"))["deletionGracePeriodSeconds"] == 2
        await store.delete("Pod", "team", "p", uid=None, grace_ms=0)
        with pytest.raises(NotFound):
            await store.get("Pod", "team", "p")

    harness.run(story())


@pytest.mark.parametrize("finished", [True, False])
def test_unplaced_or_finished_pod_is_deleted_at_once(
    harness: MemoryHarness, finished: bool
) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(pod(node="n1" if finished else ""))
        assert part(made, "status")["phase"] == "Pending"
        if finished:
            await store.patch_status("Pod", "team", "p", {"phase": "Failed"}, version=None)
        await store.delete("Pod", "team", "p", uid=None)
        with pytest.raises(NotFound):
            await store.get("Pod", "team", "p")

    harness.run(story())


def test_deleted_pod_gets_the_grace_of_its_spec(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(pod(terminationGracePeriodSeconds=7))
        await store.create(pod("q"))
        for name, grace in (("p", 7), ("q", 30)):
            await store.delete("Pod", "team", name, uid=None)
            going = meta(await store.get("Pod", "team", name))
            assert going["deletionGracePeriodSeconds"] == grace

    harness.run(story())
