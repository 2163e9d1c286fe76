"""Pods that are bound after creation, finalizers without reading, several writes in one call."""

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.things import meta, pod, take, thing, version

from leasehold.core.names import Wire
from leasehold.ports.store import (
    AlreadyExists,
    Bind,
    Conflict,
    Create,
    Delete,
    Invalid,
    NotFound,
    PatchStatus,
    SetFinalizers,
    Store,
)


def uid(obj: Wire) -> str:
    return str(meta(obj)["uid"])


async def node_of(store: Store, name: str) -> object:
    spec = (await store.get("Pod", "team", name))["spec"]
    assert isinstance(spec, dict)
    return spec.get("nodeName")


def test_pod_without_a_node_is_bound_only_once(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(pod(node=""))
        await store.bind("team", "p", "n1", uid=uid(made), version=version(made))

        assert await node_of(store, "p") == "n1"
        [bound] = await take(store, "Pod", version(made), 1)
        assert (bound.type, uid(bound.object)) == ("MODIFIED", uid(made))
        with pytest.raises(Conflict):
            await store.bind("team", "p", "n2", uid=uid(made))
        with pytest.raises(Conflict):  # not even to the same node
            await store.bind("team", "p", "n1", uid=uid(made))
        assert await node_of(store, "p") == "n1"

    harness.run(story())


def test_binding_conflicts_unless_uid_and_version_match(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(pod(node=""))
        await store.patch_status("Pod", "team", "p", {"phase": "Pending", "message": "x"},
                                 version=None)  # fmt: skip
        with pytest.raises(Conflict):  # the pod was written since
            await store.bind("team", "p", "n1", uid=uid(made), version=version(made))
        with pytest.raises(Conflict):
            await store.bind("team", "p", "n1", uid="another")
        with pytest.raises(NotFound):
            await store.bind("team", "q", "n1", uid=uid(made))
        assert await node_of(store, "p") is None

    harness.run(story())


def test_pod_that_is_being_deleted_is_not_bound(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        held = pod(node="")
        meta(held)["finalizers"] = ["x/held"]
        made = await store.create(held)
        await store.delete("Pod", "team", "p", uid=uid(made))
        with pytest.raises(Conflict):
            await store.bind("team", "p", "n1", uid=uid(made))

    harness.run(story())


def test_finalizers_are_changed_only_from_their_known_value(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing())
        held = await store.set_finalizers(
            "Run", "team", "a", ("x/one", "x/two"), known=(), uid=uid(made)
        )
        assert meta(held)["finalizers"] == ["x/one", "x/two"]
        with pytest.raises(Conflict):
            await store.set_finalizers("Run", "team", "a", (), known=("x/one",))
        with pytest.raises(Conflict):
            await store.set_finalizers("Run", "team", "a", (), known=("x/two", "x/one"))
        with pytest.raises(Conflict):
            await store.set_finalizers(
                "Run", "team", "a", (), known=("x/one", "x/two"), uid="another"
            )
        with pytest.raises(NotFound):
            await store.set_finalizers("Run", "team", "b", (), known=())
        # Other writes to the object in between do not matter.
        await store.patch_status("Run", "team", "a", {"phase": "Pending"}, version=None)
        await store.set_finalizers("Run", "team", "a", ("x/two",), known=("x/one", "x/two"))
        assert meta(await store.get("Run", "team", "a"))["finalizers"] == ["x/two"]

    harness.run(story())


def test_deleted_object_disappears_with_its_last_finalizer(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        await store.create(thing())
        await store.set_finalizers("Run", "team", "a", ("x/one",), known=())
        await store.delete("Run", "team", "a", uid=None)
        with pytest.raises(Invalid):
            await store.set_finalizers("Run", "team", "a", ("x/one", "x/two"), known=("x/one",))
        await store.set_finalizers("Run", "team", "a", (), known=("x/one",))
        with pytest.raises(NotFound):
            await store.get("Run", "team", "a")

    harness.run(story())


def test_writes_of_one_object_are_done_in_their_order(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        known = await store.create(pod("old"))
        ended: Wire = {"phase": "Succeeded"}
        await store.patch_status("Pod", "team", "old", ended, version=None)
        nowhere = await store.create(pod("nowhere", node=""))
        await store.create(thing("held"))
        await store.set_finalizers("Run", "team", "held", ("x/one",), known=())

        answers = await store.write_all(
            [
                Delete("Pod", "team", "old", uid(known)),
                Create(thing("new")),
                Create(pod("old")),
                Bind("team", "nowhere", "n1", uid(nowhere), version(nowhere)),
                PatchStatus("Run", "team", "new", {"phase": "Pending"}),
                SetFinalizers("Run", "team", "held", (), ("x/one",)),
                Create(thing("new")),
                Delete("Run", "team", "held", None),
                Bind("team", "nowhere", "n2", uid(nowhere)),
            ]
        )

        assert [type(each).__name__ for each in answers] == [
            "NoneType", "dict", "dict", "NoneType", "dict", "dict", "AlreadyExists", "NoneType",
            "Conflict",
        ]  # fmt: skip
        assert isinstance(answers[6], AlreadyExists)
        assert uid(await store.get("Pod", "team", "old")) != uid(known)
        assert (await store.get("Run", "team", "new"))["status"] == {"phase": "Pending"}
        assert await node_of(store, "nowhere") == "n1"
        with pytest.raises(NotFound):
            await store.get("Run", "team", "held")

    harness.run(story())
