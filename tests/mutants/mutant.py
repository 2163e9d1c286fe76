"""What a planted bug is, and how the tests that must notice it are named."""

from typing import NamedTuple


class Mutant(NamedTuple):
    name: str
    file: str  # below src/leasehold
    old: str
    new: str
    tests: tuple[str, ...]


def story(name: str) -> tuple[str, ...]:
    """The scenarios whose names begin so, told once."""
    return ("tests/scenarios/test_scenarios.py", "-k", f"test_scenario_passes and ({name})")


def found_seeds() -> tuple[str, ...]:
    """Random stories on which product and model once differed."""
    return ("tests/model/test_seeds.py", "-k", "once_differed")


def prop(name: str) -> tuple[str, ...]:
    return (f"tests/properties/test_{name}.py",)


def unit(name: str) -> tuple[str, ...]:
    return (f"tests/unit/{name}.py",)
