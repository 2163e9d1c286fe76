"""Commands over a store with one object that was changed: findings, no tracebacks."""

import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result
from tests.archive.folder import a_data_folder

from leasehold.cli import audit, backup, ledger

KINDS = ("Budget", "LedgerBatch", "Lease", "Node", "Pod", "Reservation", "Resolution", "Run")
NO_OBJECTS = (b"", b"{", b"[]", b"7", b"null")
# Some can be read all the same: a node or a pod lacks what it lacks, as on any cluster.
LENIENT = ("Node", "Pod")


def spoilt(obj: dict[str, Any], how: int) -> dict[str, Any]:
    """The same object with something that nobody wrote."""
    spec, status = obj.get("spec"), obj.get("status")
    first = next(iter(spec)) if isinstance(spec, dict) and spec else "x"
    return (
        {**obj, "spec": None},
        {**obj, "spec": []},
        {**obj, "spec": {}},
        {**obj, "spec": {**(spec or {}), first: {"odd": [1.5]}}},
        {**obj, "spec": {**(spec or {}), first: None}},
        {**obj, "status": {key: {"odd": 1} for key in status or {"x": 1}}},
        {"kind": obj["kind"], "metadata": {"name": obj["metadata"]["name"]}},
    )[how]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return a_data_folder(tmp_path_factory.mktemp("malformed") / "data")


def one_of(data: Path, kind: str) -> tuple[str, str, bytes]:
    connection = apsw.Connection(str(data / "store.sqlite"))
    query = "SELECT namespace, name, body FROM objects WHERE kind = ? ORDER BY name LIMIT 1"
    [(namespace, name, body)] = list(connection.execute(query, (kind,)))
    connection.close()
    return str(namespace), str(name), bytes(body)


def write(data: Path, kind: str, name: str, body: bytes) -> None:
    connection = apsw.Connection(str(data / "store.sqlite"))
    change = "UPDATE objects SET body = ? WHERE kind = ? AND name = ?"
    connection.execute(change, (body, kind, name))
    connection.close()


def asked(command: Any, *words: str) -> Result:
    found = CliRunner().invoke(command, words)
    unexpected = found.exception is not None and not isinstance(found.exception, SystemExit)
    assert not unexpected, repr(found.exception)
    assert "Traceback" not in found.output
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_one_malformed_object_is_a_named_finding(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(audit, "PAUSE_S", 0.0)
    _, name, body = one_of(sound, kind)
    for how in range(7):
        data = tmp_path / str(how)
        shutil.copytree(sound, data)
        write(data, kind, name, json.dumps(spoilt(json.loads(body), how)).encode())
        verified = asked(ledger.command, "verify", "--data", str(data))
        audited = asked(audit.command, "--data", str(data))
        said = verified.output + audited.output
        is_found = verified.exit_code == 1 or audited.exit_code == 1
        # Nothing reads our own status of what users write; a Budget without envelopes is legal.
        is_legal = kind in LENIENT or how == 5 or (kind, how) == ("Budget", 4)
        assert is_found or is_legal, (how, said)
        if is_found and kind not in (*LENIENT, "LedgerBatch"):
            assert name in said, (how, said)


@pytest.mark.parametrize("body", NO_OBJECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_object_at_all_is_said(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, body: bytes
) -> None:
    monkeypatch.setattr(audit, "PAUSE_S", 0.0)
    data = tmp_path / "data"
    shutil.copytree(sound, data)
    write(data, kind, one_of(sound, kind)[1], body)
    audited = asked(audit.command, "--data", str(data))
    assert audited.exit_code == 1
    asked(ledger.command, "verify", "--data", str(data))
    asked(ledger.command, "compact", "--data", str(data))
    asked(backup.command, "--data", str(data), str(tmp_path / "to.tar"))


def test_the_sound_folder_is_sound(sound: Path) -> None:
    assert asked(ledger.command, "verify", "--data", str(sound)).exit_code == 0


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [each for key in value for each in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [each for key, member in enumerate(value) for each in leaves(member, (*path, key))]
    return [path]


def replaced(value: Any, path: tuple[Any, ...], by: object) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


@pytest.mark.parametrize("kind", ["Lease", "Resolution", "Reservation"])
def test_any_odd_word_in_a_record_is_no_traceback(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(audit, "PAUSE_S", 0.0)
    monkeypatch.setattr(audit, "LOOKS", 1)
    _, name, body = one_of(sound, kind)
    obj = json.loads(body)
    data = tmp_path / "data"
    shutil.copytree(sound, data)
    for path in leaves(obj["spec"], ("spec",)):
        write(data, kind, name, json.dumps(replaced(obj, path, "odd[")).encode())
        asked(ledger.command, "verify", "--data", str(data))
        asked(audit.command, "--data", str(data))
