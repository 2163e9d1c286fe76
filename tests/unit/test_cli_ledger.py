"""`leasehold ledger` and `leasehold lottery` report an invalid file in one sentence."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leasehold.cli.main import main
from leasehold.core.ledger.chain import GENESIS, canonical, next_digest

Wire = dict[str, object]

STORY = """\
title: One is drawn
config: {activationLead: 15m}
fleet:
  - {domain: a, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}
budgets:
  x/x: {owner: "x:one", envelopes: [{name: e, flavor: H, concurrency: 8}]}
  y/y: {owner: "y:two", envelopes: [{name: e, flavor: H, concurrency: 8}]}
  z/z: {owner: "z:three", envelopes: [{name: e, flavor: H, concurrency: 8}]}
steps:
  - at: 0s
    submit:
      x/x: {owner: "x:one", resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 8}}
      y/y: {owner: "y:two", resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 8}}
  - at: 1m
    submit: {z/z: {owner: "z:three", resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 8}}}
  - {at: 20m, expect: [{run: z/z, phase: Running}]}
"""


def leasehold(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    (folder / "story.yaml").write_text(STORY, encoding="utf-8")
    played = leasehold("sim", "scenario", str(folder / "story.yaml"), "--out", str(folder))
    assert played.exit_code == 0, played.output
    return folder


def test_exported_ledger_and_objects_verify(exported: Path) -> None:
    ledger, objects = str(exported / "ledger.jsonl"), str(exported / "objects.jsonl")
    batches = len(Path(ledger).read_bytes().splitlines())
    told = leasehold("ledger", "verify", ledger, "--objects", objects)
    assert (told.exit_code, told.output) == (0, f"ledger verify: ok ({batches} batches)\n")
    assert leasehold("lottery", "verify", objects).exit_code == 0
    assert leasehold("ledger", "replay", ledger, "--at", "2027-01-01T00:00:00Z").exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (bytes(range(256)), ":1: not a JSON object"),
        (b"[1]\n", ":1: not a JSON object"),
        (b"\n5\n", ":2: not a JSON object"),
        (b'{"seq":NaN}', ":1: not a JSON object"),
        (b'{"a":' * 100_000, ":1: nested too deep"),
        (b"{}", "has no batch"),
        (b'{"seq":1,"batch":5}', "has no batch"),
        (b'{"seq":1,"batch":{"seq":1.5}}', "integers only"),
        (b'{"seq":1,"batch":{"a":' + b'{"a":' * 900 + b"1" + b"}" * 902, "is"),
        (b'{"seq":1,"epoch":1,"note":"x","batch":{}}', "'note', which is not in the chain"),
    ],
)
def test_invalid_ledger_file_is_reported_in_one_line(
    tmp_path: Path, text: bytes, said: str
) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(text)
    for arguments in (("verify", str(file)), ("replay", str(file), "--at", "2027-01-01T00:00:00Z")):
        told = leasehold("ledger", *arguments)
        assert told.exit_code == 1, told.output
        assert said in told.output
        assert told.output.count("\n") == 1, told.output


def test_unreadable_file_is_reported_by_name(tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "none"):
        for command in (("ledger", "verify"), ("lottery", "verify")):
            told = leasehold(*command, str(file))
            assert told.exit_code == 1
            assert str(file) in told.output


def test_ledger_lines_out_of_order_are_reported_by_number(exported: Path, tmp_path: Path) -> None:
    lines = (exported / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    file = tmp_path / "ledger.jsonl"
    for wrong, said in (
        (lines[1:], "batch 2: seq: 2 does not follow 0"),
        ([lines[0], *lines[2:]], "batch 3: seq: 3 does not follow 1"),
        ([lines[0], *lines], "batch 1: seq: 1 does not follow 1"),
        ([*lines[:-1], lines[-1][:40]], f":{len(lines)}: not a JSON object"),
    ):
        file.write_bytes(b"".join(wrong))
        told = leasehold("ledger", "verify", str(file))
        assert told.exit_code == 1
        assert said in told.output


def _lease(change: Callable[[Wire], object]) -> Callable[[list[Wire]], None]:
    def apply(objects: list[Wire]) -> None:
        change(next(each for each in objects if each["kind"] == "Lease" and "status" in each))

    return apply


def _resolution(change: Callable[[Wire], object]) -> Callable[[list[Wire]], None]:
    return lambda objects: (
        change(next(each for each in objects if each["kind"] == "Resolution")),
        None,
    )[1]


def _part(wire: Wire, *keys: str) -> Wire:
    for key in keys:
        inner = wire[key]
        assert isinstance(inner, dict)
        wire = inner
    return wire


LABELS = ("metadata", "labels")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_lease(lambda w: _part(w, "spec").update(paidByEnvelope="q")), "spec.paidByEnvelope"),
        (_lease(lambda w: _part(w, "spec", "slice").update(nodes=["q"])), "spec.slice.nodes"),
        (_lease(lambda w: _part(w, "spec").update(note=1)), "spec.note"),
        (_lease(lambda w: _part(w, "spec").update(compPath=["x", "y"])), "'x' is not SHARD[n]"),
        (_lease(lambda w: _part(w, "status").update(closed=False)), "status.closed"),
        (_lease(lambda w: _part(w, *LABELS).pop("rq.davidlangworthy.io/run")), "its label"),
        (lambda objects: objects.append(next(e for e in objects if e["kind"] == "Lease")), "two"),
        (_resolution(lambda w: _part(w, "spec").update(note=1.5)), "integers only"),
        (_resolution(lambda w: _part(w, "spec").update(note=1)), "its digest"),
        (
            _resolution(
                lambda w: _part(w, "spec", "lottery").update(
                    conflictSet={"x:one": [{"bundle": "x/x#q", "gpus": 8}]}
                )
            ),
            "'x/x#q' is not namespace/run#group",
        ),
    ],
)
def test_objects_that_contradict_the_ledger_are_reported(
    exported: Path, tmp_path: Path, change: Callable[[list[Wire]], None], said: str
) -> None:
    text = (exported / "objects.jsonl").read_text(encoding="utf-8")
    objects = [json.loads(line) for line in text.splitlines()]
    change(objects)
    file = tmp_path / "objects.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in objects), encoding="utf-8")
    told = leasehold("ledger", "verify", str(exported / "ledger.jsonl"), "--objects", str(file))
    assert told.exit_code == 1
    assert said in told.output
    leasehold("lottery", "verify", str(file))  # may report anything, but must not raise


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nonce": "zz"}, "lower-case hex"),
        ({"nonce": "00"}, "commitment"),
        ({"subject": "q/q"}, "derivedFrom.subject"),
    ],
)
def test_forged_lottery_is_reported(
    exported: Path, tmp_path: Path, fields: Wire, said: str
) -> None:
    text = (exported / "objects.jsonl").read_text(encoding="utf-8")
    drawn = next(w for w in map(json.loads, text.splitlines()) if w["kind"] == "Resolution")
    _part(drawn, "spec", "lottery", "derivedFrom").update(fields)
    file = tmp_path / "objects.jsonl"
    file.write_text(json.dumps(drawn), encoding="utf-8")
    told = leasehold("lottery", "verify", str(file))
    assert told.exit_code == 1
    assert said in told.output


def test_forged_lease_in_a_rehashed_chain_is_reported_as_inconsistent(
    exported: Path, tmp_path: Path
) -> None:
    text = (exported / "ledger.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    lines[0]["batch"]["opened"][0]["spec"]["paidByEnvelope"] = "another"
    digest = GENESIS
    for line in lines:
        digest = line["digest"] = next_digest(digest, canonical(line["batch"]))
    file = tmp_path / "ledger.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
    told = leasehold("ledger", "verify", str(file))
    assert told.exit_code == 1
    assert "spec.paidByEnvelope is 'another', but the other fields say 'e'" in told.output


def test_recorded_head_is_found_in_a_longer_ledger(exported: Path, tmp_path: Path) -> None:
    ledger = str(exported / "ledger.jsonl")
    lines = Path(ledger).read_text(encoding="utf-8").splitlines()
    first = tmp_path / "first.jsonl"
    first.write_text("\n".join(lines[:2]) + "\n", encoding="utf-8")

    told = leasehold("ledger", "verify", "--print-head", str(first))
    ok, head = told.output.splitlines()
    assert ok == "ledger verify: ok (2 batches)"
    assert head == f"{json.loads(lines[1])['digest']}@2"

    later = leasehold("ledger", "verify", "--head", head, ledger)
    said = f"ledger verify: ok ({len(lines)} batches, which continue from {head})\n"
    assert (later.exit_code, later.output) == (0, said)
    digest, _, seq = head.partition("@")
    assert leasehold("ledger", "verify", "--head", f"{digest[:16]}@{seq}", ledger).exit_code == 0


def test_ledger_without_the_recorded_head_is_refused(exported: Path) -> None:
    ledger = str(exported / "ledger.jsonl")
    head = leasehold("ledger", "verify", "--print-head", ledger).output.splitlines()[-1]
    digest, _, seq = head.partition("@")

    other = leasehold("ledger", "verify", "--head", f"{'0' * 64}@1", ledger)
    assert other.exit_code == 1
    assert "the ledger has another history" in other.output
    ahead = leasehold("ledger", "verify", "--head", f"{digest}@{int(seq) + 5}", ledger)
    assert ahead.exit_code == 1
    assert f"which ends at {seq}" in ahead.output
    for bad in ("x", f"{digest}", f"{digest}@", f"{digest[:4]}@1", f"{digest}@-1", "g" * 64 + "@1"):
        wrong = leasehold("ledger", "verify", "--head", bad, ledger)
        assert wrong.exit_code == 2, bad
        assert "DIGEST@SEQ" in wrong.output
