"""Plain words: a few patterns of an English that readers had to read twice, each with a hint.

Checked are docstrings and comments of Python files, and the documents. The list is short on
purpose: it finds what was frequent, and leaves style to reviewers.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = {
    r"\bwhoever\b": "name the actor: the leader, the caller, a run",
    r"\bfor whom\b": "name the beneficiary, the owner, the user",
    r"\banew\b": "write again",
    r"\bwhat is so\b": "say which fact",
    r"\bsits? down\b": "a pod is placed; a filler uses a spare",
    r"\bthough it be\b": "write even if",
    r"\bso many an? (second|hour|minute)\b": "write per second",
    r"\b(it|this|that) says? of\b": "say what is reported",
}
# In code only: a page may ask "Who pays?".
OPENINGS = {
    r"^(Who|Whoever|Those|Asked|Of them|Nobody|Somebody)\b": "begin with a verb and name the actor",
}
IN_PAGES = {re.compile(pattern): hint for pattern, hint in PATTERNS.items()}
IN_CODE = {re.compile(pattern): hint for pattern, hint in {**PATTERNS, **OPENINGS}.items()}
FOLDERS = ("src", "tests", "tools", "bench", "demo")


def odd_words(path: str, text: str) -> list[str]:
    """Return `path:line: words; hint` for each pattern in the prose of a file."""
    is_code = path.endswith(".py")
    prose = _prose_of_python(text) if is_code else enumerate(text.splitlines(), 1)
    hints = IN_CODE if is_code else IN_PAGES
    found = []
    for number, line in prose:
        for pattern, hint in hints.items():
            match = pattern.search(line)
            if match is not None:
                found.append(f"{path}:{number}: {match.group(0)!r}; {hint}")
    return found


def _prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for offset, line in enumerate((ast.get_docstring(node) or "").splitlines()):
                yield node.body[0].lineno + offset, line


def test_prose_has_no_odd_words() -> None:
    files = [each for folder in FOLDERS for each in (ROOT / folder).rglob("*.py")]
    files += list((ROOT / "docs").rglob("*.md"))
    files += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    found = [
        finding
        for file in sorted(files)
        if file != Path(__file__).resolve()
        for finding in odd_words(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    ]

    assert len(files) > 500
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('"""Returns for whom a run was cut."""\n', "name the beneficiary"),
        ('def f():\n    """Who waits is asked again."""\n', "begin with a verb"),
        ("x = 1  # computed anew\n", "write again"),
    ],
)
def test_odd_word_is_found_with_its_hint(text: str, hint: str) -> None:
    (finding,) = odd_words("a.py", text)

    assert hint in finding
