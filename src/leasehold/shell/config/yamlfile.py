"""Reads YAML files as plain data with line numbers.

Called by `leasehold lint`, the configuration reader and the scenario runner. Only the part of YAML
that JSON has is accepted: no tags, no dates (an instant stays text), no duplicate keys. The number
of nodes is limited, even with aliases. Every mistake is a `BadFile` with a line; no input raises
another error.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from leasehold.core.objects.problems import Problem, joined, shown

FILE_BYTES_MAX = 16 * 1024 * 1024
NODES_MAX = 1_000_000
ALIASED_NODES_MAX = 10_000
DEPTH_MAX = 64

# Both loaders read the same language. Only their nodes are used, never constructed values.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# YAML reads 0123 as octal and 1:30 as ninety, which nobody means here.
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,39})")
_COLLECTIONS = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


@dataclass(frozen=True)
class Mistake:
    """One problem in a file; lines count from 1."""

    line: int
    problem: Problem


class BadFile(Exception):  # noqa: N818 - named for the condition
    """The file cannot be used; `mistakes` lists all reasons that were found."""

    def __init__(self, path: str, mistakes: list[Mistake]) -> None:
        assert mistakes, "a file is bad for a reason"
        super().__init__(path, mistakes)
        self.path = path
        self.mistakes = mistakes

    @property
    def problems(self) -> list[Problem]:
        return [mistake.problem for mistake in self.mistakes]

    def __str__(self) -> str:
        return "\n".join(
            f"{self.path}:{each.line}: {each.problem.value}: {each.problem.remedy}"
            for each in self.mistakes
        )


@dataclass(frozen=True)
class Document:
    """The data of one YAML document, the line it starts on, and the line of each part by JSON
    path."""

    data: object
    line: int
    lines: dict[str, int] = field(repr=False)

    def line_of(self, path: str) -> int:
        """Return the line of the part at `path`. If the file has no such part, return the line of
        the nearest part around it."""
        while path and path not in self.lines:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.lines.get(path, self.line)


def load_documents(path: Path | str) -> list[Document]:
    """Return all non-empty documents of a file; raise `BadFile` if there are none."""
    place = str(path)
    try:
        with Path(path).open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except IsADirectoryError:
        raise _bad(place, 1, "a directory", "name a file") from None
    except FileNotFoundError:
        raise _bad(place, 1, "no such file", "name a file that exists") from None
    except (OSError, ValueError) as error:
        remedy = "name a file that can be read"
        raise _bad(place, 1, shown(str(error)), remedy) from None
    return parse_documents(raw, place)


def parse_documents(raw: bytes | str, place: str) -> list[Document]:
    """Return the non-empty documents of a text. `place` is its file's name for messages. Raise
    `BadFile` if there are none."""
    text = raw if isinstance(raw, str) else _text(raw, place)
    if len(text) > FILE_BYTES_MAX:
        raise _bad(place, 1, "too large", f"use at most {FILE_BYTES_MAX // 2**20} MiB")
    try:
        documents = [_Builder(place).document(node) for node in _nodes(text) if not _is_empty(node)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "not YAML"
        line = mark.line + 1 if mark else 1
        raise _bad(place, line, said, "correct the YAML; indent it with spaces") from None
    except yaml.YAMLError as error:
        line = _line_at(text, getattr(error, "position", None))
        raise _bad(place, line, "not YAML", "remove characters that cannot be printed") from None
    except UnicodeEncodeError:
        raise _bad(place, 1, "not Unicode", "remove lone surrogates") from None
    if not documents:
        raise _bad(place, 1, "an empty file", "add at least one document")
    return documents


def _nodes(text: str) -> Iterator[yaml.Node]:
    # Composing is recursive (in C if possible), so the depth is checked first, event by event.
    _check_depth(text)
    loader = _LOADER(text)
    while loader.check_node():
        node = loader.get_node()
        assert node is not None, "there was one"
        yield node


def _check_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            raise yaml.MarkedYAMLError(problem="nested too deep", problem_mark=event.start_mark)


class _Builder:
    """Builds the data of one document and records the line of each part."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._lines: dict[str, int] = {}
        self._mistakes: list[Mistake] = []
        self._seen: set[int] = set()
        self._count = 0
        self._repeated = 0

    def document(self, node: yaml.Node) -> Document:
        data = self._value(node, "", DEPTH_MAX)
        if self._mistakes:
            raise BadFile(self._place, self._mistakes)
        return Document(data=data, line=_line(node), lines=self._lines)

    def _value(self, node: yaml.Node, path: str, depth: int) -> object:
        if depth == 0:
            raise _bad(
                self._place, _line(node), "nested too deep", f"nest at most {DEPTH_MAX} deep"
            )
        self._count_node(node)
        self._lines.setdefault(path, _line(node))
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _COLLECTIONS:
            self._mistake(node, path, shown(node.tag), "leave the tag out")
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [
                self._value(member, joined(path, index), depth - 1)
                for index, member in enumerate(node.value)
            ]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str, depth: int) -> dict[object, object]:
        found: dict[object, object] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._mistake(key_node, path, "a key that is not a string", "use strings as keys")
                continue
            key = key_node.value
            place = joined(path, key)
            if key in found:
                first = self._lines.get(place, _line(node))
                remedy = f"the key is given twice, first on line {first}; keep one"
                self._mistake(key_node, place, shown(key), remedy)
                continue
            self._lines[place] = _line(key_node)
            found[key] = self._value(value_node, place, depth - 1)
        return found

    def _scalar(self, node: yaml.Node, path: str) -> object:
        text = node.value
        match node.tag:
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool":
                return text.lower() in ("true", "yes", "on")
            case "tag:yaml.org,2002:int" if _INTEGER.fullmatch(text):
                return int(text)
            case "tag:yaml.org,2002:float":
                return self._decimal(node, path, text)
            case "tag:yaml.org,2002:int":
                self._mistake(node, path, shown(text), "use a decimal number or put it in quotes")
                return text
            case "tag:yaml.org,2002:str" | "tag:yaml.org,2002:timestamp":
                if any("\ud800" <= each <= "\udfff" for each in text):
                    self._mistake(node, path, shown(text), "use strings without lone surrogates")
                return text
            case "tag:yaml.org,2002:value" | "tag:yaml.org,2002:merge":
                return text
            case tag:
                self._mistake(node, path, shown(tag), "leave the tag out")
                return None

    def _decimal(self, node: yaml.Node, path: str, text: str) -> object:
        try:
            return float(text.replace("_", ""))
        except ValueError:
            self._mistake(node, path, shown(text), "use a finite number or put it in quotes")
            return None

    def _count_node(self, node: yaml.Node) -> None:
        """Count a node each time it is visited, and raise `BadFile` above the limits. An alias
        visits a node again, so a small file with many aliases cannot grow without limit."""
        self._count += 1
        if id(node) in self._seen:
            self._repeated += 1
        self._seen.add(id(node))
        if self._repeated > ALIASED_NODES_MAX or self._count > NODES_MAX:
            remedy = f"aliases may repeat at most {ALIASED_NODES_MAX} nodes of {NODES_MAX} in all"
            raise _bad(self._place, _line(node), "too much repeated by aliases", remedy)

    def _mistake(self, node: yaml.Node, path: str, value: str, remedy: str) -> None:
        problem = Problem(path=path, value=value, remedy=remedy)
        self._mistakes.append(Mistake(line=_line(node), problem=problem))


def _text(raw: bytes, place: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _bad(place, line, "not UTF-8", "save the file as UTF-8") from None


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _line_at(text: str, position: int | None) -> int:
    return text.count("\n", 0, position) + 1 if position is not None else 1


def _bad(place: str, line: int, value: str, remedy: str) -> BadFile:
    return BadFile(
        place, [Mistake(line=line, problem=Problem(path="", value=value, remedy=remedy))]
    )
