"""Hostile requests, driven from our own OpenAPI document: all answers are typed, none is a 5xx."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.rest.facade import ADMIN, ANN, SYSTEM, budget, lease, node, pod, run
from tests.rest.inprocess import InProcess

from leasehold.adapters.rest import openapi
from leasehold.core.objects.access import Caller

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "get", "X")
NAMES = ("r1", "b1", "p1", "n1", "l1", "vision", "default", "nobody", "..", "a" * 300, "%00", "")
MEDIA = (
    b"application/json", b"application/yaml", b"application/merge-patch+json",
    b"application/json-patch+json", b"application/strategic-merge-patch+json",
    b"application/apply-patch+yaml", b"application/vnd.kubernetes.protobuf", b"text/html",
    b"application/json; charset=utf-16", b"", b";;;",
)  # fmt: skip
ACCEPT = (
    b"application/json", b"*/*", b"text/html", b"application/json;as=Table;v=v1;g=meta.k8s.io",
    b"application/json;as=Nonsense,application/json", b";=,,", b"",
)  # fmt: skip
VISION = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "vision"}}
SEEDS = {
    "/api/v1/namespaces": VISION,
    "/apis/rq.davidlangworthy.io/v1/namespaces/vision/runs": run("r1"),
    "/apis/rq.davidlangworthy.io/v1/namespaces/vision/budgets": budget("b1"),
    "/api/v1/namespaces/vision/pods": pod("p1"),
    "/api/v1/nodes": node("n1"),
    "/apis/rq.davidlangworthy.io/v1/leases": lease("l1"),
}

DOCUMENTS = [json.loads(body) for body in openapi.documents().values()]
PATHS = sorted(path for document in DOCUMENTS for path in document["paths"])
PARAMETERS = sorted(
    {
        parameter["name"]
        for document in DOCUMENTS
        for operations in document["paths"].values()
        for operation in operations.values()
        if isinstance(operation, dict)
        for parameter in operation.get("parameters", ())
    }
    | {"force", "includeObject", "gracePeriodSeconds", "propagationPolicy", "continue"}
)

texts = st.one_of(
    st.sampled_from(
        ["", "true", "false", "0", "1", "-1", "99999999999999999999", "All", "Strict", "Ignore",
         "NotOlderThan", "Exact", "a=b", "metadata.name=r1", "metadata.name!=r1,status.phase=",
         "a in (b,", "!a", "a notin ()", "a>1", "\\", "a\\=b=c", "2026-11-15T00:00:00Z", "null",
         "9999-12-31T23:59:59+23:59", "0001-01-01T00:00:00Z", "main", "Object"]
    ),
    st.text(max_size=40),
)  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts,
    st.just("x" * 5000), st.just(10**40),
)  # fmt: skip
jsons = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(texts, st.sampled_from(["name", "$patch", "path"])), inner,
                        max_size=3),
    ),
    max_leaves=12,
)  # fmt: skip


def _spoil(obj: object, where: list[int], value: object) -> object:
    """The object with something else at a place that the numbers lead to."""
    if not where or not isinstance(obj, dict | list) or not obj:
        return value
    step, rest = where[0], where[1:]
    if isinstance(obj, dict):
        key = sorted(obj)[step % len(obj)]
        return {**obj, key: _spoil(obj[key], rest, value)}
    place = step % len(obj)
    return [*obj[:place], _spoil(obj[place], rest, value), *obj[place + 1 :]]


spoiled = st.builds(
    _spoil, st.sampled_from(list(SEEDS.values())), st.lists(st.integers(0, 9), max_size=6), jsons
)
operations = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "zap"]),
         "path": st.sampled_from(["", "/spec", "/spec/-", "/metadata/labels/a", "/x/0", "~", "/~1",
                                  "/metadata", "/spec/envelopes/0", "/spec/envelopes/-"])},
        optional={"from": st.sampled_from(["", "/spec", "/metadata/name", "/nope"]),
                  "value": jsons},
    ),
    max_size=4,
)  # fmt: skip
bodies = st.one_of(
    st.binary(max_size=60),
    spoiled.map(lambda value: json.dumps(value).encode()),
    jsons.map(lambda value: json.dumps(value).encode()),
    operations.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40).map(lambda raw: b"k8s\x00" + raw),
    st.sampled_from(
        [b"", b"{", b"[" * 5000, b"{}", b"[]", b"null", b'"\\ud800"', b"a: &x [*x]", b"\xff\xfe",
         b"---\na: 1\n---\nb: 2", b"a: 2026-01-01", b"? [a]\n: b", b"a: .nan", b"a: !!python/x",
         b"a: 0o9", b'{"a":' * 90 + b"1" + b"}" * 90]
    ),
)  # fmt: skip
queries = st.dictionaries(st.sampled_from(PARAMETERS), texts, max_size=4)


def plant(server: InProcess) -> None:
    """Create again the objects that the requests address, if a request removed them."""
    there = server.ask("GET", b"/api/v1/namespaces/vision")
    if b"deletionTimestamp" in there.body:  # no controller removes the finalizer here
        server.ask(
            "PATCH",
            b"/api/v1/namespaces/vision",
            b'{"metadata":{"finalizers":null}}',
            headers={b"content-type": MEDIA[2]},
        )
    for path, obj in SEEDS.items():
        made = server.ask("POST", path.encode(), json.dumps(obj).encode())
        assert made.status in (201, 409), made.body


def fitting(path: str, where: list[int], value: object) -> bytes:
    """Return an object for this path; if `where` is given, put `value` at that place in it."""
    plural = path.removesuffix("/status").removesuffix("/{name}").rpartition("/")[2]
    seed = next((obj for each, obj in SEEDS.items() if each.endswith(plural)), VISION)
    return json.dumps(_spoil(seed, where, value) if where else seed).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[InProcess]:
    found = InProcess()
    plant(found)
    yield found
    found.close()


@settings(max_examples=1500)
@given(
    path=st.sampled_from(PATHS),
    names=st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    method=st.sampled_from(METHODS),
    query=queries,
    body=bodies,
    fit=st.none() | st.tuples(st.lists(st.integers(0, 9), max_size=6), jsons),
    media=st.sampled_from(MEDIA),
    accept=st.sampled_from(ACCEPT),
    caller=st.sampled_from([SYSTEM, SYSTEM, ADMIN, ANN]),
)
@example(
    path="/api/v1/nodes/{name}",
    names=("n1", ""),
    method="PATCH",
    query={},
    fit=None,
    caller=SYSTEM,
    body=b'{"metadata":{"name":null}}',
    media=b"application/merge-patch+json",
    accept=b"*/*",
)
@example(
    path="/api/v1/nodes", names=("", ""), method="POST", query={}, caller=SYSTEM, fit=None,
    body=b'{"apiVersion":"v1","kind":"Node","metadata":[]}', media=b"application/json", accept=b"",
)  # fmt: skip
def test_fuzzed_request_gets_typed_answer_without_server_error(
    server: InProcess,
    path: str,
    names: tuple[str, str],
    method: str,
    query: dict[str, str],
    body: bytes,
    fit: tuple[list[int], object] | None,
    media: bytes,
    accept: bytes,
    caller: Caller,
) -> None:
    if fit is not None:
        body, names = fitting(path, *fit), (names[0], "vision")
    raw = path.replace("{namespace}", "vision" if len(body) % 3 else names[1])
    raw = raw.replace("{name}", quote(names[0], safe="%"))
    encoded = "&".join(f"{quote(key)}={quote(value)}" for key, value in query.items())

    answer = server.ask(
        method,
        raw.encode("ascii"),
        body,
        query=encoded.encode("ascii"),
        headers={b"content-type": media, b"accept": accept},
        caller=caller,
    )

    assert answer.status < 500, answer.body
    if method in ("DELETE", "PATCH", "PUT") and answer.status == 200:
        plant(server)
    if answer.status >= 400:
        status = json.loads(answer.body) if method != "HEAD" else {"kind": "Status"}
        assert status["kind"] == "Status"
        assert method == "HEAD" or (status["code"] == answer.status and status["reason"])


@settings(max_examples=300)
@given(
    path=st.lists(
        st.sampled_from(["api", "apis", "v1", "namespaces", "vision", "runs", "r1", "status", "log",
                         "pods", "p1", "openapi", "v3", "query", "rq.davidlangworthy.io", "", "..",
                         "selfsubjectreviews", "authentication.k8s.io", "%2f", "%ff", "%", "%zz",
                         "authorization.k8s.io", "selfsubjectaccessreviews", "services", "proxy"]),
        max_size=9,
    ),
    method=st.sampled_from(METHODS),
    query=st.binary(max_size=30),
    body=bodies,
)  # fmt: skip
def test_random_path_gets_answer_without_server_error(
    server: InProcess, path: list[str], method: str, query: bytes, body: bytes
) -> None:
    answer = server.ask(method, ("/" + "/".join(path)).encode(), body, query=query)

    assert answer.status < 500, answer.body


@settings(max_examples=300)
@given(patch=st.one_of(spoiled, jsons), media=st.sampled_from(MEDIA[2:6]))
def test_fuzzed_patch_leaves_objects_readable(
    server: InProcess, patch: object, media: bytes
) -> None:
    plant(server)
    for path in (
        b"/apis/rq.davidlangworthy.io/v1/namespaces/vision/budgets/b1",
        b"/api/v1/namespaces/vision/pods/p1",
        b"/api/v1/nodes/n1",
        b"/api/v1/nodes/n1/status",
    ):
        answer = server.ask(
            "PATCH",
            path,
            json.dumps(patch).encode(),
            query=b"fieldManager=f&force=true",
            headers={b"content-type": media},
        )
        assert answer.status < 500, answer.body
        read = server.ask("GET", path)
        assert read.status in (200, 404), "a written object must be readable"
        table = {b"accept": ACCEPT[3]}
        assert server.ask("GET", path, headers=table).status in (200, 404)
