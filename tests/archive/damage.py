"""Data folders with a past, and what happens to their files: the same to the byte each time."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw

from leasehold.adapters.objects.storage import Key
from leasehold.adapters.sqlite.salvage.objects import salvage
from leasehold.adapters.sqlite.salvage.pages import (
    LEAF_TABLE,
    Cell,
    PageFile,
    read_node,
    read_record,
)
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.rescue import LEDGERS, Rescue, plan_rescue
from leasehold.sim.scenario.runner import HELD, run_scenario

STORIES = Path(__file__).parents[1] / "scenarios"
PAGE = 4096
BATCHES = 9  # of the story below
SECRETS = {"tokens.json": b"{}", "lottery.key": b"k" * 32, "tls/ca.key": b"secret"}
USERS = b'{"team": 2000000000}'  # which uid each namespace has


def a_data_folder(folder: Path) -> Path:
    """What a server leaves behind after a story with cuts, closed and open leases."""
    folder.mkdir(mode=0o700)
    story = STORIES / "A5-a-checkpoint-keeps-the-place-in-the-queue.yaml"
    outcome = run_scenario(story, store="sqlite", out=folder, echo=lambda _: None)
    assert outcome.code == HELD
    for name, content in SECRETS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "agent").mkdir(mode=0o700)
    (folder / "agent" / "users.json").write_bytes(USERS)
    return folder


def forget(data: Path, *, keep: int) -> None:
    """Leaves so many changes of each kind in the history, as a store does after many."""
    connection = apsw.Connection(str(data / "store.sqlite"))
    with connection:
        for (kind,) in list(connection.execute("SELECT DISTINCT kind FROM history")):
            last = connection.execute(
                "SELECT version FROM history WHERE kind = ? ORDER BY version DESC LIMIT 1 OFFSET ?",
                (kind, keep),
            ).get
            if last is not None:
                gone = (kind, last)
                connection.execute("DELETE FROM history WHERE kind = ? AND version <= ?", gone)
                connection.execute("INSERT INTO meta VALUES ('forgotten/' || ?, ?)", gone)
    connection.close()


def damaged(data: Path, to: Path, *, at: int, content: bytes) -> Path:
    """A copy whose store has something else at this place."""
    shutil.copytree(data, to)
    with (to / "store.sqlite").open("r+b") as file:
        file.seek(at)
        file.write(content)
    return to


def pages_of(data: Path) -> int:
    return (data / "store.sqlite").stat().st_size // PAGE


def looked_into(data: Path) -> Rescue:
    return plan_rescue(salvage(data / "store.sqlite", proved=LEDGERS), Archive(data / "archive"))


def kept(rescue: Rescue) -> dict[Key, bytes]:
    """What would be written of objects that were there."""
    return {
        key: rescue.bodies.get(key, found.bodies[0])
        for key, found in rescue.salvaged.objects.items()
        if key not in rescue.drop
    }


def rows(data: Path) -> dict[Key, bytes]:
    """All objects, as SQLite reads them."""
    connection = apsw.Connection(str(data / "store.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute("SELECT kind, namespace, name, body FROM objects")
    objects = {(kind, namespace, name): body for kind, namespace, name, body in found}
    connection.close()
    return objects


def only_copies(data: Path) -> dict[int, set[Key]]:
    """By page: the objects whose newest version is there, in whole or in part, and nowhere else."""
    pages = PageFile(data / "store.sqlite")
    places: dict[int, set[Key]] = {}
    remembered = {cell.rowid for _, cell in _cells(pages, 4)}
    for used, cell in _cells(pages, 2):
        match read_record(cell.payload):
            case [str(kind), str(namespace), str(name), int(version), _]:
                for page in used if version not in remembered else ():
                    places.setdefault(page, set()).add((kind, namespace, name))
    pages.close()
    return places


def _cells(pages: PageFile, number: int) -> Iterator[tuple[list[int], Cell]]:
    """Of a sound tree, with the pages that each is on."""
    node = read_node(pages, number)
    assert node is not None
    overflow = iter(node.overflow)
    for cell in node.cells:
        if node.kind == LEAF_TABLE:
            more = -(-(len(cell.payload) - _local(len(cell.payload))) // (PAGE - 4))
            yield [number, *(next(overflow) for _ in range(more))], cell
        else:
            yield from _cells(pages, cell.child)
    if node.kind != LEAF_TABLE:
        yield from _cells(pages, node.right)


def _local(size: int) -> int:
    """How much of a row stays on its leaf."""
    least, most = (PAGE - 12) * 32 // 255 - 23, PAGE - 35
    if size <= most:
        return size
    local = least + (size - least) % (PAGE - 4)
    return local if local <= most else least


def fingerprint(data: Path) -> dict[str, str]:
    """Every file of a folder and what is in it."""
    return {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file()
    }
