"""Every example of the README and the guides works as shown; each document has one server."""

from pathlib import Path

import pytest
from tests.docs.examples import Shown, first_difference, steps
from tests.docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]
OPERATORS = ROOT / "docs" / "operator-guide"
# The guides for clusters are followed by `make test-kubelets` and by `tests/kubernetes`.
CLUSTER = {OPERATORS / "kubernetes.md", OPERATORS / "outside.md"}
GUIDES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "user-guide").glob("*.md")),
    *sorted(set(OPERATORS.glob("*.md")) - CLUSTER),
]


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_every_example_of_a_guide_works_as_shown(guide: Path, reader: Reader) -> None:
    text = guide.read_text(encoding="utf-8")

    reader.read(text)

    assert reader.ran == sum(line.startswith("$ ") for line in _console(text))


def _console(text: str) -> list[str]:
    """Return the lines of console blocks, without the code that the reader uses."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line == "```console"
        elif inside:
            found.append(line)
    return found


def test_reader_refuses_example_with_wrong_output_or_status(reader: Reader) -> None:
    reader.read("```sh\n# a.sh\necho one; echo two 2026-11-15T00:00:10.000Z 5s; exit 3\n```\n")

    reader.follow(Shown("bash a.sh", ["one", "two 2026-01-01T00:00:00Z 17s"], status=3))
    for wrong in (
        Shown("bash a.sh", ["one", "two 2026-01-01T00:00:00Z 17s"]),
        Shown("bash a.sh", ["one"], status=3),
        Shown("bash a.sh", ["two …"], status=3),
        Shown("bash a.sh", ["one", "two …", "three"], status=3),
    ):
        with pytest.raises(AssertionError, match="bash"):
            reader.follow(wrong)


@pytest.mark.parametrize(
    ("shown", "difference"),
    [
        (["a  1", "b"], None),
        (["a 1", "b"], "a 1"),
        (["…", "b"], None),
        (["…", "a …", "…"], None),
        (["a …"], ""),
        (["a  2", "b"], "a  2"),
        (["b", "a  1"], "b"),
        ([], ""),
    ],
)
def test_first_difference_is_the_first_line_that_does_not_match(
    shown: list[str], difference: str | None
) -> None:
    assert first_difference(shown, ["a      1", "b"]) == difference


def test_command_may_continue_on_the_next_line() -> None:
    found = list(steps("```console\n$ a \\\n  b\nc\n# exit status 2\n$ d\n```\n"))

    assert found == [Shown("a \\\n  b", ["c"], 2), Shown("d")]
