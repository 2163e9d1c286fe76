"""Label and field selectors with Kubernetes' full grammar, as predicates on objects.

Called by lists, watches and collection deletes. A malformed selector, or one with an unsupported
field, is refused with 400 and a list of what is legal. Nothing here reads a store.
"""

import re
from collections.abc import Callable, Mapping

from leasehold.adapters.api.resources import Resource
from leasehold.adapters.http.messages import bad_request
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.core.names import Wire
from leasehold.core.objects.readers import is_label_key
from leasehold.core.objects.wire import part

SELECTOR_CHARS_MAX = 16 * 1024

Matches = Callable[[Wire], bool]
Labels = Mapping[str, object]

_TOKEN = re.compile(r"\s*(==|!=|=|>|<|!|\(|\)|,|[^\s=!<>(),]+)")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_SIGNS = frozenset({"==", "!=", "=", ">", "<", "!", "(", ")", ","})
_ALWAYS = ("metadata.name", "metadata.namespace")


def parse_selectors(resource: Resource, labels: str, fields: str) -> Matches | None:
    """Return one predicate that is true if both selectors match; None if both are empty."""
    tests = [*_label_tests(labels), *_field_tests(resource, fields)]
    if not tests:
        return None
    return lambda obj: all(test(obj) for test in tests)


def selected_name(fields: str) -> str | None:
    """Return the name if the selector is exactly `metadata.name=NAME`."""
    key, sign, value = fields.partition("=")
    if key != "metadata.name" or not sign or value.startswith("=") or set(value) & set(",\\=!"):
        return None
    return value


def _label_tests(text: str) -> list[Matches]:
    if not text.strip():
        return []
    if len(text) > SELECTOR_CHARS_MAX:
        raise _bad("labelSelector", text, "it is too long")
    parser = _Parser(text)
    tests = [parser.requirement()]
    while parser.take(","):
        tests.append(parser.requirement())
    if parser.left():
        raise _bad("labelSelector", text, f"{parser.left()!r} is not expected there")
    return tests


class _Parser:
    """Parses a label selector into its requirements."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise _bad("labelSelector", text, f"{text[at : at + 20]!r} is not expected there")
            self._tokens.append(match.group(1))
            at = match.end()
        self._tokens.reverse()

    def left(self) -> str:
        return self._tokens[-1] if self._tokens else ""

    def take(self, sign: str) -> bool:
        if self.left() != sign:
            return False
        self._tokens.pop()
        return True

    def requirement(self) -> Matches:
        if self.take("!"):
            key = self._key()
            return lambda obj: key not in _labels(obj)
        key = self._key()
        sign = self.left()
        if sign in ("", ","):
            return lambda obj: key in _labels(obj)
        self._tokens.pop()
        if sign in ("=", "=="):
            value = self._value()
            return lambda obj: _labels(obj).get(key) == value
        if sign == "!=":
            value = self._value()
            return lambda obj: _labels(obj).get(key) != value
        if sign in ("in", "notin"):
            return self._membership(key, wanted=sign == "in")
        if sign in (">", "<"):
            return self._comparison(key, sign)
        raise _bad("labelSelector", self._text, f"{sign!r} is not an operator")

    def _membership(self, key: str, *, wanted: bool) -> Matches:
        if not self.take("("):
            raise _bad("labelSelector", self._text, "in and notin need a list in parentheses")
        values = {self._value()}
        while self.take(","):
            values.add(self._value())
        if not self.take(")"):
            raise _bad("labelSelector", self._text, "a list of values is not closed")
        if wanted:
            return lambda obj: _labels(obj).get(key) in values
        return lambda obj: _labels(obj).get(key) not in values

    def _comparison(self, key: str, sign: str) -> Matches:
        text = self._value()
        if not _NUMBER.fullmatch(text):
            raise _bad("labelSelector", self._text, f"{text!r} is not an integer")
        bound = int(text)

        def compare(obj: Wire) -> bool:
            value = _labels(obj).get(key)
            if not isinstance(value, str) or not _NUMBER.fullmatch(value):
                return False
            return int(value) > bound if sign == ">" else int(value) < bound

        return compare

    def _key(self) -> str:
        key = self.left()
        if key in _SIGNS or not is_label_key(key):
            raise _bad("labelSelector", self._text, f"{key!r} is not a label key")
        self._tokens.pop()
        return key

    def _value(self) -> str:
        """Parse a label value, which may be empty: `a=` selects the label `a` with an empty
        value."""
        value = self.left()
        if value in ("", ",", ")"):
            return ""
        if value in _SIGNS or not _VALUE.fullmatch(value):
            raise _bad("labelSelector", self._text, f"{value!r} is not a label value")
        return self._tokens.pop()


def _labels(obj: Wire) -> Labels:
    return part(part(obj, "metadata"), "labels")


def _field_tests(resource: Resource, text: str) -> list[Matches]:
    if len(text) > SELECTOR_CHARS_MAX:
        raise _bad("fieldSelector", text, "it is too long")
    return [_field_test(term, text, resource) for term in _split(text, ",") if term]


def _field_test(term: str, text: str, resource: Resource) -> Matches:
    legal = (*_ALWAYS, *resource.selectable, *resource.selectable_lists)
    key, sign, value = _split_term(term)
    if not sign:
        raise _bad("fieldSelector", text, f"{term[:80]!r} has no =, == or !=")
    if key not in legal:
        raise _bad(
            "fieldSelector",
            text,
            f"field {key[:80]!r} cannot be selected; legal: {', '.join(legal)}",
        )
    keys = key.split(".")
    wanted = _unescape(value, text)
    if key in resource.selectable_lists:
        return lambda obj: (wanted in _members(obj, keys)) == (sign == "=")
    unset = resource.unset.get(key, "")
    if sign == "!=":
        return lambda obj: _field(obj, keys, unset) != wanted
    return lambda obj: _field(obj, keys, unset) == wanted


def _members(obj: Wire, keys: list[str]) -> list[object]:
    found = _at(obj, keys)
    return found if isinstance(found, list) else []


def _at(obj: Wire, keys: list[str]) -> object:
    found: object = obj
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _field(obj: Wire, keys: list[str], unset: str) -> str:
    found = _at(obj, keys)
    if found is None:
        return unset
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, dict):  # an event's source is selected by its component
        found = found.get("component")
    return str(found) if isinstance(found, str | int) else ""


def _split(text: str, sign: str) -> list[str]:
    """Split the text at each `sign` that has no backslash before it."""
    terms, start, at = [], 0, 0
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == sign:
            terms.append(text[start:at])
            start = at + 1
        at += 1
    return [*terms, text[start:]]


def _split_term(term: str) -> tuple[str, str, str]:
    for at, each in enumerate(term):
        if each == "!" and term[at : at + 2] == "!=":
            return term[:at].strip(), "!=", term[at + 2 :]
        if each == "=":
            width = 2 if term[at : at + 2] == "==" else 1
            return term[:at].strip(), "=", term[at + width :]
    return term, "", ""


def _unescape(value: str, text: str) -> str:
    found, escaped = [], False
    for each in value:
        if escaped:
            if each not in "\\,=":
                raise _bad("fieldSelector", text, f"\\{each} is not an escape sequence")
            found.append(each)
            escaped = False
        elif each == "\\":
            escaped = True
        else:
            found.append(each)
    if escaped:
        raise _bad("fieldSelector", text, "the selector ends in a backslash")
    return "".join(found)


def _bad(parameter: str, text: str, why: str) -> RequestRefused:
    return bad_request(f"unable to parse {parameter} {text[:200]!r}: {why}")
