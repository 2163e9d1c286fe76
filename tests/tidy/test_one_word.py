"""One word, one idea: no public class of the product shares its name with another.

Whoever meets a name in a message or a review finds one place that says what it is.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[2] / "src" / "leasehold"


def shared(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Class names that several of these files define, with the files."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, text in files:
        for node in ast.parse(text, path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_no_two_classes_share_a_name() -> None:
    files = sorted(PRODUCT.rglob("*.py"))
    found = shared((str(each.relative_to(PRODUCT)), each.read_text()) for each in files)

    assert len(files) > 300
    assert not found, f"name one of each by what it is there: {found}"


def test_a_shared_name_is_found() -> None:
    one, other = ("a.py", "class Plan: ...\nclass _Row: ..."), ("b.py", "class Plan: ...")

    assert shared((one, other, ("c.py", "class _Row: ..."))) == {"Plan": ["a.py", "b.py"]}
