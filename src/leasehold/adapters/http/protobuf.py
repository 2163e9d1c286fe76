"""Decodes the protobuf bodies that kubectl insists on: namespaces, reviews, and drain's deletions.

Called by `bodies`. This module knows the wire format, and the published field numbers of the
messages that it decodes. Answers are JSON, which kubectl accepts. Bodies of other kinds in protobuf
are refused.
"""

from collections.abc import Iterator

from leasehold.core.names import Wire

MAGIC = b"k8s\x00"
_VARINT_BYTES_MAX = 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes


class BadProtobuf(ValueError):  # noqa: N818 - named for the condition
    """The bytes are no protobuf message of Kubernetes, or one of a kind that we do not decode."""


def decode_object(body: bytes) -> Wire:
    """Decode the object in Kubernetes' protobuf envelope; raise `BadProtobuf` if its kind is
    unknown."""
    if not body.startswith(MAGIC):
        raise BadProtobuf("the body does not begin with the envelope of Kubernetes")
    envelope = _fields(body[len(MAGIC) :])
    meta, raw = _fields(_bytes(envelope, 1)), _bytes(envelope, 2)
    api_version, kind = _text(meta, 1), _text(meta, 2)
    inner = _fields(raw)
    obj: Wire = {"apiVersion": api_version, "kind": kind}
    if kind == "Namespace":
        obj["metadata"] = _metadata(_bytes(inner, 1))
    elif kind == "SelfSubjectAccessReview":
        obj["spec"] = _access(_bytes(inner, 2))
    elif kind == "SelfSubjectRulesReview":
        obj["spec"] = {"namespace": _text(_fields(_bytes(inner, 2)), 1)}
    elif kind == "DeleteOptions":
        obj.update(_delete_options(inner))
    elif kind != "SelfSubjectReview":
        raise BadProtobuf(f"a {kind[:80]!r} is accepted as JSON only")
    return obj


def _metadata(raw: bytes) -> Wire:
    """Decode ObjectMeta: name 1, generateName 2, labels 11, annotations 12."""
    fields = _fields(raw)
    found: Wire = {"name": _text(fields, 1)}
    if _text(fields, 2):
        found["generateName"] = _text(fields, 2)
    for number, key in ((11, "labels"), (12, "annotations")):
        entries = [_fields(_as_bytes(entry)) for entry in fields.get(number, [])]
        if entries:
            found[key] = {_text(entry, 1): _text(entry, 2) for entry in entries}
    return found


def _access(raw: bytes) -> Wire:
    fields = _fields(raw)
    spec: Wire = {}
    if 1 in fields:
        asked = _fields(_bytes(fields, 1))
        names = {
            1: "namespace",
            2: "verb",
            3: "group",
            4: "version",
            5: "resource",
            6: "subresource",
            7: "name",
        }
        spec["resourceAttributes"] = {key: _text(asked, number) for number, key in names.items()}
    if 2 in fields:
        asked = _fields(_bytes(fields, 2))
        spec["nonResourceAttributes"] = {"path": _text(asked, 1), "verb": _text(asked, 2)}
    return spec


def _delete_options(fields: dict[int, list[Value]]) -> Wire:
    """Decode DeleteOptions: grace period 1, preconditions 2, propagation policy 4, dry run 5."""
    found: Wire = {}
    if 1 in fields:
        number = fields[1][-1]
        if not isinstance(number, int):
            raise BadProtobuf("gracePeriodSeconds is not a number")
        found["gracePeriodSeconds"] = number if number < 1 << 63 else number - (1 << 64)
    if 2 in fields:
        inner = _fields(_bytes(fields, 2))
        found["preconditions"] = {
            key: _text(inner, number)
            for number, key in ((1, "uid"), (2, "resourceVersion"))
            if number in inner
        }
    if 4 in fields:
        found["propagationPolicy"] = _text(fields, 4)
    if 5 in fields:
        found["dryRun"] = [_as_bytes(each).decode() for each in fields[5]]
    return found


def _fields(raw: bytes) -> dict[int, list[Value]]:
    found: dict[int, list[Value]] = {}
    for number, value in _walk(raw):
        found.setdefault(number, []).append(value)
    return found


def _walk(raw: bytes) -> Iterator[tuple[int, Value]]:
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, form = tag >> 3, tag & 7
        if form == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if form == _BYTES:
            size, at = _varint(raw, at)
        elif form in (_FIXED64, _FIXED32):
            size = 8 if form == _FIXED64 else 4
        else:
            raise BadProtobuf("a field has an unknown form")
        if at + size > len(raw):
            raise BadProtobuf("a field is cut short")
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if at + index >= len(raw):
            break
        byte = raw[at + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & ((1 << 64) - 1), at + index + 1
    raise BadProtobuf("a number is cut short or too long")


def _as_bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise BadProtobuf("a number stands where a message should")
    return value


def _bytes(fields: dict[int, list[Value]], number: int) -> bytes:
    values = fields.get(number)
    return _as_bytes(values[-1]) if values else b""


def _text(fields: dict[int, list[Value]], number: int) -> str:
    try:
        return _bytes(fields, number).decode()
    except UnicodeDecodeError as error:
        raise BadProtobuf("a string is not UTF-8") from error
