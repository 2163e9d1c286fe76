"""What every Store promises about an object: names, versions, spec and status, several writes."""

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.things import meta, spec, take, thing, version

from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Create,
    Delete,
    Invalid,
    NotFound,
    PatchStatus,
    Update,
)


def test_created_object_is_read_back_with_uid_and_generation(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        assert made == await store.get("Run", "team", "a")
        assert made["spec"] == spec(1)
        assert meta(made)["uid"]
        assert meta(made)["generation"] == 1
        assert str(meta(made)["creationTimestamp"]).endswith("Z")

    harness.run(story())


def test_name_can_be_created_once_per_kind_and_namespace(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(thing())
        await store.create(thing(namespace="other"))
        await store.create(thing(kind="Budget"))
        with pytest.raises(AlreadyExists):
            await store.create(thing())

    harness.run(story())


def test_object_recreated_under_its_name_has_another_uid(harness: MemoryHarness) -> None:
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


def test_access_to_a_missing_object_raises_not_found(harness: MemoryHarness) -> None:
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


def test_update_requires_the_latest_version(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        read = await store.create(thing())
        newer = await store.update({**read, "spec": spec(2)})
        assert version(newer) > version(read)
        assert meta(newer)["generation"] == 2
        with pytest.raises(Conflict):
            await store.update({**read, "spec": spec(3)})
        assert (await store.get("Run", "team", "a"))["spec"] == spec(2)
        with pytest.raises(Invalid) as refused:
            await store.update(thing())
        assert refused.value.path == "metadata.resourceVersion"

    harness.run(story())


def test_spec_and_status_are_written_separately(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing(status={"phase": "Running"}))
        assert "status" not in made
        marked = await store.patch_status("Run", "team", "a", {"phase": "Pending"}, version=None)
        assert marked["spec"] == made["spec"]
        assert meta(marked)["generation"] == 1
        edited = await store.update({**marked, "spec": spec(2), "status": {"phase": "Failed"}})
        assert edited["status"] == {"phase": "Pending"}

    harness.run(story())


def test_conditional_status_patch_conflicts_after_a_newer_write(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        await store.patch_status("Run", "team", "a", {"attempt": 1}, version=version(made))
        with pytest.raises(Conflict):
            await store.patch_status("Run", "team", "a", {"attempt": 2}, version=version(made))
        assert (await store.get("Run", "team", "a"))["status"] == {"attempt": 1}

    harness.run(story())


def test_write_without_a_change_makes_no_new_version(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        assert await store.update(made) == made
        marked = await store.patch_status("Run", "team", "a", {"attempt": 1}, version=None)
        again = await store.patch_status("Run", "team", "a", {"attempt": 1}, version=None)
        assert marked == again

    harness.run(story())


def test_changing_a_read_object_does_not_change_the_stored_one(harness: MemoryHarness) -> None:
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


def test_several_writes_each_get_their_own_answer(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        first = await store.create(thing("a"))
        stale = dict(first, spec=spec(2))
        await store.update(stale)
        answers = await store.write_all(
            [
                Create(thing("b")),
                Create(thing("a")),
                Update(dict(first, spec=spec(3))),
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
        # Writes of one object are done, and seen, one after another.
        events = await take(store, "Run", version(first), 4)
        for name, types in (("a", ["MODIFIED", "DELETED"]), ("b", ["ADDED", "MODIFIED"])):
            assert [each.type for each in events if meta(each.object)["name"] == name] == types

    harness.run(story())


def test_empty_list_of_writes_returns_no_answers(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        assert await store.write_all([]) == []

    harness.run(story())


def test_condition_keeps_its_transition_time_until_its_status_changes(
    harness: MemoryHarness,
) -> None:
    store = harness.store()

    async def since(kind: str, status: str, **more: str) -> str:
        wire: dict[str, object] = {"conditions": [{"type": kind, "status": status, **more}]}
        [made] = await store.write_all([PatchStatus("Run", "team", "a", wire)])
        assert isinstance(made, dict)
        found = made["status"]["conditions"][0]["lastTransitionTime"]  # type: ignore[index, call-overload]
        return str(found)

    async def story() -> None:
        await store.create(thing())
        first = await since("Running", "False")
        assert first.endswith("Z")
        assert await since("Running", "False", reason="Another") == first
        assert await since("Running", "True", lastTransitionTime="2001-01-01T00:00:00Z") == (
            "2001-01-01T00:00:00Z"
        )
        assert await since("Running", "True") == "2001-01-01T00:00:00Z"
        assert await since("Running", "False") >= first

    harness.run(story())
