"""kubectl on objects of Kubernetes: namespaces, nodes, pods, events and access reviews."""

import threading
import time
from pathlib import Path

import yaml
from tests.kubectl.command import Kubectl
from tests.rest.facade import ANN, DEADLINE_S, PODS, SYSTEM, Facade, node, pod, run


def make_pod(facade: Facade, name: str, on: str) -> None:
    made = pod(name, on)
    owner = {"apiVersion": "rq.davidlangworthy.io/v1", "kind": "Run", "name": "r", "uid": "u-1"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]  # type: ignore[index]
    assert facade.ask("POST", PODS, made, caller=SYSTEM).status == 201
    facade.run(facade.store.patch_status("Pod", "vision", name, {"phase": "Running"}, version=None))


def test_kubectl_creates_namespace_and_deletes_it_with_its_runs(kubectl: Kubectl) -> None:
    assert "created" in kubectl.ok("create", "ns", "passing")
    inside = run("r")
    inside["metadata"] = {"name": "r", "namespace": "passing"}
    kubectl.ok("create", "-f", kubectl.file(inside))
    assert ["passing", "Active"] in [row[:2] for row in kubectl("get", "ns").rows]

    assert "deleted" in kubectl.ok("delete", "ns", "passing")
    assert 'namespaces "passing" not found' in kubectl("get", "ns", "passing").err
    assert kubectl("get", "runs", "-n", "passing").err.startswith("No resources")
    assert "may not be deleted" in kubectl("delete", "ns", "default").err
    assert kubectl("create", "ns", "Not_A_Name").code == 1


def test_kubectl_cordons_taints_and_drains_a_node(kubectl: Kubectl, facade: Facade) -> None:
    facade.ask("POST", "/api/v1/nodes", node("n9"), caller=SYSTEM)
    make_pod(facade, "d1", "n9")

    assert "cordoned" in kubectl.ok("cordon", "n9")
    assert kubectl("get", "nodes", "n9").rows[0][1] == "Ready,SchedulingDisabled"
    assert "uncordoned" in kubectl.ok("uncordon", "n9")
    assert kubectl("get", "nodes", "n9").rows[0][1] == "Ready"
    kubectl.ok("taint", "nodes", "n9", "gone=yes:NoSchedule")
    taints = ("get", "node", "n9", "-o", "jsonpath={.spec.taints[*].key}")
    assert kubectl.ok(*taints) == "gone"
    kubectl.ok("taint", "nodes", "n9", "gone-")
    assert kubectl.ok(*taints) == ""
    assert "d1" in kubectl.ok("describe", "node", "n9")

    def play_agent() -> None:
        """End the pod when its deletion is requested, as a node does."""
        due = time.monotonic() + DEADLINE_S
        while time.monotonic() < due:
            obj = facade.ask("GET", f"{PODS}/d1").json
            if "deletionTimestamp" in obj["metadata"]:
                facade.ask("DELETE", f"{PODS}/d1", caller=SYSTEM, gracePeriodSeconds="0")
                return
            time.sleep(0.05)

    agent = threading.Thread(target=play_agent)
    agent.start()
    try:
        told = kubectl.ok("drain", "n9", "--timeout=25s")
    finally:
        agent.join()
    assert "node/n9 drained" in told
    assert kubectl("get", "nodes", "n9").rows[0][1] == "Ready,SchedulingDisabled"


def test_kubectl_debug_and_exec_are_refused_with_explanation(
    kubectl: Kubectl, facade: Facade
) -> None:
    make_pod(facade, "bugged", "n1")
    facade.ask("POST", "/api/v1/nodes", node("n8"), caller=SYSTEM)

    for words, says in (
        (["debug", "bugged", "--image=busybox"], "log in to the node for that"),
        (["debug", "bugged", "--image=busybox", "--copy-to=c"], "leases create pods"),
        (["debug", "node/n8", "--image=busybox"], "leases create pods"),
        (["exec", "bugged", "--", "true"], "log in to the node for that"),
    ):
        done = kubectl(*words, "-n", "vision")
        assert done.code == 1, words
        assert "panic" not in done.err
        assert says in done.err, (words, done.err)


def test_kubectl_scale_of_a_run_is_refused_and_names_runs_grow(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("scaled")))

    done = kubectl("scale", "run", "scaled", "-n", "vision", "--replicas=4")

    assert done.code == 1
    assert "MethodNotAllowed" in done.err
    assert "kubectl runs grow" in done.err


def test_invalid_edits_of_a_node_are_refused_with_field_path(
    kubectl: Kubectl, facade: Facade
) -> None:
    facade.ask("POST", "/api/v1/nodes", node("n7"), caller=SYSTEM)
    for patch, path in (
        ('{"spec":{"taints":"x"}}', "spec.taints"),
        ('{"spec":{"taints":["x"]}}', "spec.taints[0]"),
        ('{"spec":{"taints":[{"key":"a b","effect":"NoSchedule"}]}}', "spec.taints[0].key"),
        ('{"spec":{"taints":[{"key":"a","effect":"Sometimes"}]}}', "spec.taints[0].effect"),
        ('{"spec":{"taints":[{"key":"a"}]}}', "spec.taints[0].effect"),
        ('{"spec":{"unschedulable":"yes"}}', "spec.unschedulable"),
        ('{"spec":"x"}', "spec"),
        ('{"metadata":{"labels":{"a":"b c"}}}', "metadata.labels"),
    ):
        for kind in ("merge", "strategic"):
            done = kubectl("patch", "node", "n7", f"--type={kind}", "-p", patch)
            assert done.code == 1, (kind, patch)
            assert path in done.err, (kind, patch, done.err)
    assert kubectl.ok("get", "node", "n7", "-o", "jsonpath={.spec}") in ("", "{}")


def test_kubectl_logs_shows_and_follows_output_of_a_pod(kubectl: Kubectl, facade: Facade) -> None:
    make_pod(facade, "talker", "n1")

    assert kubectl.ok("logs", "talker") == "one\ntwo\nthree\n"
    assert kubectl.ok("logs", "talker", "--tail=1") == "three\n"
    assert kubectl.ok("logs", "talker", "--limit-bytes=5") == "one\nt"
    kubectl.ok("logs", "talker", "--since=1h", "--timestamps")
    asked = facade.world.asked[-1]
    assert asked.timestamps
    assert asked.since_ms is not None
    following = kubectl.start("logs", "-f", "talker")
    following.until(lambda lines: lines == ["one", "two", "three"])
    assert "not found" in kubectl("logs", "nobody").err
    wrong = kubectl("logs", "talker", "-c", "side")
    assert "container side is not valid" in wrong.err


def test_kubectl_lists_and_deletes_pods_but_cannot_run_one(
    kubectl: Kubectl, facade: Facade
) -> None:
    make_pod(facade, "shown", "n1")

    listed = kubectl("get", "pods", "-o", "wide", "--field-selector", "spec.nodeName=n1")
    mine = next(row for row in listed.rows if row[0] == "shown")
    assert mine[1:4] == ["0/1", "Running", "0"]
    assert "n1" in mine
    assert "Node:" in kubectl.ok("describe", "pod", "shown")
    refused = kubectl("run", "mine", "--image=i")
    assert "submit a Run" in refused.err
    assert kubectl("exec", "shown", "--", "ls").code == 1
    ann = {"KUBECONFIG": str(facade.kubeconfig(ANN))}
    assert "kubectl runs cancel" in kubectl("delete", "pod", "shown", **ann).err
    kubectl.ok("delete", "pod", "shown", "--force", "--grace-period=0")
    assert "not found" in kubectl("get", "pod", "shown").err


def test_kubectl_shows_events_of_a_run(kubectl: Kubectl, facade: Facade) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("told")))
    about = facade.ask("GET", "/apis/rq.davidlangworthy.io/v1/namespaces/vision/runs/told").json
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "told.1", "namespace": "vision"},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": "Run",
            "name": "told",
            "namespace": "vision",
            "uid": about["metadata"]["uid"],
        },
        "reason": "Admitted",
        "message": "8 GPUs on n1",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-11-15T00:00:00Z",
        "lastTimestamp": "2026-11-15T00:00:00Z",
    }
    events = "/api/v1/namespaces/vision/events"
    assert facade.ask("POST", events, event, caller=SYSTEM).status == 201

    assert "8 GPUs on n1" in kubectl.ok("describe", "run", "told")
    assert "8 GPUs on n1" in kubectl.ok("events", "--for", "run/told")
    shown = kubectl.ok("get", "events")
    assert "run/told" in shown
    assert "Admitted" in shown
    assert "8 GPUs on n1" not in kubectl.ok("events", "--for", "run/other")


def test_kubectl_auth_shows_user_and_rights(kubectl: Kubectl, facade: Facade) -> None:
    ann = {"KUBECONFIG": str(facade.kubeconfig(ANN))}

    assert "ann" in kubectl.ok("auth", "whoami", **ann)
    assert kubectl.ok("auth", "can-i", "create", "runs", **ann) == "yes\n"
    assert kubectl("auth", "can-i", "create", "runs", "-n", "audio", **ann).code == 1
    assert kubectl("auth", "can-i", "create", "pods", **ann).code == 1
    assert kubectl("auth", "can-i", "list", "runs", "-A", **ann).code == 1
    assert kubectl.ok("auth", "can-i", "list", "runs", "-A") == "yes\n"
    owners = "owners.rq.davidlangworthy.io"
    assert kubectl.ok("auth", "can-i", "fund", f"{owners}/org:ai:mm:vision", **ann) == "yes\n"
    assert kubectl("auth", "can-i", "fund", f"{owners}/org:ai", **ann).code == 1
    rules = kubectl.ok("auth", "can-i", "--list", **ann)
    assert "runs.rq.davidlangworthy.io" in rules
    refused = kubectl("get", "runs", "-n", "audio", **ann)
    assert "Forbidden" in refused.err
    assert "leasehold token create" in refused.err
    acted = kubectl("get", "runs", "--as", "root")
    assert "impersonation is not supported" in acted.err
    stranger = kubectl("get", "runs", "--token", "wrong", "--kubeconfig", _without_token(kubectl))
    assert "You must be logged in to the server" in stranger.err


def _without_token(kubectl: Kubectl) -> str:
    path = kubectl.home / "no-token"
    config = yaml.safe_load(Path(kubectl.env["KUBECONFIG"]).read_text(encoding="utf-8"))
    config["users"][0]["user"] = {}
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def test_kubectl_completes_names_of_runs_and_namespaces(kubectl: Kubectl, facade: Facade) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("completed-name")))

    assert "completed-name" in kubectl.ok("__complete", "get", "runs", "")
    assert "vision" in kubectl.ok("__complete", "get", "runs", "-n", "")
