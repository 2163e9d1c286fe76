"""Owner paths such as `org:ai:mm` and the globs over them that lending policies use.

Called by the manifest checkers, and by whoever asks whether a glob admits an owner. Owners are
compared as text and never folded: two spellings are two owners, which is why only ASCII is legal.
"""

import re

OWNER_CHARS_MAX = 253
OWNER_REMEDY = (
    "write an owner path of 1 to 253 characters: parts of letters, digits, '.', '_' and '-' "
    "joined by single colons, such as org:ai:mm"
)
GLOB_REMEDY = (
    "no owner path can match this; write parts of letters, digits, '.', '_', '-' and '*' "
    "joined by single colons, such as org:ai:*"
)

_OWNER = re.compile(r"[A-Za-z0-9._-]+(?::[A-Za-z0-9._-]+)*")
_GLOB = re.compile(r"[A-Za-z0-9._*-]+(?::[A-Za-z0-9._*-]+)*")
_LONE_STAR = re.compile(r"(?:^|(?<=:))\*(?=:|$)")


def is_owner(text: str) -> bool:
    return len(text) <= OWNER_CHARS_MAX and _OWNER.fullmatch(text) is not None


def is_owner_glob(text: str) -> bool:
    """Whether at least one legal owner path matches it."""
    if len(text) > 4 * OWNER_CHARS_MAX or _GLOB.fullmatch(text) is None:
        return False
    # A star may stand for nothing, except where an empty part would be left over.
    short = re.sub(r"\*+", "*", text)
    shortest = len(short.replace("*", "")) + len(_LONE_STAR.findall(short))
    return shortest <= OWNER_CHARS_MAX


def glob_admits(glob: str, owner: str) -> bool:
    """Whether the glob matches all of the owner path; `*` stands for any text, colons too."""
    first, *rest = glob.split("*")
    if not rest:
        return glob == owner
    *middle, last = rest
    if not owner.startswith(first) or not owner.endswith(last):
        return False
    # Taking each literal at its first place leaves the most room for those after it, so no
    # back-tracking is needed and no glob can be made expensive.
    at, end = len(first), len(owner) - len(last)
    for literal in middle:
        found = owner.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return at <= end


def default_parents(owner: str) -> tuple[str, ...]:
    """The owner's path less its last part; a single part has no parent."""
    head, colon, _ = owner.rpartition(":")
    return (head,) if colon else ()
