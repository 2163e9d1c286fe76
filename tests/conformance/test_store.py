"""What every Store promises (`ports.store`); each implementation runs all of it."""

from collections.abc import Iterator

import msgspec
import pytest
from tests.conformance.harness import STORES, MemoryHarness

from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Expired,
    Invalid,
    NotFound,
    PatchStatus,
    Store,
    Update,
    WatchEvent,
    Wire,
)

OURS = "rq.davidlangworthy.io/v1"


@pytest.fixture(params=sorted(STORES))
def harness(request: pytest.FixtureRequest) -> Iterator[MemoryHarness]:
    harness = STORES[request.param]()
    yield harness
    harness.close()


def thing(name: str = "a", *, kind: str = "Run", namespace: str = "team", **parts: object) -> Wire:
    metadata: Wire = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": {"n": 1}, **parts}


def pod(name: str = "p", *, node: str = "n1") -> Wire:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"nodeName": node} if node else {},
    }


def meta(obj: Wire) -> Wire:
    found = obj["metadata"]
    assert isinstance(found, dict)
    return found


def version(obj: Wire) -> int:
    return int(str(meta(obj)["resourceVersion"]))


async def take(store: Store, kind: str, since: int, count: int) -> list[WatchEvent]:
    watch = store.watch(kind, since)
    events = [await watch.next() for _ in range(count)]
    watch.close()
    return events


def test_what_was_created_is_read_back_with_identity(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        assert made == await store.get("Run", "team", "a")
        assert made["spec"] == {"n": 1}
        assert meta(made)["uid"]
        assert meta(made)["generation"] == 1
        assert str(meta(made)["creationTimestamp"]).endswith("Z")

    harness.run(story())


def test_a_name_is_taken_once_per_kind_and_namespace(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(thing())
        await store.create(thing(namespace="other"))
        await store.create(thing(kind="Budget"))
        with pytest.raises(AlreadyExists):
            await store.create(thing())

    harness.run(story())


def test_a_name_used_again_has_another_uid(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        first = meta(await store.create(thing()))["uid"]
        await store.delete("Run", "team", "a", uid=str(first))
        second = meta(await store.create(thing()))["uid"]
        assert first != second
        with pytest.raises(Conflict):
            await store.delete("Run", "team", "a", uid=str(first))
        assert meta(await store.get("Run", "team", "a"))["uid"] == second

    harness.run(story())


def test_what_is_not_there_is_not_found(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        with pytest.raises(NotFound):
            await store.get("Run", "team", "a")
        with pytest.raises(NotFound):
            await store.delete("Run", "team", "a", uid=None)
        with pytest.raises(NotFound):
            await store.patch_status("Run", "team", "a", {}, version=None)
        gone = thing()
        meta(gone)["resourceVersion"] = "1"
        with pytest.raises(NotFound):
            await store.update(gone)

    harness.run(story())


def test_an_update_needs_the_version_it_read(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        read = await store.create(thing())
        newer = await store.update({**read, "spec": {"n": 2}})
        assert version(newer) > version(read)
        assert meta(newer)["generation"] == 2
        with pytest.raises(Conflict):
            await store.update({**read, "spec": {"n": 3}})
        assert (await store.get("Run", "team", "a"))["spec"] == {"n": 2}
        with pytest.raises(Invalid) as refused:
            await store.update(thing())
        assert refused.value.path == "metadata.resourceVersion"

    harness.run(story())


def test_spec_and_status_are_written_apart(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing(status={"phase": "Running"}))
        assert "status" not in made
        marked = await store.patch_status("Run", "team", "a", {"phase": "Pending"}, version=None)
        assert marked["spec"] == made["spec"]
        assert meta(marked)["generation"] == 1
        edited = await store.update({**marked, "spec": {"n": 2}, "status": {"phase": "Failed"}})
        assert edited["status"] == {"phase": "Pending"}

    harness.run(story())


def test_a_status_can_be_written_for_one_version_only(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        await store.patch_status("Run", "team", "a", {"x": 1}, version=version(made))
        with pytest.raises(Conflict):
            await store.patch_status("Run", "team", "a", {"x": 2}, version=version(made))
        assert (await store.get("Run", "team", "a"))["status"] == {"x": 1}

    harness.run(story())


def test_a_write_that_changes_nothing_makes_no_version(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        assert await store.update(made) == made
        marked = await store.patch_status("Run", "team", "a", {"x": 1}, version=None)
        again = await store.patch_status("Run", "team", "a", {"x": 1}, version=None)
        assert marked == again

    harness.run(story())


def test_nobody_changes_what_is_stored_by_changing_what_was_read(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        given = thing()
        made = await store.create(given)
        meta(given)["name"] = "z"
        meta(made)["name"] = "y"
        listed = (await store.list("Run")).items[0]
        meta(listed)["name"] = "x"
        assert meta(await store.get("Run", "team", "a"))["name"] == "a"

    harness.run(story())


def test_a_listing_is_sorted_and_of_one_kind(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        for namespace, name in (("b", "a"), ("a", "z"), ("a", "b")):
            await store.create(thing(name, namespace=namespace))
        last = await store.create(thing(kind="Budget"))
        listing = await store.list("Run")
        places = [(meta(item)["namespace"], meta(item)["name"]) for item in listing.items]
        assert places == [("a", "b"), ("a", "z"), ("b", "a")]
        assert listing.version >= version(last)
        assert (await store.list("Nothing")).items == []

    harness.run(story())


def test_a_watch_tells_every_change_after_its_version(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        await store.patch_status("Run", "team", "a", {"x": 1}, version=None)
        await store.create(thing(kind="Budget"))
        await store.delete("Run", "team", "a", uid=None)
        events = await take(store, "Run", version(made), 2)
        assert [event.type for event in events] == ["MODIFIED", "DELETED"]
        assert events[1].object["status"] == {"x": 1}
        assert version(events[1].object) > version(events[0].object)
        assert (await take(store, "Run", 0, 1))[0].type == "ADDED"

    harness.run(story())


def test_a_watch_waits_for_what_is_yet_to_come(harness: MemoryHarness) -> None:
    store = harness.store()
    seen: list[WatchEvent] = []

    async def story() -> None:
        done = harness.tasks.signal()

        async def follow() -> None:
            seen.extend(await take(store, "Run", 0, 2))
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


def test_a_watch_from_too_long_ago_must_list_again(harness: MemoryHarness) -> None:
    store = harness.store(history_max=4)

    async def story() -> None:
        slow = store.watch("Run", 0)
        for number in range(20):
            await store.create(thing(f"r{number}"))
        for watch in (slow, store.watch("Run", 1), store.watch("Run", 10_000)):
            with pytest.raises(Expired):
                await watch.next()
        newest = await take(store, "Run", (await store.list("Run")).version - 1, 1)
        assert meta(newest[0].object)["name"] == "r19"

    harness.run(story())


def test_a_closed_watch_says_so(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        watch = store.watch("Run", 0)
        watch.close()
        watch.close()
        with pytest.raises(Expired):
            await watch.next()

    harness.run(story())


def test_a_finalizer_holds_an_object_until_it_is_dropped(harness: MemoryHarness) -> None:
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


def test_a_pod_on_a_node_goes_when_its_node_says_so(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(pod())
        await store.delete("Pod", "team", "p", uid=None, grace_ms=1500)
        going = meta(await store.get("Pod", "team", "p"))
        assert going["deletionGracePeriodSeconds"] == 2
        assert going["deletionGraceMs"] == 1500
        await store.delete("Pod", "team", "p", uid=None, grace_ms=9000)
        assert meta(await store.get("Pod", "team", "p"))["deletionGraceMs"] == 1500
        await store.delete("Pod", "team", "p", uid=None, grace_ms=0)
        with pytest.raises(NotFound):
            await store.get("Pod", "team", "p")

    harness.run(story())


@pytest.mark.parametrize("finished", [True, False])
def test_a_pod_that_runs_nowhere_goes_at_once(harness: MemoryHarness, finished: bool) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(pod(node="n1" if finished else ""))
        assert made["status"] == {"phase": "Pending"}
        if finished:
            await store.patch_status("Pod", "team", "p", {"phase": "Failed"}, version=None)
        await store.delete("Pod", "team", "p", uid=None)
        with pytest.raises(NotFound):
            await store.get("Pod", "team", "p")

    harness.run(story())


def test_a_pod_gets_the_grace_its_spec_names(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        patient = pod()
        patient["spec"] = {"nodeName": "n1", "terminationGracePeriodSeconds": 7}
        await store.create(patient)
        await store.create(pod("q"))
        for name, grace in (("p", 7_000), ("q", 30_000)):
            await store.delete("Pod", "team", name, uid=None)
            assert meta(await store.get("Pod", "team", name))["deletionGraceMs"] == grace

    harness.run(story())


@pytest.mark.parametrize("kind", ["Lease", "Resolution", "LedgerBatch"])
def test_the_ledgers_objects_never_change(harness: MemoryHarness, kind: str) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing(kind=kind, namespace=""))
        with pytest.raises(Invalid) as refused:
            await store.update({**made, "spec": {"n": 2}})
        assert refused.value.path == "spec"
        await store.update({**made, "metadata": {**meta(made), "labels": {"a": "b"}}})

    harness.run(story())


def test_a_lease_closes_once(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(thing(kind="Lease", namespace=""))

        async def mark(status: Wire) -> None:
            await store.patch_status("Lease", "", "a", status, version=None)

        ending = {"reason": "Shrink", "deadline": "x"}
        await mark({"ending": ending})
        with pytest.raises(Invalid):
            await mark({})
        await mark({"ending": ending, "closed": True})
        await mark({"ending": ending, "closed": True})
        with pytest.raises(Invalid):
            await mark({"ending": ending, "closed": False})

    harness.run(story())


@pytest.mark.parametrize(
    ("path", "metadata"),
    [
        ("metadata.name", {"name": ""}),
        ("metadata.name", {"name": "Upper"}),
        ("metadata.name", {"name": "a" * 254}),
        ("metadata.name", {"name": "dots..dots"}),
        ("metadata.namespace", {"name": "a", "namespace": "with.dot"}),
        ("metadata.labels[k]", {"name": "a", "labels": {"k": "v" * 64}}),
        ("metadata.labels[k]", {"name": "a", "labels": {"k": "no spaces"}}),
        ("metadata.labels[-k]", {"name": "a", "labels": {"-k": "v"}}),
        ("metadata.labels[UP.x/k]", {"name": "a", "labels": {"UP.x/k": "v"}}),
        ("metadata.labels", {"name": "a", "labels": ["k"]}),
    ],
)
def test_the_servers_rules_are_named_by_path(
    harness: MemoryHarness, path: str, metadata: Wire
) -> None:
    store = harness.store()

    async def story() -> None:
        with pytest.raises(Invalid) as refused:
            await store.create({"apiVersion": OURS, "kind": "Run", "metadata": metadata})
        assert refused.value.path == path
        assert (await store.list("Run")).items == []

    harness.run(story())


def test_an_object_has_a_size(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing(spec={"text": "x" * 1_500_000}))
        with pytest.raises(Invalid):
            await store.patch_status("Run", "team", "a", {"text": "x" * 100_000}, version=None)
        assert await store.get("Run", "team", "a") == made

    harness.run(story())


def test_admission_sees_old_and_new_and_reports_all(harness: MemoryHarness) -> None:
    asked: list[tuple[Wire | None, Wire]] = []

    def admit(old: Wire | None, new: Wire) -> list[tuple[str, str]]:
        asked.append((old, new))
        return [("spec.n", "is two"), ("spec", "is bad")] if new["spec"] == {"n": 2} else []

    store = harness.store(admit)

    async def story() -> None:
        made = await store.create(thing())
        with pytest.raises(Invalid) as refused:
            await store.update({**made, "spec": {"n": 2}})
        assert refused.value.problems == (("spec.n", "is two"), ("spec", "is bad"))
        assert (refused.value.path, refused.value.why) == ("spec.n", "is two")
        assert await store.get("Run", "team", "a") == made

    harness.run(story())
    assert [old is None for old, _ in asked] == [True, False]


def test_a_deletion_of_what_was_written_since_is_a_conflict(harness: MemoryHarness) -> None:
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


def test_several_writes_each_have_their_own_answer(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        first = await store.create(thing("a"))
        stale = dict(first, spec={"n": 2})
        await store.update(stale)
        answers = await store.write_all(
            [
                Create(thing("b")),
                Create(thing("a")),
                Update(dict(first, spec={"n": 3})),
                PatchStatus("Run", "team", "b", {"phase": "Running"}),
                PatchStatus("Run", "team", "nobody", {}),
                Delete("Run", "team", "a", None),
                Create(thing("UPPER")),
            ]
        )
        kinds = [None if each is None else type(each) for each in answers]
        assert kinds == [dict, AlreadyExists, Conflict, dict, NotFound, None, Invalid]
        there = await store.get("Run", "team", "b")
        assert there["status"] == {"phase": "Running"}
        assert answers[3] == there
        assert [meta(each)["name"] for each in (await store.list("Run")).items] == ["b"]
        # One after another, and seen as such.
        events = await take(store, "Run", version(first), 4)
        assert [(each.type, meta(each.object)["name"]) for each in events] == [
            ("MODIFIED", "a"), ("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a"),
        ]  # fmt: skip

    harness.run(story())


def test_no_writes_are_no_trouble(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        assert await store.write_all([]) == []

    harness.run(story())


def test_a_scan_shows_what_a_list_has(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        for name in ("b", "a"):
            await store.create(thing(name))
        await store.create(thing("c", kind="Lease", namespace=""))
        listing = await store.list("Run")
        shown: list[bytes] = []
        assert await store.scan("Run", shown.append) == listing.version
        assert [msgspec.json.decode(body) for body in shown] == listing.items
        assert await store.scan("Pod", shown.append) == listing.version
        assert len(shown) == 2

    harness.run(story())
