"""What a job prints is kept and shown: every line, in order, rotated, followed, on a full disk."""

import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.harness import Stage, eventually, phase, pod, stage, terminated

from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.logs import MISSED, NoLog
from leasehold.core.names import Wire
from leasehold.core.units import parse_instant


def test_every_byte_comes_back_also_long_lines_binary_and_no_newline_at_the_end(
    ground: Path,
) -> None:
    printed = b"a\n\n\x00\xff\x1b[1m\r\n" + b"x" * 100_000 + b"\nend"
    (ground / "printed").write_bytes(printed)

    async def play(machine: Stage) -> bytes:
        await machine.store.create(pod("cat", ["/bin/cat", str(ground / "printed")]))
        return await machine.log(await machine.ended("cat"))

    assert stage(ground, play) == printed


def test_a_megabyte_a_second_loses_no_line(ground: Path) -> None:
    count = 40_000

    async def play(machine: Stage) -> bytes:
        script = f"seq -f 'line %.0f of a job that says a lot, and then some more' {count}"
        await machine.submit("loud", script)
        return await machine.log(await machine.ended("loud"))

    lines = stage(ground, play).decode().splitlines()

    assert len(lines) == count
    assert [int(line.split()[1]) for line in lines] == list(range(1, count + 1))


def test_old_files_are_dropped_and_the_rest_is_in_order(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[bytes, int]:
        made = await machine.submit("seq", "seq 1 20000")
        printed = await machine.log(await machine.ended("seq"))
        uid = made["metadata"]["uid"]  # type: ignore[index]
        files = list((ground / "data" / "logs" / uid).glob("log.*"))
        return printed, sum(file.stat().st_size for file in files)

    printed, size = stage(ground, play, limits=Limits(log_bytes_max=50_000, log_files_max=3))
    numbers = [int(line) for line in printed.split()]

    assert size <= 3 * 50_000 + 100
    assert numbers[-1] == 20000
    assert numbers == list(range(numbers[0], 20001))
    assert numbers[0] > 1


def test_the_tail_the_time_the_stamps_and_the_limit_are_as_asked(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        await machine.submit("say", "printf 'one\\ntwo\\n'; sleep 0.3; printf 'three\\nfour'")
        ended = await machine.ended("say")
        assert await machine.log(ended, tail_lines=2) == b"three\nfour"
        assert await machine.log(ended, tail_lines=0) == b""
        assert await machine.log(ended, tail_lines=99) == b"one\ntwo\nthree\nfour"
        assert await machine.log(ended, limit_bytes=6) == b"one\ntw"
        stamped = (await machine.log(ended, timestamps=True)).decode().splitlines()
        times = [parse_instant(line.split()[0]) for line in stamped]
        assert [line.split()[1] for line in stamped] == ["one", "two", "three", "four"]
        assert None not in times
        assert await machine.log(ended, since_ms=times[2]) == b"three\nfour"
        with pytest.raises(NoLog, match="previous"):
            machine.agent.logs(ended, previous=True)

    stage(ground, play)


def test_a_follower_sees_lines_as_they_come_over_rotation_and_ends_with_the_pod(
    ground: Path,
) -> None:
    async def play(machine: Stage) -> bytes:
        work = ground / "work" / "team"
        script = "echo first; printf unended; while [ ! -e go ]; do sleep 0.02; done; seq 1 3000"
        made = await machine.submit("talk", script)
        await machine.running("talk")
        printed = b""
        async for portion in machine.agent.logs(made, follow=True):
            printed += portion
            if printed == b"first\nunended":
                (work / "go").touch()
        return printed

    followed = stage(ground, play, limits=Limits(log_bytes_max=10_000, log_files_max=50))

    expected = b"first\nunended" + b"".join(b"%d\n" % number for number in range(1, 3001))
    assert followed == expected


def test_a_follower_who_is_too_slow_is_told_what_he_missed(ground: Path) -> None:
    async def play(machine: Stage) -> bytes:
        work = ground / "work" / "team"
        made = await machine.submit(
            "talk", "echo first; while [ ! -e go ]; do sleep 0.02; done; seq 1 3000"
        )
        await machine.running("talk")
        follower = machine.agent.logs(made, follow=True)
        printed = await anext(follower)
        (work / "go").touch()
        await machine.ended("talk")  # by now all but the last files of the log are gone
        async for portion in follower:
            printed += portion
        return printed

    followed = stage(ground, play, limits=Limits(log_bytes_max=2_000, log_files_max=2))

    lines = followed.decode().splitlines()
    assert lines.count(MISSED) == 1
    gap = lines.index(MISSED)
    before, after = ([int(line) for line in part] for part in (lines[1:gap], lines[gap + 1 :]))
    assert before == list(range(1, len(before) + 1))
    assert after == list(range(after[0], 3001))
    assert after[0] > len(before) + 1


def test_a_log_is_found_while_it_runs_after_a_restart_and_after_the_end(ground: Path) -> None:
    async def play(machine: Stage) -> list[bytes]:
        script = "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last"
        made = await machine.submit("talk", script)
        await machine.running("talk")

        async def said() -> bytes:
            return await machine.log(made)

        found = [await eventually(said)]
        await machine.restart()
        found.append(await said())
        (ground / "work" / "team" / "go").touch()
        ended = await machine.ended("talk")
        found.append(await machine.log(ended))
        await machine.restart()
        found.append(await machine.log(ended))
        return found

    begun, all_of_it = b"first\n", b"first\nlast\n"
    assert stage(ground, play) == [begun, begun, all_of_it, all_of_it]


def test_the_log_of_a_silent_job_is_empty_also_for_who_follows_it(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[bytes, bytes, bytes]:
        made = await machine.submit("mute", "while [ ! -e go ]; do sleep 0.02; done")
        await machine.running("mute")
        before = await machine.log(made)
        (ground / "work" / "team" / "go").touch()
        followed = await machine.log(made, follow=True)
        return before, followed, await machine.log(await machine.ended("mute"), tail_lines=5)

    assert stage(ground, play) == (b"", b"", b"")
    assert list((ground / "data" / "logs").iterdir()) == []


@pytest.fixture
def full(ground: Path) -> Iterator[Path]:
    """A small disk for the agent's folder; where none can be mounted, small files."""
    data = ground / "data"
    data.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(data)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, before[1]))
    yield ground
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    if mounted:
        subprocess.run(["umount", "-l", str(data)], check=True)


def test_a_full_disk_costs_output_and_neither_the_job_nor_its_exit_code(full: Path) -> None:
    async def play(machine: Stage) -> tuple[Wire, bytes]:
        # More than fits, to a job that would die of a broken pipe, then its exit code.
        await machine.submit("flood", "seq 1 100000 || exit 1; echo survived >&2; exit 5")
        ended = await machine.ended("flood")
        reasons = [note.reason for note in machine.notes]
        assert "LogDropped" in reasons
        return ended, await machine.log(ended)

    ended, printed = stage(full, play)

    assert phase(ended) == "Failed"
    assert terminated(ended)["exitCode"] == 5
    assert printed.startswith(b"1\n2\n3\n")


def test_a_pod_that_cannot_be_recorded_waits_for_room_and_then_runs(full: Path) -> None:
    async def play(machine: Stage) -> str:
        filler = full / "data" / "filler"
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, check=False
        )
        await machine.submit("late", "true")

        async def troubled() -> bool:
            return any(note.reason == "AgentTrouble" for note in machine.notes)

        if filler.stat().st_size > 64 * 1024:  # a disk that is full, not files that are small
            await eventually(troubled)
            assert phase(await machine.get("late")) == "Pending"
        filler.unlink()
        return phase(await machine.ended("late"))

    assert stage(full, play) == "Succeeded"
