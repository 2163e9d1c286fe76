"""LedgerCheckpoint objects: the state of compacted batches, which only the archive still has.

The object `main` names the last compacted batch and the objects that hold the bytes of the state
(its parts), because one object would be too large. Parts are written first, under unique names; the
write of `main` is the commit. Read by `shell.loop.recover` and by commands that work on a data
folder; written by the compactor.
"""

import base64
import hashlib
import zlib
from collections.abc import Awaitable, Callable

import msgspec

from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Record
from leasehold.core.ledger.checkpoint import Carried, carried_from_json, carried_to_json
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.objects.wire import part
from leasehold.ports.runtime import Clock
from leasehold.ports.store import AlreadyExists, Conflict, NotFound, Store

KIND = "LedgerCheckpoint"
MAIN = "main"
PART_CHARACTERS = 400 * 1024


class CheckpointLost(Exception):  # noqa: N818 - named for the condition
    """A part of the checkpoint is missing in the store, or does not match its digest."""


class Stored(Record):
    """The fields of the stored `main` object. Version 0 means that the object does not exist
    yet."""

    seq: int = 0
    sha256: str = ""  # of the joined parts
    parts: tuple[str, ...] = ()
    version: int = 0


async def read_checkpoint(store: Store, clock: Clock) -> tuple[Carried, Stored]:
    """Return the state of compacted batches, and the `main` object. The state is empty if nothing
    was ever compacted. Raise `CheckpointLost` if a part is missing or damaged."""
    try:
        wire = await until_answered(clock, lambda: store.get(KIND, "", MAIN))
    except NotFound:
        return Carried(), Stored()
    stored = _stored(wire)
    texts = {}
    for name in stored.parts:
        try:
            part = await until_answered(clock, _getter(store, name))
        except NotFound:
            raise CheckpointLost(f"LedgerCheckpoint {name} is missing") from None
        texts[name] = _spec(part).get("text")
    return carried_from(wire, texts), stored


def carried_from(main: Wire, texts: dict[str, object]) -> Carried:
    """Decode the state from `main` and the texts of its parts. Raise `CheckpointLost` if they do
    not match."""
    spec = _spec(main)
    joined = "".join(str(texts.get(name, "")) for name in _stored(main).parts)
    try:
        encoded = zlib.decompress(base64.b64decode(joined, validate=True))
        carried = carried_from_json(encoded)
    except (ValueError, zlib.error, msgspec.DecodeError) as error:
        raise CheckpointLost(f"LedgerCheckpoint: cannot be read ({error})") from None
    if hashlib.sha256(encoded).hexdigest() != spec.get("sha256"):
        raise CheckpointLost("LedgerCheckpoint: its parts do not match its digest")
    if (carried.seq, carried.digest) != (spec.get("seq"), spec.get("digest")):
        raise CheckpointLost("LedgerCheckpoint: its parts belong to another batch")
    return carried


async def write_checkpoint(
    store: Store, clock: Clock, carried: Carried, before: Stored, *, archive: Wire
) -> Stored:
    """Write the parts, then `main`. Raise `Conflict` if another process has written a checkpoint
    since `before` was read."""
    encoded = carried_to_json(carried)
    text = base64.b64encode(zlib.compress(encoded, 6)).decode("ascii")
    sha256 = hashlib.sha256(encoded).hexdigest()
    chunks = [text[i : i + PART_CHARACTERS] for i in range(0, len(text), PART_CHARACTERS)]
    names = tuple(f"{carried.seq}-{sha256[:8]}-{number}" for number in range(len(chunks)))
    for name, chunk in zip(names, chunks, strict=True):
        part: Wire = {**_head(name), "spec": {"text": chunk}}
        try:
            await until_answered(clock, _creator(store, part))
        except AlreadyExists:
            continue  # the name contains the digest: this is ours, from an interrupted attempt
    spec: Wire = {
        "seq": carried.seq,
        "digest": carried.digest,
        "instant": carried.instant,
        "sha256": sha256,
        "parts": list(names),
        "archive": archive,
    }
    version = await _write_main(store, clock, spec, before)
    return Stored(seq=carried.seq, sha256=sha256, parts=names, version=version)


async def _write_main(store: Store, clock: Clock, spec: Wire, before: Stored) -> int:
    known = before
    while True:
        try:
            return _version(await until_answered(clock, _writer(store, spec, known.version)))
        except (Conflict, AlreadyExists, NotFound):
            # It may be our own earlier attempt, or another process touched the object: re-read it.
            found = await _found(store, clock)
            if found is not None and _spec(found) == spec:
                return _version(found)
            known = Stored() if found is None else _stored(found)
            if (known.seq, known.sha256) != (before.seq, before.sha256):
                raise Conflict(KIND, "", MAIN) from None


def _writer(store: Store, spec: Wire, version: int) -> Callable[[], Awaitable[Wire]]:
    main: Wire = {**_head(MAIN), "spec": spec}
    if not version:
        return lambda: store.create(main)
    main["metadata"] = {**part(main, "metadata"), "resourceVersion": str(version)}
    return lambda: store.update(main)


async def _found(store: Store, clock: Clock) -> Wire | None:
    try:
        return await until_answered(clock, lambda: store.get(KIND, "", MAIN))
    except NotFound:
        return None


def _getter(store: Store, name: str) -> Callable[[], Awaitable[Wire]]:
    return lambda: store.get(KIND, "", name)


def _creator(store: Store, obj: Wire) -> Callable[[], Awaitable[Wire]]:
    return lambda: store.create(obj)


def _head(name: str) -> Wire:
    metadata: Wire = {"name": name, "finalizers": [ARCHIVED]}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}


def _stored(wire: Wire) -> Stored:
    spec = _spec(wire)
    seq, parts = spec.get("seq"), spec.get("parts")
    if not isinstance(seq, int) or not isinstance(parts, list):
        raise CheckpointLost("LedgerCheckpoint main: is not well-formed")
    return Stored(
        seq=seq,
        sha256=str(spec.get("sha256")),
        parts=tuple(map(str, parts)),
        version=_version(wire),
    )


def _spec(wire: Wire) -> Wire:
    spec = wire.get("spec")
    return spec if isinstance(spec, dict) else {}


def _version(wire: Wire) -> int:
    metadata = wire["metadata"]
    assert isinstance(metadata, dict)
    return int(metadata["resourceVersion"])
