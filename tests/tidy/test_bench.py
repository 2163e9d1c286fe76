"""The benchmarks can be loaded: nothing else reads them before somebody measures."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(file.stem for file in (ROOT / "bench").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_its_imports_are_there(name: str) -> None:
    assert importlib.import_module(f"bench.{name}").__doc__
