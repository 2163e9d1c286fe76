"""Lenient readers of objects that the API server has accepted, and their canonical bytes.

Used by the decoders. Fields that a server sets (uid, version, instants) have defaults, because an
object that is not stored yet lacks them; fields written by users are checked instead. `canonical`
is the only way to turn a spec into bytes, so that equal specs give equal bytes.
"""

import msgspec

from leasehold.core.facts import Record
from leasehold.core.names import Wire
from leasehold.core.units import Instant, parse_instant


class Stamps(Record, frozen=True):
    """Identity of an object, and what the server wrote on it."""

    namespace: str
    name: str
    uid: str
    version: int
    created: Instant
    is_deleting: bool
    finalizers: tuple[str, ...]


def stamps(raw: object) -> Stamps:
    metadata = part(raw, "metadata")
    return Stamps(
        namespace=text_at(metadata, "namespace"),
        name=text_at(metadata, "name"),
        uid=text_at(metadata, "uid"),
        version=version_at(metadata),
        created=instant_at(metadata, "creationTimestamp") or 0,
        is_deleting=metadata.get("deletionTimestamp") is not None,
        finalizers=tuple(each for each in list_at(metadata, "finalizers") if isinstance(each, str)),
    )


def part(raw: object, key: str) -> Wire:
    """Return the mapping under a key, or an empty one."""
    found = raw.get(key) if isinstance(raw, dict) else None
    return found if isinstance(found, dict) else {}


def list_at(raw: Wire, key: str) -> list[object]:
    found = raw.get(key)
    return found if isinstance(found, list) else []


def text_at(raw: Wire, key: str) -> str:
    found = raw.get(key)
    return found if isinstance(found, str) else ""


def version_at(metadata: Wire) -> int:
    """Return the object's version; 0 if it was not stored yet or is no number."""
    version = text_at(metadata, "resourceVersion")
    return int(version) if version.isascii() and version.isdigit() and len(version) < 20 else 0


def whole_at(raw: Wire, key: str) -> int | None:
    found = raw.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def instant_at(raw: Wire, key: str) -> Instant | None:
    return parse_instant(text_at(raw, key)[:64])


def canonical(value: object) -> bytes:
    """Encode as JSON with sorted keys and no spaces."""
    return msgspec.json.encode(value, order="sorted")


def exact(value: object) -> object:
    """Return the value with fractions as texts (`0.5` becomes "0.5"), because the ledger has no
    floats."""
    if isinstance(value, dict):
        return {key: exact(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [exact(each) for each in value]
    return str(value) if isinstance(value, float) else value


def decoded(raw: bytes) -> Wire:
    """Decode what `canonical` wrote into a new mapping that the caller may change."""
    found = msgspec.json.decode(raw)
    assert isinstance(found, dict), "only mappings are kept as bytes"
    return found
