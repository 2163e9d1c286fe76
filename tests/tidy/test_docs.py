"""The documents have no links to files or headings that do not exist."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(text: str) -> set[str]:
    """Return the anchors of headings as GitHub and the site make them: in lower case, without
    punctuation, with dashes for spaces."""
    titles = HEADING.findall(FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path, text: str) -> Iterator[str]:
    for target in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        place = document.parent / path if path else document
        if not place.exists():
            yield f"{document.name}: {target}; write the path of a file that exists instead"
        elif anchor and anchor not in anchors(place.read_text(encoding="utf-8")):
            yield f"{document.name}: {target}; write the anchor of a heading there instead"


def test_docs_link_only_to_files_and_headings_that_exist() -> None:
    broken = [
        each
        for document in documents()
        for each in broken_links(document, document.read_text(encoding="utf-8"))
    ]

    assert not broken, "\n" + "\n".join(broken)


def test_broken_links_are_found(tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# A title, `with` marks\n```sh\n# no title\n```\n")
    here = tmp_path / "here.md"
    good = "[a](other.md) [b](other.md#a-title-with-marks) [c](https://example.com/x)\n"
    bad = "[d](none.md) [e](other.md#no-title) [f](#nowhere)\n"
    here.write_text(good + bad)

    found = list(broken_links(here, here.read_text()))

    assert [each.partition(";")[0] for each in found] == [
        "here.md: none.md", "here.md: other.md#no-title", "here.md: #nowhere",
    ]  # fmt: skip
