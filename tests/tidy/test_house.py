"""The house rules that a program can check, applied to every Python file of the repository.

Each rule is a function from a parsed file to findings `path:line: X; do Y instead`. Each rule is
also tried on a bad snippet, because a rule that never fails would be useless. `RATCHET` lists known
offenders with their size: an entry may shrink or be removed but never grow, and no entry may be
added for a rule without entries.
"""

import ast
import io
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src", "tests", "bench")
MODULE_LINES_MAX = 800
TEST_MODULE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 5

# "path" or "path:function" -> its size when it was listed.
RATCHET: dict[str, int] = {}

IMPURE_MODULES = frozenset(
    {
        "asyncio",
        "concurrent",
        "contextvars",
        "datetime",
        "http",
        "io",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "shutil",
        "signal",
        "socket",
        "sqlite3",
        "ssl",
        "subprocess",
        "sys",
        "tempfile",
        "threading",
        "time",
        "urllib",
        "uuid",
        "warnings",
        "zoneinfo",
    }
)
MAY_IMPORT = {("src/leasehold/core/units.py", "datetime")}
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "hash", "id", "float"})
# float("inf") is only compared, never added.
MAY_CALL = {("src/leasehold/core/objects/template.py", "float")}
BANNED_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})
REMINDERS = ("TO" + "DO", "FIX" + "ME", "X" + "XX")


@dataclass(frozen=True)
class Source:
    path: str
    text: str
    tree: ast.Module

    @property
    def is_pure(self) -> bool:
        return self.path.startswith(("src/leasehold/core/", "src/leasehold/control/"))

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    yield node.lineno, name.name
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.lineno, node.module
                for name in node.names:
                    yield node.lineno, f"{node.module}.{name.name}"


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    said: str
    key: str = ""  # of the ratchet, for rules about size
    size: int = 0

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.said}"


Rule = Callable[[Source], Iterator[Finding]]


def module_ceiling(source: Source) -> Iterator[Finding]:
    ceiling = TEST_MODULE_LINES_MAX if source.is_test else MODULE_LINES_MAX
    lines = source.text.count("\n")
    if lines > ceiling:
        said = f"{lines} lines, over {ceiling}; split it by a noun or a verb instead"
        yield Finding(source.path, 1, said, key=source.path, size=lines)


def function_ceiling(source: Source) -> Iterator[Finding]:
    for function in source.functions():
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if ast.get_docstring(function) is not None:
            lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
        if lines > FUNCTION_LINES_MAX:
            said = (
                f"{function.name} has {lines} lines, over {FUNCTION_LINES_MAX}; "
                "keep the branching and move straight-line work to pure leaves instead"
            )
            key = f"{source.path}:{function.name}"
            yield Finding(source.path, function.lineno, said, key=key, size=lines)


def parameter_ceiling(source: Source) -> Iterator[Finding]:
    if not source.is_pure:
        return
    for function in source.functions():
        named = [*function.args.posonlyargs, *function.args.args]
        names = [each.arg for each in named if each.arg not in ("self", "cls")]
        if len(names) > PARAMETERS_MAX:
            said = f"{function.name} has {len(names)} parameters; make them keyword-only instead"
            key = f"{source.path}:{function.name}()"
            yield Finding(source.path, function.lineno, said, key=key, size=len(names))


def purity(source: Source) -> Iterator[Finding]:
    if not source.is_pure:
        return
    for line, module in source.imports():
        top = module.split(".")[0]
        if top in IMPURE_MODULES and (source.path, top) not in MAY_IMPORT:
            yield Finding(
                source.path, line, f"imports {top}; take the value as an argument instead"
            )
    for node in ast.walk(source.tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            yield Finding(source.path, node.lineno, "is async; return an effect instead")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in IMPURE_CALLS and (source.path, name) not in MAY_CALL:
                said = f"calls {name}(); take or return a plain value instead"
                yield Finding(source.path, node.lineno, said)


def reminders(source: Source) -> Iterator[Finding]:
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for word in REMINDERS:
                if word in token.string:
                    said = f"{word} left behind; do it or open an issue instead"
                    yield Finding(source.path, token.start[0], said)


def module_names(source: Source) -> Iterator[Finding]:
    if Path(source.path).stem in BANNED_NAMES:
        yield Finding(source.path, 1, "a name that says nothing; name what it knows instead")


def module_docstring(source: Source) -> Iterator[Finding]:
    if source.tree.body and ast.get_docstring(source.tree) is None:
        yield Finding(source.path, 1, "no docstring; say what it is for and who calls it instead")


def error_text(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Compare):
            continue
        for side in (node.left, *node.comparators):
            if (
                isinstance(side, ast.Call)
                and isinstance(side.func, ast.Name)
                and side.func.id == "str"
                and any(isinstance(each, ast.Name) and _is_error(each.id) for each in side.args)
            ):
                said = "compares an error's text; compare its type or its fields instead"
                yield Finding(source.path, node.lineno, said)


def _is_error(name: str) -> bool:
    return name in ("e", "err", "error", "exc", "exception") or name.endswith("_error")


def swallowed(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        broad = node.type is None or (
            isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
        )
        if broad and all(isinstance(each, ast.Pass | ast.Continue) for each in node.body):
            said = "swallows every error; catch the ones you can answer instead"
            yield Finding(source.path, node.lineno, said)


def skipped_tests(source: Source) -> Iterator[Finding]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            name = node.attr
            if owner in ("mark", "pytest") and name in (
                "skip", "skipif", "xfail", "importorskip",
            ):  # fmt: skip
                said = f"{owner}.{name}; make the test run or delete it instead"
                yield Finding(source.path, node.lineno, said)


def mocks(source: Source) -> Iterator[Finding]:
    for line, module in source.imports():
        if module.startswith("unittest.mock") or module.split(".")[0] == "mock":
            said = "imports a mock; write a small fake that keeps the promise instead"
            yield Finding(source.path, line, said)
            return


_CHANGES = frozenset(
    {"add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove",
     "setdefault", "update"}
)  # fmt: skip
_WHAT_IFS = frozenset({"accounts", "fleet", "what_if"})  # what-ifs change these and undo it


def world_writes(source: Source) -> Iterator[Finding]:
    """Find changes of the World's facts outside the package that folds them."""
    inside = "src/leasehold/core/world/"
    if not source.path.startswith("src/leasehold/") or source.path.startswith(inside):
        return
    for node in ast.walk(source.tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _CHANGES
        ):
            targets = [] if _WHAT_IFS & _steps(node.func.value) else [node.func.value]
        for target in targets:
            if not isinstance(target, ast.Name) and _is_in_a_world(target):
                said = "changes the World's fields; call its put_ or fold_ instead"
                yield Finding(source.path, target.lineno, said)


def _steps(node: ast.expr) -> set[str]:
    """Return the names of the attributes in an expression."""
    found = set()
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        node = node.value
    return found


def _is_in_a_world(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
        if name in ("world", "_world"):
            return True
    return False


def what_if_blocks(source: Source) -> Iterator[Finding]:
    """Find what-ifs outside a `with` block, in which an error could leave a change behind."""
    if not source.is_pure or source.path == "src/leasehold/core/world/what_if.py":
        return
    blocks = {
        id(item.context_expr)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.With)
        for item in node.items
    }
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        is_what_if = "what_if" in _steps(node.func) or _ends_in(node.func, "what_if")
        if is_what_if and node.func.attr != "note" and id(node) not in blocks:
            said = f"calls what_if.{node.func.attr}(); write `with what_if.opened():` instead"
            yield Finding(source.path, node.lineno, said)


def _ends_in(node: ast.Attribute, name: str) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id.strip("_") == name


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# These classes change facts, and a wrong fact would be committed, so their functions assert.
_RELYING = {
    "src/leasehold/core/world/world.py": ("World", ("put_", "drop_", "fold_")),
    "src/leasehold/control/turn.py": ("Turn", ("start", "open_", "refinance", "mark", "close",
                                               "announce", "publish", "reserve", "tell", "seal")),
    "src/leasehold/shell/ledger/commit.py": (
        "Ledger", ("seal", "commit", "note_", "_swap_for_sure")),
    "src/leasehold/shell/leadership/tenure.py": (
        "StoreTenures", ("acquire", "_take", "_extend", "_stopped", "_granted")),
}  # fmt: skip
_ASSERTIONS_PER_FUNCTION = 2, 1  # on average this many assertions in this many functions


def assertions(source: Source) -> Iterator[Finding]:
    """Find functions that change facts without an assertion, and files with too few assertions."""
    name, prefixes = _RELYING.get(source.path, ("", ()))
    counts = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for each in node.body:
                if isinstance(each, _FUNCTIONS) and each.name.startswith(prefixes):
                    counts[each] = sum(isinstance(part, ast.Assert) for part in ast.walk(each))
    for function, count in counts.items():
        if not count:
            said = f"{function.name} asserts nothing; say what it relies on instead"
            yield Finding(source.path, function.lineno, said)
    many, of = _ASSERTIONS_PER_FUNCTION
    if counts and sum(counts.values()) * of < many * len(counts):
        said = f"{sum(counts.values())} assertions in {len(counts)} functions; add some instead"
        yield Finding(source.path, 1, said)


RULES: tuple[Rule, ...] = (
    module_ceiling,
    function_ceiling,
    parameter_ceiling,
    purity,
    reminders,
    module_names,
    module_docstring,
    error_text,
    swallowed,
    skipped_tests,
    mocks,
    world_writes,
    what_if_blocks,
    assertions,
)


@cache
def sources() -> list[Source]:
    """Return the parsed files; parsing takes longer than all rules together, so it is cached."""
    found = []
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            path = file.relative_to(ROOT).as_posix()
            found.append(Source(path, text, ast.parse(text, path)))
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_source_tree_follows_house_rule(rule: Rule) -> None:
    findings = [finding for source in sources() for finding in rule(source)]
    broken = [
        str(each) for each in findings if each.size > RATCHET.get(each.key, 0) or not each.key
    ]

    assert not broken, "\n" + "\n".join(broken)


def test_listed_exceptions_to_size_limits_are_not_larger_than_needed() -> None:
    sizes = {each.key: each.size for src in sources() for rule in RULES for each in rule(src)}
    loose = [
        f"{key}: listed with {listed}, has {sizes.get(key, 0)}; lower or remove the entry instead"
        for key, listed in sorted(RATCHET.items())
        if sizes.get(key, 0) < listed
    ]

    assert not loose, "\n" + "\n".join(loose)


PURE = "src/leasehold/core/example.py"
SHELL = "src/leasehold/shell/example.py"
TEST = "tests/unit/test_example.py"
TURN = "src/leasehold/control/turn.py"
LONG_BODY = "".join(f"    x = {number}\n" for number in range(FUNCTION_LINES_MAX))

BAD: tuple[tuple[Rule, str, str], ...] = (
    (module_ceiling, SHELL, "x = 1\n" * (MODULE_LINES_MAX + 1)),
    (module_ceiling, TEST, "x = 1\n" * (TEST_MODULE_LINES_MAX + 1)),
    (function_ceiling, SHELL, f"def long() -> None:\n{LONG_BODY}"),
    (parameter_ceiling, PURE, "def wide(a, b, c, d, e, f): ..."),
    (purity, PURE, "import time"),
    (purity, PURE, "from os import environ"),
    (purity, PURE, "def late():\n    import random"),
    (purity, PURE, "async def decide(): ..."),
    (purity, "src/leasehold/control/example.py", "print(1)"),
    (purity, PURE, "x = hash('a')"),
    (reminders, SHELL, f"x = 1  # {REMINDERS[0]} later"),
    (reminders, SHELL, f'"""{REMINDERS[1]}"""'),
    (module_names, "src/leasehold/core/utils.py", ""),
    (module_docstring, SHELL, "x = 1"),
    (error_text, SHELL, "if 'gone' in str(error): ..."),
    (error_text, SHELL, "ok = str(err) == 'gone'"),
    (swallowed, SHELL, "try: x()\nexcept Exception: pass"),
    (swallowed, SHELL, "try: x()\nexcept: pass"),
    (skipped_tests, TEST, "@pytest.mark.skip\ndef test(): ..."),
    (skipped_tests, TEST, "pytest.skip('no')"),
    (mocks, TEST, "from unittest.mock import Mock"),
    (mocks, TEST, "from unittest import mock\nimport unittest.mock"),
    (world_writes, SHELL, "world.runs[uid] = run"),
    (world_writes, SHELL, "self._world.head = head"),
    (world_writes, PURE, "del turn.world.overdrafts[subject]"),
    (world_writes, PURE, "world.work.runs.pop(uid, None)"),
    (what_if_blocks, PURE, "mark = world.what_if.mark()"),
    (what_if_blocks, PURE, "self._world.what_if.undo(mark)"),
    (what_if_blocks, PURE, "opened = world.what_if.opened()"),
    (what_if_blocks, PURE, "what_if.begin()"),
    (assertions, TURN, "class Turn:\n    def mark(self): ..."),
    (assertions, TURN, "class Turn:\n    def mark(self): assert a\n    def close(self): assert b"),
)

GOOD: tuple[tuple[Rule, str, str], ...] = (
    (module_ceiling, TEST, "x = 1\n" * TEST_MODULE_LINES_MAX),
    (function_ceiling, SHELL, f'def long() -> None:\n    """Two\n    lines."""\n{LONG_BODY[10:]}'),
    (parameter_ceiling, PURE, "def wide(self, a, b, c, d, e, *, f, g): ..."),
    (parameter_ceiling, SHELL, "def wide(a, b, c, d, e, f): ..."),
    (purity, SHELL, "import time"),
    (purity, "src/leasehold/core/units.py", "from datetime import UTC"),
    (reminders, SHELL, "x = 1  # done"),
    (module_docstring, SHELL, '"""Says what it is."""\nx = 1'),
    (error_text, SHELL, "if str(number) == '4': ..."),
    (swallowed, SHELL, "try: x()\nexcept KeyError: pass"),
    (skipped_tests, TEST, "@pytest.mark.parametrize('a', [1])\ndef test(a): ..."),
    (mocks, TEST, "from unittest import TestCase"),
    (world_writes, SHELL, "world = World(policy)\nself._world = world\nworld.fold_open(lease)"),
    (world_writes, PURE, "world.accounts.remove(lease, term)"),
    (what_if_blocks, PURE, "with world.what_if.opened() as trial:\n    trial.keep()"),
    (what_if_blocks, PURE, "self._world.what_if.note(inverse)"),
    (what_if_blocks, PURE, "turn.mark(lease, why, deadline=at)"),
    (assertions, TURN, "class Turn:\n    def mark(self):\n        assert a\n        assert b"),
    (assertions, SHELL, "class Turn:\n    def mark(self): ..."),
    (world_writes, "src/leasehold/core/world/example.py", "world.runs[uid] = run"),
)


@pytest.mark.parametrize(("rule", "path", "text"), BAD)
def test_rule_finds_bad_snippet(rule: Rule, path: str, text: str) -> None:
    findings = list(rule(Source(path, text, ast.parse(text))))

    assert findings
    assert all("; " in str(each) and str(each).endswith("instead") for each in findings)


@pytest.mark.parametrize(("rule", "path", "text"), GOOD)
def test_rule_accepts_good_snippet(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text, ast.parse(text)))) == []


def test_every_rule_has_a_bad_snippet() -> None:
    assert {rule for rule, _, _ in BAD} == set(RULES)


def test_requirement_files_have_hashes_and_no_urls_or_paths() -> None:
    found = sorted(ROOT.glob("requirements*.txt"))
    assert len(found) == 7
    for path in found:
        text = path.read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.strip().startswith("#")]

        assert "--hash=sha256:" in text
        assert not [line for line in lines if "://" in line or "--index" in line or " /" in line]
