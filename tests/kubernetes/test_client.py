"""How the client handles answers that are errors, that are lost, or that ask it to wait or to
authenticate again."""

import pytest
from tests.conformance.things import thing
from tests.kubernetes.scripted import Reply, Scripted, hangs_up, says, streams

from leasehold.adapters.kubernetes import client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Create,
    Forbidden,
    Invalid,
    NotFound,
    OutcomeUnknown,
    StoreError,
    Unavailable,
    WatchEvent,
    WatchExpired,
)

CAUSES = {"details": {"causes": [{"field": "spec.x", "message": "is bad"}]}}


def _run(version: int, name: str = "a") -> dict[str, object]:
    metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(version)}
    return {"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "metadata": metadata}


@pytest.mark.parametrize(
    ("reply", "of_a_write", "of_a_read"),
    [
        (says(404), NotFound, NotFound),
        (says(409, {"reason": "AlreadyExists"}), AlreadyExists, AlreadyExists),
        (says(409, {"reason": "Conflict"}), Conflict, Conflict),
        (says(403), Forbidden, Forbidden),
        (says(422, CAUSES), Invalid, Invalid),
        (says(429, None, **{"Retry-After": "0"}), Unavailable, Unavailable),
        (says(500), OutcomeUnknown, Unavailable),
        (says(503), OutcomeUnknown, Unavailable),
        (says(504), OutcomeUnknown, Unavailable),
        (hangs_up, OutcomeUnknown, Unavailable),
        (says(500, {"message": "etcdserver: request is too large"}), Invalid, Invalid),
    ],
)
def test_each_failed_answer_becomes_the_right_store_error(
    reply: Reply, of_a_write: type[StoreError], of_a_read: type[StoreError]
) -> None:
    async def story(store: KubernetesStore) -> tuple[type, type]:
        [written] = await store.write_all([Create(thing())])
        with pytest.raises(StoreError) as refused:
            await store.get("Run", "team", "a")
        return type(written), type(refused.value)

    assert Scripted([reply]).tell(story) == (of_a_write, of_a_read)


def test_unreachable_server_is_unavailable() -> None:
    async def story(store: KubernetesStore) -> None:
        with pytest.raises(Unavailable):
            await store.create(thing())

    Scripted([says(200)], address="http://127.0.0.1:1").tell(story)


def test_client_waits_as_long_as_retry_after_says() -> None:
    async def story(store: KubernetesStore) -> None:
        with pytest.raises(Unavailable):
            await store.create(thing())
        await store.create(thing())

    server = Scripted([says(429, None, **{"Retry-After": "1"}), says(201, _run(7))])
    server.tell(story)
    assert server.at[1] - server.at[0] >= 1000


def test_client_reads_renewed_token_after_401(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RELOAD_S", 0.0)

    async def story(store: KubernetesStore) -> None:
        await store.create(thing())

    server = Scripted([says(401), says(201, _run(7))], tokens=["first", "second"])
    server.tell(story)
    heard = [each.headers["Authorization"] for each in server.heard]
    assert heard == ["Bearer first", "Bearer second"]


def test_watch_continues_from_its_last_version() -> None:
    """The watch also continues from a bookmark, which is not an event."""
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}

    async def story(store: KubernetesStore) -> list[WatchEvent]:
        watch = store.watch("Run", (await store.list("Run")).version)
        found = [await watch.next() for _ in range(2)]
        watch.close()
        return found

    server = Scripted(
        [
            says(200, {"metadata": {"resourceVersion": "5"}, "items": []}),
            streams({"type": "ADDED", "object": _run(10)}, bookmark),
            streams({"type": "MODIFIED", "object": _run(15)}),
        ]
    )
    assert [(each.type, each.version) for each in server.tell(story)] == [
        ("ADDED", 10), ("MODIFIED", 15),
    ]  # fmt: skip
    asked = [each.query["resourceVersion"] for each in server.heard[1:]]
    assert asked == ["5", "12"]


def test_watch_that_is_too_old_raises_watch_expired() -> None:
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410}}

    async def story(store: KubernetesStore) -> None:
        watch = store.watch("Run", (await store.list("Run")).version)
        with pytest.raises(WatchExpired):
            await watch.next()

    empty = says(200, {"metadata": {"resourceVersion": "5"}, "items": []})
    Scripted([empty, streams(gone)]).tell(story)
    Scripted([empty, says(410)]).tell(story)


def test_list_starts_again_when_its_continue_token_expires() -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [_run(3, "a")]}
    whole = {"metadata": {"resourceVersion": "9"}, "items": [_run(8, "b")]}

    async def story(store: KubernetesStore) -> tuple[int, int]:
        listing = await store.list("Run")
        return listing.version, len(listing.items)

    assert Scripted([says(200, first), says(410), says(200, whole)]).tell(story) == (9, 1)


def test_scan_is_unavailable_when_its_continue_token_expires() -> None:
    first = {"metadata": {"resourceVersion": "5", "continue": "more"}, "items": [_run(3, "a")]}

    async def story(store: KubernetesStore) -> None:
        with pytest.raises(Unavailable):
            await store.scan("Run", lambda _: None)

    Scripted([says(200, first), says(410)]).tell(story)
