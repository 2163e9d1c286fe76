"""How a shim keeps the output of a job: complete lines, in rotated files, with dropped bytes
counted."""

import random
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.harness import is_alive
from tests.agent.zygote import Zygote, exit_of, journal_for, request, script, until

from leasehold.adapters.agent.journals import PodJournal

PIECE = 16 * 1024
LINE = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z (stdout|stderr) ([FP]) (.*)", re.DOTALL)
NOTICE = re.compile(rb"leasehold: (\d+) bytes of output were dropped, the disk was full")


@pytest.fixture
def zygote(ground: Path) -> Iterator[Zygote]:
    with Zygote(ground / "shims.err") as made:
        yield made


def lines_of(journal: PodJournal) -> list[tuple[str, str, bytes]]:
    """Return stream, flag and text of every kept line, from all files in order."""
    files = sorted(journal.logs.glob("log.*"), key=lambda path: int(path.suffix[1:]))
    found = []
    for file in files:
        *lines, last = file.read_bytes().split(b"\n")
        assert last == b"", file
        for line in lines:
            match = LINE.fullmatch(line)
            assert match is not None, line[:100]
            found.append((match[1].decode(), match[2].decode(), match[3]))
    return found


def printed(journal: PodJournal, stream: str = "stdout") -> bytes:
    return b"".join(
        text + (b"\n" if flag == "F" else b"")
        for each, flag, text in lines_of(journal)
        if each == stream
    )


SIZES = (0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE - 1, 2 * PIECE, 2 * PIECE + 1, 65_535, 65_536,
         65_537, 100_000)  # fmt: skip


@pytest.mark.parametrize("end", ["\n", "", "\nend"])
def test_lines_of_any_length_are_kept_in_pieces_of_limited_size(
    ground: Path, zygote: Zygote, end: str
) -> None:
    written = b"\n".join(b"%d" % index * size for index, size in enumerate(SIZES)) + end.encode()
    (ground / "written").write_bytes(written)
    journal = journal_for(ground, request(ground, "/bin/cat", "written", log_bytes_max=1 << 30))

    assert zygote.run(journal).code == 0

    assert printed(journal) == written
    assert max(len(text) for _, _, text in lines_of(journal)) == PIECE


@pytest.mark.parametrize("seed", range(8))
def test_binary_output_on_both_streams_is_kept_byte_for_byte(
    ground: Path, zygote: Zygote, seed: int
) -> None:
    chance = random.Random(seed)
    for name in ("out", "err"):
        parts = []
        for _ in range(chance.randrange(1, 200)):
            parts.append(chance.randbytes(chance.choice((0, 1, 7, 300, 4096, 20_000))))
            parts.append(b"\n" * chance.randrange(3))
        (ground / name).write_bytes(b"".join(parts))
    text = "cat err >&2 & cat out; wait"
    journal = journal_for(ground, script(ground, text, log_bytes_max=1 << 30))

    assert zygote.run(journal).code == 0

    assert printed(journal, "stdout") == (ground / "out").read_bytes()
    assert printed(journal, "stderr") == (ground / "err").read_bytes()


def test_output_without_newline_is_logged_while_job_runs(ground: Path, zygote: Zygote) -> None:
    text = "printf begun; while [ ! -e go ]; do sleep 0.01; done; printf ' ended\\nlast'"
    journal = journal_for(ground, script(ground, text))

    shim = zygote.ask(journal)
    until(lambda: printed(journal) == b"begun")
    (ground / "go").touch()
    until(lambda: not is_alive(shim))

    assert [(flag, text) for _, flag, text in lines_of(journal)] == [
        ("P", b"begun"), ("F", b" ended"), ("P", b"last"),
    ]  # fmt: skip


def test_ten_megabytes_without_newline_are_kept(ground: Path, zygote: Zygote) -> None:
    (ground / "written").write_bytes(b"0123456789abcdef" * (10 * 1024 * 64))
    journal = journal_for(ground, request(ground, "/bin/cat", "written", log_bytes_max=1 << 30))

    assert zygote.run(journal).code == 0

    assert printed(journal) == (ground / "written").read_bytes()
    assert {flag for _, flag, _ in lines_of(journal)} == {"P"}


def test_large_output_is_rotated_and_keeps_its_end(ground: Path, zygote: Zygote) -> None:
    """The job prints thirty megabytes at full speed; three are kept."""
    size, files = 1 << 20, 3
    asked = script(ground, "seq 1 4000000", log_bytes_max=size, log_files_max=files)
    journal = journal_for(ground, asked)

    ended = zygote.run(journal)

    assert (ended.code, ended.dropped_bytes) == (0, 0)
    sizes = [path.stat().st_size for path in journal.logs.glob("log.*")]
    assert len(sizes) == files
    assert all(each <= size + 100 for each in sizes)
    numbers = [int(text) for _, _, text in lines_of(journal)]
    assert numbers == list(range(numbers[0], 4_000_001))
    assert len(numbers) > 40_000


def test_log_files_with_limit_of_one_byte_have_one_line_each(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "seq 1 9", log_bytes_max=1, log_files_max=4))

    assert zygote.run(journal).code == 0

    assert sorted(path.name for path in journal.logs.glob("log.*")) == [
        "log.6", "log.7", "log.8", "log.9",
    ]  # fmt: skip
    assert printed(journal) == b"6\n7\n8\n9\n"


def test_job_that_closes_its_output_keeps_running(ground: Path, zygote: Zygote) -> None:
    text = "echo said; exec >&- 2>&-; while [ ! -e go ]; do sleep 0.01; done; exit 5"
    journal = journal_for(ground, script(ground, text))
    shim = zygote.ask(journal)
    until(lambda: printed(journal) == b"said\n")

    assert is_alive(shim)
    (ground / "go").touch()
    until(lambda: not is_alive(shim))

    assert exit_of(journal)["code"] == 5


def test_output_dropped_on_full_disk_is_counted_and_reported_later(
    ground: Path, zygote: Zygote
) -> None:
    """A limit of 64 KiB on the file size stands for a full disk; the test removes it later."""
    pid = zygote.process.pid
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (64 * 1024, most))
    text = (
        "seq 1 20000; echo half >&2; while [ ! -e go ]; do sleep 0.01; done; "
        "seq 20001 20100; exit 5"
    )
    journal = journal_for(ground, script(ground, text))
    shim = zygote.ask(journal)
    until(lambda: _is_stuck(journal))
    resource.prlimit(shim, resource.RLIMIT_FSIZE, (most, most))
    (ground / "go").touch()
    until(lambda: not is_alive(shim))

    ended = exit_of(journal)
    assert ended["code"] == 5
    lines = [text for _, _, text in lines_of(journal)]
    told = [int(match[1]) for text in lines if (match := NOTICE.fullmatch(text))]
    assert told
    assert sum(told) == ended["dropped_bytes"]
    numbers = [int(text) for text in lines if text.isdigit()]
    assert numbers == sorted(set(numbers))
    assert numbers[:3] == [1, 2, 3]
    assert numbers[-100:] == list(range(20_001, 20_101))
    dropped = ended["dropped_lines"]
    assert isinstance(dropped, int)
    assert 0 < 20_100 - len(numbers) <= dropped


def _is_stuck(journal: PodJournal) -> bool:
    """Return whether the job has printed more than a pipe and a file hold, and now waits."""
    started = journal.started
    if started is None:
        return False
    children = Path(f"/proc/{started['pid']}/task/{started['pid']}/children").read_text().split()
    return "sleep" in map(_name, children)


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
