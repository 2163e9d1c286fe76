"""kubectl writes and reads leasehold's objects, with the real binary."""

import threading
import time

from tests.kubectl.command import Kubectl
from tests.rest.facade import DEADLINE_S, RUNS, SYSTEM, Facade, budget, lease, run


def test_kubectl_discovers_version_and_resources(kubectl: Kubectl) -> None:
    assert "Server Version: v1.36.0+leasehold" in kubectl.ok("version")
    listed = kubectl.ok("api-resources", "--no-headers")
    names = {line.split()[0]: line for line in listed.splitlines()}
    assert {"runs", "budgets", "leases", "reservations", "resolutions", "nodes", "pods"} <= set(
        names
    )
    assert "gpulease,gl" in names["leases"]
    assert " rn " in names["runs"]
    assert "rq.davidlangworthy.io/v1" in kubectl.ok("api-versions")
    assert "control plane is running at https://127.0.0.1" in kubectl.ok("cluster-info")


def test_kubectl_apply_and_diff_follow_changes_of_a_file(kubectl: Kubectl) -> None:
    path = kubectl.file(run("applied"))

    assert "created" in kubectl.ok("apply", "-f", path)
    assert "unchanged" in kubectl.ok("apply", "-f", path)
    assert kubectl.ok("diff", "-f", path) == ""
    changed = kubectl.file(run("applied", runtime={"maxDuration": "1h"}))
    differing = kubectl("diff", "-f", changed)
    assert differing.code == 1
    assert "+    maxDuration: 1h" in differing.out
    read = ("get", "run", "applied", "-o", "jsonpath={.spec.runtime.maxDuration}")
    assert kubectl.ok(*read) == "", "a diff writes nothing"
    assert "configured" in kubectl.ok("apply", "-f", changed)
    assert kubectl.ok(*read) == "1h"
    assert "configured" in kubectl.ok("apply", "-f", path)
    assert kubectl.ok(*read) == "", "fields that are no longer in the file are removed"


def test_kubectl_server_side_apply_reports_conflicts_and_drops_fields(kubectl: Kubectl) -> None:
    path = kubectl.file(run("ssa", runtime={"maxDuration": "8h"}))

    assert "serverside-applied" in kubectl.ok("apply", "--server-side", "-f", path)
    longer = '{"spec":{"runtime":{"maxDuration":"9h"}}}'
    kubectl.ok("patch", "run", "ssa", "--type=merge", "-p", longer)
    refused = kubectl("apply", "--server-side", "-f", path)
    assert refused.code == 1
    assert "conflict with" in refused.err
    assert ".spec.runtime.maxDuration" in refused.err
    kubectl.ok("apply", "--server-side", "--force-conflicts", "-f", path)
    read = ("get", "run", "ssa", "-o", "jsonpath={.spec.runtime.maxDuration}")
    assert kubectl.ok(*read) == "8h"
    kubectl.ok("apply", "--server-side", "-f", kubectl.file(run("ssa")))
    assert kubectl.ok(*read) == "", "fields that the manager no longer names are removed"


def test_kubectl_creates_edits_replaces_patches_and_labels_a_run(kubectl: Kubectl) -> None:
    path = kubectl.file(run("edited", runtime={"maxDuration": "8h"}))
    kubectl.ok("create", "-f", path)
    again = kubectl("create", "-f", path)
    assert again.code == 1
    assert "AlreadyExists" in again.err
    made = {**run("x"), "metadata": {"generateName": "made-", "namespace": "vision"}}
    assert "run.rq.davidlangworthy.io/made-" in kubectl.ok("create", "-f", kubectl.file(made))

    editor = kubectl.home / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/maxDuration: 8h/maxDuration: 16h/' \"$1\"\n")
    editor.chmod(0o755)
    assert "edited" in kubectl.ok("edit", "run", "edited", EDITOR=str(editor))
    limit = ("get", "run", "edited", "-o", "jsonpath={.spec.runtime.maxDuration}")
    assert kubectl.ok(*limit) == "16h"

    assert "replaced" in kubectl.ok("replace", "-f", path)
    assert kubectl.ok(*limit) == "8h"
    operations = '[{"op":"replace","path":"/spec/runtime/maxDuration","value":"24h"}]'
    kubectl.ok("patch", "run", "edited", "--type=json", "-p", operations)
    assert kubectl.ok(*limit) == "24h"
    same = kubectl.ok("patch", "run", "edited", "--type=json", "-p", operations)
    assert "no change" in same
    kubectl.ok("patch", "run", "edited", "-p", '{"spec":{"stop":true}}')
    assert kubectl.ok("get", "run", "edited", "-o", "jsonpath={.spec.stop}") == "true"

    kubectl.ok("label", "run", "edited", "tier=gold")
    kubectl.ok("annotate", "run", "edited", "note=yes")
    assert "edited" in kubectl.ok("get", "runs", "-l", "tier in (gold,silver),!other", "-o", "name")
    assert kubectl("get", "runs", "-l", "tier=tin").err.startswith("No resources")
    kubectl.ok("label", "run", "edited", "tier-")
    assert kubectl("get", "runs", "-l", "tier=gold").err.startswith("No resources")


def test_kubectl_create_shows_each_mistake_with_field_path(kubectl: Kubectl) -> None:
    wrong = run("wrong", sparesPerGroup=-1, gang="Pack")
    told = kubectl("create", "-f", kubectl.file(wrong))
    assert told.code == 1
    assert 'The Run "wrong" is invalid:' in told.err
    assert "* spec.sparesPerGroup: -1: use a whole number" in told.err
    assert "* spec.gang: 'Pack': use Run or Group" in told.err

    misspelt = kubectl("create", "-f", kubectl.file(run("wrong", sparesPerGrop=1)))
    assert 'unknown field "spec.sparesPerGrop"' in misspelt.err
    warned = kubectl(
        "create", "--validate=warn", "-f", kubectl.file(run("warned", sparesPerGrop=1))
    )
    assert warned.code == 0
    assert 'Warning: unknown field "spec.sparesPerGrop"' in warned.err
    nowhere = {**run("x"), "metadata": {"name": "x", "namespace": "nowhere"}}
    assert 'namespaces "nowhere" not found' in kubectl("create", "-f", kubectl.file(nowhere)).err


def test_kubectl_warns_of_budget_that_can_never_be_used_up(kubectl: Kubectl) -> None:
    envelope = {
        "name": "west",
        "flavor": "H100-80GB",
        "concurrency": 1,
        "maxGPUHours": 1000,
        "start": "2026-11-01T00:00:00Z",
        "end": "2026-11-02T00:00:00Z",
    }
    told = kubectl("create", "-f", kubectl.file(budget("rich", envelopes=[envelope])))

    assert told.code == 0
    assert "Warning: spec.envelopes[0].maxGPUHours: 1000" in told.err


def test_kubectl_dry_runs_write_nothing(kubectl: Kubectl, facade: Facade) -> None:
    path = kubectl.file(run("dry"))
    before = facade.store.version

    assert "created (server dry run)" in kubectl.ok("create", "--dry-run=server", "-f", path)
    assert "created (server dry run)" in kubectl.ok("apply", "--dry-run=server", "-f", path)
    kubectl.ok("apply", "--server-side", "--dry-run=server", "-f", path)
    kubectl.ok("create", "ns", "dry", "--dry-run=server")
    assert facade.store.version == before
    bad = kubectl("create", "--dry-run=server", "-f", kubectl.file(run("dry", gang="Pack")))
    assert "spec.gang" in bad.err

    kubectl.ok("create", "-f", path)
    before = facade.store.version
    kubectl.ok("delete", "run", "dry", "--dry-run=server")
    kubectl.ok("patch", "run", "dry", "--type=merge", "-p", '{"spec":{"stop":true}}',
               "--dry-run=server")  # fmt: skip
    kubectl.ok("label", "run", "dry", "a=b", "--dry-run=server")
    assert facade.store.version == before


def test_kubectl_reads_runs_in_every_output_format(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("read")))

    table = kubectl("get", "runs", "read")
    assert table.out.split()[:7] == ["NAME", "PHASE", "REASON", "GPUS", "WIDTH", "OWNER", "AGE"]
    assert table.rows[0][:2] == ["read", "Pending"]
    assert "MESSAGE" in kubectl.ok("get", "rn", "-o", "wide")
    assert "totalGPUs: 8" in kubectl.ok("get", "run", "read", "-o", "yaml")
    assert '"kind": "Run"' in kubectl.ok("get", "run", "read", "-o", "json")
    assert "vision" in kubectl.ok("get", "runs", "-A")
    owner = ("--field-selector", "spec.owner=org:ai:mm:vision,metadata.name=read")
    assert kubectl.ok("get", "runs", *owner, "-o", "name") == "run.rq.davidlangworthy.io/read\n"
    assert "cannot be selected" in kubectl("get", "runs", "--field-selector", "spec.gang=Run").err
    assert "read" in kubectl.ok("get", "all")
    assert "read" in kubectl.ok("get", "runs", "--sort-by", ".metadata.name")
    described = kubectl.ok("describe", "run", "read")
    assert "Owner:  org:ai:mm:vision" in described
    missing = kubectl("get", "run", "missing")
    assert 'runs.rq.davidlangworthy.io "missing" not found' in missing.err
    assert kubectl.ok("get", "--raw", "/readyz") == "ok"


def test_kubectl_selects_leases_by_node_and_state(kubectl: Kubectl, facade: Facade) -> None:
    leases = "/apis/rq.davidlangworthy.io/v1/leases"
    for name, node in (("a-1-0", "n17-04"), ("a-1-1", "n17-05")):
        assert facade.ask("POST", leases, lease(name, node), caller=SYSTEM).status == 201

    found = kubectl(
        "get", "leases.rq.davidlangworthy.io", "--field-selector", "spec.slice.nodes=n17-04"
    )
    assert [row[0] for row in found.rows] == ["a-1-0"]
    assert found.rows[0][1:7] == ["vision/train", "n17-04", "2", "Active", "vision/b/west", "Open"]
    assert kubectl("get", "gl").rows[0][0] == "a-1-0"
    is_open = kubectl("get", "gl", "--field-selector", "status.closed=false")
    assert {"a-1-0", "a-1-1"} <= {row[0] for row in is_open.rows}
    refused = kubectl("delete", "gl", "a-1-0")
    assert "only the ledger writes this kind" in refused.err


def test_kubectl_explain_describes_fields(kubectl: Kubectl) -> None:
    told = kubectl.ok("explain", "run.spec.malleable")
    assert "Makes the run elastic" in told
    assert "minTotalGPUs\t<integer> -required-" in told
    for path in ("budget.spec.envelopes.lending", "lease.spec.paidBy", "reservation.status",
                 "resolution.spec.lottery"):  # fmt: skip
        assert "FIELDS:" in kubectl.ok("explain", path)


def test_kubectl_delete_waits_for_finalizers(kubectl: Kubectl, facade: Facade) -> None:
    held = run("held")
    held["metadata"]["finalizers"] = ["rq.davidlangworthy.io/leases-closed"]  # type: ignore[index]
    assert facade.ask("POST", RUNS, held, caller=SYSTEM).status == 201
    kubectl.ok("patch", "run", "held", "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    deleting = kubectl.start("delete", "run", "held")
    due = time.monotonic() + DEADLINE_S
    while "deletionTimestamp" not in (obj := facade.ask("GET", f"{RUNS}/held").json)["metadata"]:
        assert time.monotonic() < due
    assert obj["metadata"]["finalizers"], "a user cannot remove this finalizer"
    obj["metadata"]["finalizers"] = []
    assert facade.ask("PUT", f"{RUNS}/held", obj, caller=SYSTEM).status == 200
    assert deleting.wait() == 0
    assert "deleted" in deleting.lines[0]

    kubectl.ok("create", "-f", kubectl.file(run("d1"), run("d2")))
    kubectl.ok("label", "run", "d1", "d2", "go=now")
    assert (
        kubectl.ok("delete", "runs", "-l", "go=now", "--cascade=foreground").count("deleted") == 2
    )


def test_kubectl_wait_ends_when_condition_holds(kubectl: Kubectl, facade: Facade) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("waited")))
    timed_out = kubectl("wait", "--for=condition=Running", "run/waited", "--timeout=1s")
    assert timed_out.code == 1

    def start() -> None:
        status = {"phase": "Running", "conditions": [{"type": "Running", "status": "True"}]}
        facade.run(facade.store.patch_status("Run", "vision", "waited", status, version=None))

    timer = threading.Timer(1.0, start)
    timer.start()
    try:
        told = kubectl.ok("wait", "--for=condition=Running", "run/waited", "--timeout=20s")
    finally:
        timer.join()
    assert "condition met" in told
    kubectl.ok("wait", "--for=condition=Running", "run/waited", "--timeout=20s")
    kubectl.ok("wait", "--for=jsonpath={.status.phase}=Running", "run/waited", "--timeout=20s")
    kubectl.ok("delete", "run", "waited")
    kubectl.ok("wait", "--for=delete", "run/waited", "--timeout=20s")


def test_watch_with_selector_shows_label_changes_as_added_and_deleted(kubectl: Kubectl) -> None:
    kubectl.ok("create", "-f", kubectl.file(run("w1")))
    one = kubectl.start("get", "run", "w1", "-w")
    many = kubectl.start("get", "runs", "-w", "-l", "seen=yes", "--output-watch-events")
    one.until(lambda lines: len(lines) >= 2)
    kubectl.ok("label", "run", "w1", "seen=yes")
    one.until(lambda lines: len(lines) >= 3)
    many.until(lambda lines: any("ADDED" in line and "w1" in line for line in lines))
    kubectl.ok("label", "run", "w1", "seen-")
    many.until(lambda lines: any("DELETED" in line and "w1" in line for line in lines))
    lines = one.until(lambda lines: len(lines) >= 4)
    assert lines[0].startswith("NAME")
    assert [line.split()[0] for line in lines[1:]] == ["w1", "w1", "w1"]
