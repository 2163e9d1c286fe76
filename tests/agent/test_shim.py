"""The shim without an agent: its records, the signals it obeys, the state and the end of a job."""

import ctypes
import json
import os
import platform
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.agent.harness import is_alive
from tests.agent.zygote import (
    Zygote,
    exit_of,
    journal_for,
    request,
    script,
    starts_of,
    texts,
    until,
    variant,
)

from leasehold.adapters.agent.forks import PROGRAM
from leasehold.adapters.agent.journals import PodJournal, PodStage
from leasehold.adapters.agent.shim.records import boot_id, boot_ms, ticks_of
from leasehold.core.units import parse_instant

HERE = Path(__file__).parent

OF_LIBC = (32, 33, 34)  # musl keeps three of the signals for itself, glibc two
IGNORED = (*OF_LIBC, signal.SIGUSR2)  # as the process that started the server might
RT_SIGACTION = {"x86_64": 13, "aarch64": 134}


@pytest.fixture
def zygote(ground: Path) -> Iterator[Zygote]:
    with Zygote(ground / "shims.err") as made:
        yield made


def test_job_with_clock_set_back_does_not_end_before_it_started(ground: Path) -> None:
    program = variant(ground, "-Dclock_gettime=clock_set_back", str(HERE / "set_back.c"))
    journal = journal_for(ground, script(ground, "sleep 0.05; echo said; exit 4"))

    with Zygote(ground / "shims.err", program=program) as zygote:
        ended = zygote.run(journal)

    assert ended.code == 4
    assert 0 <= ended.finished_at - journal.started_at < 60_000
    said_at = parse_instant((journal.logs / "log.1").read_text().split()[0])
    assert said_at is not None
    assert said_at < journal.started_at - 3_500_000  # proves that the clock was set back


def test_shim_never_starts_journal_that_agent_gave_up(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "touch ran"))

    assert journal.give_up()
    shim = zygote.ask(journal)
    until(lambda: not is_alive(shim))

    assert journal.stage() is PodStage.VOID
    assert not (ground / "ran").exists()
    assert texts(journal) == [json.dumps({"by": "agent", "boot": boot_id()})]


def test_agent_cannot_give_up_journal_that_shim_started(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "echo x >> ran"))

    zygote.run(journal)
    shim = zygote.ask(journal)  # as an old zygote might
    until(lambda: not is_alive(shim))

    assert not journal.give_up()
    assert (ground / "ran").read_text() == "x\n"
    assert exit_of(journal)["code"] == 0
    assert len(texts(journal)) == 2  # the start and the end; the late shim wrote nothing


def test_job_is_started_once_if_many_shims_get_its_journal(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "echo x >> ran; sleep 0.1"))

    shims = [zygote.ask(journal) for _ in range(20)]
    until(lambda: not any(map(is_alive, shims)))

    assert (ground / "ran").read_text() == "x\n"
    assert exit_of(journal)["code"] == 0


def test_missing_journal_is_reported_and_its_job_is_not_started(
    ground: Path, zygote: Zygote
) -> None:
    journal = journal_for(ground, script(ground, "touch ran"))
    journal.remove()

    shim = zygote.ask(journal)
    until(lambda: not is_alive(shim))

    said = zygote.errors.read_text()
    assert f"{journal.path}: its journal cannot be opened: No such file or directory" in said
    assert not (ground / "ran").exists()


def test_shim_records_equal_the_json_python_writes(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "exit 9"))
    before, before_boot = time.time_ns() // 1_000_000, boot_ms()

    shim = zygote.ask(journal)
    until(lambda: not is_alive(shim))

    [started], ended = starts_of(journal), exit_of(journal)
    written = journal.path.read_text()[journal.request_bytes :]
    assert written == f"\n{json.dumps(started)}\n\n{json.dumps(ended)}\n"
    at, since = started.pop("started_ms"), started.pop("started_boot_ms")
    pid, pid_ticks = started.pop("pid"), started.pop("pid_ticks")
    shim_ticks = started.pop("shim_ticks")
    assert started == {"by": "shim", "boot": boot_id(), "shim": shim}
    assert before <= at <= time.time_ns() // 1_000_000  # type: ignore[operator]
    assert before_boot <= since <= boot_ms()  # type: ignore[operator]
    assert pid not in (shim, 0)
    assert 0 < shim_ticks <= pid_ticks  # type: ignore[operator]
    main_ended, finished = ended.pop("main_ended_ms"), ended.pop("finished_ms")
    assert at <= main_ended <= finished  # type: ignore[operator]
    assert ended == {
        "code": 9, "signal": None, "error": "", "oom": False, "killed": False, "started_ms": at,
        "dropped_bytes": 0, "dropped_lines": 0,
    }  # fmt: skip


def test_start_record_identifies_shim_and_job_by_pid_and_start_time(
    ground: Path, zygote: Zygote
) -> None:
    journal = journal_for(ground, request(ground, "/bin/sleep", "600"))

    shim = zygote.ask(journal)
    until(lambda: journal.started is not None)

    assert starts_of(journal)[0]["shim_ticks"] == ticks_of(shim)
    pid = starts_of(journal)[0]["pid"]
    assert isinstance(pid, int)
    assert starts_of(journal)[0]["pid_ticks"] == ticks_of(pid)
    assert journal.shim == shim
    assert journal.stage() is PodStage.RUNNING
    assert Path(f"/proc/{shim}/comm").read_text() == "leasehold-shim\n"
    assert os.getsid(shim) == shim
    os.kill(shim, signal.SIGTERM)


def test_start_times_in_records_are_correct_for_many_concurrent_starts(
    ground: Path, zygote: Zygote
) -> None:
    """The shim computes start times; it looks them up only if a clock tick ended meanwhile."""
    journals = [
        journal_for(ground, request(ground, "/bin/sleep", "600", uid=f"pod-{i}"))
        for i in range(150)
    ]
    shims = [zygote.ask(journal) for journal in journals]
    until(lambda: all(_is_sleeping(journal) for journal in journals))

    named = [(each.get("shim_ticks"), each.get("pid_ticks")) for [each] in map(starts_of, journals)]
    looked_up = [(ticks_of(s), ticks_of(_pid(j))) for s, j in zip(shims, journals, strict=True)]
    for shim in shims:
        os.kill(shim, signal.SIGTERM)

    assert named == looked_up


def test_shim_notifies_start_and_end(ground: Path, zygote: Zygote) -> None:
    pipe = ground / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    journal = journal_for(ground, script(ground, "sleep 0.05", notify=str(pipe)))

    zygote.run(journal)

    lines = os.read(reader, 65536).decode().splitlines()
    os.close(reader)
    assert lines == [
        json.dumps({"what": what, "uid": "pod-1", "detail": ""}) for what in ("started", "ended")
    ]


def test_start_is_refused_with_reason_if_journal_is_not_writable(ground: Path) -> None:
    """No user may write to the journal, root included, and the forked job never runs."""
    pipe = ground / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    journal = journal_for(ground, script(ground, "touch ran", notify=str(pipe)))
    journal.path.chmod(0o444)
    journal.path.parent.chmod(0o555)
    ground.chmod(0o777)

    # Use a copy, because another user may be unable to enter the checkout.
    program = Path(shutil.copy(PROGRAM, ground / PROGRAM.name))
    program.chmod(0o755)
    user = 65_534 if os.geteuid() == 0 else None
    with Zygote(ground / "shims.err", program=program, user=user) as zygote:
        shim = zygote.ask(journal)
        until(lambda: not is_alive(shim))

    line = os.read(reader, 65536).decode()
    os.close(reader)
    assert json.loads(line) == {
        "what": "refused", "uid": "pod-1", "detail": f"Permission denied: {journal.path}",
    }  # fmt: skip
    assert not (ground / "ran").exists()


# Stops.


def test_stop_kills_job_after_its_grace_period(ground: Path, zygote: Zygote) -> None:
    text = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done"
    journal = journal_for(ground, script(ground, text))
    shim = zygote.ask(journal)
    until(lambda: b"ready" in _log(journal))

    journal.ask_to_stop(grace_ms=200, due_boot_ms=boot_ms() + 200)
    os.kill(shim, signal.SIGTERM)
    until(lambda: not is_alive(shim))

    assert b"heard" in _log(journal)
    ended = exit_of(journal)
    assert (ended["code"], ended["signal"], ended["killed"]) == (137, 9, True)


@pytest.mark.parametrize(
    "written",
    [None, "", "{", '{"grace_ms": "1"}', '{"grace_ms": 1}', "[1, 2]", '{"grace_ms": 1, "due',
     '{"grace_ms": 99999999999999999999, "due_boot_ms": 1}', '{"grace_ms": 0, "due_boot_ms": 0} x'],
)  # fmt: skip
def test_missing_or_unreadable_stop_has_grace_period_of_request(
    ground: Path, zygote: Zygote, written: str | None
) -> None:
    text = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done"
    journal = journal_for(ground, script(ground, text, grace_ms=60_000))
    shim = zygote.ask(journal)
    until(lambda: b"ready" in _log(journal))

    if written is not None:
        with journal.path.open("a") as file:
            file.write(f"\n{written}\n")
    os.kill(shim, signal.SIGTERM)
    until(lambda: not is_alive(shim))

    assert journal.stage() is PodStage.OVER
    assert journal.exit().code == 3


def test_stop_without_grace_kills_at_once(ground: Path, zygote: Zygote) -> None:
    text = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.01; done"
    journal = journal_for(ground, script(ground, text))
    shim = zygote.ask(journal)
    until(lambda: b"ready" in _log(journal))

    journal.ask_to_stop(grace_ms=0, due_boot_ms=boot_ms() + 3_600_000)
    os.kill(shim, signal.SIGTERM)
    until(lambda: not is_alive(shim))

    assert b"heard" not in _log(journal)
    assert exit_of(journal)["killed"] is True


def test_shim_ignores_terminal_signals(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "while [ ! -e go ]; do sleep 0.01; done; exit 6"))
    shim = zygote.ask(journal)
    until(lambda: journal.started is not None)

    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
        os.kill(shim, number)
    (ground / "go").touch()
    until(lambda: not is_alive(shim))

    assert exit_of(journal)["code"] == 6


def test_heartbeat_updates_last_sign_of_life_without_a_record(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "exec sleep 600", heartbeat_ms=20))
    shim = zygote.ask(journal)
    until(lambda: journal.started is not None)
    first = journal.last_sign_of_life()

    until(lambda: journal.last_sign_of_life() > first)

    assert len(texts(journal)) == 1  # no record was written; check before the exit record is
    os.kill(shim, signal.SIGTERM)


# The state that a job starts with.


def test_job_starts_with_clean_process_state(ground: Path) -> None:
    text = (
        "cat /proc/self/status; echo; ls /proc/self/fd; echo; umask; ulimit -c; ulimit -Hc; "
        "readlink /proc/$$/fd/0; cut -d' ' -f 4-6 /proc/$$/stat; echo $$ $PPID; env"
    )
    journal = journal_for(
        ground, script(ground, text, env={"PATH": os.environ["PATH"], "A": "b=c"})
    )
    before = os.umask(0o077)
    for number in IGNORED:
        _dispose(number, signal.SIG_IGN)
    try:
        with Zygote(ground / "shims.err") as zygote:
            zygote.run(journal)
    finally:
        os.umask(before)
        for number in IGNORED:
            _dispose(number, signal.SIG_DFL)

    status, fds, rest = _printed(journal).decode().split("\n\n")
    masks = dict(line.split(":\t", 1) for line in status.splitlines())
    assert {name: int(masks[name], 16) for name in ("SigBlk", "SigIgn", "SigPnd", "ShdPnd")} == {
        "SigBlk": 0, "SigIgn": 0, "SigPnd": 0, "ShdPnd": 0,
    }  # fmt: skip
    assert fds.split() == ["0", "1", "2", "3"]  # the third is ls's own
    umask, core, hard, stdin, stat, pids, *told = rest.splitlines()
    assert (umask, core, stdin) == ("0022", "0", "/dev/null")
    assert hard == subprocess.run(
        ["/bin/sh", "-c", "ulimit -Hc"], capture_output=True, text=True, check=True
    ).stdout.rstrip("\n")
    pid, shim = pids.split()
    # The parent of the job is the shim, and the job leads its own group and session.
    assert stat.split() == [shim, pid, pid]
    assert {line for line in told if not line.startswith(("PWD=", "_=", "SHLVL=", "OLDPWD="))} == {
        f"PATH={os.environ['PATH']}", "A=b=c",
    }  # fmt: skip


def test_shims_outlive_their_zygote_but_no_job_outlives_its_shim(ground: Path) -> None:
    journals = [
        journal_for(ground, request(ground, "/bin/sleep", "600", uid=f"pod-{i}")) for i in range(2)
    ]
    with Zygote(ground / "shims.err") as zygote:
        shims = [zygote.ask(journal) for journal in journals]
        until(lambda: all(_is_sleeping(journal) for journal in journals))
        jobs = [_pid(journal) for journal in journals]

        try:
            zygote.process.kill()
            zygote.process.wait()
            assert all(map(is_alive, shims + jobs))
            os.kill(shims[0], signal.SIGKILL)
            until(lambda: not is_alive(jobs[0]))
            assert is_alive(jobs[1])
            os.kill(shims[1], signal.SIGTERM)
            until(lambda: not is_alive(shims[1]))
        finally:
            for job in filter(is_alive, jobs):
                os.kill(job, signal.SIGKILL)

    assert journals[0].stage() is PodStage.ORPHANED
    assert exit_of(journals[1])["code"] == 143


def test_descendants_in_own_sessions_end_with_job(ground: Path, zygote: Zygote) -> None:
    """Each descendant is forked twice, leads a session, ignores signals and keeps forking."""
    text = (
        'for i in $(seq 40); do (setsid sh -c \'trap "" TERM HUP INT; echo $$ >> pids; '
        "while :; do sleep 0.02; done' &) ; done; "
        "while [ $(wc -l < pids) -lt 40 ]; do sleep 0.01; done; exit 2"
    )
    journal = journal_for(ground, script(ground, text))

    ended = zygote.run(journal)

    pids = [int(line) for line in (ground / "pids").read_text().split()]
    left = [pid for pid in pids if is_alive(pid)]
    for pid in left:  # a failing test leaves no processes to others
        os.kill(pid, signal.SIGKILL)
    assert len(pids) == 40
    assert left == []
    assert ended.code == 2


def test_foreign_process_that_holds_output_pipe_does_not_keep_pod_alive(
    ground: Path, zygote: Zygote
) -> None:
    """A process outside the pod may hold the job's pipe."""
    journal = journal_for(
        ground, script(ground, "echo first; while [ ! -e go ]; do sleep 0.01; done")
    )
    shim = zygote.ask(journal)
    until(lambda: b"first" in _log(journal))
    with open(f"/proc/{_pid(journal)}/fd/1", "wb") as pipe:  # noqa: PTH123
        stranger = subprocess.Popen(["/usr/bin/yes"], stdout=pipe)
    try:
        until(lambda: b" y\n" in _log(journal))
        (ground / "go").touch()
        until(lambda: not is_alive(shim))
        assert stranger.wait() == -signal.SIGPIPE  # proves that it was still writing
    finally:
        stranger.kill()
    assert journal.stage() is PodStage.OVER


def test_cgroup_setup_failure_is_reported_and_job_does_not_run(
    ground: Path, zygote: Zygote
) -> None:
    place = str(ground / "no" / "such" / "group")
    asked = script(ground, "touch ran", cgroups=[{"path": place, "set": [["memory.max", 1]]}])

    ended = zygote.run(journal_for(ground, asked))

    assert (ended.code, ended.error) == (
        128, f"its cgroup cannot be set up: No such file or directory {place}",
    )  # fmt: skip
    assert not (ground / "ran").exists()


def test_cgroup_has_settings_and_job_pid_before_command_runs(ground: Path, zygote: Zygote) -> None:
    """A plain folder with the same files stands for the cgroup."""
    place = ground / "group"
    place.mkdir()
    for name in ("memory.max", "cpu.max", "cgroup.procs"):
        (place / name).touch()
    (place / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    settings = [["memory.max", 4096], ["cpu.max", "1000 100000"]]
    asked = script(
        ground, "cat group/cgroup.procs; exit 1", cgroups=[{"path": str(place), "set": settings}]
    )
    journal = journal_for(ground, asked)

    ended = zygote.run(journal)

    assert (ended.code, ended.is_oom) == (1, True)
    assert (place / "memory.max").read_text() == "4096"
    assert (place / "cpu.max").read_text() == "1000 100000"
    assert _printed(journal) == b"%d" % _pid(journal)


def _pid(journal: PodJournal) -> int:
    pid = starts_of(journal)[0]["pid"]
    assert isinstance(pid, int)
    return pid


def _is_sleeping(journal: PodJournal) -> bool:
    if journal.started is None:
        return False
    return Path(f"/proc/{_pid(journal)}/comm").read_text() == "sleep\n"


def _dispose(number: int, what: int) -> None:
    """Set the disposition of a signal, even one that libc reserves and Python therefore refuses."""
    action = (ctypes.c_ulong * 8)(what)
    libc = ctypes.CDLL(None)
    assert libc.syscall(RT_SIGACTION[platform.machine()], number, action, None, 8) == 0


def _log(journal: PodJournal) -> bytes:
    """Return the log without files that are rotated away during the read."""
    found = []
    for path in sorted(journal.logs.glob("log.*")):
        with suppress(FileNotFoundError):
            found.append(path.read_bytes())
    return b"".join(found)


def _printed(journal: PodJournal) -> bytes:
    """Return the output of the job, if it is small enough not to be rotated."""
    printed = b""
    for line in _log(journal).split(b"\n")[:-1]:
        _, _, flag, text = line.split(b" ", 3)
        printed += text + (b"\n" if flag == b"F" else b"")
    return printed
