"""Cases: get, list, watch, tables, selectors, and the documents of the server itself."""

from typing import Any

from tests.apiserver.table import case
from tests.apiserver.talk import GROUP, OURS, TABLE, Talk
from tests.apiserver.things import lease, node, pod, run

META = ("kind", "metadata.name", "metadata.labels", "metadata.generation")
END = ("kind", "apiVersion", "metadata.annotations")


def colored(it: Talk) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "")):
        it.make(it.runs, run(it, name, labels={"color": color} if color else {}))


def names(it: Talk, found: Any) -> None:
    it.note("names", [each["metadata"]["name"] for each in found.get("items") or []])


@case()
def lists(it: Talk) -> None:
    it.ask("GET", it.runs)
    colored(it)
    it.ask("GET", it.runs, see=("kind", "apiVersion"))
    names(it, it.ask("GET", it.runs))
    it.ask("GET", it.pods)
    it.make(it.pods, pod(it, "p"))
    names(it, it.ask("GET", it.pods, see=("kind", "apiVersion")))


@case(
    {
        "1 metadata.remainingItemCount": "remaining",
    }
)
def lists_in_pages(it: Talk) -> None:
    colored(it)
    first = it.ask("GET", it.runs, limit="2", see=("kind", "metadata.remainingItemCount"))
    names(it, first)
    token = first["metadata"]["continue"]
    last = it.ask("GET", it.runs, see=("kind",), limit="2", **{"continue": token})
    names(it, last)
    it.note("more", bool(last["metadata"].get("continue")))
    it.ask("GET", it.runs, limit="2", **{"continue": "nonsense"})
    it.ask("GET", it.runs, limit="x")
    it.ask("GET", it.runs, limit="2", resourceVersion="1", **{"continue": token})


@case()
def label_selectors(it: Talk) -> None:
    colored(it)
    for selector in ("color=red", "color==red", "color!=red", "color", "!color",
                     "color in (red,blue)", "color notin (red)", "color=red,color=blue", "color=",
                     "color in ()", "color>3"):  # fmt: skip
        names(it, it.ask("GET", it.runs, labelSelector=selector, see=("kind",)))
    for selector in ("=", "color in red", "a b", "color=(", "color=a b", "&"):
        it.ask("GET", it.runs, labelSelector=selector)


@case()
def field_selectors(it: Talk) -> None:
    colored(it)
    for selector in ("metadata.name=a", "metadata.name!=a", "metadata.name==b",
                     f"metadata.namespace={it.namespace}", "metadata.namespace=other",
                     "spec.owner=org:ai:mm:vision", "spec.owner!=org:ai:mm:vision",
                     "status.phase=Pending", "status.phase=",
                     "metadata.name=a,metadata.name=b", ""):  # fmt: skip
        names(it, it.ask("GET", it.runs, fieldSelector=selector, see=("kind",)))
    for selector in ("spec.stop=true", "metadata.uid=x", "metadata.name", "=a", "spec.nodeName=x"):
        it.ask("GET", it.runs, fieldSelector=selector)


@case({"5 names": "unset"})
def field_selectors_of_leases(it: Talk) -> None:
    for name, place in (("a", "n1"), ("b", "n2")):
        it.make(f"{OURS}/leases", lease(it, name, place))
    it.patch(f"{OURS}/leases/{it.namespace}-b/status", {"status": {"closed": True}}, see=META)
    mine = {"labelSelector": f"case={it.namespace}"}
    for selector in ("spec.slice.node=n1", "spec.owner=org:ai:mm:vision", "status.closed=true",
                     "status.closed=false", "status.closed!=true",
                     "spec.slice.node=n2,status.closed=true", "spec.reason=Start",
                     "spec.runRef.name=train", "spec.runRef.namespace=vision",
                     "spec.paidByEnvelope=west", "spec.paidBy.owner=org:ai:mm:vision",
                     "spec.batch=4711"):  # fmt: skip
        names(it, it.ask("GET", f"{OURS}/leases", fieldSelector=selector, see=("kind",), **mine))


@case(
    {
        "4 names": "defaults",
    }
)
def field_selectors_of_pods(it: Talk) -> None:
    it.make(it.pods, pod(it, "p", "n1"))
    it.make(it.pods, pod(it, "q"))
    for selector in ("spec.nodeName=n1", "spec.nodeName=", "status.phase=Pending",
                     "spec.restartPolicy=Always", "spec.hostname=x"):  # fmt: skip
        names(it, it.ask("GET", it.pods, fieldSelector=selector, see=("kind",)))


@case()
def versions_of_lists(it: Talk) -> None:
    colored(it)
    for query in ({"resourceVersion": "0"}, {"resourceVersion": "x"},
                  {"resourceVersionMatch": "NotOlderThan"},
                  {"resourceVersion": "0", "resourceVersionMatch": "Exact"},
                  {"resourceVersion": "1", "resourceVersionMatch": "Sometimes"},
                  {"resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}):  # fmt: skip
        it.ask("GET", it.runs, see=("kind", "apiVersion"), **query)


@case()
def tables(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    found = it.ask("GET", it.pods, headers={"Accept": TABLE},
                   see=("kind", "apiVersion"))  # fmt: skip
    for column in found["columnDefinitions"]:
        it.note(column["name"], {key: column[key] for key in ("type", "format", "priority")})
    it.note("cells", [type(cell).__name__ for cell in found["rows"][0]["cells"]])
    it.note("object", found["rows"][0]["object"]["kind"])
    one = it.ask("GET", f"{it.pods}/p", headers={"Accept": TABLE}, see=("kind",))
    it.note("rows", len(one["rows"]))
    for include in ("None", "Object", "Some"):
        found = it.ask("GET", it.pods, headers={"Accept": TABLE}, see=("kind",),
                       includeObject=include)  # fmt: skip
        for row in found.get("rows", []):
            it.note("object", row.get("object") and row["object"].get("kind"))


@case()
def tables_of_runs(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    found = it.ask("GET", it.runs, headers={"Accept": TABLE}, see=("kind", "apiVersion"))
    shown = {each["name"]: each["type"] for each in found["columnDefinitions"]}
    it.note("name", shown["Name"])
    cells = dict(zip(shown, found["rows"][0]["cells"]))
    it.note("owner", cells["Owner"])
    it.note("object", found["rows"][0]["object"]["kind"])


@case()
def media_types_of_answers(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    for accept in ("application/json", "*/*", "application/*", "text/html", "application/xml",
                   "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                   "text/html, application/json", "application/json;as=Rows;v=v1;g=meta.k8s.io",
                   "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"):  # fmt: skip
        it.ask("GET", f"{it.runs}/a", headers={"Accept": accept}, see=("kind", "apiVersion"))
    accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    it.ask("GET", it.runs, headers={"Accept": accept}, see=("kind", "apiVersion"))


@case(
    {
        "5.3 metadata.deletion*": "deleted event",
    }
)
def watches_send_changes(it: Talk) -> None:
    start = it.ask("GET", it.runs)["metadata"]["resourceVersion"]
    it.make(it.runs, run(it, "a"))
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, see=META)
    it.patch(f"{it.runs}/a/status", {"status": {"phase": "Failed"}}, see=META)
    it.ask("DELETE", f"{it.runs}/a")
    it.watch(it.runs, 4, resourceVersion=start)


@case()
def watches_of_existing_objects(it: Talk) -> None:
    colored(it)
    for version in ({}, {"resourceVersion": "0"}):
        it.watch(it.runs, 3, see=META, **version)
    it.watch(f"{it.runs}/b", 1, see=META)
    it.watch(it.runs, 1, see=META, fieldSelector="metadata.name=c")


@case(
    {
        "7.0 metadata.labels.color": "past selector",
        "7.1 type": "past selector",
    }
)
def watches_with_selectors(it: Talk) -> None:
    it.make(it.runs, run(it, "a", labels={"color": "red"}))
    it.make(it.runs, run(it, "b"))
    start = it.ask("GET", it.runs, see=("kind",))["metadata"]["resourceVersion"]
    it.patch(f"{it.runs}/a", {"metadata": {"labels": {"color": "blue"}}}, see=META)
    it.patch(f"{it.runs}/b", {"metadata": {"labels": {"color": "red"}}}, see=META)
    it.patch(f"{it.runs}/b", {"spec": {"stop": True}}, see=META)
    it.ask("DELETE", f"{it.runs}/a")
    it.ask("DELETE", f"{it.runs}/b")
    it.watch(it.runs, 4, see=META, resourceVersion=start, labelSelector="color=red")
    it.make(it.runs, run(it, "c"))
    it.watch(it.runs, 3, see=META, resourceVersion=start, fieldSelector="metadata.name=b")


@case()
def watches_with_initial_events(it: Talk) -> None:
    colored(it)
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan",
             "allowWatchBookmarks": "true"}  # fmt: skip
    it.watch(it.runs, 3, see=META, **query)
    events = it.watch(it.runs, 4, see=END, **query)
    it.note("bookmark", events[-1]["type"])
    it.watch(it.runs, 1, see=END, sendInitialEvents="true")
    it.watch(it.runs, 1, see=END, sendInitialEvents="true",
             resourceVersionMatch="NotOlderThan")  # fmt: skip
    it.watch(it.runs, 1, see=END, resourceVersionMatch="NotOlderThan", resourceVersion="0")


@case(
    {
        "1.0 *": "mistake",
    }
)
def watches_of_the_past(it: Talk) -> None:
    it.watch(it.runs, 1, resourceVersion="x")
    it.watch(it.runs, 1, timeoutSeconds="x", resourceVersion="0")
    it.watch(it.runs, 1, labelSelector="=", resourceVersion="0")


@case()
def watches_end_at_their_timeout(it: Talk) -> None:
    it.watch(it.runs, 9, timeoutSeconds="1")


@case()
def watches_as_tables(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    it.make(it.pods, pod(it, "q"))
    for event in it.watch(it.pods, 2, see=("kind",), accept=TABLE):
        it.note(event["type"], bool(event["object"].get("columnDefinitions")))


@case({"* content-type": "typed 404"})
def unknown_paths(it: Talk) -> None:
    for path in ("/nothing", "/apis/none.example/v1", "/apis/none.example",
                 f"/apis/{GROUP}/v2/runs", f"{OURS}/nothings", f"{OURS}/runs/a",
                 f"{OURS}/namespaces/{it.namespace}/leases"):  # fmt: skip
        it.ask("GET", path, see=())


@case({"6 details.*": "405 details", "7 details.*": "405 details"})
def unknown_resources(it: Talk) -> None:
    for path in ("/api/v2", "/api/v1/nothings", f"{it.pods}/a/nothing", "/api/v1/nodes/a/nothing",
                 f"/api/v1/namespaces/{it.namespace}/nothings", f"{it.runs}/a/nothing",
                 f"{OURS}/resolutions/a/status"):  # fmt: skip
        it.ask("GET", path)


@case({
    "1 http": "verbs", "1 *": "verbs", "2 http": "verbs", "2 *": "verbs", "3 http": "verbs",
    "3 *": "verbs", "4 http": "verbs", "4 content-type": "typed 404", "5 http": "verbs",
    "5 content-type": "typed 404", "* details.*": "405 details",
})  # fmt: skip
def unsupported_methods(it: Talk) -> None:
    for method, path in (
        ("POST", f"{it.runs}/a"), ("PUT", it.runs), ("PATCH", it.runs), ("POST", f"{OURS}/runs"),
        ("DELETE", f"{OURS}/runs"), ("DELETE", f"{it.runs}/a/status"),
        ("POST", f"{it.runs}/a/status"), ("PUT", it.pods), ("POST", f"{it.pods}/a"),
        ("POST", "/version"), ("POST", "/api"), ("TRACE", it.runs), ("OPTIONS", it.runs),
        ("DELETE", "/api/v1/namespaces"),
    ):  # fmt: skip
        is_elsewhere = path == f"{OURS}/runs"
        it.ask(method, path, {}, see=() if is_elsewhere else None)


@case(
    {
        "* content-type": "content type",
    }
)
def the_server_itself(it: Talk) -> None:
    it.ask("GET", "/version", see=("major", "minor"))
    for path in ("/healthz", "/livez", "/readyz"):
        it.ask("GET", path)
    it.ask("GET", "/api", see=("kind", "versions"))
    it.ask("GET", f"/apis/{GROUP}")
    found = it.ask("GET", "/openapi/v3", see=("kind",), headers={"Accept": "application/json"})
    for place in ("api/v1", f"apis/{GROUP}/v1"):
        it.note(place, place in found["paths"])


@case()
def discovery_of_our_group(it: Talk) -> None:
    found = it.ask("GET", OURS, see=("kind", "apiVersion", "groupVersion"))
    for each in sorted(found["resources"], key=lambda row: row["name"]):
        shown = {key: value for key, value in each.items() if key != "storageVersionHash"}
        it.note(each["name"], {**shown, "verbs": sorted(each["verbs"])})


@case()
def discovery_of_the_core(it: Talk) -> None:
    found = it.ask("GET", "/api/v1", see=("kind", "groupVersion"))
    wanted = ("nodes", "nodes/status", "namespaces", "namespaces/status", "pods", "pods/binding",
              "pods/eviction", "pods/log", "pods/status", "events")  # fmt: skip
    for each in sorted(found["resources"], key=lambda row: row["name"]):
        if each["name"] in wanted:
            shown = {key: value for key, value in each.items() if key != "storageVersionHash"}
            it.note(each["name"], {**shown, "verbs": sorted(each["verbs"])})


@case()
def discovery_in_one_document(it: Talk) -> None:
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    found = it.ask("GET", "/apis", headers={"Accept": accept}, see=("kind", "apiVersion"))
    ours = next(each for each in found["items"] if each["metadata"]["name"] == GROUP)
    for each in sorted(ours["versions"][0]["resources"], key=lambda row: row["resource"]):
        parts = [{**part, "verbs": sorted(part["verbs"])} for part in each.get("subresources", [])]
        shown = {**each, "verbs": sorted(each["verbs"]), "subresources": parts}
        it.note(each["resource"], shown)


@case(
    {
        "2 columns": "columns",
    }
)
def nodes_in_a_list(it: Talk) -> None:
    it.make("/api/v1/nodes", node(it, "n"))
    mine = {"labelSelector": f"case={it.namespace}"}
    names(it, it.ask("GET", "/api/v1/nodes", see=("kind", "apiVersion"), **mine))
    found = it.ask("GET", "/api/v1/nodes", headers={"Accept": TABLE}, see=("kind",), **mine)
    it.note("columns", [each["name"] for each in found["columnDefinitions"]])


@case({"* http": "selectable", "* *": "selectable"})
def field_selectors_of_the_facade_only(it: Talk) -> None:
    for selector in ("spec.slice.role=Active", "status.closureReason=Fail", "spec.slice.nodes=n1"):
        it.ask("GET", f"{OURS}/leases", fieldSelector=selector, see=("kind",))


@case()
def watches_of_metadata_only(it: Talk) -> None:
    colored(it)
    accept = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    it.watch(it.runs, 3, accept=accept)


@case()
def logs_of_a_pod_without_a_node(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    it.ask("GET", f"{it.pods}/p/log")
    it.ask("GET", f"{it.pods}/none/log")


@case()
def events(it: Talk) -> None:
    place = f"/api/v1/namespaces/{it.namespace}/events"
    for name, about in (("x", "a"), ("y", "b")):
        it.ask("POST", place, {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "type": "Normal",
            "involvedObject": {"kind": "Run", "name": about, "namespace": it.namespace},
            "reason": "Started", "message": "m", "count": 1,
        }, see=("kind", "apiVersion", "metadata.name", "involvedObject", "reason", "type", "count")
        )  # fmt: skip
    for selector in ("involvedObject.name=a", "involvedObject.kind=Run,involvedObject.name=b",
                     "reason=Started", "type=Warning", "message=m"):  # fmt: skip
        names(it, it.ask("GET", place, fieldSelector=selector, see=("kind",)))


@case(
    {
        "1 http": "forms",
        "3 http": "forms",
        "* content-type": "forms",
    }
)
def media_types_of_the_real_server_only(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.make(it.pods, pod(it, "p"))
    protobuf = "application/vnd.kubernetes.protobuf"
    for accept, path in (
        ("application/yaml", f"{it.runs}/a"),
        (protobuf, f"{it.runs}/a"),
        (protobuf, it.pods),
        (f"{protobuf},application/json", f"{it.runs}/a"),
    ):
        it.ask("GET", path, headers={"Accept": accept}, see=())


@case(
    {
        "1 http": "future",
        "1 *": "future",
    }
)
def versions_from_the_future(it: Talk) -> None:
    it.ask("GET", it.runs, resourceVersion="999999999999")


@case()
def selectors_while_things_change(it: Talk) -> None:
    colored(it)
    name = ("kind", "metadata.name", "metadata.generation")
    with it.watching(it.runs, 1, 4, see=name, labelSelector="color=red"):
        it.patch(f"{it.runs}/c", {"metadata": {"labels": {"color": "red"}}}, see=())
        it.patch(f"{it.runs}/b", {"spec": {"stop": True}}, see=())
        it.patch(f"{it.runs}/c", {"spec": {"stop": True}}, see=())
        it.patch(f"{it.runs}/a", {"metadata": {"labels": {"color": "blue"}}}, see=())
        it.ask("DELETE", f"{it.runs}/a")
        it.ask("DELETE", f"{it.runs}/c")
    with it.watching(it.runs, 1, 2, see=name, fieldSelector="spec.owner=org:ai:mm:vision"):
        it.make(it.runs, run(it, "d", owner="org:other"))
        it.make(it.runs, run(it, "e"))
        it.ask("DELETE", f"{it.runs}/e")
