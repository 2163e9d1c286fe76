"""The control plane dies and returns: no job is lost, no job runs twice, no exit code is lost."""

import asyncio
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.harness import (
    Stage,
    eventually,
    is_alive,
    phase,
    pids_in,
    stage,
    terminated,
    uid_of,
)
from tests.agent.lonely import Lonely, agent_on

from leasehold.adapters.agent.journals import PodJournal, PodJournals
from leasehold.adapters.agent.shim.records import ticks_of
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import parse_instant

KILLS = 25


@pytest.fixture
def lonely(ground: Path) -> Iterator[Lonely]:
    process = Lonely(ground)
    yield process
    process.close()


def test_job_that_ends_while_agent_is_dead_is_reported_with_end_time_and_log(
    ground: Path, lonely: Lonely
) -> None:
    script = (
        "echo $$$$ > pid; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; "
        "while [ ! -e go ]; do sleep 0.02; done; echo last; exit 7"
    )
    agent = lonely.start(script, ["job"])
    work = ground / "work" / "team"
    [pid] = asyncio.run(pids_in(work / "pid"))
    os.kill(agent, signal.SIGKILL)
    lonely.wait(agent)
    assert is_alive(pid)
    [journal] = PodJournals(ground / "data").all()
    shim = journal.shim
    assert shim is not None
    released_at = time.time_ns() // 1_000_000
    (work / "go").touch()
    asyncio.run(_until_dead(shim))
    seen_dead_at = time.time_ns() // 1_000_000

    ended, printed = _finish(ground, ["job"])["job"]

    assert phase(ended) == "Failed"
    assert terminated(ended)["exitCode"] == 7
    finished = parse_instant(text_at(terminated(ended), "finishedAt"))
    assert finished is not None
    assert released_at <= finished <= seen_dead_at + 1
    assert printed.decode().splitlines() == [*(f"line {i}" for i in range(2000)), "last"]


def test_repeatedly_killed_agent_starts_every_pod_exactly_once(
    ground: Path, lonely: Lonely
) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    script = "echo once >> ran-$HOSTNAME"
    names: list[str] = []
    for moment in range(KILLS):
        fresh = [f"r{moment}-{index}" for index in range(4)]
        names += fresh
        agent = lonely.start(script, fresh)
        # The delay is so short that most kills happen during a start.
        time.sleep(chance.uniform(0.01, 0.12))
        os.kill(agent, signal.SIGKILL)
        lonely.wait(agent)

    ended = _finish(ground, None)

    assert set(ended) <= set(names), f"seed {seed}"
    assert len(ended) > KILLS // 2, f"seed {seed}"
    failed = [wire["status"] for wire, _ in ended.values() if phase(wire) != "Succeeded"]
    assert failed == [], f"seed {seed}"
    work = ground / "work" / "team"
    ran = {name: (work / f"ran-{name}").read_text() for name in ended}
    assert ran == dict.fromkeys(ended, "once\n"), f"seed {seed}"
    assert len(list(work.glob("ran-*"))) == len(ended)


def test_job_survives_agent_restart_and_can_be_stopped_afterwards(ground: Path) -> None:
    async def play(machine: Stage) -> int:
        await machine.submit("long", "echo $$$$ > pid; exec sleep 600")
        await machine.running("long")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        await machine.restart()
        assert is_alive(pid)
        assert machine.agent.running == 1
        assert phase(await machine.get("long")) == "Running"
        await machine.delete("long", 10_000)
        await machine.gone("long")
        return pid

    assert not is_alive(stage(ground, play))


def test_job_of_pod_deleted_while_agent_is_stopped_is_killed(ground: Path) -> None:
    async def play(machine: Stage) -> int:
        await machine.submit("orphan", "echo $$$$ > pid; exec sleep 600")
        [pid] = await pids_in(ground / "work" / "team" / "pid")

        async def meanwhile() -> None:
            await machine.delete("orphan", 0)

        await machine.restart(meanwhile)
        await _until_dead(pid)
        return pid

    assert not is_alive(stage(ground, play))


def test_agent_restart_removes_files_of_deleted_pods_after_partial_removal(ground: Path) -> None:
    """The agent dies between two steps of a removal: only the journal, or only the logs, remain."""

    async def play(machine: Stage) -> list[str]:
        uids = []
        for name in ("whole", "without-logs", "without-journal", "kept"):
            made = await machine.submit(name, "echo said")
            await machine.ended(name)
            uids.append(uid_of(made))
        journals = PodJournals(ground / "data")

        async def die_in_between() -> None:
            shutil.rmtree(journals.at(uids[1]).logs)
            journals.at(uids[2]).path.unlink()
            for name in ("whole", "without-logs", "without-journal"):
                await machine.store.delete("Pod", "team", name, uid=None, grace_ms=0)

        await machine.restart(die_in_between)

        async def is_tidy() -> bool:
            return [each.uid for each in PodJournals(ground / "data").all()] == uids[3:]

        await eventually(is_tidy)
        data = ground / "data"
        return [path.name for place in ("pods", "logs") for path in (data / place).iterdir()] + uids

    *left, _, _, _, kept = stage(ground, play)

    assert left == [kept, kept]


def test_stop_request_is_written_once_to_journal_despite_repeated_signals(ground: Path) -> None:
    async def play(machine: Stage) -> list[object]:
        made = await machine.submit("deaf", "trap '' TERM; echo $$$$ > pid; sleep 600")
        await pids_in(ground / "work" / "team" / "pid")
        await machine.running("deaf")
        journal = _journal(ground, made)
        shim = _shim(ground, made)
        os.kill(shim, signal.SIGSTOP)  # the agent repeats its signal until the shim ends
        ending = machine.tasks.spawn("ending", machine.agent.end_all())
        await machine.clock.sleep(200)
        os.kill(shim, signal.SIGCONT)
        await machine.ended("deaf")
        ending.cancel()
        lines = journal.path.read_text().splitlines()
        return [json.loads(line)["grace_ms"] for line in lines[1:] if "due_boot_ms" in line]

    assert stage(ground, play) == [0]


DAEMON = (
    "echo $$$$ > pids; (setsid sh -c 'echo $$$$ >> pids; while :; do sleep 1; done' &); sleep 600"
)


def test_killed_shim_fails_pod_with_unknown_exit_and_leaves_no_process(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[Wire, list[int]]:
        made = await machine.submit("struck", DAEMON)
        pids = await pids_in(ground / "work" / "team" / "pids", 2)
        await machine.running("struck")
        os.kill(_shim(ground, made), signal.SIGKILL)
        ended = await machine.ended("struck")
        return ended, [pid for pid in pids if is_alive(pid)]

    ended, left = stage(ground, play)

    assert left == []
    assert phase(ended) == "Failed"
    assert terminated(ended)["reason"] == "ExitUnknown"
    told = pod_from_wire(ended)
    assert (told.exit_code, told.reason, told.is_bound) == (None, "", True)
    assert told.finished_at is not None


def test_shim_killed_while_agent_is_stopped_fails_pod_with_unknown_exit(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[Wire, list[int]]:
        made = await machine.submit("struck", DAEMON)
        pids = await pids_in(ground / "work" / "team" / "pids", 2)
        await machine.running("struck")
        shim = _shim(ground, made)

        async def meanwhile() -> None:
            os.kill(shim, signal.SIGKILL)
            await _until_dead(shim)

        await machine.restart(meanwhile)
        return await machine.ended("struck"), [pid for pid in pids if is_alive(pid)]

    ended, left = stage(ground, play)

    assert left == []
    assert terminated(ended)["reason"] == "ExitUnknown"
    # Kubernetes requires a number; `reason` marks it as unknown.
    assert terminated(ended)["exitCode"] == 137


@pytest.mark.parametrize("other", [{"boot": "another"}, {"shim_ticks": 1}])
def test_recorded_pid_of_another_boot_or_process_is_not_taken_for_shim(
    ground: Path, other: dict[str, object]
) -> None:
    async def play(machine: Stage) -> Wire:
        made = await machine.submit("old", "exec sleep 600")
        await machine.running("old")
        shim = _shim(ground, made)

        async def replace_shim_pid() -> None:
            os.kill(shim, signal.SIGKILL)
            await _until_dead(shim)
            journal, me = _journal(ground, made), os.getpid()
            recorded = journal.started or {}
            now_ours = recorded | {"shim": me, "shim_ticks": ticks_of(me)} | other
            text = journal.path.read_text()
            journal.path.write_text(text.replace(json.dumps(recorded), json.dumps(now_ours)))
            assert _journal(ground, made).started == now_ours

        await machine.restart(replace_shim_pid)
        return await machine.ended("old")

    assert terminated(stage(ground, play))["reason"] == "ExitUnknown"


def test_running_pod_with_lost_journal_fails_and_is_not_started_again(ground: Path) -> None:
    async def play(machine: Stage) -> Wire:
        made = await machine.submit("once", "echo x >> ran; echo $$$$ > pid; exec sleep 600")
        await machine.running("once")
        [pid] = await pids_in(ground / "work" / "team" / "pid")

        async def lose_all() -> None:
            _journal(ground, made).path.unlink()

        await machine.restart(lose_all)
        ended = await machine.ended("once")
        assert not is_alive(pid)
        return ended

    assert terminated(stage(ground, play))["reason"] == "ExitUnknown"
    assert (ground / "work" / "team" / "ran").read_text() == "x\n"


def test_killed_zygote_is_replaced_and_running_job_continues(ground: Path) -> None:
    async def play(machine: Stage) -> str:
        await machine.submit("before", "exec sleep 600")
        await machine.running("before")
        me = os.getpid()
        [zygote] = [pid for pid in _processes() if _parent(pid) == me]
        os.kill(zygote, signal.SIGKILL)
        await machine.submit("after", "true")
        await machine.ended("after")
        return phase(await machine.get("before"))

    assert stage(ground, play) == "Running"


def _finish(ground: Path, names: list[str] | None) -> dict[str, tuple[Wire, bytes]]:
    """Run an agent here until all pods have ended; return each pod with its output, by name."""

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> dict[str, tuple[Wire, bytes]]:
        store = GroupStore(ground / "store.db", tasks, clock)
        agent = agent_on(ground, store, clock, tasks)
        await agent.prepare()
        tasks.spawn("agent", agent.run())

        async def all_ended() -> list[Wire] | None:
            items = (await store.list("Pod")).items
            return items if all(phase(i) in ("Succeeded", "Failed") for i in items) else None

        ended = await eventually(all_ended)
        found = {}
        for wire in ended:
            printed = b"".join([portion async for portion in agent.logs(wire)])
            found[text_at(part(wire, "metadata"), "name")] = (wire, printed)
        await agent.end_all()
        await agent.stop()
        store.close()
        return found

    found = run(main)
    assert names is None or sorted(found) == sorted(names)
    return found


async def _until_dead(pid: int) -> None:
    async def look() -> bool:
        return not is_alive(pid)

    await eventually(look)


def _journal(ground: Path, made: Wire) -> PodJournal:
    return PodJournals(ground / "data").at(uid_of(made))


def _shim(ground: Path, made: Wire) -> int:
    shim = _journal(ground, made).shim
    assert shim is not None
    return shim


def _processes() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[1])
