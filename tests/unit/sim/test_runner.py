"""Playing a story: the output if it holds, if it does not, and if the file is wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.sim import command
from leasehold.core.ledger.verify import verify_lines
from leasehold.sim.scenario import runner
from leasehold.sim.scenario.act import merge

STORY = """\
title: A run comes and goes
fleet: [{domain: a, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}]
budgets: {t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 16}]}}
steps:
  - at: 0s
    submit: {t/x: {owner: "t:one", resources: {gpuType: H, totalGPUs: 16, gpusPerPod: 8}}}
    work: {lasts: 30m}
"""
HELD = """\
  - at: 10m
    expect:
      - {run: t/x, phase: Running, gpus: {min: 16}, gpuHours: {min: 2.6, max: 2.7}, started: 0s}
      - {leases: {run: t/x, open: true, pod: 1}, count: 1, gpus: 8, groups: [0]}
      - {node: a-00, free: 0}
      - {reservation: t/x, none: true}
      - {resolution: t/x, none: true}
      - {ledger: ok}
      - {audit: ok}
  - {at: 20m, restart: controller}
  - {at: 30m, expect: [{run: t/x, phase: Completed, ended: 30m, gpuHours: 8}]}
  - {at: 31m, delete: {run: t/x}}
  - {at: 31m, expect: [{run: t/x, phase: Completed}, {leases: {run: t/x}, count: 2}]}
"""


def play(tmp_path: Path, steps: str, *options: str) -> tuple[int, str]:
    file = tmp_path / "story.yaml"
    file.write_text(STORY + steps)
    result = CliRunner().invoke(command, ["scenario", str(file), *options])
    return result.exit_code, result.output.replace(f"{file}", "F")


def test_story_that_holds_exits_0_and_leaves_its_ledger(tmp_path: Path) -> None:
    code, told = play(tmp_path, HELD, "--out", str(tmp_path / "out"), "--show", "cover")
    assert code == 0, told
    assert told.startswith("F: A run comes and goes\n")
    assert "submit t/x" in told
    assert told.endswith("F: everything held\n")
    lines = (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()
    assert verify_lines(map(json.loads, lines)) is None
    objects = [
        json.loads(line) for line in (tmp_path / "out" / "objects.jsonl").read_text().splitlines()
    ]
    keys = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in objects
    ]
    assert keys == sorted(keys)
    assert {"Budget", "Lease", "LedgerBatch", "LedgerHead", "Node"} <= {kind for kind, _, _ in keys}


# A step that does not hold, and the message on it; its line is the first after the story's head.
@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("expect: [{run: t/x, phase: Failed}]", "run t/x phase Failed got Running"),
        ("expect: [{run: t/x, gpus: {max: 8}}]", "run t/x gpus at most 8 got 16"),
        ("expect: [{run: t/x, started: 1s}]", "run t/x started 1s got 0s"),
        ("expect: [{run: t/x, ended: 1s}]", "run t/x ended 1s got none"),
        ("expect: [{run: t/x, says: [nonsense]}]", "run t/x says 'nonsense' got '"),
        ("expect: [{leases: {run: t/x}, nodes: [a-00]}]",
         "leases {run t/x} nodes [a-00] got ['a-00', 'a-01']"),
        ("expect: [{runs: [t/x], phase: Failed, count: 1}]",
         "1 of runs [t/x] phase Failed got 0 (t/x Running Running)"),
        ("expect: [{envelope: t/t/e, used: 3}]", "envelope t/t/e used 3 got 16"),
        ("expect: [{envelope: t/t/e, left: 3}]", "envelope t/t/e left 3 got no limit"),
        ("expect: [{reservation: t/x, state: Pending}]", "reservation t/x got no reservation"),
        ("expect: [{resolution: t/x, spares: 0}]", "resolution t/x got no resolution"),
        ("expect: [{cover: t/x, walk: [[t/t/e, 8]]}]",
         "cover t/x walk [[t/t/e, 8]] got [[t/t/e, 16]]"),
        ("pod: {run: t/x, group: 3, pod: 0, does: exit 1}",
         "pod 0 of group 3 of t/x to run got no such process"),
        ("delete: {budget: t/q}", "budget t/q to delete got no object of that name"),
        ("edit: {envelope: t/t/e, concurrency: 0}", "envelope t/t/e accepted got refused: "),
        ("edit: {run: t/x, spec: {resources: {totalGPUs: 8}}}", "run t/x accepted got refused: "),
        ("edit: {run: t/x, spec: {stop: true}}, refused: [spec.stop]",
         "run t/x refused at [spec.stop] got accepted"),
        ("submit: {t/y: {owner: 1}}, refused: [spec.owner]",
         "run t/y refused at [spec.owner] got refused at [spec.owner, spec.resources] ("),
    ],
)  # fmt: skip
def test_expectation_that_fails_is_reported_with_its_line(
    tmp_path: Path, step: str, said: str
) -> None:
    code, told = play(tmp_path, f"  - {{at: 1m, {step}}}\n", "--quiet")
    assert code == 1
    assert told.startswith(f"F:{STORY.count(chr(10)) + 1}: expected {said}"), told


def test_wrong_file_exits_2_and_a_defect_exits_3_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = play(tmp_path, "  - {at: 1m, exepct: []}\n")
    assert (code, told.count("\n")) == (2, 2)
    assert told.startswith("F:8: ")

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the cat\nsat on it")

    monkeypatch.setattr(runner, "load_story", broken)
    code, told = play(tmp_path, HELD)
    assert (code, told) == (3, "F: defect in leasehold (RuntimeError): the cat sat on it\n")


def test_several_files_exit_with_the_worst_status(tmp_path: Path) -> None:
    files = [tmp_path / "good.yaml", tmp_path / "bad.yaml"]
    files[0].write_text(STORY)
    files[1].write_text(STORY + "  - {at: 1m, expect: [{run: t/x, phase: Failed}]}\n")
    folder = tmp_path / "out"
    result = CliRunner().invoke(
        command, ["scenario", "--quiet", "--out", str(folder), *map(str, files)]
    )
    assert result.exit_code == 1
    assert sorted(path.name for path in folder.iterdir()) == ["bad", "good"]


def test_merge_patch_merges_replaces_and_removes_fields() -> None:
    target: dict[str, object] = {"a": {"b": 1, "c": 2}, "d": [1], "e": 1}
    merge(target, {"a": {"b": None, "x": {"y": None}}, "d": [2, 3], "e": {"f": 1}})
    assert target == {"a": {"c": 2, "x": {}}, "d": [2, 3], "e": {"f": 1}}
