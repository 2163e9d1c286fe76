"""Owner paths such as `org:ai:mm`, and the globs over them in lending policies.

Used by the manifest checks and wherever a glob is matched with an owner. Owners are compared as
plain text without case folding: different spellings are different owners, so only ASCII is legal.
"""

import re

OWNER_CHARS_MAX = 253
OWNER_REMEDY = (
    "use an owner path of 1 to 253 characters, made of parts of letters, digits, '.', '_' and "
    "'-', separated by single colons, such as org:ai:mm"
)
GLOB_REMEDY = (
    "no owner path can match this; use parts of letters, digits, '.', '_', '-' and '*', "
    "separated by single colons, such as org:ai:*"
)

_OWNER = re.compile(r"[A-Za-z0-9._-]+(?::[A-Za-z0-9._-]+)*")
_GLOB = re.compile(r"[A-Za-z0-9._*-]+(?::[A-Za-z0-9._*-]+)*")
_LONE_STAR = re.compile(r"(?:^|(?<=:))\*(?=:|$)")


def is_owner(text: str) -> bool:
    return len(text) <= OWNER_CHARS_MAX and _OWNER.fullmatch(text) is not None


def is_owner_glob(text: str) -> bool:
    """Return whether at least one legal owner path matches the glob."""
    if len(text) > 4 * OWNER_CHARS_MAX or _GLOB.fullmatch(text) is None:
        return False
    # A star may match nothing, unless that would leave an empty part.
    short = re.sub(r"\*+", "*", text)
    shortest = len(short.replace("*", "")) + len(_LONE_STAR.findall(short))
    return shortest <= OWNER_CHARS_MAX


def glob_admits(glob: str, owner: str) -> bool:
    """Return whether the glob matches the whole owner path; `*` matches any text, including
    colons."""
    first, *rest = glob.split("*")
    if not rest:
        return glob == owner
    *middle, last = rest
    if not owner.startswith(first) or not owner.endswith(last):
        return False
    # Matching each literal at its first position leaves the most room for the next ones. So no
    # backtracking is needed, and no glob is expensive.
    at, end = len(first), len(owner) - len(last)
    for literal in middle:
        found = owner.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return at <= end


def default_parents(owner: str) -> tuple[str, ...]:
    """Return the owner's path without its last part; a single part has no parent."""
    head, colon, _ = owner.rpartition(":")
    return (head,) if colon else ()
