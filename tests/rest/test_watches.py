"""Watches over a real connection: the first events, later events, and how a watch ends."""

import http.client
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.rest.facade import ADMIN, ANN, PODS, RUNS, SYSTEM, Facade, pod, run

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
INITIAL = {
    "watch": "true",
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
}
MERGE = {"Content-Type": "application/merge-patch+json"}


class Watching:
    """The events of one watch as they arrive; `next` waits for the next event."""

    def __init__(self, facade: Facade, path: str, **query: str) -> None:
        self._connection = facade.connection()
        headers = TABLE if query.pop("table", "") else None
        facade.send(
            self._connection, "GET", path, headers=headers, caller=ADMIN, **{"watch": "1", **query}
        )
        self.response = self._connection.getresponse()

    def next(self) -> Any:
        line = self.response.readline()
        return json.loads(line) if line else None

    def names(self, count: int) -> list[tuple[str, str]]:
        found = [self.next() for _ in range(count)]
        return [(each["type"], each["object"]["metadata"]["name"]) for each in found]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def watching(facade: Facade) -> Iterator[Any]:
    opened: list[Watching] = []

    def start(path: str, **query: str) -> Watching:
        opened.append(Watching(facade, path, **query))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


@pytest.fixture(autouse=True)
def nothing_left(facade: Facade) -> Iterator[None]:
    yield
    facade.ask("DELETE", RUNS)


def label(facade: Facade, name: str, **labels: str | None) -> None:
    body = {"metadata": {"labels": labels}}
    assert facade.ask("PATCH", f"{RUNS}/{name}", body, headers=MERGE).status == 200


def test_watch_from_version_sends_only_later_changes(facade: Facade, watching: Any) -> None:
    facade.ask("POST", RUNS, run("before"))
    watch = watching(RUNS, resourceVersion=str(facade.store.version))
    assert watch.response.status == 200
    facade.ask("POST", RUNS, run("after"))
    label(facade, "after", a="b")
    facade.ask("DELETE", f"{RUNS}/after")

    assert watch.names(3) == [("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "after")]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
def test_watch_without_version_sends_existing_objects_first(
    facade: Facade, watching: Any, query: dict[str, str]
) -> None:
    facade.ask("POST", RUNS, run("a"))
    facade.ask("POST", RUNS, run("b"))
    watch = watching(RUNS, **query)

    assert watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]
    facade.ask("POST", RUNS, run("c"))
    assert watch.names(1) == [("ADDED", "c")]


def test_initial_events_end_with_one_bookmark(facade: Facade, watching: Any) -> None:
    facade.ask("POST", RUNS, run("s"))
    watch = watching(RUNS, **INITIAL, fieldSelector="metadata.name=s")
    assert watch.names(1) == [("ADDED", "s")]
    mark = watch.next()
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert mark["object"]["metadata"]["resourceVersion"] == str(facade.store.version)
    label(facade, "s", a="b")
    facade.ask("POST", RUNS, run("other"))
    facade.ask("DELETE", f"{RUNS}/s")
    assert watch.names(2) == [("MODIFIED", "s"), ("DELETED", "s")]

    empty = watching(RUNS, **INITIAL, fieldSelector="metadata.name=nobody")
    assert empty.next()["type"] == "BOOKMARK"


def test_selector_watch_turns_label_changes_into_added_and_deleted(
    facade: Facade, watching: Any
) -> None:
    facade.ask("POST", RUNS, run("t"))
    facade.ask("POST", RUNS, run("never"))
    for has_version in (False, True):
        start = {"resourceVersion": str(facade.store.version)} if has_version else {}
        watch = watching(RUNS, labelSelector="x=1", **start)
        label(facade, "never", y="1")
        label(facade, "t", x="1")
        label(facade, "t", x="1", y="1")
        label(facade, "t", x="2")
        label(facade, "t", y="2")
        label(facade, "t", x="1")
        facade.ask("DELETE", f"{RUNS}/t")
        kinds = [kind for kind, _ in watch.names(5)]
        assert kinds == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
        facade.ask("POST", RUNS, run("t"))


def test_watch_omits_objects_of_other_namespaces(facade: Facade, watching: Any) -> None:
    watch = watching(PODS, resourceVersion=str(facade.store.version))
    elsewhere = PODS.replace("vision", "audio")
    facade.ask("POST", elsewhere, pod("quiet", namespace="audio"), caller=SYSTEM)
    facade.ask("POST", PODS, pod("loud"), caller=SYSTEM)

    assert watch.names(1) == [("ADDED", "loud")]
    facade.ask("DELETE", f"{PODS}/loud", gracePeriodSeconds="0")


def test_table_watch_sends_column_definitions_once(facade: Facade, watching: Any) -> None:
    watch = watching(RUNS, table="yes", resourceVersion=str(facade.store.version))
    facade.ask("POST", RUNS, run("one"))
    facade.ask("POST", RUNS, run("two"))
    first, second = watch.next()["object"], watch.next()["object"]

    assert first["columnDefinitions"][0]["name"] == "Name"
    assert second["columnDefinitions"] == []
    assert [each["rows"][0]["cells"][0] for each in (first, second)] == ["one", "two"]


def test_watch_from_unknown_version_sends_expired_error_and_ends(
    facade: Facade, watching: Any
) -> None:
    future = watching(RUNS, resourceVersion=str(facade.store.version + 1000))

    event = future.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert future.next() is None


def test_watch_ends_after_timeout_seconds(facade: Facade, watching: Any) -> None:
    watch = watching(RUNS, resourceVersion=str(facade.store.version), timeoutSeconds="1")

    assert watch.next() is None


def test_watch_is_closed_when_client_hangs_up(facade: Facade) -> None:
    watch = Watching(facade, RUNS, resourceVersion=str(facade.store.version))
    watch.close()
    done = threading.Event()
    due = 1000
    while facade.app._watches._open and due:
        done.wait(0.02)
        due -= 1

    assert due


def test_server_stop_ends_open_watches_and_followed_logs(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    facade = Facade(tmp_path_factory.mktemp("stopped"))
    ended: list[bytes] = []
    with facade:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
        facade.ask("POST", "/api/v1/namespaces", namespace)
        facade.ask("POST", PODS, pod("p"), caller=SYSTEM)
        connections: list[http.client.HTTPSConnection] = []
        responses = []
        for path, query in ((RUNS, {"watch": "1"}), (f"{PODS}/p/log", {"follow": "true"})):
            connections.append(facade.connection())
            facade.send(
                connections[-1], "GET", path, caller=ANN if "w" in query else ADMIN, **query
            )
            responses.append(connections[-1].getresponse())
        lines = [responses[1].readline() for _ in range(3)]
    for response, connection in zip(responses, connections):
        ended.append(response.read())
        connection.close()

    assert lines == [b"one\n", b"two\n", b"three\n"]
    assert ended == [b"", b""]


def test_deleted_namespace_removes_its_runs_then_pods_across_restart(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Runs go first; a finalizer holds one of them, also across a restart."""
    with Facade(tmp_path_factory.mktemp("going")) as facade:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
        facade.ask("POST", "/api/v1/namespaces", namespace)
        held = run("held")
        held["metadata"]["finalizers"] = ["rq.davidlangworthy.io/leases-closed"]  # type: ignore[index]
        facade.ask("POST", RUNS, held, caller=SYSTEM)
        facade.ask("POST", PODS, pod("p", ""), caller=SYSTEM)
        watch = Watching(facade, RUNS, resourceVersion=str(facade.store.version))
        going = facade.ask("DELETE", "/api/v1/namespaces/vision").json
        assert going["status"]["phase"] == "Terminating"
        assert watch.names(1) == [("MODIFIED", "held")]
        watch.close()
        assert facade.ask("GET", f"{PODS}/p").status == 200, (
            "pods must stay until their runs have ended"
        )
        assert facade.ask("POST", RUNS, run("late")).status == 403

        facade.restart()
        watch = Watching(facade, "/api/v1/namespaces", resourceVersion=str(facade.store.version))
        obj = facade.ask("GET", f"{RUNS}/held").json
        obj["metadata"]["finalizers"] = []
        assert facade.ask("PUT", f"{RUNS}/held", obj, caller=SYSTEM).status == 200
        assert watch.names(1) == [("DELETED", "vision")]
        watch.close()
        assert facade.ask("GET", f"{PODS}/p").status == 404


def test_single_object_is_watched_by_field_selector_not_by_path(
    facade: Facade, watching: Any
) -> None:
    facade.ask("POST", RUNS, run("single"))
    watch = watching(RUNS, fieldSelector="metadata.name=single")
    facade.ask("POST", RUNS, run("other"))
    label(facade, "single", a="b")

    assert watch.names(2) == [("ADDED", "single"), ("MODIFIED", "single")]
    assert facade.ask("GET", f"{RUNS}/single", watch="true").json["kind"] == "Run"
