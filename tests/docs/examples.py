"""The examples of a document: the files to save, the commands to run and the output to expect.

A reader can follow the convention by hand. A block whose first line is a comment with a file name
(`# run.yaml`) is saved under that name. In a `console` block a line `$ ...` is a command, which
continues after a backslash. The lines that follow are its whole output, including errors;
`# exit status N` is its exit status if that is not 0. `…` stands for any text within a line, and
alone on a line for any lines. Values that differ between runs are compared by kind: instants,
seconds, decimals, digests, ports, pids, the machine's name and the spaces between columns.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ELLIPSIS = "…"
MACHINE = "this-machine"  # the host's name in the documents
DATA_FOLDERS = ("/home/ann/.local/share/leasehold", "/var/lib/leasehold")

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"# ([\w.-]+\.(?:yaml|py|sh))")
_STATUS = "# exit status "
_KINDS = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)"), "<instant>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uid>"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "<digest>"),
    (re.compile(r"\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b"), "<seconds>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    (re.compile(r"\bpid \d+"), "pid <pid>"),
    (re.compile(r"(?<![\w.,:/=-])0(\.\d+)?(?![\w.,:/-])"), "<small>"),  # GPU-hours of a short story
    (re.compile(r"(?<![\d.])\d+\.\d+(?![\d.])"), "<decimal>"),
    (re.compile(r"(?<=-)\d+(?=-g\d+-p\d+\b)"), "<batch>"),  # in the name of a pod
    (re.compile(r"(?<=\S) {2,}"), "  "),
)


@dataclass
class Saved:
    """A file that the document tells the reader to save."""

    name: str
    content: str


@dataclass
class Shown:
    """A command with the output that the document shows."""

    command: str
    lines: list[str] = field(default_factory=list)
    status: int = 0


def steps(text: str) -> Iterator[Saved | Shown]:
    """Yield the steps of a reader in the order of the text."""
    for language, body in _FENCE.findall(text):
        saved = _SAVED.fullmatch(body.partition("\n")[0])
        if language == "console":
            yield from _commands(body)
        elif saved:
            yield Saved(saved[1], body)


def _commands(body: str) -> Iterator[Shown]:
    shown: list[Shown] = []
    goes_on = False
    for line in body.splitlines():
        if goes_on:
            shown[-1].command += f"\n{line}"
        elif line.startswith("$ "):
            shown.append(Shown(line.removeprefix("$ ")))
        elif line.startswith(_STATUS):
            shown[-1].status = int(line.removeprefix(_STATUS))
        else:
            assert shown, f"{line!r} comes before any command; begin the block with `$ `"
            shown[-1].lines.append(line)
        goes_on = (goes_on or line.startswith("$ ")) and line.endswith("\\")
    yield from shown


def normal(line: str) -> str:
    """Return the line with every value that may differ replaced by its kind."""
    for folder in DATA_FOLDERS:
        line = line.replace(folder, "<data>")
    for pattern, kind in _KINDS:
        line = pattern.sub(kind, line)
    return line.rstrip()


def first_difference(shown: list[str], printed: list[str]) -> str | None:
    """Return the first shown line that the output does not match.

    Return "" if the output continues after the shown lines, and None if all is as shown.
    """
    text = "".join(f"{normal(line)}\n" for line in printed)
    for count in range(len(shown) + 1):
        pattern = "".join(map(_pattern, shown[:count]))
        if re.match(pattern, text) is None:
            return shown[count - 1]
    whole = "".join(map(_pattern, shown))
    return None if re.fullmatch(whole, text) else ""


def _pattern(line: str) -> str:
    if line.strip() == ELLIPSIS:
        return r"(?:.*\n)*"
    return ".*".join(map(re.escape, normal(line).split(ELLIPSIS))) + r"\n"
