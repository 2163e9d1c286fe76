"""What every Store refuses, by path: the server's rules, the ledger's, and those of admission."""

import pytest
from tests.conformance.harness import MemoryHarness
from tests.conformance.things import meta, spec, thing

from leasehold.adapters.objects.storage import Stored
from leasehold.core.names import Wire
from leasehold.ports.store import Invalid


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
def test_invalid_metadata_is_refused_by_path(
    harness: MemoryHarness, path: str, metadata: Wire
) -> None:
    store = harness.store()

    async def story() -> None:
        with pytest.raises(Invalid) as refused:
            await store.create({**thing(), "metadata": {"namespace": "team", **metadata}})
        assert refused.value.path == path
        assert (await store.list("Run")).items == []

    harness.run(story())


def test_object_over_the_size_limit_is_refused_and_unchanged(harness: MemoryHarness) -> None:
    store = harness.store()

    async def story() -> None:
        long = [{"name": "main", "command": ["x" * 1_500_000]}]
        template = {"spec": {"containers": long}}
        made = await store.create(thing(spec={**spec(), "template": template}))
        with pytest.raises(Invalid):
            await store.patch_status("Run", "team", "a", {"message": "x" * 100_000}, version=None)
        assert await store.get("Run", "team", "a") == made

    harness.run(story())


@pytest.mark.parametrize("kind", ["Lease", "Resolution", "LedgerBatch"])
def test_spec_of_a_ledger_object_cannot_change(harness: MemoryHarness, kind: str) -> None:
    store = harness.store()

    async def story() -> None:
        made = await store.create(thing(kind=kind, namespace=""))
        with pytest.raises(Invalid) as refused:
            await store.update({**made, "spec": spec(2, kind=kind)})
        assert refused.value.path == "spec"
        await store.update({**made, "metadata": {**meta(made), "labels": {"a": "b"}}})

    harness.run(story())


def test_ending_and_closure_of_a_lease_cannot_be_undone(harness: MemoryHarness) -> None:
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


def test_admission_gets_old_and_new_object_and_reports_all_problems(
    own_harness: MemoryHarness,
) -> None:
    asked: list[tuple[Wire | None, Wire]] = []

    def admit(old: Wire | None, new: Wire, _: Stored) -> list[tuple[str, str]]:
        asked.append((old, new))
        return [("spec.n", "is two"), ("spec", "is bad")] if new["spec"] == spec(2) else []

    store = own_harness.store(admit)

    async def story() -> None:
        made = await store.create(thing())
        with pytest.raises(Invalid) as refused:
            await store.update({**made, "spec": spec(2)})
        assert refused.value.problems == (("spec.n", "is two"), ("spec", "is bad"))
        assert (refused.value.path, refused.value.why) == ("spec.n", "is two")
        assert await store.get("Run", "team", "a") == made

    own_harness.run(story())
    assert [old is None for old, _ in asked] == [True, False]
