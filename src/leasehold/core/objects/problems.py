"""A mistake in a manifest: its path, the value there, and how to fix it.

Every checker in `core.objects` and the configuration reader return lists of them, all mistakes at
once; the store's `Invalid`, `leasehold lint` and the scenario runner print them. Nothing here
raises, whatever the value.
"""

from leasehold.core.facts import Record

VALUE_CHARS_MAX = 80
MISSING = "(missing)"


class Problem(Record, frozen=True):
    """One mistake: path, value and remedy."""

    path: str
    value: str
    remedy: str


class InvalidManifest(ValueError):  # noqa: N818 - named for what the object is
    """An object that our checks would have refused, with all its problems."""

    def __init__(self, problems: "list[Problem]") -> None:
        super().__init__("; ".join(map(show, problems)))


def show(problem: Problem) -> str:
    """Return `spec.x: 12: use …` on one line, whatever the value is."""
    return f"{problem.path}: {problem.value}: {problem.remedy}"


def no_spec(raw: object) -> Problem:
    """Return the problem of a value that is not an object and so has no field to name."""
    return Problem(path="spec", value=shown(raw), remedy="use an object with a spec")


def shown(value: object) -> str:
    """Return a value as one short line. Structures are only counted, so the cost is constant."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _cut(repr(value[: VALUE_CHARS_MAX + 1]))
    if isinstance(value, int):
        # Python refuses to print integers of thousands of digits.
        return str(value) if value.bit_length() < 200 else f"a number of {value.bit_length()} bits"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return f"a {type(value).__name__}"


def joined(path: str, key: object) -> str:
    """Return the path of a member; a key that is not a plain word is put in brackets, as in
    Kubernetes."""
    if type(key) is str and key.isascii() and key.isidentifier() and len(key) <= VALUE_CHARS_MAX:
        return f"{path}.{key}" if path else key  # the usual case
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{path}[{key}]" if key.bit_length() < 64 else f"{path}[…]"
    if not isinstance(key, str):
        return f"{path}[{shown(key)}]"
    if key.isascii() and key.replace("_", "a").replace("-", "a").isalnum():
        name = key if len(key) <= VALUE_CHARS_MAX else key[:VALUE_CHARS_MAX] + "…"
        return f"{path}.{name}" if path else name
    printable = key if key.isprintable() else repr(key)[1:-1]
    return f"{path}[{_cut(printable)}]"


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"
