"""The journal of a pod: who may start the job, truncated writes, and leftover files."""

import json
import os
import random
import resource
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.zygote import (
    Zygote,
    exit_of,
    journal_for,
    request,
    script,
    starts_of,
    texts,
    until,
    until_dead,
    variant,
)

from leasehold.adapters.agent.journals import PodJournal, PodJournals, PodStage
from leasehold.adapters.agent.shim.frame import frame_of
from leasehold.adapters.agent.shim.records import boot_id, boot_ms

ROOMS = str(Path(__file__).parent / "rooms.c")


@pytest.fixture
def zygote(ground: Path) -> Iterator[Zygote]:
    with Zygote(ground / "shims.err") as made:
        yield made


@pytest.fixture(scope="module")
def held_back(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a shim that waits before its claim until `let_go`."""
    return variant(tmp_path_factory.mktemp("held"), "-Dfallocate=room_held_back", ROOMS)


@pytest.fixture(scope="module")
def without_room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a shim that sees a file system without fallocate."""
    return variant(tmp_path_factory.mktemp("without"), "-Dfallocate=room_unknown", ROOMS)


@pytest.fixture
def pipe(ground: Path) -> Iterator[int]:
    """Return the reading end of the pipe that a request may name for the reports of its shim."""
    os.mkfifo(ground / "pipe")
    reader = os.open(ground / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    yield reader
    os.close(reader)


def ask_and_hold(zygote: Zygote, journal: PodJournal) -> int:
    """Return the pid of a shim that found the journal free, forked its job and claimed nothing."""
    shim = zygote.ask(journal)
    until(lambda: bool(Path(f"/proc/{shim}/task/{shim}/children").read_text()))
    return shim


def let_go(path: Path) -> None:
    path.chmod(0o700)


def append(journal: PodJournal, written: str) -> None:
    with journal.path.open("a") as file:
        file.write(written)


# Which shim may start the job.


def test_only_one_of_concurrent_shims_starts_the_job_of_an_unclaimed_journal(
    ground: Path, held_back: Path
) -> None:
    journal = journal_for(ground, script(ground, "echo x >> ran"))

    with Zygote(ground / "shims.err", program=held_back) as zygote:
        shims = [ask_and_hold(zygote, journal) for _ in range(8)]
        let_go(journal.path)
        until_dead(*shims)

    assert (ground / "ran").read_text() == "x\n"
    assert sorted(str(each["shim"]) for each in starts_of(journal)) == sorted(map(str, shims))
    assert journal.started == starts_of(journal)[0]
    assert exit_of(journal)["code"] == 0


def test_shim_starts_nothing_if_agent_gives_journal_up_first(ground: Path, held_back: Path) -> None:
    journal = journal_for(ground, script(ground, "touch ran"))

    with Zygote(ground / "shims.err", program=held_back) as zygote:
        shim = ask_and_hold(zygote, journal)
        assert journal.give_up()
        let_go(journal.path)
        until_dead(shim)

    assert [each["by"] for each in starts_of(journal)] == ["agent", "shim"]
    assert journal.stage() is PodStage.VOID
    assert PodJournals(ground).at("pod-1").stage() is PodStage.VOID
    assert not (ground / "ran").exists()


def test_agent_and_shims_agree_on_journal_claim_in_any_race(ground: Path, zygote: Zygote) -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for index in range(150):
        uid = f"pod-{index}"
        journal = journal_for(ground, script(ground, f"echo x >> {uid}", uid=uid))
        frame = frame_of(journal)
        zygote.send(frame + frame)
        time.sleep(chance.uniform(0, 0.002))  # give up at a random moment
        is_given_up = journal.give_up()
        until_dead(*(answer[0] for answer in (zygote.answer(), zygote.answer()) if answer))

        ran = (ground / uid).read_text() if (ground / uid).exists() else ""
        assert ran == ("" if is_given_up else "x\n"), f"seed {seed}, {uid}"
        seen = PodJournals(ground).at(uid).stage()
        assert seen is (PodStage.VOID if is_given_up else PodStage.OVER), f"seed {seed}, {uid}"


def test_shim_does_not_start_job_of_moved_journal(ground: Path, held_back: Path) -> None:
    """A process that removes a journal assumes that no shim has claimed it."""
    journal = journal_for(ground, script(ground, "touch ran"))

    with Zygote(ground / "shims.err", program=held_back) as zygote:
        shim = ask_and_hold(zygote, journal)
        gone = journal.path.rename(journal.path.with_name(".gone.pod-1"))
        let_go(gone)
        until_dead(shim)

    assert not (ground / "ran").exists()


def test_late_shim_starts_nothing_in_next_journal_of_same_pod(ground: Path, zygote: Zygote) -> None:
    """The first request was longer, so the late shim looks for records at a later offset."""
    journals = PodJournals(ground)
    first = journal_for(ground, script(ground, "echo first >> ran", name="x" * 100))
    late = frame_of(first)
    assert first.give_up()
    journals.discard(first)
    second = journal_for(ground, script(ground, "echo second >> ran"))
    append(second, f"\n{json.dumps({'lost': True})}\n" * 10)

    zygote.send(late)
    answer = zygote.answer()
    assert answer is not None
    until_dead(answer[0])

    assert starts_of(second) == []
    assert zygote.run(second).code == 0
    assert (ground / "ran").read_text() == "second\n"


# Truncated writes.


def test_truncated_record_counts_only_if_its_json_object_is_closed(
    ground: Path, zygote: Zygote
) -> None:
    """The record is truncated at every byte; only its final newline may be missing."""
    record = json.dumps({"by": "shim", "boot": boot_id(), "shim": 1, "shim_ticks": 1, "pid": 2,
                         "pid_ticks": 2, "started_ms": 3, "started_boot_ms": 4})  # fmt: skip
    whole = f"\n{record}\n"
    for size in range(len(whole) + 1):
        uid = f"pod-{size}"
        journal = journal_for(ground, script(ground, f"echo x >> {uid}", uid=uid))
        append(journal, whole[:size])
        is_taken = size > len(record)
        assert (PodJournals(ground).at(uid).started is not None) == is_taken, size

        shim = zygote.ask(journal)
        until_dead(shim)

        assert (ground / uid).exists() != is_taken, size
        assert journal.stage() is (PodStage.ORPHANED if is_taken else PodStage.OVER), size


@pytest.mark.parametrize(
    "before",
    ["\n", '\n{"by": "shim", "boot": "', '\n{"grace_ms": 1, "due', "\n{}", "\n[1]\n", "\nnull\n",
     "\n\x00\x00\n", '\n"by"\n'],
)  # fmt: skip
def test_text_that_is_not_a_record_is_skipped(ground: Path, zygote: Zygote, before: str) -> None:
    given_up = journal_for(ground, script(ground, "touch ran", uid="given-up"))
    append(given_up, before)
    assert given_up.give_up()
    until_dead(zygote.ask(given_up))

    journal = journal_for(ground, script(ground, "exit 4"))
    append(journal, before)
    assert zygote.run(journal).code == 4
    assert not (ground / "ran").exists()


def test_truncated_exit_record_is_written_again(ground: Path, zygote: Zygote) -> None:
    """A limit on the file size stands for a full disk."""
    wait = "while [ ! -e go ]; do sleep 0.01; done; exit 7"
    journal = journal_for(ground, script(ground, wait))
    shim = zygote.ask(journal)
    until(lambda: journal.started is not None)
    size = journal.path.stat().st_size
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.prlimit(shim, resource.RLIMIT_FSIZE, (size + 50, most))
    (ground / "go").touch()
    until(lambda: journal.path.stat().st_size == size + 50)

    assert journal.stage() is PodStage.RUNNING
    resource.prlimit(shim, resource.RLIMIT_FSIZE, (most, most))
    until_dead(shim)

    _, torn, ended = texts(journal)
    assert ended.startswith(torn)
    assert journal.stage() is PodStage.OVER
    assert journal.exit().code == 7


def test_truncated_claim_is_refused_and_leaves_journal_unclaimed(
    ground: Path, without_room: Path, pipe: int
) -> None:
    journal = journal_for(ground, script(ground, "touch ran", notify=str(ground / "pipe")))
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)

    with Zygote(ground / "shims.err", program=without_room) as zygote:
        limit = journal.request_bytes + 100
        resource.prlimit(zygote.process.pid, resource.RLIMIT_FSIZE, (limit, most))
        until_dead(zygote.ask(journal))

    assert _notice(pipe) == ("refused", f"No space left on device: {journal.path}")
    assert journal.path.stat().st_size == limit
    assert not (ground / "ran").exists()
    assert journal.stage() is PodStage.REQUESTED
    assert journal.give_up()


def test_shim_claims_nothing_without_disk_space_for_exit_record(ground: Path, pipe: int) -> None:
    journal = journal_for(ground, script(ground, "touch ran", notify=str(ground / "pipe")))
    program = variant(ground, "-Dfallocate=room_gone", ROOMS)

    with Zygote(ground / "shims.err", program=program) as zygote:
        until_dead(zygote.ask(journal))

    assert _notice(pipe) == ("refused", f"No space left on device: {journal.path}")
    assert texts(journal) == []
    assert not (ground / "ran").exists()


def test_job_runs_on_file_system_without_fallocate(ground: Path, without_room: Path) -> None:
    with Zygote(ground / "shims.err", program=without_room) as zygote:
        assert zygote.run(journal_for(ground, script(ground, "exit 3"))).code == 3


def test_truncated_request_is_void_and_can_be_replaced(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, script(ground, "touch ran"))
    text = journal.path.read_bytes()
    for size in (0, 1, len(text) // 2, len(text) - 1):
        journal.path.write_bytes(text[:size])
        assert PodJournals(ground).at("pod-1").stage() is PodStage.VOID, size

        assert zygote.run(journal_for(ground, script(ground, "exit 5"))).code == 5
    assert not (ground / "ran").exists()


def test_complete_request_is_not_replaced(ground: Path) -> None:
    """A shim may already have been asked to start the job."""
    journal = journal_for(ground, script(ground, "true"))
    text = journal.path.read_bytes()

    with pytest.raises(FileExistsError):
        journal_for(ground, script(ground, "false"))

    assert journal.path.read_bytes() == text


def test_journal_of_another_boot_is_orphaned(ground: Path) -> None:
    journal_for(ground, script(ground, "true", boot="another"))

    assert [each.stage() for each in PodJournals(ground).all()] == [PodStage.ORPHANED]


# Stops.


def test_stop_with_same_grace_is_written_once_even_by_next_agent(ground: Path) -> None:
    journal = journal_for(ground, script(ground, "true"))

    for grace in (9000, 9000, 0, 0, 0):
        journal.ask_to_stop(grace_ms=grace, due_boot_ms=boot_ms() + grace)
    [next_agents] = PodJournals(ground).all()
    assert next_agents.stage() is PodStage.REQUESTED
    next_agents.ask_to_stop(grace_ms=0, due_boot_ms=boot_ms())

    assert [json.loads(text)["grace_ms"] for text in texts(journal)] == [9000, 0]


def test_last_stop_request_counts(ground: Path, zygote: Zygote) -> None:
    text = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.01; done"
    journal = journal_for(ground, script(ground, text, grace_ms=3_600_000))
    shim = zygote.ask(journal)
    until(lambda: (journal.logs / "log.1").exists())

    journal.ask_to_stop(grace_ms=3_600_000, due_boot_ms=boot_ms() + 3_600_000)
    journal.ask_to_stop(grace_ms=100, due_boot_ms=boot_ms() + 100)
    os.kill(shim, signal.SIGTERM)
    until_dead(shim)

    assert exit_of(journal)["killed"] is True


# Files.


def test_pod_has_one_file_until_its_job_prints(ground: Path, zygote: Zygote) -> None:
    silent = journal_for(ground, script(ground, "exit 3", uid="silent"))
    loud = journal_for(ground, script(ground, "echo said", uid="loud"))

    assert zygote.run(silent).code == 3
    assert zygote.run(loud).code == 0

    found = [str(path.relative_to(ground)) for path in ground.rglob("*") if path.is_file()]
    assert sorted(found) == ["logs/loud/log.1", "pods/loud", "pods/silent", "shims.err"]
    assert [path.name for path in (ground / "logs").iterdir()] == ["loud"]


def test_journals_and_logs_are_private_to_their_owner(ground: Path) -> None:
    before = os.umask(0)
    try:
        journal = journal_for(ground, script(ground, "echo said"))
        with Zygote(ground / "shims.err") as zygote:
            zygote.run(journal)
    finally:
        os.umask(before)

    modes = {
        str(path.relative_to(ground)): stat.S_IMODE(path.stat().st_mode)
        for path in (journal.path, journal.logs / "log.1", journal.logs, *journal.logs.parents[:1],
                     journal.path.parent)
    }  # fmt: skip
    assert modes == {
        "pods": 0o700, "pods/pod-1": 0o600,
        "logs": 0o700, "logs/pod-1": 0o700, "logs/pod-1/log.1": 0o600,
    }  # fmt: skip


def test_output_and_exit_follow_journal_folder_that_was_moved(ground: Path, zygote: Zygote) -> None:
    """A restore moves the folder while jobs run; then the job prints and ends."""
    old, new = ground / "old", ground / "new"
    text = "while [ ! -e go ]; do sleep 0.01; done; echo said; exit 6"
    journal = PodJournals(old).create("pod-1", script(ground, text))
    shim = zygote.ask(journal)
    until(lambda: journal.started is not None)

    old.rename(new)
    (ground / "go").touch()
    until_dead(shim)

    [moved] = PodJournals(new).all()
    assert moved.stage() is PodStage.OVER
    assert moved.exit().code == 6
    assert (moved.logs / "log.1").read_text().endswith("stdout F said\n")
    assert not old.exists()


def test_reading_journals_removes_files_without_journal(ground: Path, zygote: Zygote) -> None:
    loud = journal_for(ground, script(ground, "echo said"))
    zygote.run(loud)
    lost = journal_for(ground, script(ground, "echo said", uid="lost"))
    zygote.run(lost)
    lost.path.unlink()  # as if the agent died before it removed the logs
    going = journal_for(ground, request(ground, "/bin/true", uid="going"))
    going.path.rename(going.path.with_name(".gone.going"))
    (ground / "pods" / "folder").mkdir()

    assert [journal.uid for journal in PodJournals(ground).all()] == ["pod-1"]

    assert sorted(path.name for path in (ground / "pods").iterdir()) == ["pod-1"]
    assert [path.name for path in (ground / "logs").iterdir()] == ["pod-1"]
    assert (loud.logs / "log.1").exists()


def test_removed_journal_leaves_no_files(ground: Path, zygote: Zygote) -> None:
    for text in ("echo said", "true"):
        journal = journal_for(ground, script(ground, text))
        zygote.run(journal)
        journal.remove()

    journal.remove()  # a second removal does nothing
    assert list((ground / "pods").iterdir()) == []
    assert list((ground / "logs").iterdir()) == []


def _notice(pipe: int) -> tuple[str, str]:
    said = json.loads(os.read(pipe, 65536))
    return said["what"], said["detail"]
