"""Every scenario of this folder and its subfolders passes; adding one needs no code."""

from pathlib import Path

import pytest

from leasehold.sim.scenario.runner import run_scenario

FILES = sorted(Path(__file__).parent.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario_passes(file: Path) -> None:
    told: list[str] = []
    outcome = run_scenario(file, echo=told.append)
    assert outcome.code == 0, "\n".join(told)


@pytest.mark.parametrize("file", FILES[:5], ids=lambda file: file.stem)
def test_scenario_played_twice_is_equal_byte_for_byte(file: Path, tmp_path: Path) -> None:
    first, second = (
        run_scenario(file, out=tmp_path / name, echo=lambda _: None) for name in ("one", "two")
    )
    assert first.digest == second.digest
    for name in ("objects.jsonl", "ledger.jsonl"):
        one, two = ((tmp_path / run / name).read_bytes() for run in ("one", "two"))
        assert one == two
        assert one.endswith(b"\n")
