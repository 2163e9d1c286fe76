"""The output of a job: every line kept in order, rotation, followers, and a full disk."""

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


def test_log_returns_every_byte_of_binary_long_and_unterminated_lines(
    ground: Path,
) -> None:
    printed = b"a\n\n\x00\xff\x1b[1m\r\n" + b"x" * 100_000 + b"\nend"
    (ground / "printed").write_bytes(printed)

    async def play(machine: Stage) -> bytes:
        await machine.store.create(pod("cat", ["/bin/cat", str(ground / "printed")]))
        return await machine.log(await machine.ended("cat"))

    assert stage(ground, play) == printed


def test_log_of_forty_thousand_lines_loses_no_line(ground: Path) -> None:
    count = 40_000

    async def play(machine: Stage) -> bytes:
        script = f"seq -f 'line %.0f of a job that says a lot, and then some more' {count}"
        await machine.submit("loud", script)
        return await machine.log(await machine.ended("loud"))

    lines = stage(ground, play).decode().splitlines()

    assert len(lines) == count
    assert [int(line.split()[1]) for line in lines] == list(range(1, count + 1))


def test_rotation_drops_oldest_lines_and_keeps_rest_in_order(ground: Path) -> None:
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


def test_log_options_tail_since_timestamps_and_limit_are_honoured(ground: Path) -> None:
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


def test_follower_sees_all_lines_across_rotation_and_ends_with_pod(
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


def test_slow_follower_sees_notice_where_lines_were_missed(ground: Path) -> None:
    async def play(machine: Stage) -> bytes:
        work = ground / "work" / "team"
        made = await machine.submit(
            "talk", "echo first; while [ ! -e go ]; do sleep 0.02; done; seq 1 3000"
        )
        await machine.running("talk")
        follower = machine.agent.logs(made, follow=True)
        printed = await anext(follower)
        (work / "go").touch()
        await machine.ended("talk")  # by now only the last files of the log are left
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


def test_log_is_readable_while_pod_runs_after_restart_and_after_end(ground: Path) -> None:
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


def test_log_of_silent_job_is_empty_even_when_followed(ground: Path) -> None:
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
    """Give the agent's folder a small disk, or limit the file size if no disk can be mounted."""
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


def test_full_disk_loses_output_but_not_job_or_its_exit_code(full: Path) -> None:
    async def play(machine: Stage) -> tuple[Wire, bytes]:
        # Print more than fits; the job would die of a broken pipe, but must reach its exit code.
        await machine.submit("flood", "seq 1 100000 || exit 1; echo survived >&2; exit 5")
        ended = await machine.ended("flood")
        reasons = [note.reason for note in machine.notes]
        assert "LogDropped" in reasons
        return ended, await machine.log(ended)

    ended, printed = stage(full, play)

    assert phase(ended) == "Failed"
    assert terminated(ended)["exitCode"] == 5
    assert printed.startswith(b"1\n2\n3\n")


def test_pod_without_disk_space_for_journal_stays_pending_until_space_is_free(full: Path) -> None:
    async def play(machine: Stage) -> str:
        filler = full / "data" / "filler"
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], capture_output=True, check=False
        )
        await machine.submit("late", "true")

        async def has_reported_trouble() -> bool:
            return any(note.reason == "AgentTrouble" for note in machine.notes)

        if filler.stat().st_size > 64 * 1024:  # a full disk, not a limit on the file size
            await eventually(has_reported_trouble)
            assert phase(await machine.get("late")) == "Pending"
        filler.unlink()
        return phase(await machine.ended("late"))

    assert stage(full, play) == "Succeeded"
