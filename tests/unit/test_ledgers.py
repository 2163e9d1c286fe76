"""tools/ledgers.py finds what differs between ledgers, and reports it in its exit status."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STORY = """\
title: One run on one node
fleet: [{domain: a, nodes: 1, gpus: 8, flavor: H, region: r, cluster: c}]
budgets: {t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 8}]}}
steps:
  - at: 0s
    submit: {t/x: {owner: "t:one", resources: {gpuType: H, totalGPUs: 8}}}
    work: {lasts: 1h}
"""
_EXPORT = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import ledgers
ledgers.export(Path(sys.argv[2]), [Path(sys.argv[3])], seeds=1, source=ledgers.ROOT / "src", jobs=1)
"""


def _compare(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "ledgers.py"), "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def _export(out: Path, story: Path) -> None:
    command = [sys.executable, "-c", _EXPORT, str(ROOT / "tools"), str(out), str(story)]
    subprocess.run(command, check=True, timeout=120)


def test_equal_ledgers_compare_equal_and_a_changed_line_is_reported(tmp_path: Path) -> None:
    story = tmp_path / "one.yaml"
    story.write_text(STORY)
    for side in ("before", "after"):
        _export(tmp_path / side, story)

    equal = _compare(tmp_path / "before", tmp_path / "after", "--objects")
    assert (equal.returncode, equal.stdout) == (0, "all 2 are equal\n")

    ledger = tmp_path / "after" / "one" / "seed-0" / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text("".join([*lines[:-1], "{}\n"]))
    found = _compare(tmp_path / "before", tmp_path / "after")
    assert found.returncode == 1
    assert f"one/seed-0: ledger.jsonl differs from line {len(lines)} on" in found.stdout


def test_story_on_one_side_is_a_difference_and_missing_folder_an_error(
    tmp_path: Path,
) -> None:
    for side in ("before", "after"):
        played = tmp_path / side / "one" / "told"
        played.mkdir(parents=True)
        (played / "outcome.txt").write_text("0\n")
    extra = tmp_path / "after" / "two" / "told"
    extra.mkdir(parents=True)
    (extra / "outcome.txt").write_text("0\n")

    assert _compare(tmp_path / "before", tmp_path / "after").returncode == 1
    assert _compare(tmp_path / "before", tmp_path / "nowhere").returncode == 2
