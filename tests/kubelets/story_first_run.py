"""Runs on real kubelets, from `kubectl apply` to closed leases: a plain one, one whose ranks
connect to each other, one that starts slowly, and one whose image does not exist."""

import json
import urllib.request

import pytest
from tests.kubelets.site import Site, shell_job
from tests.kubernetes.plane import budget


@pytest.fixture(scope="module", autouse=True)
def _money(fleet: Site) -> None:
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(budget()))


def test_run_completes_in_containers_and_its_gpu_hours_are_accounted(fleet: Site) -> None:
    script = "echo rank $RANK of $WORLD_SIZE on $NVIDIA_VISIBLE_DEVICES; sleep 10"
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(shell_job("train", 8, script)))
    fleet.until_phase("train", "Running")
    assert "team/money/west" in fleet.runs("who-pays", "train", "-n", "team")
    assert "Running" in fleet.runs("explain", "train", "-n", "team")
    pods = fleet.pods_of("train")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    fleet.kubectl.ok("wait", "--for=condition=Completed", "run/train", "-n", "team")
    ended = [each["state"]["terminated"] for pod in fleet.pods_of("train")
             for each in pod["status"]["containerStatuses"]]  # fmt: skip
    assert [each["exitCode"] for each in ended] == [0, 0]
    leases = fleet.leases_of("train")
    assert fleet.closings("train") == ["Completed", "Completed"]
    # A lease ends when its container ended, by the kubelet's clock.
    assert {each["status"]["endTime"][:19] for each in leases} <= {
        each["finishedAt"][:19] for each in ended
    }
    assert fleet.runs("leases", "-n", "team", "--since", "1h").count("Completed") == 2
    said = fleet.runs("logs", "train", "-n", "team")
    for rank in (0, 4):
        assert f"rank {rank} of 8 on gpu-" in said
    fleet.until(lambda: "Completed" in fleet.kubectl.ok("get", "events", "-n", "team"))
    with urllib.request.urlopen(
        f"http://127.0.0.1:{fleet.decider.port}/metrics", timeout=30
    ) as answer:
        metrics = bytes(answer.read()).decode()
    assert 'leasehold_leases_closed_total{reason="Completed"} 2.0' in metrics
    fleet.check_consistency()


def test_ranks_find_rank_zero_by_dns_name(fleet: Site) -> None:
    script = """
if [ $NODE_RANK = 0 ]; then
    echo "rank 0 heard: $(nc -l -p $MASTER_PORT)"
else
    until echo rank $RANK on $HOSTNAME | nc -w 2 $MASTER_ADDR $MASTER_PORT; do sleep 0.2; done
fi
"""
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(shell_job("meeting", 8, script)))
    fleet.until_phase("meeting", "Completed")
    assert "heard: rank 4 on g0-p1" in fleet.runs("logs", "meeting", "-n", "team")
    assert any(name.startswith("g0-p0.run-meeting-") for name in fleet.names.asked)


def test_time_to_start_a_pod_is_reported_as_starting_not_as_work(fleet: Site) -> None:
    made = shell_job("slow", 4, "sleep 2", before="sleep 5")
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(made))
    fleet.until_phase("slow", "Completed")
    [lease] = fleet.leases_of("slow")
    [pod] = fleet.pods_of("slow")
    [container] = pod["status"]["containerStatuses"]
    assert lease["status"]["began"][:19] == container["state"]["terminated"]["startedAt"][:19]
    words = ("report", "gpu-hours", "-n", "team", "--by", "run", "-o", "json")
    rows = {each["run"]: each for each in json.loads(fleet.runs(*words))["items"]}
    row = rows["team/slow"]
    starting, work = (row["uses"][use]["gpuMs"] for use in ("starting", "work"))
    assert starting >= 4 * 4000  # a kubelet counts in whole seconds
    assert work >= 4 * 1000
    assert starting + work == row["gpuMs"]


def test_run_with_missing_image_shows_kubelet_message_and_fails(fleet: Site) -> None:
    made = shell_job(
        "typo", 8, "true", image="leasehold.test/no-such:1", runtime={"startTimeout": "15s"}
    )
    fleet.kubectl.ok("apply", "-f", fleet.kubectl.file(made))
    # Until the start times out, the Run shows the kubelet's message.
    fleet.until(lambda: "no-such" in _condition(fleet, "typo", "Starting"))
    run = fleet.until_phase("typo", "Failed")
    assert "no-such" in json.dumps(run["status"]["conditions"])
    assert [each.partition("(")[0] for each in fleet.closings("typo")] == ["Fail", "Fail"]
    for lease in fleet.leases_of("typo"):
        assert lease["status"]["began"] == lease["status"]["endTime"]  # it never ran
    assert "no-such" in fleet.runs("explain", "typo", "-n", "team")
    fleet.until(lambda: "no-such" in fleet.kubectl.ok("events", "--for=run/typo", "-n", "team"))
    fleet.kubectl.ok("delete", "run", "typo", "-n", "team")
    fleet.check_consistency()


def _condition(fleet: Site, run: str, kind: str) -> str:
    conditions = fleet.run(run).get("status", {}).get("conditions", [])
    return " ".join(each.get("message", "") for each in conditions if each["type"] == kind)
