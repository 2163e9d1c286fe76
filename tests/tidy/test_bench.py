"""The benchmarks can be imported; no other test loads them."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(file.stem for file in (ROOT / "bench").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_benchmark_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__
