"""One word, one idea: no two public classes of the product have the same name.

A reader who meets a name in a message or a review finds one definition of it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PRODUCT = Path(__file__).resolve().parents[2] / "src" / "leasehold"


def shared(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the class names that several files define, with these files."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path, text in files:
        for node in ast.parse(text, path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(path)
    return {name: found for name, found in homes.items() if len(found) > 1}


def test_public_class_names_are_unique() -> None:
    files = sorted(PRODUCT.rglob("*.py"))
    found = shared((str(each.relative_to(PRODUCT)), each.read_text()) for each in files)

    assert len(files) > 300
    assert not found, f"rename one class of each pair: {found}"


def test_name_defined_in_two_files_is_found() -> None:
    one, other = ("a.py", "class Plan: ...\nclass _Row: ..."), ("b.py", "class Plan: ...")

    assert shared((one, other, ("c.py", "class _Row: ..."))) == {"Plan": ["a.py", "b.py"]}
