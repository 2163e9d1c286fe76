"""Who runs what, within which limits, and where a gang meets."""

import json
import os
import socket
from pathlib import Path

import pytest
from tests.agent.harness import NODE, Stage, eventually, phase, pod, stage, terminated

from leasehold.adapters.agent.agent import LocalNode
from leasehold.adapters.agent.cgroups import find_cgroups
from leasehold.adapters.agent.limits import AgentError
from leasehold.adapters.agent.meeting import PORT_FIRST, PORT_LAST, Meetings
from leasehold.adapters.agent.users import Users
from leasehold.core.objects.quantity import CPU, MEMORY
from leasehold.ports.store import Wire

IS_ROOT = os.geteuid() == 0


def test_jobs_of_two_namespaces_are_two_users_who_cannot_read_the_data_folder(
    ground: Path,
) -> None:
    async def play(machine: Stage) -> dict[str, list[str]]:
        said = {}
        script = f"id -u; id -G; cat {ground}/data/users.json || echo closed; pwd"
        for namespace in ("team", "other"):
            made = pod(f"who-{namespace}", ["/bin/sh", "-c", script], namespace=namespace)
            await machine.store.create(made)

            async def ended(name: str = f"who-{namespace}", space: str = namespace) -> Wire | None:
                found = await machine.get(name, space)
                return found if phase(found) in ("Succeeded", "Failed") else None

            wire = await eventually(ended)
            printed = (await machine.log(wire)).decode().splitlines()
            said[namespace] = [line for line in printed if "ermission" not in line]
        return said

    said = stage(ground, play)

    if IS_ROOT:
        assert len({said["team"][0], said["other"][0], "0"}) == 3
        for namespace in ("team", "other"):
            uid = said[namespace][0]
            assert said[namespace] == [uid, uid, "closed", str(ground / "work" / namespace)]
            assert (ground / "work" / namespace).stat().st_mode & 0o777 == 0o700
    else:
        assert said["team"][0] == said["other"][0] == str(os.geteuid())


def test_a_namespace_keeps_its_uid(ground: Path) -> None:
    first = Users(ground)
    before = [first.account(name).uid for name in ("a", "b", "a")]
    again = Users(ground)

    assert [again.account(name).uid for name in ("b", "a")] == [before[1], before[0]]
    assert before[0] == before[2]
    if IS_ROOT:
        assert before[0] != before[1]
        assert 0 not in before


def test_root_is_refused_as_somebodys_user_and_so_is_nobody_known(ground: Path) -> None:
    for user in ("root", "no-such-user-at-all"):
        with pytest.raises(AgentError, match="namespace team is to run as"):
            Users(ground, configured={"team": user})


def test_the_sentence_about_trust_says_which_it_is(ground: Path) -> None:
    said = Users(ground).trust

    assert ("one trust domain" in said) == (not IS_ROOT)


def test_too_much_memory_is_an_out_of_memory_kill_or_the_run_is_told(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[Wire, list[str]]:
        hungry = "import sys; x = bytearray(400 << 20); print(len(x))"
        made = pod(
            "hungry",
            [os.path.realpath("/usr/bin/python3"), "-c", hungry],
            container={"resources": {"limits": {"memory": "64Mi", "cpu": "500m"}}},
        )
        await machine.store.create(made)
        return await machine.ended("hungry"), [note.reason for note in machine.notes]

    probe = find_cgroups("leasehold-probe")
    probe.remove()
    ended, reasons = stage(ground, play)

    if probe.enforces(MEMORY):
        assert terminated(ended)["reason"] == "OOMKilled"
        assert terminated(ended)["exitCode"] == 137
        assert "OOMKilled" in reasons
    else:
        assert phase(ended) == "Succeeded"
    assert ("LimitsNotEnforced" in reasons) == (
        not (probe.enforces(MEMORY) and probe.enforces(CPU))
    )


OTHER = LocalNode("n2", "virtual", "here", "c1", "d2", gpus=8)


def test_a_gang_meets_on_one_port_of_its_own_also_over_a_restart(ground: Path) -> None:
    async def play(machine: Stage) -> dict[str, list[str]]:
        told = {}

        async def ask(name: str, *, node: str, run: str, host: str) -> None:
            env = {"MASTER_ADDR": host, "MASTER_PORT": "29500", "PET_MASTER_ADDR": host,
                   "PET_MASTER_PORT": "29500"}  # fmt: skip
            script = "echo $MASTER_ADDR $MASTER_PORT $PET_MASTER_ADDR $PET_MASTER_PORT $(USERS); "
            container: Wire = {"env": [{"name": "USERS", "value": "$(MASTER_ADDR):$(MASTER_PORT)"}]}
            await machine.submit(
                name, script + "exec sleep 600", node=node, run_uid=run, env=env,
                container=container,
            )  # fmt: skip
            wire = await machine.running(name)

            async def said() -> list[str]:
                return (await machine.log(wire)).decode().split()

            told[name] = await eventually(said)

        await ask("a0", node="n1", run="run-a", host="n1")
        await ask("b0", node="n1", run="run-b", host="n1")
        await machine.restart()
        await ask("a1", node="n2", run="run-a", host="n1")
        return told

    told = stage(ground, play, nodes=(NODE, OTHER))

    assert told["a0"] == told["a1"]
    address, port, again, same, users = told["a0"]
    assert (address, again) == ("127.0.0.1", "127.0.0.1")
    assert port == same != told["b0"][1]
    assert users == f"127.0.0.1:{port}"
    assert PORT_FIRST <= int(port) <= PORT_LAST


def test_a_meeting_of_a_run_outlives_its_attempts_and_its_port_is_given_back() -> None:
    taken = {PORT_FIRST}
    meetings = Meetings(is_free=lambda port: port not in taken)
    env = {"PET_RDZV_ENDPOINT": "train.team:21234"}

    def ask(pod: str, attempt: str, run: str = "r") -> str:
        changed, _ = meetings.translate(env, pod=pod, run=run, attempt=attempt, hosts=["n1"])
        return changed["PET_RDZV_ENDPOINT"]

    first = ask("p1", "1")

    assert first == f"127.0.0.1:{PORT_FIRST + 1}"  # the one before it was taken
    assert ask("p2", "2") == first
    assert ask("p3", "1", run="another") != first
    meetings.leave("p1")
    assert ask("p4", "3") == first  # p2 is still there
    meetings.leave("p2")
    meetings.leave("p4")
    assert ask("p5", "4") != first  # nobody was left, so that it is another meeting


def test_a_port_in_use_on_the_host_is_not_given_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        meetings = Meetings()
        meetings.remember("old", [(("r", "1", "n1:29500"), port)])
        changed, places = meetings.translate(
            {"MASTER_ADDR": "n1", "MASTER_PORT": "29501"},
            pod="p", run="r", attempt="1", hosts=["n1"],
        )  # fmt: skip

    assert changed["MASTER_PORT"] != str(port)
    assert json.dumps(places)


def test_a_users_own_meeting_place_is_left_alone() -> None:
    meetings = Meetings()
    env = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1", "PET_RDZV_ENDPOINT": "10.0.0.7:2"}

    assert meetings.translate(env, pod="p", run="r", attempt="1", hosts=["n1"]) == ({}, [])
