"""A case's conversation with one server, recorded so that two servers can be compared.

Every exchange is recorded as a flat table, `step path -> value`. Uids, versions and times differ
between servers, so they are replaced by names in order of appearance. Messages for people are left
out: ours name a remedy, and programs read the reason, the details and the code.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.apiserver.client import Answer, Client

GROUP = "rq.davidlangworthy.io"
OURS = f"/apis/{GROUP}/v1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_STAMPS = ("creationTimestamp", "deletionTimestamp", "time")
_GENERATED = re.compile(r"(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}$")

Flat = dict[str, object]


class Talk:
    """The conversation of one case. `namespace` belongs to the case, as do all names that begin
    with it."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        self.seen: Flat = {}
        self._step = 0
        self._names: dict[str, str] = {}

    @property
    def runs(self) -> str:
        return f"{OURS}/namespaces/{self.namespace}/runs"

    @property
    def budgets(self) -> str:
        return f"{OURS}/namespaces/{self.namespace}/budgets"

    @property
    def pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        see: tuple[str, ...] | None = None,
        who: str = "system",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> Any:
        """Make one request. `see` are the paths of the answer to compare; None compares all."""
        self._step += 1
        answer = self._client.ask(method, path, body, who=who, headers=headers, query=query)
        self._keep_head(answer)
        found = _document(answer)
        self._keep(f"{self._step}", _chosen(found, see))
        return found

    def make(self, path: str, body: object) -> Any:
        """Create an object that the case needs; the answer is not compared."""
        answer = self._client.ask("POST", path, body)
        assert answer.status == 201, answer.body.decode()
        return answer.json

    def patch(self, path: str, body: object, media: str = MERGE, **more: Any) -> Any:
        return self.ask("PATCH", path, body, headers={"Content-Type": media}, **more)

    def watch(
        self, path: str, count: int, *, see: tuple[str, ...] | None = None, **query: str
    ) -> list[Any]:
        """Return the first `count` events of a watch."""
        with self._client.watch(path, query) as watch:
            return self._keep_events(watch.take(count), see)

    @contextmanager
    def watching(
        self, path: str, first: int, count: int, *, see: tuple[str, ...], **query: str
    ) -> Iterator[None]:
        """Keep a watch open during the block; expect `first` events before and `count` after it."""
        with self._client.watch(path, query) as watch:
            self._keep_events(watch.take(first), see)
            yield
            self._keep_events(watch.take(count), see)

    def _keep_events(self, events: list[Any], see: tuple[str, ...] | None) -> list[Any]:
        self._step += 1
        self.seen[f"{self._step} events"] = len(events)
        for at, event in enumerate(events):
            self.seen[f"{self._step}.{at} type"] = event.get("type")
            self._keep(f"{self._step}.{at}", _chosen(event.get("object", event), see))
        return events

    def note(self, what: str, value: object) -> None:
        """Record a value that the case itself has computed."""
        self.seen[f"{self._step} {what}"] = value

    def _keep_head(self, answer: Answer) -> None:
        step = self._step
        self.seen[f"{step} http"] = answer.status
        self.seen[f"{step} content-type"] = answer.headers.get("content-type")
        self.seen[f"{step} warnings"] = len(answer.warnings)

    def _keep(self, place: str, found: object) -> None:
        is_list = isinstance(found, dict) and str(found.get("kind", "")).endswith(("List", "Table"))
        for path, value in sorted(_flat(found, ""), key=lambda leaf: leaf[0]):
            if path == "metadata.continue" and not value:
                continue  # absent and empty both mean that the list is complete
            if is_list and path == "metadata.resourceVersion":
                value = bool(value)  # the version of the whole server, which other cases change
            self.seen[f"{place} {path}"] = self._told(path, value)

    def _told(self, path: str, value: object) -> object:
        last = path.rpartition(".")[2]
        if last in ("uid", "resourceVersion") and isinstance(value, str) and value:
            return self._named(last, value)
        if last in _STAMPS and isinstance(value, str):
            return "<time>" if _TIME.fullmatch(value) else value
        if isinstance(value, str):
            return _GENERATED.sub("<made up>", value) if last == "name" else value
        return value

    def _named(self, kind: str, value: str) -> str:
        known = sum(1 for each in self._names if each.startswith(f"{kind}/"))
        return self._names.setdefault(f"{kind}/{value}", f"<{kind} {known + 1}>")


def _document(answer: Answer) -> Any:
    if answer.body.startswith((b"{", b"[")):
        return answer.json
    return {"text": answer.body.decode("utf-8", "replace")}


def _chosen(found: Any, see: tuple[str, ...] | None) -> Any:
    """Return the paths in `see`; a Status is returned whole without its message, unless `see` is
    empty."""
    if see == ():
        return {}
    if isinstance(found, dict) and found.get("kind") == "Status":
        return _bare_status(found)
    if see is None:
        return found
    chosen: dict[str, Any] = {}
    for path in see:
        value = found
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        chosen[path] = value
    return chosen


def _bare_status(found: dict[str, Any]) -> dict[str, Any]:
    bare = {key: value for key, value in found.items() if key != "message"}
    details = bare.get("details")
    if not details:
        bare.pop("details", None)
    if isinstance(details, dict) and "causes" in details:
        causes = sorted(
            # "<nil>" is not a field: it says that rules were skipped because of the other causes.
            {
                (each.get("field", ""), each.get("reason", ""))
                for each in details["causes"]
                if each.get("field") != "<nil>"
            }
        )
        bare["details"] = {**details, "causes": [f"{field} {why}" for field, why in causes]}
    return bare


def _flat(value: Any, path: str) -> list[tuple[str, object]]:
    """Return the leaves by path, without managedFields. An empty map or list counts as a leaf."""
    if isinstance(value, dict) and value:
        found: list[tuple[str, object]] = []
        for key, each in value.items():
            if key != "managedFields":
                found += _flat(each, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(value, list) and value:
        return [leaf for at, each in enumerate(value) for leaf in _flat(each, f"{path}[{at}]")]
    return [(path, value)]


Case = Callable[[Talk], None]


def differences(real: Flat, ours: Flat) -> dict[str, tuple[object, object]]:
    """Return the differing paths with (the real server's value, ours); None means absent."""
    return {
        path: (real.get(path), ours.get(path))
        for path in {**real, **ours}
        if real.get(path) != ours.get(path)
    }
