"""Cases: writes in all formats, patches of all kinds, dry runs, and refusals."""

from tests.apiserver.table import case
from tests.apiserver.talk import APPLY, JSON_PATCH, MERGE, OURS, STRATEGIC, Talk
from tests.apiserver.things import budget, node, pod, run

META = ("kind", "apiVersion", "metadata")
JSON = {"Content-Type": "application/json"}


@case()
def malformed_bodies(it: Talk) -> None:
    for body in (b"{", b"", b"[]", b"null", b'"text"', b"\xff"):
        it.ask("POST", it.runs, body, headers=JSON)


@case()
def media_types_of_bodies(it: Talk) -> None:
    for media in ("text/plain", "application/xml", "application/x-www-form-urlencoded"):
        it.ask("POST", it.runs, run(it, "a"), headers={"Content-Type": media})
    it.ask("POST", it.runs, run(it, "a"), headers={"Content-Type": "application/yaml"}, see=META)
    it.ask("POST", it.runs, run(it, "b"),
           headers={"Content-Type": "application/json; charset=utf-8"}, see=META)  # fmt: skip


@case()
def oversized_bodies(it: Talk) -> None:
    asked = run(it, "a")
    asked["metadata"]["annotations"] = {"x": "y" * (4 << 20)}
    it.ask("POST", it.runs, asked)


@case()
def merge_patches(it: Talk) -> None:
    borrows = {"allowBorrow": True}
    it.make(it.runs, run(it, "a", labels={"x": "y", "z": "w"}, funding=borrows))
    it.patch(f"{it.runs}/a", {"metadata": {"labels": {"x": None, "n": "m"}}})
    it.patch(f"{it.runs}/a", {"spec": {"funding": {"sponsors": ["org:b"]}}})
    it.patch(f"{it.runs}/a", {"spec": {"funding": {"sponsors": []}}})
    it.patch(f"{it.runs}/a", {})


@case(
    {
        "8 http": "another kind",
        "8 *": "another kind",
    }
)
def invalid_merge_patches(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    for body in (b"{", b"[]", b"1", b"null", b""):
        it.ask("PATCH", f"{it.runs}/a", body, headers={"Content-Type": MERGE})
    it.patch(f"{it.runs}/a", {"metadata": {"name": "b"}})
    it.patch(f"{it.runs}/a", {"metadata": {"namespace": "audio"}})
    it.patch(f"{it.runs}/a", {"kind": "Budget"})
    it.patch(f"{it.runs}/a", {"metadata": {"resourceVersion": "1"}})
    it.patch(f"{it.runs}/a", {"metadata": {"uid": "other"}})
    it.patch(f"{it.runs}/a", {"metadata": {"labels": 3}})


@case(
    {
        "3 details.causes*": "place",
    }
)
def json_patches(it: Talk) -> None:
    it.make(it.runs, run(it, "a", labels={"x": "y"}))
    for operations in (
        [{"op": "test", "path": "/metadata/labels/x", "value": "y"},
         {"op": "replace", "path": "/metadata/labels/x", "value": "z"}],
        [{"op": "add", "path": "/spec/stop", "value": True}],
        [{"op": "add", "path": "/metadata/annotations", "value": {"a~/b": "c"}}],
        [{"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/w"}],
        [{"op": "move", "from": "/metadata/labels/w", "path": "/metadata/labels/v"}],
        [{"op": "remove", "path": "/metadata/annotations"}],
        [],
    ):  # fmt: skip
        it.patch(f"{it.runs}/a", operations, JSON_PATCH)


@case()
def invalid_json_patches(it: Talk) -> None:
    it.make(it.runs, run(it, "a", labels={"x": "y"}))
    for operations in (
        [{"op": "test", "path": "/metadata/labels/x", "value": "w"}],
        [{"op": "remove", "path": "/metadata/labels/none"}],
        [{"op": "replace", "path": "/metadata/none/x", "value": 1}],
        [{"op": "bend", "path": "/spec"}],
        [{"path": "/spec/stop", "value": True}],
        {"op": "remove", "path": "/spec"},
        "text",
    ):
        it.patch(f"{it.runs}/a", operations, JSON_PATCH)


@case(
    {
        "* metadata.generation": "generation",
        "1 http": "strategic",
        "1 *": "strategic",
    }
)
def strategic_patches(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, STRATEGIC)
    it.make("/api/v1/nodes", node(it, "n"))
    place = f"/api/v1/nodes/{it.namespace}-n"
    see = ("spec.taints", "metadata.labels", "metadata.generation")
    first = {"key": "a", "value": "1", "effect": "NoSchedule"}
    it.patch(place, {"spec": {"taints": [first]}}, STRATEGIC, see=see)
    it.patch(place, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, STRATEGIC,
             see=("metadata.generation",))  # fmt: skip
    it.patch(place, {"metadata": {"labels": {"region": None, "x": "y"}}}, STRATEGIC, see=see)
    it.patch(f"/api/v1/namespaces/{it.namespace}", {"metadata": {"labels": {"x": "y"}}},
             STRATEGIC, see=("metadata.labels",))  # fmt: skip


@case(
    {
        "4 http": "mistake",
        "4 *": "mistake",
    }
)
def strategic_patches_of_lists(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    place = f"{it.pods}/p/status"
    ready = {"type": "Ready", "status": "True"}
    other = {"type": "Initialized", "status": "True"}
    see = ("status.phase",)
    it.patch(place, {"status": {"conditions": [ready]}}, STRATEGIC, see=see)
    found = it.patch(place, {"status": {"conditions": [other]}}, STRATEGIC, see=see)
    it.note("conditions", sorted(each["type"] for each in found["status"]["conditions"]))
    gone = {"type": "Ready", "$patch": "delete"}
    found = it.patch(place, {"status": {"conditions": [gone]}}, STRATEGIC, see=see)
    it.note("conditions", sorted(each["type"] for each in found["status"]["conditions"]))
    found = it.patch(place, {"status": {"conditions": [{"status": "True"}]}}, STRATEGIC, see=see)


@case()
def unknown_patch_types(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    for media in ("application/json", "text/plain", "application/yaml"):
        it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, media)


@case()
def apply(it: Talk) -> None:
    asked = run(it, "a", labels={"x": "y"}, runtime={"maxDuration": "1h"})
    it.patch(f"{it.runs}/a", asked, APPLY, fieldManager="one")
    it.patch(f"{it.runs}/a", asked, APPLY, fieldManager="one")
    del asked["metadata"]["labels"]
    it.patch(f"{it.runs}/a", asked, APPLY, fieldManager="one")
    theirs = run(it, "a", runtime={"maxDuration": "2h"})
    it.patch(f"{it.runs}/a", theirs, APPLY, fieldManager="two")
    it.patch(f"{it.runs}/a", theirs, APPLY, fieldManager="two", force="true")


@case()
def invalid_apply(it: Talk) -> None:
    asked = run(it, "a")
    it.patch(f"{it.runs}/a", asked, APPLY)
    it.patch(f"{it.runs}/b", asked, APPLY, fieldManager="one")
    it.patch(f"{it.runs}/a", {**asked, "kind": "Budget"}, APPLY, fieldManager="one")
    it.patch(f"{it.runs}/a", {"spec": {}}, APPLY, fieldManager="one")
    it.patch(f"{it.runs}/a", asked, APPLY, fieldManager="x" * 129)
    it.ask("PATCH", f"{it.runs}/a", b"a: [", headers={"Content-Type": APPLY},
           fieldManager="one")  # fmt: skip
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, MERGE, force="true")


@case()
def dry_runs(it: Talk) -> None:
    it.ask("POST", it.runs, run(it, "a"), dryRun="All", see=(
        "kind", "metadata.name", "metadata.generation", "spec"))  # fmt: skip
    it.ask("GET", f"{it.runs}/a")
    made = it.make(it.runs, run(it, "a"))
    it.ask("POST", it.runs, run(it, "a"), dryRun="All")
    made["spec"]["stop"] = True
    it.ask("PUT", f"{it.runs}/a", made, dryRun="All")
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, dryRun="All")
    it.ask("DELETE", f"{it.runs}/a", dryRun="All")
    it.ask("GET", f"{it.runs}/a")
    it.ask("POST", it.runs, run(it, "b"), dryRun="Some")
    it.ask("DELETE", f"{it.runs}/a", {"dryRun": ["Some"]})


@case({"4 http": "unasked", "4 *": "unasked"})
def unknown_fields(it: Talk) -> None:
    asked = run(it, "a", colour="red")
    asked["spec"]["resources"]["shade"] = 1
    it.ask("POST", it.runs, asked, fieldValidation="Strict")
    it.ask("POST", it.runs, asked, fieldValidation="Warn")
    asked["metadata"]["name"] = "b"
    it.ask("POST", it.runs, asked, fieldValidation="Ignore")
    asked["metadata"]["name"] = "c"
    it.ask("POST", it.runs, asked)
    asked["metadata"]["name"] = "d"
    it.ask("POST", it.runs, asked, fieldValidation="Loose")
    it.patch(f"{it.runs}/a", {"spec": {"colour": "red"}}, fieldValidation="Strict")
    it.patch(f"{it.runs}/a", {"spec": {"colour": "red"}}, fieldValidation="Warn")


@case()
def templates_accept_unknown_fields(it: Talk) -> None:
    template = {
        "metadata": {"labels": {"x": "y"}},
        "spec": {"containers": [{"name": "main", "command": ["true"], "stdin": True}],
                 "hostname": "h"},
    }  # fmt: skip
    it.ask("POST", it.runs, run(it, "a", template=template), fieldValidation="Strict")
    lost = {**template, "extra": 1}
    it.ask("POST", it.runs, run(it, "b", template=lost), fieldValidation="Strict")


@case(
    {
        "* details.causes*": "type words",
    }
)
def fields_of_wrong_types(it: Talk) -> None:
    it.ask("POST", it.runs, {**run(it, "a"), "spec": 3})
    it.ask("POST", it.runs, run(it, "a", owner=3))
    it.ask("POST", it.runs, run(it, "a", stop="yes"))
    it.ask("POST", it.runs, run(it, "a", gang="Band"))
    it.ask("POST", it.runs, {**run(it, "a"), "metadata": {"name": "a", "labels": {"x": 1}}})
    it.ask("POST", it.runs, {**run(it, "a"), "metadata": 3})


@case()
def missing_fields(it: Talk) -> None:
    whole = run(it, "a")
    it.ask("POST", it.runs, {key: value for key, value in whole.items() if key != "spec"})
    it.ask("POST", it.runs, {**whole, "spec": {}})
    it.ask("POST", it.runs, run(it, "a", resources={"gpuType": "H100-80GB"}))
    envelope = {"name": "west", "flavor": "H100-80GB"}
    it.ask("POST", it.budgets, budget(it, "b", envelopes=[envelope]))


@case()
def managers_of_fields(it: Talk) -> None:
    it.ask("POST", it.runs, run(it, "a"), fieldManager="x" * 129)
    it.ask("POST", it.runs, run(it, "a"), fieldManager="a\nb")
    it.ask("POST", it.runs, run(it, "a"), fieldManager="me", see=META)


@case()
def callers_without_rights(it: Talk) -> None:
    theirs = f"{OURS}/namespaces/audio/runs"
    for who in ("", "nobody", "vic", "ann"):
        it.ask("GET", theirs, who=who)
        it.ask("POST", theirs, {**run(it, "a"), "metadata": {"name": "a"}}, who=who)
        it.ask("DELETE", f"{theirs}/a", who=who)
    it.ask("DELETE", f"{OURS}/leases/none", who="ann")
    it.patch("/api/v1/nodes/none", {}, who="ann")
    it.ask("GET", "/api/v1/pods", who="ann")


@case()
def callers_with_rights(it: Talk) -> None:
    place = f"{OURS}/namespaces/vision/runs"
    asked = {**run(it, "may"), "metadata": {"name": "may"}}
    it.ask("POST", place, asked, who="ann")
    it.patch(f"{place}/may", {"spec": {"stop": True}}, who="ann")
    it.ask("GET", f"{OURS}/leases", who="vic", see=("kind",), labelSelector="case=none")
    it.ask("DELETE", f"{place}/may", who="ann")


@case()
def reviews_of_own_access(it: Talk) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    it.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, who="ann",
           see=("kind", "apiVersion", "status.userInfo.username"))  # fmt: skip
    place = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for verb, resource, namespace, who in (
        ("create", "runs", "vision", "ann"), ("create", "runs", "audio", "ann"),
        ("delete", "leases", "", "ann"), ("list", "leases", "", "vic"),
        ("create", "runs", "vision", "vic"),
    ):  # fmt: skip
        asked = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": "rq.davidlangworthy.io", "version": "v1", "verb": verb,
                "resource": resource, **({"namespace": namespace} if namespace else {}),
            }},
        }  # fmt: skip
        it.ask("POST", place, asked, who=who, see=("kind", "apiVersion", "status.allowed", "spec"))
    it.ask("POST", place, {"apiVersion": "authorization.k8s.io/v1",
                           "kind": "SelfSubjectAccessReview", "spec": {}}, who="ann")  # fmt: skip
    it.ask("GET", place)


@case({"1 http": "impersonation", "1 *": "impersonation"})
def impersonation(it: Talk) -> None:
    it.ask("GET", it.runs, headers={"Impersonate-User": "bob", "Impersonate-Group":
           "system:masters"})  # fmt: skip
    it.ask("GET", it.runs, headers={"Authorization": "Basic YTpi"}, who="")
    it.ask("GET", it.runs, headers={"Authorization": "Bearer"}, who="")


@case()
def apply_of_a_status(it: Talk) -> None:
    it.make(it.runs, run(it, "a"))
    asked = {"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "metadata": {"name": "a"},
             "status": {"phase": "Running"}}  # fmt: skip
    it.patch(f"{it.runs}/a/status", asked, APPLY, fieldManager="one")
    it.patch(f"{it.runs}/a/status", {**asked, "status": {"phase": "Failed"}}, APPLY,
             fieldManager="one")  # fmt: skip
    none = {**asked, "metadata": {"name": "none"}}
    it.patch(f"{it.runs}/none/status", none, APPLY, fieldManager="one")


@case(
    {
        "6 managers": "first apply",
    }
)
def apply_to_a_created_object(it: Talk) -> None:
    it.ask("POST", it.runs, run(it, "a"), fieldManager="one", see=META)
    theirs = run(it, "a", resources={"gpuType": "H100-80GB", "totalGPUs": 16})
    it.patch(f"{it.runs}/a", theirs, APPLY, fieldManager="two")
    same = run(it, "a")
    it.patch(f"{it.runs}/a", same, APPLY, fieldManager="two")
    it.patch(f"{it.runs}/a", {"spec": {"stop": True}}, fieldManager="three", see=META)
    it.patch(f"{it.runs}/a", run(it, "a", stop=False), APPLY, fieldManager="two")
    found = it.ask("GET", f"{it.runs}/a")
    it.note("managers", sorted((each["manager"], each["operation"], each.get("subresource"))
                               for each in found["metadata"].get("managedFields", [])))  # fmt: skip


@case(
    {
        "1 http": "pod spec",
        "1 *": "pod spec",
    }
)
def pod_spec_edits(it: Talk) -> None:
    it.make(it.pods, pod(it, "p"))
    it.patch(f"{it.pods}/p", {"spec": {"hostname": "h"}})
    it.patch(f"{it.pods}/p", {"metadata": {"labels": {"x": "y"}}}, see=("metadata.labels",))


@case()
def namespaces_as_a_collection(it: Talk) -> None:
    it.ask(
        "DELETE", "/api/v1/namespaces", labelSelector=f"kubernetes.io/metadata.name={it.namespace}"
    )
    it.ask("GET", f"/api/v1/namespaces/{it.namespace}", see=("status.phase",))
