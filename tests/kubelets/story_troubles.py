"""Faults on real kubelets: exit codes, a silent kubelet, a dead machine, a preemption, a drain, and
foreign pods."""

import time
from pathlib import Path

import pytest
from tests.kubelets.site import SHARED, Site, foreign_pod, shell_job
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import budget

# Counts up in a file on the shared file system, and continues where an earlier attempt stopped.
COUNTING = """
count=$(cat /shared/{name} 2>/dev/null || echo 0)
echo attempt $LEASEHOLD_ATTEMPT goes on from $count
trap 'echo told to go at $count; exit 1' TERM
while [ $count -lt {to} ]; do
    count=$((count + 1)); echo $count >/shared/{name}.new && mv /shared/{name}.new /shared/{name}
    sleep 0.2 & wait $!
done
"""
FLEET = "rq.davidlangworthy.io/fleet"
CHECKPOINTS = {"checkpoint": "1m", "gracePeriod": "5s"}


def counting(name: str, gpus: int, *, to: int = 100_000, **spec: object) -> dict[str, object]:
    return shell_job(name, gpus, COUNTING.format(name=name, to=to), **spec)


def count(name: str) -> int:
    try:
        return int(Path(SHARED, name).read_text() or 0)
    except FileNotFoundError:
        return 0


@pytest.fixture(scope="module", autouse=True)
def _money(fleet: Site) -> None:
    others = budget(owner="org:others")
    others["metadata"] = {"name": "theirs", "namespace": "team"}
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(budget(), others))


def test_failing_exit_code_uses_a_retry(fleet: Site) -> None:
    script = "echo attempt $LEASEHOLD_ATTEMPT; test $LEASEHOLD_ATTEMPT = 2 || exit 3"
    made = shell_job("retried", 4, script, runtime={"retries": 1})
    state = "{.status.containerStatuses[*].state.terminated.exitCode}"
    codes = fleet.kubectl.start(
        "get", "pods", "-n", "team", "-l", "rq.davidlangworthy.io/run=retried", "--watch",
        "-o", f"jsonpath=exit={state};{{'\\n'}}",
    )  # fmt: skip
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(made))
    run = fleet.until_phase("retried", "Completed")
    assert run["status"]["attempt"] == 2
    assert fleet.closings("retried") == ["Completed", "Fail"]
    assert "attempt 2" in fleet.runs("logs", "retried", "-n", "team")
    assert "attempt 1" in fleet.runs("logs", "retried", "-n", "team", "--previous")
    codes.until(lambda lines: {"exit=3;", "exit=0;"} <= set(lines))
    codes.stop()
    fleet.check_consistency()


def test_silent_kubelet_changes_nothing_and_fenced_node_swaps_to_spare(
    fleet: Site,
) -> None:
    # Spares are placed only on nodes that other schedulers do not use.
    fleet.kubectl.ok("taint", "node", "--all", f"{FLEET}=:NoSchedule")
    made = counting("spared", 4, sparesPerGroup=4, runtime=CHECKPOINTS)
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(made))
    fleet.until_phase("spared", "Running")
    [pod] = fleet.pods_of("spared")
    node = pod["spec"]["nodeName"]
    machine = fleet.machines[node]
    machine.stop_kubelet()
    fleet.until(lambda: not fleet.is_ready(node))
    before = count("spared")
    time.sleep(3)
    assert count("spared") > before  # the container goes on
    assert fleet.run("spared")["status"]["attempt"] == 1
    assert fleet.closings("spared") == []
    # Now the machine is dead, and an operator fences its node.
    machine.lose_power()
    said = fleet.leasehold("fence", node, "--force")
    assert said.returncode == 0, said.stderr
    fleet.until(lambda: _live_nodes(fleet, "spared") not in (set(), {node}))
    fleet.until_phase("spared", "Running")
    assert fleet.run("spared")["status"]["attempt"] == 1
    held = count("spared")
    fleet.until(lambda: count("spared") > held)
    assert fleet.closings("spared") == ["NodeFailure", "Swap"]
    fleet.kubectl.ok("delete", "run", "spared", "-n", "team")
    fleet.check_consistency()
    fleet.power_on(node)
    assert fleet.leasehold("fence", node, "--undo").returncode == 0
    fleet.kubectl.ok("taint", "node", "--all", f"{FLEET}-")
    fleet.until(lambda: fleet.is_ready(node))


def test_preempted_run_resumes_from_its_checkpoint(
    fleet: Site,
) -> None:
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(counting("long", 12, runtime=CHECKPOINTS)))
    fleet.until_phase("long", "Running")
    fleet.until(lambda: count("long") > 5)
    urgent = shell_job("urgent", 8, "sleep 1")  # ends before the preempted run is due again
    urgent["spec"]["owner"] = "org:others"  # type: ignore[index]
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(urgent))
    fleet.until_phase("urgent", "Completed")
    run = fleet.until_phase("long", "Running")
    assert run["status"]["attempt"] == 2
    held = count("long")
    fleet.until(lambda: count("long") > held)
    said = fleet.runs("logs", "long", "-n", "team")
    assert "attempt 2 goes on from" in said
    assert "goes on from 0" not in said.split("attempt 2")[1]
    [resolution] = fleet.all("resolutions")
    assert "long" in str(resolution["spec"])
    assert "urgent" in fleet.runs("explain", "long", "-n", "team")
    fleet.kubectl.ok("delete", "run", "long", "-n", "team")
    fleet.check_consistency()


def test_kubectl_drain_empties_node_and_run_continues_elsewhere(fleet: Site) -> None:
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(counting("moved", 4, runtime=CHECKPOINTS)))
    fleet.until_phase("moved", "Running")
    fleet.until(lambda: count("moved") > 5)
    [pod] = fleet.pods_of("moved")
    node = pod["spec"]["nodeName"]
    fleet.kubectl.ok("drain", node, "--force", "--ignore-daemonsets", "--timeout=25s")
    fleet.until(lambda: fleet.run("moved")["status"].get("attempt") == 2)
    fleet.until_phase("moved", "Running")
    assert node not in _live_nodes(fleet, "moved")
    held = count("moved")
    fleet.until(lambda: count("moved") > held > 5)
    fleet.kubectl.ok("uncordon", node)
    fleet.kubectl.ok("delete", "run", "moved", "-n", "team")
    fleet.check_consistency()


def _live_nodes(fleet: Site, run: str) -> set[str]:
    return {pod["spec"].get("nodeName", "") for pod in fleet.pods_of(run)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]}  # fmt: skip


def test_foreign_pod_started_before_bind_keeps_its_gpus(
    fleet: Site,
) -> None:
    """The kubelet rejects the pod that comes second, which is ours; the run starts elsewhere."""
    fleet.decider.stop()
    gate = Gate(fleet.cluster)
    try:
        decider = fleet.controller("gated", server=gate.server)
        gate.hold_back("POST", "/binding")
        fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(counting("second", 4)))
        fleet.until(lambda: gate.kept > 0)
        [lease] = fleet.leases_of("second")
        taken = lease["spec"]["slice"]["node"]
        theirs = fleet.kubectl.file(foreign_pod("first", taken, 4))
        fleet.kubectl.ok("apply", "-f", theirs)
        fleet.until(lambda: _phase(fleet, "other", "first") == "Running")
        gate.release()
        fleet.until_phase("second", "Running")
        assert fleet.closings("second") == ["Fail"]
        assert {each["status"].get("cause") for each in fleet.leases_of("second")
                if each.get("status", {}).get("closed")} == {"Rejected"}  # fmt: skip
        assert taken not in _live_nodes(fleet, "second")
        assert _phase(fleet, "other", "first") == "Running"
        fleet.kubectl.ok("delete", "-f", theirs, "--now")
        fleet.kubectl.ok("delete", "run", "second", "-n", "team")
        fleet.check_consistency()
        decider.stop()
    finally:
        gate.stop()
        fleet.decider = fleet.answering("again")


def _phase(fleet: Site, namespace: str, pod: str) -> str:
    found = fleet.get(f"/api/v1/namespaces/{namespace}/pods/{pod}")
    return str(found.get("status", {}).get("phase", ""))
