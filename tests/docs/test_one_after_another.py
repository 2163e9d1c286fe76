"""Documents that a newcomer reads one after another, with the same data folder."""

from pathlib import Path

from tests.docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]


def test_the_quickstart_goes_as_shown_after_the_readme(reader: Reader) -> None:
    """Owners of both that shared as siblings would start what the quickstart shows waiting."""
    reader.read((ROOT / "README.md").read_text(encoding="utf-8"))
    reader.read((ROOT / "docs" / "user-guide" / "quickstart.md").read_text(encoding="utf-8"))
