"""YAML files: plain data with lines, and one clear mistake for everything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leasehold.shell.config import yamlfile
from leasehold.shell.config.yamlfile import (
    BadFile,
    Document,
    Mistake,
    load_documents,
    parse_documents,
)

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(6)
)

GOOD: tuple[tuple[str, object], ...] = (
    ("a: 1", {"a": 1}),
    ("a: -7", {"a": -7}),
    ("a: 0.5", {"a": 0.5}),
    ("a: 1_000.5", {"a": 1000.5}),
    ("a: [true, off, ~, '1']", {"a": [True, False, None, "1"]}),
    ("a: 2026-11-01T00:00:00Z", {"a": "2026-11-01T00:00:00Z"}),
    ("a: 2026-11-01", {"a": "2026-11-01"}),
    ("a: =", {"a": "="}),
    ("1: x\ntrue: y", {"1": "x", "true": "y"}),
    ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
    ("<<: {a: 1}", {"<<": {"a": 1}}),
    ("[1, 2]", [1, 2]),
    ("\ufeffa: 1", {"a": 1}),
)

BAD: tuple[tuple[str, bytes, int, str], ...] = (
    ("empty", b"", 1, "an empty file"),
    ("only comments", b"# x\n---\n# y\n", 1, "an empty file"),
    ("a tab", b"a:\n\tb: 1\n", 2, "cannot start any token"),
    ("a bracket left open", b"a: [1,\n", 2, ""),
    ("a key twice", b"a: 1\nb: 2\na: 3\n", 3, "'a'"),
    ("a key twice inside", b"x:\n  a: 1\n  a: 3\n", 3, "'a'"),
    ("a key that is a list", b"? [a]\n: 1\n", 1, "a key that is not a string"),
    ("a tag", b"a: !!python/object:os.system x\n", 1, "python/object"),
    ("a binary", b"a: !!binary aGk=\n", 1, "binary"),
    ("an octal number", b"a: 0123\n", 1, "'0123'"),
    ("a number in base sixty", b"a: 1:30\n", 1, "'1:30'"),
    ("a number of many digits", b"a: " + b"9" * 5000, 1, "'9999"),
    ("infinity", b"a: .inf\n", 1, "'.inf'"),
    ("not UTF-8", b"a: 1\nb: \xff\n", 2, "not UTF-8"),
    ("a control character", b"a: 1\nb: \x01\n", 2, ""),
    ("a lone surrogate", b'a: "\\ud800"\n', 1, ""),
    ("an alias bomb", BOMB.encode(), 1, "too much repeated by aliases"),
    ("an alias of itself", b"&a [*a]\n", 1, ""),
    ("an unknown alias", b"a: *x\n", 1, ""),
    ("very deep", b"[" * 100_000, 1, "nested too deep"),
    ("deep by indentation", "".join(f"{' ' * n}a:\n" for n in range(70)).encode(), 65, "too deep"),
)


@pytest.mark.parametrize(("text", "expected"), GOOD)
def test_plain_data_is_read(text: str, expected: object) -> None:
    [document] = parse_documents(text.encode(), "x.yaml")

    assert document.data == expected


@pytest.mark.parametrize(("raw", "line", "said"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_bad_file_is_reported_with_its_line(raw: bytes, line: int, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        parse_documents(raw, "x.yaml")

    assert caught.value.mistakes[0].line == line
    assert said in caught.value.problems[0].value
    assert str(caught.value).startswith(f"x.yaml:{line}: ")


def test_document_finds_the_line_of_each_path() -> None:
    text = "a:\n  b:\n    - c: 1\n    - c: 2\n---\n\nx: 1\n'fabric.domain': 2\n"
    first, second = parse_documents(text, "x.yaml")

    lines = {path: first.line_of(path) for path in ("a", "a.b", "a.b[1].c", "a.b[1].d", "nowhere")}
    assert lines == {"a": 1, "a.b": 2, "a.b[1].c": 4, "a.b[1].d": 4, "nowhere": 1}
    assert second.line == 7
    assert second.line_of("x") == 7
    assert second.line_of("[fabric.domain]") == 8


def test_every_duplicate_key_is_reported() -> None:
    with pytest.raises(BadFile) as caught:
        parse_documents("a: 1\na: 2\nb: {c: 1, c: 2}\n", "x.yaml")

    assert [(each.line, each.problem.path) for each in caught.value.mistakes] == [
        (2, "a"),
        (3, "b.c"),
    ]


def test_unreadable_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large = tmp_path / "large.yaml"
    large.write_text("a: 1234567890\n", encoding="utf-8")
    monkeypatch.setattr(yamlfile, "FILE_BYTES_MAX", 8)

    for place, said in (
        (tmp_path, "a directory"),
        (tmp_path / "none.yaml", "no such file"),
        (large / "x", "Not a directory"),
        ("a\0b", "null byte"),
        (large, "too large"),
    ):
        with pytest.raises(BadFile) as caught:
            load_documents(place)

        assert said in caught.value.problems[0].value


def test_a_text_with_lone_surrogates_is_refused() -> None:
    with pytest.raises(BadFile):
        parse_documents("a: \ud800", "x.yaml")


@given(raw=st.binary(max_size=60) | st.text(alphabet="ab:-[]{}&*!'\"\n \t#|>1.", max_size=60))
def test_arbitrary_bytes_yield_documents_or_mistakes(raw: bytes | str) -> None:
    mistakes: list[Mistake] = []
    documents: list[Document] = []
    try:
        documents = parse_documents(raw, "x.yaml")
    except BadFile as bad:
        mistakes = bad.mistakes

    assert bool(mistakes) != bool(documents)
