"""Documents that a newcomer reads one after another, with the same data folder."""

from pathlib import Path

from tests.docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]


def test_quickstart_works_as_shown_after_the_readme(reader: Reader) -> None:
    """If owners of the two documents were siblings, they would share budgets, and a run that the
    quickstart shows waiting would start."""
    reader.read((ROOT / "README.md").read_text(encoding="utf-8"))
    reader.read((ROOT / "docs" / "user-guide" / "quickstart.md").read_text(encoding="utf-8"))
