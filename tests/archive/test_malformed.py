"""Commands on a store in which one object is malformed report findings and no tracebacks."""

import json
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result
from tests.archive.folder import make_data_folder

from leasehold.cli import audit, backup, ledger

KINDS = ("Budget", "LedgerBatch", "Lease", "Node", "Pod", "Reservation", "Resolution", "Run")
NO_OBJECTS = (b"", b"{", b"[]", b"7", b"null")
# Malformed objects of these kinds are readable: on any cluster, nodes and pods may lack fields.
LENIENT = ("Node", "Pod")


def spoilt(obj: dict[str, Any], how: int) -> dict[str, Any]:
    """Return the object with one part malformed."""
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
    return make_data_folder(tmp_path_factory.mktemp("malformed") / "data")


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
def test_malformed_object_is_reported_by_name(
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
        # No command reads the status of users' objects, and a Budget without envelopes is legal.
        is_legal = kind in LENIENT or how == 5 or (kind, how) == ("Budget", 4)
        assert is_found or is_legal, (how, said)
        if is_found and kind not in (*LENIENT, "LedgerBatch"):
            assert name in said, (how, said)


@pytest.mark.parametrize("body", NO_OBJECTS)
@pytest.mark.parametrize("kind", KINDS)
def test_body_that_is_no_object_is_reported_by_audit(
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


def test_folder_without_malformed_objects_verifies(sound: Path) -> None:
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
def test_any_malformed_field_of_a_record_causes_no_traceback(
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
