"""Stores that are really damaged: what comes back is what was committed, or what is lost is named.

`print` says how many of which; `pytest -s` shows it."""

import random
import shutil
from collections import Counter
from pathlib import Path

import apsw
import pytest
from tests.archive.damage import (
    BATCHES,
    PAGE,
    SECRETS,
    USERS,
    a_data_folder,
    damaged,
    fingerprint,
    forget,
    kept,
    looked_into,
    only_copies,
    pages_of,
    rows,
)
from tests.archive.test_commands import invoke, ok

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.objects.rules import key_of
from leasehold.adapters.objects.storage import Key
from leasehold.adapters.sqlite.lock import FileLock
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli import audit, backup, ledger, restore
from leasehold.core.names import Wire
from leasehold.ports.store import WatchExpired
from leasehold.shell.archive.rescue import Rescue
from leasehold.shell.archive.snapshot import Snapshot

GARBAGE = random.Random(5).randbytes(PAGE)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Young: its history has every change there ever was."""
    return a_data_folder(tmp_path_factory.mktemp("story") / "data")


@pytest.fixture(scope="module")
def aged(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old: what did not change of late is in one place only, and pages were given up."""
    data = tmp_path_factory.mktemp("aged") / "data"
    shutil.copytree(story, data)
    forget(data, keep=5)
    return data


def salvaged(data: Path, to: Path, *more: str | Path) -> str:
    """What it says, once the new folder was found to be right."""
    said = ok(restore.command, *more, "--salvage", data, "--data", to)
    assert ok(ledger.command, "verify", "--data", to).startswith("ledger verify: ok")
    assert ok(audit.command, "--data", to).startswith("audit: ok")
    return said


def exported(data: Path) -> str:
    return ok(ledger.command, "export", "--data", data)


def lost_of(rescue: Rescue) -> set[Key]:
    """Everything that it says is lost; a batch by its number."""
    return {*rescue.lost, *(("LedgerBatch", "", str(seq)) for seq in rescue.missing)} | {
        ("Resolution", "", name) for name in rescue.proofs_lost
    }


def numbered(keys: set[Key]) -> set[Key]:
    """As `lost_of` names them; leases can be made again and are not lost."""
    return {
        (kind, space, name.partition("-")[0] if kind == "LedgerBatch" else name)
        for kind, space, name in keys
        if kind != "Lease"
    }


@pytest.mark.parametrize("content", [bytes(PAGE), GARBAGE], ids=["zeros", "garbage"])
def test_whichever_page_is_gone_a_young_store_loses_nothing(
    story: Path, tmp_path: Path, content: bytes
) -> None:
    before, whole = rows(story), looked_into(story)
    for page in range(pages_of(story)):
        hurt = damaged(story, tmp_path / str(page), at=page * PAGE, content=content)
        rescue = looked_into(hurt)
        assert rescue.is_whole, page + 1
        assert (rescue.seq, rescue.digest) == (whole.seq, whole.digest), page + 1
        assert kept(rescue) == before, page + 1
        assert rescue.salvaged.version == whole.salvaged.version
        assert rescue.salvaged.created >= whole.salvaged.created
        assert rescue.salvaged.prefix == whole.salvaged.prefix
        shutil.rmtree(hurt)
    print(f"{pages_of(story)} pages, each gone once: everything came back every time")


@pytest.mark.parametrize("content", [bytes(PAGE), GARBAGE], ids=["zeros", "garbage"])
def test_whichever_page_is_gone_an_old_store_loses_what_was_there_alone(
    aged: Path, tmp_path: Path, content: bytes
) -> None:
    before, whole, alone = rows(aged), looked_into(aged), only_copies(aged)
    count: Counter[str] = Counter()
    for page in range(1, pages_of(aged) + 1):
        hurt = damaged(aged, tmp_path / str(page), at=(page - 1) * PAGE, content=content)
        rescue = looked_into(hurt)
        assert lost_of(rescue) == numbered(alone.get(page, set())), page
        assert rescue.is_whole == (not lost_of(rescue)), page
        made = {("Lease", "", lease.name) for lease in rescue.leases_made}
        if rescue.is_whole:
            assert (rescue.seq, rescue.digest) == (whole.seq, whole.digest), page
            assert kept(rescue) == {key: before[key] for key in before if key not in made}, page
        count["everything" if rescue.is_whole else "named what is lost"] += 1
        count["leases made again"] += len(made)
        shutil.rmtree(hurt)
    print(f"{pages_of(aged)} pages, each gone once: {dict(count)}")
    assert count["everything"] >= 5 * count["named what is lost"]


def test_a_folder_out_of_a_damaged_one_is_as_good_as_before(aged: Path, tmp_path: Path) -> None:
    alone = only_copies(aged)
    pages = [page for page in range(1, pages_of(aged) + 1) if not numbered(alone.get(page, set()))]
    for page in pages[::6]:
        hurt = damaged(
            aged, tmp_path / f"{page}", at=(page - 1) * PAGE, content=bytes(PAGE)
        )  # fmt: skip
        untouched = fingerprint(hurt)
        said = salvaged(hurt, tmp_path / f"{page}.new")
        assert f"the ledger is whole: batches 1 to {BATCHES}, head " in said
        assert exported(tmp_path / f"{page}.new") == exported(aged)
        assert fingerprint(hurt) == untouched
    for name, content in {**SECRETS, "users.json": USERS}.items():
        assert (tmp_path / f"{pages[0]}.new" / name).read_bytes() == content
        assert (tmp_path / f"{pages[0]}.new" / name).stat().st_mode & 0o777 == 0o600


def test_every_page_above_the_leaves_at_once(aged: Path, tmp_path: Path) -> None:
    """The roots of all five trees, and the page that says where they are."""
    hurt = damaged(aged, tmp_path / "hurt", at=PAGE, content=bytes(PAGE))
    assert looked_into(hurt).is_whole
    both = damaged(hurt, tmp_path / "both", at=3 * PAGE, content=bytes(PAGE))
    rescue = looked_into(both)
    assert rescue.is_whole
    assert kept(rescue) == rows(aged)
    six = damaged(hurt, tmp_path / "six", at=0, content=bytes(6 * PAGE))
    rescue = looked_into(six)
    assert (rescue.seq, rescue.digest) == (BATCHES, looked_into(aged).digest)
    assert not rescue.is_whole  # it cannot know that this was all, nor what of it was deleted
    assert "Budget" in {kind for kind, _, _ in rescue.doubtful}


def test_a_page_that_was_given_up_brings_nothing_back(aged: Path, tmp_path: Path) -> None:
    """Old rows lie in pages that are free; with the root of the table gone they look like any."""

    async def remove(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        store = SqliteStore(data / "store.sqlite", tasks, clock)
        for pod in (await store.list("Pod")).items:
            metadata = pod["metadata"]
            assert isinstance(metadata, dict)
            place = str(metadata["namespace"]), str(metadata["name"])
            await store.delete("Pod", *place, uid=None, grace_ms=0)
        store.close()

    data = tmp_path / "data"
    shutil.copytree(aged, data)
    run(remove)
    forget_all_deletions(data)
    before = rows(data)
    for page in (1, 2, 3, 4):
        hurt = damaged(data, tmp_path / f"{page}", at=(page - 1) * PAGE, content=bytes(PAGE))
        assert looked_into(hurt).salvaged.objects.keys() == before.keys(), page


def forget_all_deletions(data: Path) -> None:
    connection = apsw.Connection(str(data / "store.sqlite"))
    with connection:
        connection.execute("DELETE FROM history WHERE kind = 'Pod'")
        connection.execute(
            "INSERT INTO meta SELECT 'forgotten/Pod', value FROM meta WHERE key = 'version'"
            " ON CONFLICT(key) DO UPDATE SET value = excluded.value"
        )
    connection.close()


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.99])
def test_a_file_that_is_cut_off(story: Path, tmp_path: Path, part: float) -> None:
    data = tmp_path / "data"
    shutil.copytree(story, data)
    content = (data / "store.sqlite").read_bytes()
    (data / "store.sqlite").write_bytes(content[: int(len(content) * part)])
    before, rescue = rows(story), looked_into(data)
    if rescue.is_whole:
        assert kept(rescue) == before
    made = {("Lease", "", lease.name) for lease in rescue.leases_made}
    gone = numbered(set(before) - set(kept(rescue)) - made) - lost_of(rescue)
    # What belongs to batches that are missing is not named one by one.
    assert not {key for key in gone if key[0] not in ("LedgerHead", "Resolution")}
    changed = {key for key, body in kept(rescue).items() if body != before[key]}
    assert changed <= rescue.salvaged.outdated
    assert part < 0.99 or rescue.is_whole


def test_garbage_behind_the_file_does_no_harm(story: Path, tmp_path: Path) -> None:
    data = damaged(
        story, tmp_path / "data", at=pages_of(story) * PAGE, content=GARBAGE * 3 + b"half a page"
    )
    assert kept(looked_into(data)) == rows(story)
    first = damaged(data, tmp_path / "first", at=0, content=bytes(PAGE))
    assert kept(looked_into(first)) == rows(story)


def test_a_page_that_was_written_to_the_wrong_place(story: Path, tmp_path: Path) -> None:
    """Sound pages each, and one of them twice."""
    before, content = rows(story), (story / "store.sqlite").read_bytes()
    chance = random.Random(11)
    for number in range(40):
        one, other = (chance.randrange(1, pages_of(story)) * PAGE for _ in range(2))
        hurt = damaged(story, tmp_path / f"{number}", at=one, content=content[other : other + PAGE])
        rescue = looked_into(hurt)
        assert rescue.is_whole, (one, other)
        assert kept(rescue) == before, (one, other)
        shutil.rmtree(hurt)


def test_single_bits_that_turn(story: Path, tmp_path: Path) -> None:
    """Either it is as before, or it says which of two texts it cannot choose between."""
    before, content = rows(story), (story / "store.sqlite").read_bytes()
    chance, count = random.Random(3), Counter[str]()
    hurt = tmp_path / "data"
    shutil.copytree(story, hurt)
    for _ in range(400):
        place = chance.randrange(len(content))
        turned = bytes([content[place] ^ 1 << chance.randrange(8)])
        (hurt / "store.sqlite").write_bytes(content[:place] + turned + content[place + 1 :])
        rescue = looked_into(hurt)
        assert rescue.is_ledger_whole, place
        assert not lost_of(rescue), place
        told = {key for key, _ in rescue.differing}
        theirs = {key for key, body in kept(rescue).items() if body != before[key]}
        # What the ledger proves is in a batch's spec; the rest of its object is of no account.
        assert {key for key in theirs if not key[0].startswith("Ledger")} <= told, place
        count["two texts" if told else "as before"] += 1
    print(f"400 bits: {dict(count)}")
    assert count["as before"] > count["two texts"]


def test_several_places_at_once(story: Path, aged: Path, tmp_path: Path) -> None:
    """Whatever it says is whole is what was there, to the byte; the rest is for people to read."""
    compacted = tmp_path / "compacted"
    shutil.copytree(aged, compacted)
    ok(ledger.command, "compact", "--keep", "0s", "--data", compacted)
    chance, count = random.Random(8), Counter[str]()
    for data in (story, aged, compacted):
        before, whole = rows(data), looked_into(data)
        content = (data / "store.sqlite").read_bytes()
        hurt = tmp_path / f"{data.parent.name}-{data.name}-hurt"
        shutil.copytree(data, hurt)
        for _ in range(100):
            (hurt / "store.sqlite").write_bytes(battered(content, chance))
            rescue = looked_into(hurt)
            count["whole" if rescue.is_whole else "named"] += 1
            if not rescue.is_whole:
                continue
            assert (rescue.seq, rescue.digest) == (whole.seq, whole.digest)
            made = {("Lease", "", lease.name) for lease in rescue.leases_made}
            made |= {key_of(obj) for obj in rescue.create}
            expected = {key: body for key, body in before.items() if key not in made}
            # A checkpoint is dropped when the archive is all there is.
            drops = {key for key in expected if key[0] == "LedgerCheckpoint" and key not in
                     kept(rescue)}  # fmt: skip
            assert kept(rescue) == {key: expected[key] for key in expected if key not in drops}
    print(f"300 times several pages: {dict(count)}")
    assert min(count.values()) > 50


def battered(content: bytes, chance: random.Random) -> bytes:
    """Some pages are zeros, garbage, or those of another place."""
    hurt = bytearray(content)
    for _ in range(chance.choice((2, 3, 5, 10, 20))):
        one, other = (chance.randrange(len(content) // PAGE) * PAGE for _ in range(2))
        hurt[one : one + PAGE] = chance.choice(
            (bytes(PAGE), GARBAGE, content[other : other + PAGE])
        )
    return bytes(hurt)


def test_a_backup_fills_what_was_there_alone(aged: Path, tmp_path: Path) -> None:
    ok(backup.command, tmp_path / "old.tar", "--data", aged)
    alone = {page: numbered(keys) for page, keys in only_copies(aged).items() if numbered(keys)}
    assert len(alone) > 5
    for page in alone:
        hurt = damaged(aged, tmp_path / f"{page}", at=(page - 1) * PAGE, content=bytes(PAGE))
        refused = invoke(restore.command, "--salvage", hurt, "--data", tmp_path / "no")
        assert refused.exit_code == 1
        assert "nothing was written" in refused.output
        assert not (tmp_path / "no").exists()
        for kind, space, name in alone[page]:
            place = "/".join(filter(None, (space, name)))
            said = (
                f"batch {name} of {BATCHES} is missing"
                if kind == "LedgerBatch"
                else f"{kind} {place}"
            )
            assert said in refused.output, page
        said = salvaged(hurt, tmp_path / f"{page}.new", tmp_path / "old.tar")
        assert "from the backup" in said
        assert exported(tmp_path / f"{page}.new") == exported(aged)


def test_a_backup_of_another_store_is_refused(story: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)

    async def begin(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        SqliteStore(other / "store.sqlite", tasks, clock).close()

    run(begin)
    ok(backup.command, tmp_path / "other.tar", "--data", other)
    told = invoke(
        restore.command, tmp_path / "other.tar", "--salvage", story, "--data", tmp_path / "to"
    )
    assert told.exit_code == 1
    assert "is of another store" in told.output


def delete(data: Path, where: str) -> None:
    """Objects that are gone from both tables, as if never made."""
    connection = apsw.Connection(str(data / "store.sqlite"))
    with connection:
        versions = list(connection.execute(f"SELECT version FROM objects WHERE {where}"))
        connection.execute(f"DELETE FROM objects WHERE {where}")
        connection.executemany("DELETE FROM history WHERE version = ?", versions)
    connection.close()


def test_without_a_batch_it_goes_back_if_it_is_told_to(aged: Path, tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "to"
    shutil.copytree(aged, data)
    delete(data, "kind = 'LedgerBatch' AND (name LIKE '6-%' OR name LIKE '7-%')")
    told = invoke(restore.command, "--salvage", data, "--data", to)
    assert told.exit_code == 1
    assert (
        f"batches 6 to 7 of {BATCHES} are missing, and nothing after batch 5 can be proved"
        in told.output
    )
    assert not to.exists()
    said = ok(restore.command, "--salvage", data, "--data", to, "--partial")
    assert f"batches 6 to 7 of {BATCHES} are missing" in said
    assert ok(ledger.command, "verify", "--data", to) == "ledger verify: ok (5 batches)\n"
    first = exported(aged).splitlines()[:5]
    assert exported(to).splitlines() == first


def test_a_proof_that_is_lost_is_named(aged: Path, tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "to"
    shutil.copytree(aged, data)
    delete(data, "kind = 'Resolution'")
    told = invoke(restore.command, "--salvage", data, "--data", to)
    assert told.exit_code == 1
    assert "lost, the proof of cuts: Resolution " in told.output
    assert "`leasehold ledger verify` will say: " in ok(
        restore.command, "--salvage", data, "--data", to, "--partial"
    )


@pytest.mark.parametrize("compact", [False, True])
def test_a_head_that_is_lost_is_the_end_of_the_chain(
    story: Path, tmp_path: Path, compact: bool
) -> None:
    """Also when the chain is all in the archive."""
    data, to = tmp_path / "data", tmp_path / "to"
    shutil.copytree(story, data)
    if compact:
        ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    connection = apsw.Connection(str(data / "store.sqlite"))
    for table in ("objects", "history"):
        connection.execute(f"DELETE FROM {table} WHERE kind = 'LedgerHead'")
    connection.close()
    assert "its newest head is lost" in salvaged(data, to)
    assert exported(to) == exported(story)


def test_of_two_heads_neither_is_believed_but_for_the_batch(story: Path, tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "to"
    shutil.copytree(story, data)
    connection = apsw.Connection(str(data / "store.sqlite"))
    connection.execute(
        "UPDATE objects SET body = CAST(replace(CAST(body AS TEXT), ?, ?) AS BLOB)"
        " WHERE kind = 'LedgerHead'",
        (f'"materialised":{BATCHES - 1}', f'"materialised":{BATCHES + 1}'),
    )
    assert connection.changes() == 1
    connection.close()
    assert f"the ledger is whole: batches 1 to {BATCHES}" in salvaged(data, to)
    snapshot = Snapshot(to / "store.sqlite")
    assert snapshot.head()["materialised"] == BATCHES
    snapshot.close()


@pytest.mark.parametrize(
    "where",
    [
        "kind = 'LedgerCheckpoint'",
        "kind = 'LedgerCheckpoint' AND name <> 'main'",
        "kind IN ('LedgerCheckpoint', 'Resolution')",
    ],
)
def test_what_the_archive_has_need_not_be_in_the_store(
    aged: Path, tmp_path: Path, where: str
) -> None:
    """The checkpoint, and with it all that was taken out of the store before."""
    data = tmp_path / "data"
    shutil.copytree(aged, data)
    ok(ledger.command, "compact", "--keep", "0s", "--data", data)
    ledgers = exported(data)
    delete(data, where)
    said = salvaged(data, tmp_path / "to")
    assert "from the archive" in said
    assert f"the ledger is whole: batches 1 to {BATCHES}" in said
    assert exported(tmp_path / "to") == ledgers
    assert fingerprint(tmp_path / "to" / "archive").items() <= fingerprint(data / "archive").items()
    shutil.rmtree(data / "archive")
    told = invoke(restore.command, "--salvage", data, "--data", tmp_path / "no")
    assert told.exit_code == 1
    assert "missing" in told.output


def test_a_new_folder_goes_on_where_the_damaged_one_was(story: Path, tmp_path: Path) -> None:
    hurt = damaged(story, tmp_path / "hurt", at=5 * PAGE, content=bytes(PAGE))  # counters, prefix
    before = looked_into(story).salvaged
    salvaged(hurt, tmp_path / "to")

    async def make(clock: AsyncioClock, tasks: AsyncioTasks) -> Wire:
        store = SqliteStore(tmp_path / "to" / "store.sqlite", tasks, clock)
        made = await store.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}}
        )
        with pytest.raises(WatchExpired):  # whoever watched the other one lists again
            await store.watch("Run", before.version - 1).next_stored(1)
        store.close()
        return made

    metadata = run(make)["metadata"]
    assert isinstance(metadata, dict)
    prefix, _, number = str(metadata["uid"]).rpartition("-")
    assert prefix == before.prefix
    assert int(number) > before.created
    assert int(metadata["resourceVersion"]) > before.version


def test_what_cannot_be_salvaged_is_said(story: Path, tmp_path: Path) -> None:
    def said(data: Path, *more: str) -> str:
        told = invoke(restore.command, "--salvage", data, "--data", tmp_path / "to", *more)
        assert told.exit_code in (1, 2)
        assert not (tmp_path / "to").exists()
        return told.output

    empty = tmp_path / "empty"
    empty.mkdir()
    assert "cannot be read" in said(empty)
    (empty / "store.sqlite").write_bytes(b"title: no database\n" * 1000)
    assert "holds nothing that is a store's" in said(empty)
    other = apsw.Connection(str(tmp_path / "other.sqlite"))
    other.execute("CREATE TABLE mail(a, b, c, d, e); INSERT INTO mail VALUES ('x', 'y', 'z', 1, 2)")
    other.close()
    shutil.copy(tmp_path / "other.sqlite", empty / "store.sqlite")
    assert "holds nothing that is a store's" in said(empty)
    lock = FileLock(story / "store.sqlite")
    try:
        assert "is in use by the process with pid" in said(story)
    finally:
        lock.release()
    neither = invoke(restore.command, "--data", tmp_path / "to")
    assert neither.exit_code == 2
    taken = invoke(restore.command, "--salvage", story, "--data", story)
    assert "is not empty" in taken.output


def test_commands_that_read_a_damaged_store_say_so(story: Path, tmp_path: Path) -> None:
    hurt = damaged(story, tmp_path / "hurt", at=PAGE, content=bytes(PAGE))
    for command, *more in (
        (ledger.command, "verify"),
        (ledger.command, "export"),
        (audit.command,),
        (backup.command, tmp_path / "to.tar"),
    ):
        told = invoke(command, *more, "--data", hurt)
        assert told.exit_code == 1, more
        assert f"leasehold restore --salvage {hurt} --data " in told.output, more
