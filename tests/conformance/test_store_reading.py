"""What every Store promises to readers: listings, scans, and watches that miss nothing."""

import msgspec
import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.things import meta, take, thing, version

from leasehold.ports.store import WatchEvent, WatchExpired


def test_listing_is_sorted_and_has_only_one_kind(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        for namespace, name in (("b", "a"), ("a", "z"), ("a", "b")):
            await store.create(thing(name, namespace=namespace))
        last = await store.create(thing(kind="Budget"))
        listing = await store.list("Run")
        places = [(meta(item)["namespace"], meta(item)["name"]) for item in listing.items]
        assert places == [("a", "b"), ("a", "z"), ("b", "a")]
        assert listing.version >= version(last)
        assert (await store.list("Reservation")).items == []

    harness.run(story())


def test_scan_shows_the_same_objects_as_a_listing(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        for name in ("b", "a"):
            await store.create(thing(name))
        await store.create(thing("c", kind="Lease", namespace=""))
        listing = await store.list("Run")
        shown: list[bytes] = []
        assert await store.scan("Run", shown.append) >= listing.version
        assert [msgspec.json.decode(body) for body in shown] == listing.items
        assert await store.scan("Pod", shown.append) >= listing.version
        assert len(shown) == 2

    harness.run(story())


def test_watch_reports_every_change_after_its_version(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        start = (await store.list("Run")).version
        made = await store.create(thing())
        await store.patch_status("Run", "team", "a", {"attempt": 1}, version=None)
        await store.create(thing(kind="Budget"))
        await store.delete("Run", "team", "a", uid=None)
        events = await take(store, "Run", version(made), 2)
        assert [event.type for event in events] == ["MODIFIED", "DELETED"]
        assert events[1].object["status"] == {"attempt": 1}
        assert version(events[1].object) > version(events[0].object)
        assert (await take(store, "Run", start, 1))[0].type == "ADDED"

    harness.run(story())


def test_watch_waits_for_later_changes(harness: MemoryHarness) -> None:
    store = harness.store()
    seen: list[WatchEvent] = []

    async def story() -> None:
        done = harness.tasks.signal()

        start = (await store.list("Run")).version

        async def follow() -> None:
            seen.extend(await take(store, "Run", start, 2))
            done.set()

        harness.tasks.spawn("follow", follow())
        await store.create(thing("a"))
        await store.create(thing("b"))
        assert await done.wait(60_000)

    harness.run(story())
    assert [meta(event.object)["name"] for event in seen] == ["a", "b"]


def test_list_then_watch_misses_nothing(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(thing("a"))
        listing = await store.list("Run")
        await store.create(thing("b"))
        events = await take(store, "Run", listing.version, 1)
        assert meta(events[0].object)["name"] == "b"

    harness.run(story())


def test_watch_from_forgotten_history_expires(own_harness: MemoryHarness) -> None:
    store = own_harness.store(history_max=4)

    async def story() -> None:
        slow = store.watch("Run", 0)
        for number in range(20):
            await store.create(thing(f"r{number}"))
        for watch in (slow, store.watch("Run", 1)):
            with pytest.raises(WatchExpired):
                await watch.next()
        newest = await take(store, "Run", (await store.list("Run")).version - 1, 1)
        assert meta(newest[0].object)["name"] == "r19"

    own_harness.run(story())


def test_watch_from_a_future_version_expires(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        for number in range(4):
            await store.create(thing(f"r{number}"))
        there = (await store.list("Run")).version
        with pytest.raises(WatchExpired):
            await store.watch("Run", there + 10_000).next()

    harness.run(story())


def test_closed_watch_raises_watch_expired(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        watch = store.watch("Run", 0)
        watch.close()
        watch.close()
        with pytest.raises(WatchExpired):
            await watch.next()

    harness.run(story())
