"""The life of a job: its start, its environment, and how its end is reported."""

from pathlib import Path

import pytest
from tests.agent.harness import Stage, eventually, is_alive, phase, pids_in, pod, stage, terminated

from leasehold.adapters.agent.agent import LocalNode
from leasehold.adapters.agent.devices import Device
from leasehold.core.facts import PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import parse_instant


def test_job_with_exit_code_zero_succeeds(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.submit("hello", "echo to stdout; echo to stderr >&2")
        ended = await machine.ended("hello")
        assert sorted((await machine.log(ended)).splitlines()) == [b"to stderr", b"to stdout"]
        return ended

    ended = stage(ground, play)

    assert phase(ended) == "Succeeded"
    assert terminated(ended)["exitCode"] == 0
    assert terminated(ended)["reason"] == "Completed"
    started = parse_instant(text_at(terminated(ended), "startedAt"))
    finished = parse_instant(text_at(terminated(ended), "finishedAt"))
    assert started is not None
    assert finished is not None
    assert started <= finished
    assert pod_from_wire(ended).is_bound


def test_job_environment_has_pod_variables_and_none_of_the_server(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_TOKEN", "secret")
    monkeypatch.setenv("LD_PRELOAD", "")

    async def play(machine: Stage) -> bytes:
        made = pod(
            "env",
            ["/usr/bin/env", "-0"],
            env={"RANK": "3", "WORLD_SIZE": "8"},
            slots="2,5",
            container={
                "env": [
                    {"name": "WHERE", "value": "rank $(RANK) on $(NODE) $(MISSING) $$(RANK)"},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {"name": "AGAIN", "value": "on $(NODE), $(CUDA_VISIBLE_DEVICES)"},
                    {"name": "RUN_LABEL", "valueFrom": {"fieldRef": {
                        "fieldPath": "metadata.labels['rq.davidlangworthy.io/run']"}}},
                    {"name": "CORES", "valueFrom": {"resourceFieldRef": {
                        "resource": "limits.cpu", "divisor": "1m"}}},
                    {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3,4,5,6,7"},
                ],
                "resources": {"limits": {"cpu": "1500m"}},
            },
        )  # fmt: skip
        await machine.store.create(made)
        return await machine.log(await machine.ended("env"))

    lines = stage(ground, play).rstrip(b"\0").decode().split("\0")
    env = dict(line.split("=", 1) for line in lines)

    home = str(ground / "work" / "team")
    assert set(env) == {
        "LEASEHOLD_RUN", "RANK", "WORLD_SIZE", "WHERE", "NODE", "AGAIN", "RUN_LABEL", "CORES",
        "PATH", "HOME", "USER", "LOGNAME", "HOSTNAME", "LANG", "TMPDIR", "LEASEHOLD_POD_UID",
        "CUDA_VISIBLE_DEVICES",
    }  # fmt: skip
    assert env["RANK"] == "3"
    assert env["WHERE"] == "rank 3 on $(NODE) $(MISSING) $(RANK)"  # NODE is defined later
    assert env["AGAIN"] == "on n1, 2,5"
    assert env["RUN_LABEL"] == "train"
    assert env["CORES"] == "1500"
    assert env["CUDA_VISIBLE_DEVICES"] == "2,5"  # from the lease, not from the user's template
    assert env["HOME"] == home
    assert env["HOSTNAME"] == "env"


def test_cuda_visible_devices_lists_real_devices_by_uuid(ground: Path) -> None:
    devices = tuple(Device(i, f"GPU-{i}{i}", "H1", 1 << 30) for i in range(4))
    node = LocalNode("n1", "h1", "here", "c1", "d1", gpus=4, devices=devices)

    async def play(machine: Stage) -> bytes:
        await machine.store.create(
            pod("cuda", ["/bin/sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], slots="1,3")
        )
        return await machine.log(await machine.ended("cuda"))

    assert stage(ground, play, nodes=(node,)) == b"GPU-11,GPU-33\n"


def test_nonzero_exit_code_is_reported_as_failure_of_bound_pod(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.submit("three", "exit 3")
        return await machine.ended("three")

    ended = stage(ground, play)

    assert phase(ended) == "Failed"
    assert terminated(ended)["exitCode"] == 3
    assert terminated(ended)["reason"] == "Error"
    # The pod was bound, so this is the workload's own failure.
    assert pod_from_wire(ended).reason == ""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        (["no-such-command", "x"], 127, "command not found: no-such-command"),
        (["/etc/passwd"], 126, "/etc/passwd cannot be run: Permission denied"),
    ],
)
def test_command_that_cannot_run_fails_pod_with_reason(
    ground: Path, command: list[str], code: int, said: str
) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.store.create(pod("bad", command))
        return await machine.ended("bad")

    ended = stage(ground, play)

    assert phase(ended) == "Failed"
    assert terminated(ended)["exitCode"] == code
    assert terminated(ended)["reason"] == "ContainerCannotRun"
    assert terminated(ended)["message"] == said


def test_missing_working_directory_is_reported(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.submit("lost", "pwd", container={"workingDir": "/no/such/folder"})
        return await machine.ended("lost")

    said = terminated(stage(ground, play))["message"]

    assert said == (
        "its working directory /no/such/folder cannot be entered: No such file or directory"
    )


def test_pod_without_command_is_rejected_and_never_started(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.store.create(pod("empty", []))
        return await machine.ended("empty")

    ended = stage(ground, play)

    assert pod_from_wire(ended).reason == "Rejected"
    assert not pod_from_wire(ended).is_bound
    assert "spec.containers[0].command" in text_at(part(ended, "status"), "message")


def test_files_in_namespace_folder_survive_to_next_attempt(ground: Path) -> None:
    async def play(machine: Stage) -> bytes:
        await machine.submit("first", "echo step 100 > checkpoint")
        await machine.ended("first")
        await machine.submit("second", "cat checkpoint", attempt=2)
        return await machine.log(await machine.ended("second"))

    assert stage(ground, play) == b"step 100\n"


def test_job_killed_by_foreign_signal_reports_signal_number(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        await machine.submit("struck", "kill -9 $$$$")
        return await machine.ended("struck")

    ended = terminated(stage(ground, play))

    assert (ended["exitCode"], ended["signal"], ended["reason"]) == (137, 9, "Error")


def test_job_that_exits_on_sigterm_within_grace_succeeds(ground: Path) -> None:
    async def play(machine: Stage) -> list[str]:
        script = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        made = await machine.submit("polite", script)
        await _printed(machine, made, b"ready")
        seen = _follow_phases(machine, "polite")
        await machine.delete("polite", 30_000)
        await machine.gone("polite")
        return seen

    seen = stage(ground, play)

    assert "Succeeded" in seen  # reported before the object was removed


def test_job_that_ignores_sigterm_is_killed_with_descendants_after_grace(
    ground: Path,
) -> None:
    async def play(machine: Stage) -> list[int]:
        note = ground / "work" / "team" / "pids"
        # Start an orphaned grandchild in its own session that ignores the signal.
        script = (
            "trap '' TERM; echo $$$$ > pids; "
            "(setsid sh -c 'trap \"\" TERM; echo $$$$ >> pids; while :; do sleep 1; done' &) ; "
            "while :; do sleep 1; done"
        )
        await machine.submit("deaf", script)
        pids = await pids_in(note, 2)
        await machine.running("deaf")
        await machine.delete("deaf", 200)
        assert is_alive(pids[0])  # within the grace period
        await machine.gone("deaf")
        return pids

    assert [pid for pid in stage(ground, play) if is_alive(pid)] == []


def test_background_process_of_ended_job_is_killed(ground: Path) -> None:
    async def play(machine: Stage) -> list[int]:
        script = (
            "(setsid sh -c 'echo $$$$ > pids; exec sleep 600' &); while [ ! -s pids ]; do :; done"
        )
        await machine.submit("leaver", script)
        assert phase(await machine.ended("leaver")) == "Succeeded"
        return await pids_in(ground / "work" / "team" / "pids")

    assert not is_alive(stage(ground, play)[0])


def test_second_deletion_with_shorter_grace_shortens_first(ground: Path) -> None:
    async def play(machine: Stage) -> list[str]:
        made = await machine.submit("slow", "trap '' TERM; echo ready; while :; do sleep 1; done")
        await _printed(machine, made, b"ready")
        seen = _follow_phases(machine, "slow")
        await machine.delete("slow", 3_600_000)
        await machine.delete("slow", 100)
        await machine.gone("slow")
        return seen

    assert "Failed" in stage(ground, play)  # killed long before the first grace period ended


def test_pod_deleted_before_start_is_removed(ground: Path) -> None:
    async def play(machine: Stage) -> int:
        await machine.store.create(pod("brief", ["/bin/sh", "-c", "sleep 600"]))
        await machine.delete("brief", 1)
        await machine.gone("brief")

        async def idle() -> bool:
            return machine.agent.running == 0

        await eventually(idle)
        return len((await machine.store.list("Pod")).items)

    assert stage(ground, play) == 0


def test_pods_of_other_nodes_and_other_schedulers_stay_pending(ground: Path) -> None:
    async def play(machine: Stage) -> list[str]:
        await machine.store.create(pod("theirs", ["/bin/true"], node="n9"))
        await machine.store.create(pod("stranger", ["/bin/true"], run_uid=""))
        await machine.submit("mine", "true")
        await machine.ended("mine")
        return [phase(await machine.get(name)) for name in ("theirs", "stranger")]

    assert stage(ground, play) == ["Pending", "Pending"]


def test_claimed_pod_has_claimed_condition_and_stays_pending(ground: Path) -> None:
    async def play(machine: Stage) -> list[Wire]:
        version = (await machine.store.list("Pod")).version
        watch = machine.store.watch("Pod", version)
        await machine.submit("seen", "true")
        seen = []
        while not seen or phase(seen[-1]) not in ("Succeeded", "Failed"):
            seen.append((await watch.next()).object)
        return seen

    seen = stage(ground, play)
    claimed = seen[1]

    assert pod_from_wire(claimed).phase is PodPhase.PENDING
    kinds = [part({"it": each}, "it")["type"]
             for each in list_at(part(claimed, "status"), "conditions")]  # fmt: skip
    assert "rq.davidlangworthy.io/claimed" in kinds


def test_ignored_image_is_reported_once_per_run(ground: Path) -> None:
    async def play(machine: Stage) -> list[tuple[str, str, str, str]]:
        for index in range(3):
            await machine.submit(f"pod-{index}", "true", container={"image": "nvcr.io/torch:24"})
            await machine.ended(f"pod-{index}")
        return [(note.kind, note.name, note.uid, note.reason) for note in machine.notes]

    assert stage(ground, play) == [("Run", "train", "run-1", "ImageIgnored")]


async def _printed(machine: Stage, made: Wire, wanted: bytes) -> None:
    await machine.running(text_at(part(made, "metadata"), "name"))

    async def look() -> bool:
        return wanted in await machine.log(made)

    await eventually(look)


def _follow_phases(machine: Stage, name: str) -> list[str]:
    """Return a list that collects the phases of a pod from a watch."""
    seen: list[str] = []

    async def follow() -> None:
        watch = machine.store.watch("Pod", (await machine.store.list("Pod")).version)
        while True:
            event = await watch.next()
            if text_at(part(event.object, "metadata"), "name") == name:
                seen.append(phase(event.object))

    machine.tasks.spawn("follow", follow())
    return seen


def test_stopped_pod_object_stays_until_its_lease_is_closed(ground: Path) -> None:
    """Only the Pod object records when the pod ended."""

    async def play(machine: Stage) -> tuple[str, bool]:
        lease: Wire = {
            "apiVersion": "rq.davidlangworthy.io/v1",
            "kind": "Lease",
            "metadata": {"name": "train-1-0"},
            "spec": {},
        }
        await machine.store.create(lease)
        await machine.store.create(
            pod("held", ["/bin/sleep", "600"], env={"LEASEHOLD_LEASES": "train-1-0"})
        )
        await machine.running("held")
        await machine.store.delete("Pod", "team", "held", uid=None, grace_ms=1)
        ended = await machine.ended("held")
        closed: Wire = {"closed": True}
        await machine.store.patch_status("Lease", "", "train-1-0", closed, version=None)

        async def is_gone() -> bool:
            return not (await machine.store.list("Pod")).items

        await eventually(is_gone)
        return phase(ended), True

    assert stage(ground, play) == ("Failed", True)
