"""The users that jobs run as, their limits, and the rendezvous of a gang."""

import json
import os
import socket
from pathlib import Path

import pytest
from tests.agent.harness import NODE, Stage, eventually, phase, pod, stage, terminated

from leasehold.adapters.agent import users as users_module
from leasehold.adapters.agent.agent import LocalNode, _prepare
from leasehold.adapters.agent.cgroups import find_cgroups
from leasehold.adapters.agent.limits import AgentError, CannotStart
from leasehold.adapters.agent.rendezvous import PORT_FIRST, PORT_LAST, Rendezvous
from leasehold.adapters.agent.users import (
    PRIVATE_COUNT_SMALL,
    PRIVATE_FIRST,
    PRIVATE_FIRST_SMALL,
    Users,
)
from leasehold.core.names import Wire
from leasehold.core.objects.quantity import CPU, MEMORY

IS_ROOT = os.geteuid() == 0


def test_jobs_of_two_namespaces_run_as_two_users_without_access_to_data(
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


def test_namespace_keeps_its_uid(ground: Path) -> None:
    first = Users(ground)
    before = [first.account(name).uid for name in ("a", "b", "a")]
    again = Users(ground)

    assert [again.account(name).uid for name in ("b", "a")] == [before[1], before[0]]
    assert before[0] == before[2]
    if IS_ROOT:
        assert before[0] != before[1]
        assert 0 not in before


@pytest.fixture
def as_root(ground: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return a dict that fakes the owner of each work folder; the process seems to run as root."""
    owners: dict[str, int] = {}
    (ground / "work").mkdir(mode=0o755)
    lstat = Path.lstat

    def faked_lstat(path: Path) -> os.stat_result:
        status = lstat(path)
        if path.parent != ground / "work" or path.name not in owners:
            return status
        return os.stat_result((*status[:4], owners[path.name], *status[5:10]))

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "lstat", faked_lstat)
    return owners


def folders(ground: Path, owners: dict[str, int], **some: int) -> None:
    for name, uid in some.items():
        (ground / "work" / name).mkdir(mode=0o700)
        owners[name] = uid


def test_namespace_gets_the_private_uid_that_owns_its_folder(
    ground: Path, as_root: dict[str, int]
) -> None:
    """After a restore without the list of uids no namespace may get the uid of another one."""
    first = PRIVATE_FIRST
    folders(
        ground, as_root, a=first + 1, b=first, system=first - 1, twin=first + 5, brother=first + 5
    )

    users = Users(ground / "agent", work=ground / "work")

    assert users.account("b").uid == first
    assert users.account("a").uid == first + 1
    assert users.account("system").uid != first - 1  # not a private uid
    assert users.account("twin").uid != first + 5  # two folders have this uid
    listed = json.loads((ground / "agent" / "users.json").read_text())
    assert listed["a"] == first + 1


def test_uid_of_a_folder_process_or_namespace_is_not_given_to_another(
    ground: Path, as_root: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = range(PRIVATE_FIRST_SMALL, PRIVATE_FIRST_SMALL + PRIVATE_COUNT_SMALL)
    *rest, folder, process, free = small
    folders(ground, as_root, another=folder)
    monkeypatch.setattr(users_module, "_uids_of_processes", lambda: {process})
    monkeypatch.setattr(users_module, "_remembered", lambda _: {f"n{uid}": uid for uid in rest})
    (ground / "users.json").touch()
    users = Users(ground, work=ground / "work", private_first=small.start)

    assert users.account("team").uid == free
    with pytest.raises(CannotStart, match="no free uid is left for namespace more"):
        users.account("more")


def test_uids_of_processes_include_the_current_uid() -> None:
    assert os.getuid() in users_module._uids_of_processes()


def test_control_planes_assign_distinct_uids(ground: Path, as_root: dict[str, int]) -> None:
    given = [
        Users(ground / f"{plane}", work=ground / "work").account(name).uid
        for plane in range(20)
        for name in ("a", "b")
    ]
    assert len(set(given)) == 40


def test_folder_owned_by_uid_of_another_namespace_is_not_chowned(
    ground: Path, as_root: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    changed: list[Path] = []
    monkeypatch.setattr(os, "chown", lambda path, *_, **__: changed.append(path))
    users = Users(ground, work=ground / "work")
    uid = users.account("other").uid
    assert uid is not None
    folders(ground, as_root, team=uid)

    with pytest.raises(CannotStart, match=rf"belongs to uid {uid}, which is other's.*chown -R"):
        users.home(ground / "work", "team")
    assert changed == []
    folders(ground, as_root, new=7)
    users.home(ground / "work", "new")
    assert changed == [ground / "work" / "new"]


def test_restored_list_of_uids_is_imported_once(ground: Path, as_root: dict[str, int]) -> None:
    restored = ground / "users.json"
    restored.write_text('{"team": 2000000007}')
    restored.chmod(0o600)
    agent = ground / "agent"

    assert Users(agent, restored=restored).account("team").uid == 2_000_000_007
    assert not restored.exists()
    assert (agent / "users.json").stat().st_mode & 0o777 == 0o600
    restored.write_text('{"team": 2000000008}')  # the agent already has an imported list
    assert Users(agent, restored=restored).account("team").uid == 2_000_000_007


def test_work_folder_that_others_can_write_or_own_is_refused(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = ground / "work"
    work.mkdir()
    for mode in (0o775, 0o757, 0o1777):
        work.chmod(mode)
        with pytest.raises(AgentError, match=f"other users.*chmod go-w {work}"):
            _prepare(ground / "agent", work)
    work.chmod(0o755)
    os.close(_prepare(ground / "agent", work))

    euid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: euid + 1)
    with pytest.raises(AgentError, match=rf"belongs to uid {euid}.*--work"):
        _prepare(ground / "agent", work)


def test_work_folder_link_of_another_user_is_refused(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ground / "ours").mkdir(mode=0o755)
    (ground / "work").symlink_to(ground / "ours")
    os.close(_prepare(ground / "agent", ground / "work"))
    status = (ground / "work").lstat()
    theirs = os.stat_result((*status[:4], 7, *status[5:10]))
    monkeypatch.setattr(Path, "lstat", lambda _: theirs)

    with pytest.raises(AgentError, match="belongs to uid 7"):
        _prepare(ground / "agent", ground / "work")
    monkeypatch.setattr(os, "geteuid", lambda: 7)  # our own link to another user's folder
    with pytest.raises(AgentError, match=f"belongs to uid {status.st_uid}"):
        _prepare(ground / "agent", ground / "work")


def test_work_folder_can_be_entered_with_any_umask(ground: Path) -> None:
    umask = os.umask(0o077)
    try:
        os.close(_prepare(ground / "agent", ground / "deep" / "work"))
    finally:
        os.umask(umask)

    assert (ground / "deep").stat().st_mode & 0o777 == 0o755
    assert (ground / "deep" / "work").stat().st_mode & 0o777 == 0o755
    assert (ground / "agent").stat().st_mode & 0o777 == 0o700


def test_root_and_unknown_users_are_refused_for_namespaces(ground: Path) -> None:
    for user in ("root", "no-such-user-at-all"):
        with pytest.raises(AgentError, match="namespace team are configured to run as"):
            Users(ground, configured={"team": user})


def test_trust_text_names_one_trust_domain_unless_root(ground: Path) -> None:
    said = Users(ground).trust

    assert ("one trust domain" in said) == (not IS_ROOT)


def test_job_over_memory_limit_is_oom_killed_or_limit_reported_unenforced(ground: Path) -> None:
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


def test_gang_uses_one_rendezvous_port_of_its_own_across_agent_restart(ground: Path) -> None:
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


def test_rendezvous_port_is_kept_until_last_pod_of_run_leaves() -> None:
    taken = {PORT_FIRST}
    meetings = Rendezvous(is_free=lambda port: port not in taken)
    env = {"PET_RDZV_ENDPOINT": "train.team:21234"}

    def ask(pod: str, attempt: str, run: str = "r") -> str:
        changed, _ = meetings.translate(env, pod=pod, run=run, attempt=attempt, hosts=["n1"])
        return changed["PET_RDZV_ENDPOINT"]

    first = ask("p1", "1")

    assert first == f"127.0.0.1:{PORT_FIRST + 1}"  # the first port was taken
    assert ask("p2", "2") == first
    assert ask("p3", "1", run="another") != first
    meetings.leave("p1")
    assert ask("p4", "3") == first  # p2 is still there
    meetings.leave("p2")
    meetings.leave("p4")
    assert ask("p5", "4") != first  # no pod was left, so this is a new rendezvous


def test_port_in_use_on_the_host_is_not_assigned() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        taken.listen()
        meetings = Rendezvous()
        meetings.remember("old", [(("r", "1", "n1:29500"), port)])
        changed, places = meetings.translate(
            {"MASTER_ADDR": "n1", "MASTER_PORT": "29501"},
            pod="p", run="r", attempt="1", hosts=["n1"],
        )  # fmt: skip

    assert changed["MASTER_PORT"] != str(port)
    assert json.dumps(places)


def ask_port(meetings: Rendezvous, run: str) -> int:
    env = {"MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    changed, _ = meetings.translate(env, pod=run, run=run, attempt="1", hosts=["n1"])
    return int(changed["MASTER_PORT"])


def test_rendezvous_falls_back_to_kernel_port_if_all_ports_are_bound() -> None:
    tried: list[int] = []

    def is_free(port: int) -> bool:
        tried.append(port)
        return False

    meetings = Rendezvous(is_free=is_free)
    ports = {ask_port(meetings, f"r{n}") for n in range(10)}

    assert len(ports) == 10
    assert len(tried) == len(set(tried)) == 640  # a bounded number of ports, each tried once
    for port in ports:
        with socket.socket() as theirs:
            theirs.bind(("127.0.0.1", port))


def test_port_chosen_by_kernel_is_not_assigned_twice() -> None:
    chosen = [40_000, 40_000, 40_001, *[40_000] * 100]
    meetings = Rendezvous(is_free=lambda _: False, choose=lambda: chosen.pop(0))

    assert [ask_port(meetings, "a"), ask_port(meetings, "b")] == [40_000, 40_001]
    with pytest.raises(CannotStart, match=r"no port is free.*stop the programs that listen"):
        ask_port(meetings, "c")


def test_rendezvous_without_any_free_port_fails_with_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no port")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(CannotStart, match="no port is free"):
        ask_port(Rendezvous(), "a")


def test_rendezvous_address_set_by_user_is_not_changed() -> None:
    meetings = Rendezvous()
    env = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "1", "PET_RDZV_ENDPOINT": "10.0.0.7:2"}

    assert meetings.translate(env, pod="p", run="r", attempt="1", hosts=["n1"]) == ({}, [])
