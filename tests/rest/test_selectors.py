"""The meaning of selectors, and rehearsed (dry-run) writes on every store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rest.facade import budget, lease, run

from leasehold.adapters.api.columns import human_span
from leasehold.adapters.api.resources import resource_of
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.objects.store import ObjectStore
from leasehold.adapters.rest.selectors import parse_selectors
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.units import DAY, HOUR, MINUTE, SECOND
from leasehold.ports.store import AlreadyExists, Conflict, Invalid, NotFound

SELECTORS = """
a=1                      a=1        yes
a==1                     a=1        yes
a=1                      a=2        no
a=1                      -          no
a!=1                     a=2        yes
a!=1                     -          yes
a!=1                     a=1        no
a                        a=1        yes
a                        b=1        no
!a                       b=1        yes
!a                       a=1        no
a in (1,2)               a=2        yes
a in (1,2)               -          no
a notin (1,2)            a=3        yes
a notin (1,2)            -          yes
a notin (1,2)            a=1        no
a>1                      a=2        yes
a>1                      a=1        no
a<10                     a=9        yes
a>1                      a=x        no
a=1,b=2                  a=1,b=2    yes
a=1,b=2                  a=1        no
a in (1),!b              a=1        yes
x.y/z-1=v_1.2            x.y/z-1=v_1.2  yes
in=1                     in=1       yes
"""


@pytest.mark.parametrize("line", SELECTORS.strip().splitlines())
def test_label_selector_matches(line: str) -> None:
    selector, labels, verdict = (part.strip() for part in line.rsplit(None, 2))
    obj = run("r")
    if labels != "-":
        obj["metadata"]["labels"] = dict(each.split("=") for each in labels.split(","))  # type: ignore[index]
    matches = parse_selectors(resource_of("Run"), selector, "")
    assert matches is not None
    assert matches(obj) == (verdict == "yes")


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [
        ("spec.slice.node=n1", True), ("spec.slice.node==n1", True), ("spec.slice.node!=n1", False),
        ("spec.slice.node=n2", False), ("status.closed=", False), ("status.closed!=true", True),
        ("status.closed=false", True), ("status.closed=true", False),
        ("status.closed!=false", False), ("spec.slice.nodes=n1", True),
        ("spec.slice.nodes=n2", False), ("spec.slice.nodes!=n2", True),
        ("spec.slice.nodes!=n1", False), ("spec.slice.nodes=n1,status.closed=false", True),
        ("metadata.name=l,spec.owner=org:ai:mm:vision", True), ("metadata.name=l\\=", False),
        ("metadata.namespace=", True),
    ],
)  # fmt: skip
def test_field_selector_matches(fields: str, verdict: bool) -> None:
    matches = parse_selectors(resource_of("Lease"), "", fields)
    assert matches is not None
    assert matches(lease("l")) is verdict


@pytest.mark.parametrize(("cordoned", "selector", "verdict"), [
    (None, "spec.unschedulable=false", True), (None, "spec.unschedulable=true", False),
    (False, "spec.unschedulable=false", True), (True, "spec.unschedulable=false", False),
    (True, "spec.unschedulable!=false", True),
])  # fmt: skip
def test_node_without_unschedulable_field_matches_as_schedulable(
    cordoned: bool | None, selector: str, verdict: bool
) -> None:
    spec = {} if cordoned is None else {"unschedulable": cordoned}
    matches = parse_selectors(resource_of("Node"), "", selector)
    assert matches is not None
    assert matches({"metadata": {"name": "n"}, "spec": spec}) is verdict


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", ""]), max_size=3)
terms = st.lists(
    st.tuples(
        st.sampled_from("abc"), st.sampled_from(["=", "!="]), st.sampled_from(["1", "2", ""])
    ),
    min_size=1,
    max_size=4,
)


@given(labels=labels, terms=terms)
def test_label_selector_terms_are_joined_by_and(
    labels: dict[str, str], terms: list[tuple[str, str, str]]
) -> None:
    obj = run("r")
    obj["metadata"]["labels"] = labels  # type: ignore[index]
    matches = parse_selectors(
        resource_of("Run"), ",".join(f"{key}{sign}{value}" for key, sign, value in terms), ""
    )
    assert matches is not None
    assert matches(obj) == all(
        (labels.get(key) == value) == (sign == "=") for key, sign, value in terms
    )


@pytest.mark.parametrize(
    ("span", "shown"),
    [
        (0, "0s"), (119 * SECOND, "119s"), (2 * MINUTE, "2m"), (243 * SECOND, "4m3s"),
        (10 * MINUTE, "10m"), (179 * MINUTE, "179m"), (3 * HOUR, "3h"),
        (4 * HOUR + 30 * MINUTE, "4h30m"), (47 * HOUR, "47h"), (2 * DAY, "2d"),
        (3 * DAY + 5 * HOUR, "3d5h"), (9 * DAY, "9d"), (800 * DAY, "2y70d"), (4000 * DAY, "10y"),
    ],
)  # fmt: skip
def test_ages_are_formatted_as_kubectl_formats_them(span: int, shown: str) -> None:
    assert human_span(span) == shown


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_store_rehearsal_answers_like_the_write_and_changes_nothing(
    kind: str, tmp_path: Path
) -> None:
    async def story(store: ObjectStore) -> None:
        watch = store.watch("Run", 0)
        dry = await store.create(run("r"), rehearse=True)
        assert "resourceVersion" not in dry["metadata"]  # type: ignore[operator]
        with pytest.raises(NotFound):
            await store.get("Run", "vision", "r")
        with pytest.raises(Invalid):
            await store.create(run("r", gang="x"), rehearse=True)
        made = await store.create(run("r"))
        with pytest.raises(AlreadyExists):
            await store.create(run("r"), rehearse=True)
        stopped: Any = {**made, "spec": {**run("r", stop=True)["spec"]}}  # type: ignore[dict-item]
        changed: Any = await store.update(stopped, rehearse=True)
        assert changed["spec"]["stop"] is True
        assert changed["metadata"]["generation"] == 2
        assert await store.get("Run", "vision", "r") == made
        with pytest.raises(Conflict):
            await store.delete("Run", "vision", "r", uid="x", rehearse=True)
        await store.delete("Run", "vision", "r", uid=None, rehearse=True)
        status: Any = {"phase": "Running"}
        told = await store.patch_status("Run", "vision", "r", status, version=None, rehearse=True)
        assert told["status"] == status
        assert await store.get("Run", "vision", "r") == made
        await store.create(budget("a", owner="x:a", parents=["x:b"]), rehearse=True)
        await store.create(budget("b", owner="x:b", parents=["x:a"]))
        assert store.version == 2
        assert (await watch.next()).object == made
        assert await watch.next_stored(0) is None

    async def main() -> None:
        if kind == "memory":
            await story(MemoryStore(AsyncioTasks(), AsyncioClock(), Admission()))
            return
        store = GroupStore(tmp_path / "s.db", AsyncioTasks(), AsyncioClock(), Admission())
        try:
            await story(store)
        finally:
            store.close()

    asyncio.run(main())
