"""Cases: one object, from its creation to its deletion."""

from tests.apiserver.table import case
from tests.apiserver.talk import OURS, Talk
from tests.apiserver.things import lease, node, pod, run

META = ("kind", "apiVersion", "metadata")
HOLD = {"finalizers": ["example.com/hold"]}


@case()
def create_and_get(it: Talk) -> None:
    it.ask("POST", it.runs, run(it, "a"))
    it.ask("GET", f"{it.runs}/a")


@case()
def create_twice(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.ask("POST", it.runs, run(it, "a"))
    it.make(it.pods, pod(it, "p"))
    it.ask("POST", it.pods, pod(it, "p"))


@case()
def missing_objects(it: Talk) -> None:
    stale = run(it, "a")
    stale["metadata"]["resourceVersion"] = "1"
    it.ask("GET", f"{it.runs}/a")
    it.ask("PUT", f"{it.runs}/a", stale)
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}})
    it.ask("DELETE", f"{it.runs}/a")
    it.patch(f"{it.runs}/a/status", {"status": {}})
    it.ask("GET", f"{it.pods}/a")
    it.ask("GET", "/api/v1/nodes/none")


@case(
    {
        "1 http": "another kind",
        "1 *": "another kind",
        "2 warnings": "warning",
    }
)
def wrong_identity(it: Talk) -> None:
    for change in (
        {"kind": "Budget"},
        {"apiVersion": "rq.davidlangworthy.io/v2"},
        {"kind": None},
        {"apiVersion": ""},
        {"metadata": {"name": "a", "namespace": "audio"}},
        {"metadata": {}},
    ):
        it.ask("POST", it.runs, {**run(it, "a"), **change})


@case()
def wrong_identity_of_updates(it: Talk) -> None:
    made = it.make(it.runs, run(it, "a"))
    for change in ({"name": "b"}, {"namespace": "audio"}, {"uid": "x"}, {"uid": ""}):
        it.ask("PUT", f"{it.runs}/a", {**made, "metadata": {**made["metadata"], **change}})


@case(
    {
        "2 http": "mistake",
        "2 *": "mistake",
    }
)
def server_fields_cannot_be_set(it: Talk) -> None:
    asked = run(it, "a")
    asked["metadata"] |= {
        "uid": "mine",
        "generation": 7,
        "creationTimestamp": "2001-01-01T00:00:00Z",
        "deletionTimestamp": "2001-01-01T00:00:00Z",
    }
    made = it.ask("POST", it.runs, asked)
    it.note("uid", made["metadata"]["uid"] == "mine")
    it.note("created", made["metadata"]["creationTimestamp"].startswith("2001"))
    versioned = run(it, "b")
    versioned["metadata"]["resourceVersion"] = "12"
    it.ask("POST", it.runs, versioned)


@case(
    {
        "2 details.causes*": "made-up name",
    }
)
def generate_name(it: Talk) -> None:
    asked = run(it, "a")
    asked["metadata"] = {"generateName": "made-"}
    it.ask("POST", it.runs, asked)
    asked["metadata"] = {"generateName": "Made-"}
    it.ask("POST", it.runs, asked)


@case(
    {
        "* details.causes*": "place",
    }
)
def bad_names_and_labels(it: Talk) -> None:
    for name in ("A", "a_b", "-a", "a" * 254, "a..b"):
        it.ask("POST", it.runs, run(it, name))
    for labels in ({"a": "b c"}, {"a b": "c"}, {"a": "x" * 64}, {"a/b/c": "d"}, {"/a": "b"}):
        it.ask("POST", it.runs, run(it, "a", labels=labels))


@case()
def generation_moves_with_spec_only(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.patch(f"{it.runs}/a", {"metadata": {"labels": {"x": "y"}}}, see=META)
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, see=META)
    it.patch(f"{it.runs}/a/status", {"status": {"phase": "Pending"}}, see=META)
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, see=META)


@case()
def an_update_that_changes_nothing(it: Talk) -> None:
    made = it.make(it.runs, run(it, "a"))
    again = it.ask("PUT", f"{it.runs}/a", made)
    before, after = (each["metadata"]["resourceVersion"] for each in (made, again))
    it.note("same version", before == after)


@case(
    {
        "3 http": "mistake",
        "3 *": "mistake",
        "4 details.*": "required",
    }
)
def updates_and_versions(it: Talk) -> None:
    made = it.make(it.runs, run(it, "a"))
    made["spec"]["stop"] = True
    it.ask("PUT", f"{it.runs}/a", made)
    it.ask("PUT", f"{it.runs}/a", made)
    made["metadata"]["resourceVersion"] = "x"
    it.ask("PUT", f"{it.runs}/a", made)
    del made["metadata"]["resourceVersion"]
    it.ask("PUT", f"{it.runs}/a", made)


@case(
    {
        "1 metadata.generation": "generation",
    }
)
def an_update_without_version_of_a_core_kind(it: Talk) -> None:
    made = it.make("/api/v1/nodes", node(it, "n"))
    del made["metadata"]["resourceVersion"]
    made["metadata"]["labels"]["x"] = "y"
    it.ask("PUT", f"/api/v1/nodes/{it.namespace}-n", made, see=META)


@case()
def status_is_a_subresource(it: Talk) -> None:
    made = it.ask("POST", it.runs, {**run(it, "a"), "status": {"phase": "Running"}})
    made["status"] = {"phase": "Running", "message": "m"}
    made["spec"]["stop"] = True
    made["metadata"]["labels"] = {"x": "y"}
    made = it.ask("PUT", f"{it.runs}/a/status", made)
    made["status"] = {"phase": "Failed"}
    made["spec"]["stop"] = True
    it.ask("PUT", f"{it.runs}/a", made)
    it.ask("GET", f"{it.runs}/a/status")
    it.patch(f"{it.runs}/a/status", {"spec": {"stop": False}, "status": {"message": None}})


@case()
def status_of_a_wrong_version(it: Talk) -> None:
    made = it.make(it.runs, run(it, "a"))
    made["status"] = {"phase": "Running"}
    it.ask("PUT", f"{it.runs}/a/status", made)
    it.ask("PUT", f"{it.runs}/a/status", made)


@case(
    {
        "* metadata.generation": "generation",
        "6 metadata.resourceVersion": "last word",
    }
)
def finalizers(it: Talk) -> None:
    asked = run(it, "a")
    asked["metadata"] |= HOLD
    it.make(it.runs, asked)
    it.ask("DELETE", f"{it.runs}/a")
    it.ask("GET", f"{it.runs}/a")
    it.ask("DELETE", f"{it.runs}/a")
    more = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    it.patch(f"{it.runs}/a", more)
    it.patch(f"{it.runs}/a", {"metadata": {"labels": {"x": "y"}}})
    it.patch(f"{it.runs}/a", {"metadata": {"finalizers": None}})
    it.ask("GET", f"{it.runs}/a")


@case()
def delete_an_object(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.ask("DELETE", f"{it.runs}/a")
    it.ask("DELETE", f"{it.runs}/a")


@case(
    {
        "* details.kind": "conflict",
    }
)
def delete_preconditions(it: Talk) -> None:
    made = it.make(it.runs, run(it, "a"))
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    it.ask("DELETE", f"{it.runs}/a", {**options, "preconditions": {"uid": "other"}})
    it.ask("DELETE", f"{it.runs}/a", {**options, "preconditions": {"resourceVersion": "1"}})
    right = {"uid": made["metadata"]["uid"],
             "resourceVersion": made["metadata"]["resourceVersion"]}  # fmt: skip
    it.ask("DELETE", f"{it.runs}/a", {**options, "preconditions": right})


@case(
    {
        "6 http": "garbage",
        "6 *": "garbage",
        "7 http": "garbage",
        "7 *": "garbage",
    }
)
def delete_policies(it: Talk) -> None:
    for name in ("a", "b", "c", "d"):
        it.make(it.runs, run(it, name))
    it.ask("DELETE", f"{it.runs}/a", propagationPolicy="Background")
    it.ask("DELETE", f"{it.runs}/b", propagationPolicy="Foreground", see=())
    it.ask("DELETE", f"{it.runs}/c", propagationPolicy="Orphan", see=())
    it.ask("DELETE", f"{it.runs}/d", propagationPolicy="None")
    for name in ("a", "b", "c", "d"):
        it.ask("GET", f"{it.runs}/{name}", see=("metadata.finalizers",))


@case()
def delete_with_a_bad_body(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.ask("DELETE", f"{it.runs}/a", {"apiVersion": "v1", "kind": "Pod"})
    it.ask("DELETE", f"{it.runs}/a", b"{", headers={"Content-Type": "application/json"})
    it.ask("DELETE", f"{it.runs}/a", {"gracePeriodSeconds": "x"})
    it.ask("DELETE", f"{it.runs}/a", gracePeriodSeconds="x")


@case()
def delete_a_collection(it: Talk) -> None:
    for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
        it.make(it.runs, run(it, name, labels={"color": color}))
    it.ask("DELETE", it.runs, labelSelector="color=red")
    it.ask("GET", it.runs)


@case(
    {
        "* metadata.generation": "generation",
        "5 metadata.deletion*": "pod gone",
        "7 metadata.deletion*": "pod gone",
    }
)
def pods_wait_for_their_node(it: Talk) -> None:
    it.make(it.pods, pod(it, "p", "n1"))
    see = ("kind", "metadata.name", "metadata.deletionTimestamp",
           "metadata.deletionGracePeriodSeconds", "metadata.generation")  # fmt: skip
    it.ask("DELETE", f"{it.pods}/p", see=see)
    it.ask("GET", f"{it.pods}/p", see=see)
    it.ask("DELETE", f"{it.pods}/p", see=see, gracePeriodSeconds="5")
    it.ask("DELETE", f"{it.pods}/p", see=see, gracePeriodSeconds="9")
    it.ask("DELETE", f"{it.pods}/p", see=see, gracePeriodSeconds="0")
    it.ask("GET", f"{it.pods}/p")
    it.make(it.pods, pod(it, "q"))
    it.ask("DELETE", f"{it.pods}/q", see=see)
    it.ask("GET", f"{it.pods}/q")


@case(
    {
        "2 http": "mistake",
        "2 *": "mistake",
        "4 metadata.generation": "generation",
    }
)
def pods_are_bound_once(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }
    it.ask("POST", f"{it.pods}/p/binding", binding, dryRun="All")
    it.ask("POST", f"{it.pods}/p/binding", {**binding, "target": {}})
    it.ask("POST", f"{it.pods}/p/binding", binding)
    it.ask("GET", f"{it.pods}/p", see=("spec.nodeName", "metadata.generation"))
    it.ask("POST", f"{it.pods}/p/binding", binding)
    it.ask("POST", f"{it.pods}/none/binding", {**binding, "metadata": {"name": "none"}})
    it.ask("GET", f"{it.pods}/p/binding")


@case()
def pods_are_evicted(it: Talk) -> None:
    it.make(it.pods, pod(it, "p", "n1"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    it.ask("POST", f"{it.pods}/p/eviction", {**eviction, "metadata": {"name": "q"}})
    it.ask("POST", f"{it.pods}/p/eviction", eviction, dryRun="All")
    it.ask("POST", f"{it.pods}/p/eviction", {**eviction, "deleteOptions":
           {"gracePeriodSeconds": 7}})  # fmt: skip
    it.ask("GET", f"{it.pods}/p", see=("metadata.deletionGracePeriodSeconds",))
    it.ask("POST", f"{it.pods}/none/eviction", {**eviction, "metadata": {"name": "none"}})


@case()
def a_new_pod_is_pending(it: Talk) -> None:
    asked = {**pod(it, "p"), "status": {"phase": "Running"}}
    it.ask("POST", it.pods, asked, see=("kind", "apiVersion", "metadata", "status.phase"))
    see = ("status.phase", "status.message", "metadata.generation")
    it.patch(f"{it.pods}/p/status", {"status": {"phase": "Running", "message": "m"}}, see=see)


@case(
    {
        "* metadata.generation": "generation",
    }
)
def nodes_are_created_with_status(it: Talk) -> None:
    it.ask("POST", "/api/v1/nodes", node(it, "n"),
           see=("kind", "apiVersion", "metadata", "status.allocatable"))  # fmt: skip
    place = f"/api/v1/nodes/{it.namespace}-n"
    it.patch(place, {"spec": {"unschedulable": True}}, see=("spec.unschedulable", "metadata"))
    it.ask("DELETE", place)


@case(
    {
        "* metadata.generation": "generation",
    }
)
def namespaces_are_created_and_deleted(it: Talk) -> None:
    name = f"{it.namespace}-x"
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    see = ("kind", "metadata.name", "metadata.labels", "status.phase", "metadata.generation")
    place = f"/api/v1/namespaces/{name}"
    it.ask("POST", "/api/v1/namespaces", document, see=see)
    it.ask("POST", "/api/v1/namespaces", document)
    held = run(it, "a")
    held["metadata"] = {"name": "a", "namespace": name, **HOLD}
    it.make(f"{OURS}/namespaces/{name}/runs", held)
    it.ask("DELETE", place, see=(*see, "metadata.deletionTimestamp"))
    other = {**held, "metadata": {"name": "b"}}
    it.ask("POST", f"{OURS}/namespaces/{name}/runs", other)
    it.patch(f"{OURS}/namespaces/{name}/runs/a", {"metadata": {"labels": {"x": "y"}}},
             see=("metadata.labels",))  # fmt: skip


@case(
    {
        "6 details.causes*": "twice",
    }
)
def missing_and_invalid_namespaces(it: Talk) -> None:
    it.ask("POST", f"{OURS}/namespaces/nowhere/runs", {**run(it, "a"), "metadata": {"name": "a"}})
    it.ask("GET", f"{OURS}/namespaces/nowhere/runs", see=("kind", "items"))
    it.ask("DELETE", "/api/v1/namespaces/default")
    for name in ("A", "a.b", "x" * 64):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        it.ask("POST", "/api/v1/namespaces", document)


@case(
    {
        "12 details.causes*": "twice",
    }
)
def leases_are_immutable_and_closed_once(it: Talk) -> None:
    it.ask("POST", f"{OURS}/leases", lease(it, "l"))
    place = f"{OURS}/leases/{it.namespace}-l"
    it.patch(place, {"spec": {"owner": "org:other"}})
    it.patch(place, {"spec": {"slice": {"slots": [3]}}})
    it.patch(place, {"metadata": {"labels": {"x": "y"}}})
    ending = {"status": {"ending": {"reason": "Shrink", "deadline": "2026-11-15T00:00:00Z"}}}
    it.patch(f"{place}/status", ending)
    it.patch(f"{place}/status", {"status": {"ending": {"reason": "Fail"}}})
    it.patch(f"{place}/status", {"status": {"ending": None}})
    it.patch(f"{place}/status", {"status": {"closed": True, "closureReason": "Shrink"}})
    it.patch(f"{place}/status", {"status": {"closed": True, "closureReason": "Shrink"}})
    it.patch(f"{place}/status", {"status": {"closureReason": "Fail"}})
    it.patch(f"{place}/status", {"status": {"closed": False}})
    it.patch(f"{place}/status", {"status": None})


@case()
def resolutions_and_batches_are_immutable(it: Talk) -> None:
    for kind, plural in (("Resolution", "resolutions"), ("LedgerBatch", "ledgerbatches")):
        made = {"apiVersion": "rq.davidlangworthy.io/v1", "kind": kind,
                "metadata": {"name": it.namespace}, "spec": {"scope": {"a": 1}}}  # fmt: skip
        it.ask("POST", f"{OURS}/{plural}", made)
        it.patch(f"{OURS}/{plural}/{it.namespace}", {"spec": {"scope": {"a": 2}}})
        it.patch(f"{OURS}/{plural}/{it.namespace}", {"spec": {"more": 1}})
