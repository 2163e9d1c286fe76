"""Objects through the facade: writes, reads, refusals, dry runs and their messages."""

import json

import pytest
from tests.rest.facade import (
    ADMIN,
    ANN,
    BUDGETS,
    OURS,
    PODS,
    RUNS,
    SYSTEM,
    Facade,
    budget,
    lease,
    node,
    pod,
    run,
)

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
MERGE = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


def test_run_can_be_created_read_replaced_and_deleted(facade: Facade) -> None:
    made = facade.ask("POST", RUNS, run("life"))
    assert made.status == 201
    assert made.json["metadata"]["generation"] == 1
    assert facade.ask("GET", f"{RUNS}/life").json == made.json

    changed = {**made.json, "spec": {**made.json["spec"], "stop": True}, "status": {"phase": "X"}}
    put = facade.ask("PUT", f"{RUNS}/life", changed)
    assert put.status == 200
    assert put.json["metadata"]["generation"] == 2
    assert "status" not in put.json, "PUT must not write the status"
    stale = facade.ask("PUT", f"{RUNS}/life", changed)
    assert (stale.status, stale.json["reason"]) == (409, "Conflict")
    assert stale.json["details"]["kind"] == "runs"
    unconditional = {**changed, "metadata": {"name": "life"}}
    missing = facade.ask("PUT", f"{RUNS}/life", unconditional)
    assert missing.status == 422
    assert missing.json["details"]["causes"][0]["field"] == "metadata.resourceVersion"

    gone = facade.ask("DELETE", f"{RUNS}/life")
    assert gone.json["status"] == "Success"
    assert gone.json["details"]["uid"] == made.json["metadata"]["uid"]
    assert facade.ask("GET", f"{RUNS}/life").json["reason"] == "NotFound"
    assert facade.ask("DELETE", f"{RUNS}/life").status == 404


def test_yaml_body_is_accepted(facade: Facade) -> None:
    text = (
        b"apiVersion: rq.davidlangworthy.io/v1\nkind: Run\nmetadata: {name: yaml}\n"
        b"spec:\n  owner: org:ai:mm:vision\n  resources: {gpuType: H100-80GB, totalGPUs: 010}\n"
    )
    made = facade.ask("POST", RUNS, text, headers={"Content-Type": "application/yaml"})

    assert made.status == 201
    assert made.json["spec"]["resources"]["totalGPUs"] == 8


@pytest.mark.parametrize(
    ("body", "media", "code", "words"),
    [
        (b"{", "application/json", 400, "is not JSON"),
        (b"[]", "application/json", 400, "is not an object"),
        (b"{}", "application/json", 400, "no apiVersion"),
        (b'{"apiVersion":"v1","kind":"Run"}', "application/json", 400, "apiVersion of the object"),
        (b"a: [", "application/yaml", 400, "YAML"),
        (b"a: &a [*a]", "application/yaml", 400, "aliases"),
        (b"[" * 9000, "application/json", 400, "recursion"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "application/json", 400, "nested deeper"),
        (b"x", "text/plain", 415, "unknown format"),
        (b"k8s\x00\xff", "application/vnd.kubernetes.protobuf", 400, "protobuf"),
        (b"{" + b" " * (3 << 20) + b"}", "application/json", 413, "bytes"),
    ],
)
def test_malformed_body_is_refused_with_status_and_reason(
    facade: Facade, body: bytes, media: str, code: int, words: str
) -> None:
    answer = facade.ask("POST", RUNS, body, headers={"Content-Type": media})

    assert answer.status == code
    assert answer.json["kind"] == "Status"
    assert answer.json["code"] == code
    assert words in answer.json["message"]


@pytest.mark.parametrize(
    "query",
    [
        {"labelSelector": "a in (b"}, {"labelSelector": "=a"}, {"labelSelector": "a b"},
        {"labelSelector": "a>x"}, {"labelSelector": "a=b=c"}, {"labelSelector": "A B/c"},
        {"fieldSelector": "spec.gang=Run"}, {"fieldSelector": "metadata.name"},
        {"fieldSelector": "metadata.name=\\"}, {"resourceVersion": "x"}, {"watch": "maybe"},
        {"resourceVersion": "-1"}, {"includeObject": "All"},
        {"watch": "1", "timeoutSeconds": "soon"}, {"continue": "x", "resourceVersion": "1"},
    ],
)  # fmt: skip
def test_malformed_query_parameter_is_bad_request(facade: Facade, query: dict[str, str]) -> None:
    answer = facade.ask("GET", RUNS, **query)

    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersionMatch": "Exactly"}, {"resourceVersionMatch": "Exact"},
        {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        {"watch": "1", "sendInitialEvents": "true"},
        {"watch": "1", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "0"},
    ],
)  # fmt: skip
def test_contradictory_list_options_are_invalid(facade: Facade, query: dict[str, str]) -> None:
    answer = facade.ask("GET", RUNS, **query)

    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert answer.json["details"]["kind"] == "ListOptions"
    assert [each["field"] for each in answer.json["details"]["causes"]] == ["resourceVersionMatch"]


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/nowhere", 404), ("GET", f"{OURS}/nothings", 404), ("GET", "/apis/x/v1/runs", 404),
        ("GET", f"{RUNS}/x/scale", 405), ("GET", f"{RUNS}/x/width", 404),
        ("GET", f"{RUNS}/x/status/y", 404),
        ("GET", f"{OURS}/leases/x/y/z", 404), ("PUT", RUNS, 405), ("POST", f"{RUNS}/x", 405),
        ("PATCH", RUNS, 405), ("OPTIONS", RUNS, 405), ("DELETE", f"{OURS}/runs", 405),
        ("POST", f"{OURS}/runs", 405), ("POST", "/version", 405), ("POST", "/api/v1", 405),
        ("GET", f"{PODS}/x/exec", 405), ("POST", "/api/v1/namespaces/vision/services", 405),
    ],
)  # fmt: skip
def test_unknown_path_or_method_is_refused(
    facade: Facade, method: str, path: str, code: int
) -> None:
    answer = facade.ask(method, path, {} if method in ("POST", "PUT", "PATCH") else None)

    assert answer.status == code
    assert answer.json["code"] == code


def test_object_with_other_identity_than_url_is_refused(facade: Facade) -> None:
    elsewhere = {**run("x"), "metadata": {"name": "x", "namespace": "audio"}}
    assert facade.ask("POST", RUNS, elsewhere).status == 400
    facade.ask("POST", RUNS, run("identity"))
    assert facade.ask("PUT", f"{RUNS}/identity", run("other")).status == 400
    patch = {"metadata": {"name": "other"}}
    assert facade.ask("PATCH", f"{RUNS}/identity", patch, headers=MERGE).status == 400
    clustered = {**lease("x"), "metadata": {"name": "x", "namespace": "vision"}}
    assert facade.ask("POST", f"{OURS}/leases", clustered, caller=SYSTEM).status == 400


def test_create_in_missing_namespace_is_not_found(facade: Facade) -> None:
    made = facade.ask("POST", RUNS.replace("vision", "nowhere"),
                      {**run("x"), "metadata": {"name": "x"}})  # fmt: skip

    assert made.status == 404
    assert made.json["details"] == {"kind": "namespaces", "name": "nowhere"}


def test_dry_run_applies_same_rules_and_writes_nothing(facade: Facade) -> None:
    facade.ask("POST", RUNS, run("there"))
    before = facade.store.version

    made = facade.ask("POST", RUNS, run("dry"), dryRun="All")
    assert made.status == 201
    assert made.json["metadata"]["uid"]
    assert "resourceVersion" not in made.json["metadata"]
    assert facade.ask("GET", f"{RUNS}/dry").status == 404
    assert facade.ask("POST", RUNS, run("there"), dryRun="All").status == 409
    assert facade.ask("POST", RUNS, run("bad", gang="x"), dryRun="All").status == 422
    patch = facade.ask(
        "PATCH", f"{RUNS}/there", {"spec": {"stop": True}}, headers=MERGE, dryRun="All"
    )
    assert patch.json["spec"]["stop"] is True
    assert patch.json["metadata"]["resourceVersion"] == str(before)
    assert facade.ask("DELETE", f"{RUNS}/there", dryRun="All").json["status"] == "Success"
    assert facade.ask("DELETE", RUNS, {"dryRun": ["All"]}).status == 200
    status = {**run("there"), "status": {"phase": "Running"}}
    told = facade.ask("PUT", f"{RUNS}/there/status", status, caller=SYSTEM, dryRun="All")
    assert told.json["status"] == {"phase": "Running"}
    assert facade.ask("POST", RUNS, run("dry"), dryRun="some").status == 422
    assert facade.store.version == before


def test_dry_run_budget_does_not_affect_later_budgets(facade: Facade) -> None:
    """If the first budget were remembered, the second would close a cycle of parents."""
    assert facade.ask("POST", BUDGETS, budget("a", owner="x:a", parents=["x:b"]), dryRun="All")
    made = facade.ask("POST", BUDGETS, budget("b", owner="x:b", parents=["x:a"]))

    assert made.status == 201


def test_unknown_fields_are_handled_by_field_validation_mode(facade: Facade) -> None:
    strict = facade.ask("POST", RUNS, run("u", zork=1, zonk={}), fieldValidation="Strict")
    assert strict.status == 400
    assert 'unknown field "spec.zork", unknown field "spec.zonk"' in strict.json["message"]
    warned = facade.ask("POST", RUNS, run("u", zork=1), fieldValidation="Warn")
    assert warned.status == 201
    assert warned.warnings == ('299 - "unknown field \\"spec.zork\\""',)
    assert "zork" not in warned.json["spec"]
    unsaid = facade.ask("POST", RUNS, run("u1", funding={"maxBorowGPUs": 4}))
    assert unsaid.status == 400, "a misspelt funding limit must not be dropped"
    assert 'unknown field "spec.funding.maxBorowGPUs"' in unsaid.json["message"]
    ignored = facade.ask("POST", RUNS, run("u2", zork=1), fieldValidation="Ignore")
    assert (ignored.status, ignored.warnings) == (201, ())
    assert facade.ask("POST", RUNS, run("u3"), fieldValidation="Lax").status == 422
    odd = node("odd")
    odd["metadata"]["annotations"] = {"a": 1}  # type: ignore[index]
    typed = facade.ask("POST", "/api/v1/nodes", odd, caller=SYSTEM)
    assert typed.status == 400
    assert "metadata.annotations.a: 1: use a string" in typed.json["message"]


def test_every_problem_of_a_run_is_listed_as_cause(facade: Facade) -> None:
    wrong = facade.ask("POST", RUNS, run("wrong", gang="Pack", sparesPerGroup=-1))

    assert wrong.status == 422
    details = wrong.json["details"]
    assert details["kind"] == "Run"
    assert [cause["field"] for cause in details["causes"]] == ["spec.sparesPerGroup", "spec.gang"]


def test_write_of_a_user_is_refused_if_the_control_plane_objects(facade: Facade) -> None:
    facade.world.objections.append(("spec.runtime.maxDuration", "6h: it is not covered"))
    try:
        answer = facade.ask("POST", RUNS, run("objected"), caller=ANN)
        assert facade.ask("POST", RUNS, run("by-system"), caller=SYSTEM).status == 201
    finally:
        facade.world.objections.clear()

    assert answer.status == 422
    assert answer.json["details"]["causes"][0]["field"] == "spec.runtime.maxDuration"


def test_user_cannot_add_or_remove_leasehold_finalizers(facade: Facade) -> None:
    ours = "rq.davidlangworthy.io/leases-closed"
    held = run("fin")
    held["metadata"]["finalizers"] = [ours, "mine/too"]  # type: ignore[index]
    made = facade.ask("POST", RUNS, held, caller=ANN)
    assert made.json["metadata"]["finalizers"] == ["mine/too"]
    facade.ask("PATCH", f"{RUNS}/fin", {"metadata": {"finalizers": [ours]}}, headers=MERGE,
               caller=SYSTEM)  # fmt: skip
    dropped = facade.ask(
        "PATCH", f"{RUNS}/fin", {"metadata": {"finalizers": None}}, headers=MERGE, caller=ANN
    )
    assert dropped.json["metadata"]["finalizers"] == [ours]
    going = facade.ask("DELETE", f"{RUNS}/fin", caller=ANN).json
    assert going["kind"] == "Run"
    assert "deletionGraceMs" not in going["metadata"]
    assert "deletionGraceMs" not in json.dumps(facade.ask("GET", RUNS).json)


def test_pod_deletion_honours_grace_period_and_checks_options(facade: Facade) -> None:
    facade.ask("POST", PODS, pod("grace"), caller=SYSTEM)
    going = facade.ask("DELETE", f"{PODS}/grace", {"gracePeriodSeconds": 7}, caller=ADMIN).json
    assert going["metadata"]["deletionGracePeriodSeconds"] == 7
    assert facade.ask("DELETE", f"{PODS}/grace", gracePeriodSeconds="0").json["kind"] == "Pod"
    assert facade.ask("GET", f"{PODS}/grace").status == 404
    assert facade.ask("DELETE", f"{PODS}/grace", {"gracePeriodSeconds": "7"}).status == 400
    for bad in ({"propagationPolicy": "Sideways"}, {"dryRun": ["x"]}):
        assert facade.ask("DELETE", f"{PODS}/grace", bad).status == 422


def test_deletion_requires_matching_preconditions(facade: Facade) -> None:
    made = facade.ask("POST", RUNS, run("pre")).json["metadata"]
    for wanted in ({"uid": "another"}, {"resourceVersion": "1"}):
        refused = facade.ask("DELETE", f"{RUNS}/pre", {"preconditions": wanted})
        assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    right = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    assert facade.ask("DELETE", f"{RUNS}/pre", {"preconditions": right}).status == 200


def test_binding_is_for_system_and_eviction_for_administrators(facade: Facade) -> None:
    facade.ask("POST", PODS, pod("loose", ""), caller=SYSTEM)
    assert facade.ask("GET", f"{PODS}/loose/log").status == 204
    binding = {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n1"}}
    assert facade.ask("POST", f"{PODS}/loose/binding", binding, caller=ADMIN).status == 403
    assert facade.ask("POST", f"{PODS}/loose/binding", binding, caller=SYSTEM).status == 201
    again = facade.ask("POST", f"{PODS}/loose/binding", binding, caller=SYSTEM)
    assert (again.status, again.json["details"]["kind"]) == (409, "pods/binding")
    assert facade.ask("POST", f"{PODS}/loose/binding", {}, caller=SYSTEM).status == 400

    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "loose"}}
    dry = {**eviction, "deleteOptions": {"dryRun": ["All"]}}
    assert facade.ask("POST", f"{PODS}/loose/eviction", dry).status == 201
    assert "deletionTimestamp" not in facade.ask("GET", f"{PODS}/loose").json["metadata"]
    assert facade.ask("POST", f"{PODS}/loose/eviction", eviction, caller=ANN).status == 403
    assert facade.ask("POST", f"{PODS}/loose/eviction", eviction).status == 201
    assert "deletionTimestamp" in facade.ask("GET", f"{PODS}/loose").json["metadata"]


def test_unreadable_log_and_invalid_log_options_are_refused(facade: Facade) -> None:
    facade.ask("POST", PODS, pod("lost"), caller=SYSTEM)
    facade.world.is_log_lost = True
    try:
        answer = facade.ask("GET", f"{PODS}/lost/log")
    finally:
        facade.world.is_log_lost = False
    assert (answer.status, answer.json["message"]) == (400, "its log is lost")
    for query in (
        {"tailLines": "-1"},
        {"sinceTime": "now"},
        {"container": "side"},
        {"limitBytes": "0"},
        {"sinceTime": "2026-11-15T00:00:00Z", "sinceSeconds": "1"},
    ):
        assert facade.ask("GET", f"{PODS}/lost/log", **query).status == 400  # fmt: skip


def test_collection_is_deleted_by_selector(facade: Facade) -> None:
    for name, color in (("c1", "red"), ("c2", "red"), ("c3", "blue")):
        obj = run(name)
        obj["metadata"]["labels"] = {"color": color}  # type: ignore[index]
        facade.ask("POST", RUNS, obj)
    gone = facade.ask("DELETE", RUNS, labelSelector="color=red")

    assert sorted(each["metadata"]["name"] for each in gone.json["items"]) == ["c1", "c2"]
    left = facade.ask("GET", RUNS, labelSelector="color").json["items"]
    assert [each["metadata"]["name"] for each in left] == ["c3"]


def test_table_rows_show_printer_columns(facade: Facade) -> None:
    facade.ask("POST", RUNS, run("tabled", malleable={"minTotalGPUs": 8, "maxTotalGPUs": 16}))
    facade.run(
        facade.store.patch_status(
            "Run",
            "vision",
            "tabled",
            {
                "phase": "Pending",
                "message": "two\nlines",
                "width": {"allocated": 0},
                "conditions": [
                    {"type": "Admitted", "status": "False", "reason": "Admitted"},
                    {"type": "Blocked", "status": "True", "reason": "NoBudget"},
                ],
            },
            version=None,
        )
    )
    shown = facade.ask("GET", f"{RUNS}/tabled", headers=TABLE).json
    assert shown["kind"] == "Table"
    cells = dict(zip((each["name"] for each in shown["columnDefinitions"]),
                     shown["rows"][0]["cells"]))  # fmt: skip
    assert cells["Phase"] == "Pending"
    assert cells["Reason"] == "NoBudget"
    assert (cells["GPUs"], cells["Width"]) == (0, "8-16")
    assert cells["Message"] == "two lines"
    assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = facade.ask("GET", RUNS, headers=TABLE, includeObject="Object").json
    assert whole["rows"][0]["object"]["kind"] == "Run"
    bare = facade.ask("GET", RUNS, headers=TABLE, includeObject="None").json
    assert "object" not in bare["rows"][0]
    assert facade.ask("GET", RUNS, headers={"Accept": "text/html"}).status == 406


def test_node_table_shows_flavor(facade: Facade) -> None:
    for name, labels, flavor in (
        ("ours", {"gpu.flavor": "H100-80GB"}, "H100-80GB"),
        ("well-known", {"nvidia.com/gpu.product": "L40S"}, "L40S"),
        ("bare", {}, "<unknown>"),
    ):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        assert facade.ask("POST", "/api/v1/nodes", node, caller=SYSTEM).status == 201
        shown = facade.ask("GET", f"/api/v1/nodes/{name}", headers=TABLE).json
        heads = [each["name"] for each in shown["columnDefinitions"]]
        assert dict(zip(heads, shown["rows"][0]["cells"], strict=True))["Flavor"] == flavor


def test_discovery_and_openapi_documents_are_cached(facade: Facade) -> None:
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}
    first = facade.ask("GET", "/apis", headers=aggregated)
    assert "APIGroupDiscoveryList" in first.headers["content-type"]
    again = {**aggregated, "If-None-Match": first.headers["etag"]}
    assert facade.ask("GET", "/apis", headers=again).status == 304
    assert facade.ask("GET", "/apis").json["kind"] == "APIGroupList"
    index = facade.ask("GET", "/openapi/v3").json["paths"]
    for place in index.values():
        path, _, query = place["serverRelativeURL"].partition("?")
        found = facade.ask("GET", path, hash=query.removeprefix("hash="))
        assert found.json["openapi"] == "3.0.0"
        assert "immutable" in found.headers["cache-control"]
        assert "immutable" not in facade.ask("GET", path).headers["cache-control"]
    assert facade.ask("GET", "/openapi/v2").body == b""


def test_queries_are_forwarded_with_caller_and_parameters(facade: Facade) -> None:
    for base in ("/query/v1", "/apis/query.rq.davidlangworthy.io/v1/questions"):
        answer = facade.ask("GET", f"{base}/budgets/usage", caller=ANN, owner="org:ai")
        assert answer.json == {
            "who": "ann", "question": "budgets/usage", "params": {"owner": "org:ai"}, "body": None,
        }  # fmt: skip
        asked = facade.ask("POST", f"{base}/plan", run("p"), caller=ANN)
        assert asked.json["body"]["kind"] == "Run"
        refused = facade.ask("GET", f"{base}/impossible")
        assert (refused.status, refused.json["reason"]) == (422, "Invalid")
        elsewhere = base.replace("/v1", "/v2")
        assert facade.ask("GET", f"{elsewhere}/x").status == 404
        assert facade.ask("DELETE", f"{base}/x").status == 405
    assert facade.ask("GET", "/metrics", caller=ANN).body == b"leasehold_up 1\n"


def test_list_without_limit_has_all_objects_in_order(facade: Facade) -> None:
    path = RUNS.replace("vision", "audio")
    for number in range(50):
        obj = run(f"m{number:02d}")
        obj["metadata"] = {"name": f"m{number:02d}", "namespace": "audio"}
        assert facade.ask("POST", path, obj).status == 201
    listed = facade.ask("GET", path).json

    assert [each["metadata"]["name"] for each in listed["items"]] == [
        f"m{n:02d}" for n in range(50)
    ]
    assert listed["kind"] == "RunList"
    assert int(listed["metadata"]["resourceVersion"]) == facade.store.version
    named = facade.ask("GET", path, fieldSelector="metadata.name=m07").json["items"]
    assert [each["metadata"]["name"] for each in named] == ["m07"]
    future = facade.ask("GET", path, resourceVersion="999999")
    assert (future.status, future.json["reason"]) == (410, "Expired")


def test_list_with_limit_comes_in_pages(facade: Facade) -> None:
    path = f"{OURS}/namespaces/default/runs"
    for number in range(7):
        obj = run(f"q{number}")
        labels = {"odd": str(number % 2)}
        obj["metadata"] = {"name": f"q{number}", "namespace": "default", "labels": labels}
        assert facade.ask("POST", path, obj).status == 201
    whole = [each["metadata"]["name"] for each in facade.ask("GET", path).json["items"]]

    def pages(**query: str) -> list[list[str]]:
        found, token, versions = [], "", set()
        while True:
            answer = facade.ask("GET", path, **query, **({"continue": token} if token else {})).json
            rows = answer.get("items") or [each["object"] for each in answer.get("rows", [])]
            found.append([each["metadata"]["name"] for each in rows])
            versions.add(answer["metadata"]["resourceVersion"])
            token = answer["metadata"].get("continue", "")
            if not token:
                assert len(versions) == 1, "all pages must have the version of the first"
                return found

    assert pages(limit="3") == [whole[:3], whole[3:6], whole[6:]]
    assert pages(limit="7") == [whole]
    assert pages(limit="2", labelSelector="odd=1")[:2] == [["q1", "q3"], ["q5"]]
    assert pages(limit="500") == [whole]
    everywhere = facade.ask("GET", f"{OURS}/runs", limit="2").json
    assert len(everywhere["items"]) == 2
    shown = facade.ask("GET", path, limit="3", headers=TABLE).json
    assert len(shown["rows"]) == 3
    assert shown["metadata"]["continue"]
    assert facade.ask("GET", path, **{"continue": "nonsense"}).status == 400
    assert facade.ask("GET", path, limit="-1").status == 400
