"""Converts leases between the ledger's record and the API object.

Called by the batch codec, by materialisation, and at start-up for every stored lease; therefore
decoding uses typed structs and shares equal strings. Names and specs follow from the record alone.
"""

import hashlib
from functools import lru_cache

import msgspec

from leasehold.core.facts import (
    Cause,
    Closure,
    ClosureReason,
    Ending,
    Lease,
    Opened,
    Record,
    Relation,
    Role,
    parse_why,
)
from leasehold.core.names import API_VERSION, GROUP, Wire
from leasehold.core.units import Instant, format_instant, parse_instant

ARCHIVED = f"{GROUP}/archived"  # finalizer of ledger objects; removed only by compaction
RUN_LENGTH_MAX = 40  # of a run's name within a longer name
LABEL_LENGTH_MAX = 63
_HASH_LENGTH = 8

_WHYS_MAX = 4096


def cut_run(run: str) -> str:
    """Return a run's name, shortened as it begins the names of its leases, reservations and
    resolutions."""
    return run[:RUN_LENGTH_MAX].rstrip("-.")


def lease_name(run: str, batch: int, index: int) -> str:
    return f"{cut_run(run)}-{batch}-{index}"


def pod_name(run: str, batch: int, group: int, index: int) -> str:
    """Return the pod's name. A long run name is hashed, because two runs may share a prefix and
    start in one batch. (A lease name has its index in the batch instead.)"""
    stem = run if len(run) <= RUN_LENGTH_MAX else _hashed(run, RUN_LENGTH_MAX)
    return f"{stem}-{batch}-g{group}-p{index}"


def label_value(text: str) -> str:
    """Return the text; if it is too long for a label, its beginning and a hash of all of it."""
    return text if len(text) <= LABEL_LENGTH_MAX else _hashed(text, LABEL_LENGTH_MAX)


def lease_to_wire(lease: Lease) -> Wire:
    """Return the whole object; with a status only if the lease is ending or closed."""
    labels: Wire = {
        f"{GROUP}/run": label_value(lease.run),
        f"{GROUP}/group-index": str(lease.group),
        f"{GROUP}/node": label_value(lease.node),
        f"{GROUP}/role": lease.role.value,
    }
    if lease.pod:
        labels[f"{GROUP}/pod"] = label_value(lease.pod)
    metadata: Wire = {"name": lease.name, "labels": labels, "finalizers": [ARCHIVED]}
    wire: Wire = {
        "apiVersion": API_VERSION,
        "kind": "Lease",
        "metadata": metadata,
        "spec": lease_spec(lease),
    }
    status = lease_status(lease)
    if status:
        wire["status"] = status
    return wire


def lease_spec(lease: Lease) -> Wire:
    """Return the immutable part of the object, which is also in the ledger's line."""
    namespace, budget, envelope = lease.payer.split("/", 2)
    return {
        "owner": lease.owner,
        "runRef": {
            "namespace": lease.namespace,
            "name": lease.run,
            "uid": lease.uid,
            "attempt": lease.attempt,
        },
        "compPath": [
            f"SHARD[{lease.group}]",
            f"{'SPARE' if lease.role is Role.SPARE else 'POD'}[{lease.index}]",
        ],
        "slice": {
            "nodes": [lease.node],
            "node": lease.node,
            "slots": list(lease.slots),
            "role": lease.role.value,
        },
        "interval": {"start": _format(lease.start)},
        "paidByEnvelope": envelope,
        "paidBy": {
            "namespace": namespace,
            "budget": budget,
            "envelope": envelope,
            "owner": lease.payer_owner,
            "relation": lease.relation.value,
        },
        "reason": lease.reason.value,
        "batch": lease.batch,
    }


def lease_status(lease: Lease) -> Wire:
    """Return the status; empty while the lease is open and not ending.

    `cause` is set for a closure `Fail`, `began` if starting took time, `saved` if only part of the
    work was lost.
    """
    status: Wire = {}
    if lease.ending is not None:
        status["ending"] = {
            "reason": str(lease.ending.why),
            "deadline": _format(lease.ending.deadline),
            "batch": lease.ending.batch,
            "at": _format(lease.ending.at),
        }
    if lease.closed is not None:
        status["closed"] = True
        status["endTime"] = _format(lease.closed.at)
        status["closureReason"] = str(lease.closed.why)
        status["batch"] = lease.closed.batch
        if lease.closed.cause is not None:
            status["cause"] = lease.closed.cause.value
        if lease.closed.began is not None:
            status["began"] = _format(lease.closed.began)
        if lease.closed.saved is not None:
            status["saved"] = _format(lease.closed.saved)
    return status


class _Ref(Record):
    namespace: str
    name: str
    uid: str
    attempt: int


class _Slice(Record):
    node: str
    slots: tuple[int, ...]
    role: Role


class _Interval(Record):
    start: str


class _PaidBy(Record):
    namespace: str
    budget: str
    envelope: str
    owner: str
    relation: Relation


class LeaseSpecWire(Record, rename="camel"):
    """A lease's spec as decoded; redundant members are not read."""

    owner: str
    run_ref: _Ref
    comp_path: tuple[str, str]
    slice: _Slice
    interval: _Interval
    paid_by: _PaidBy
    reason: Opened
    batch: int


class _EndingWire(Record):
    reason: str
    deadline: str
    batch: int
    at: str


class _Status(Record, rename="camel"):
    ending: _EndingWire | None = None
    end_time: str | None = None
    closure_reason: str = ""
    cause: Cause | None = None
    began: str | None = None
    saved: str | None = None
    batch: int = 0


class _Labels(Record):
    pod: str = msgspec.field(default="", name=f"{GROUP}/pod")


class _Metadata(Record):
    name: str
    labels: _Labels = _Labels()


class _LeaseWire(Record):
    metadata: _Metadata
    spec: LeaseSpecWire
    status: _Status = _Status()


_decode = msgspec.json.Decoder(_LeaseWire).decode


def leases_from_json(encoded: bytes) -> Lease:
    """Decode one lease from the JSON of its object. This is the fast way."""
    return _from_struct(_decode(encoded))


def lease_from_wire(wire: Wire) -> Lease:
    return _from_struct(msgspec.convert(wire, _LeaseWire))


def lease_from_spec(name: str, spec: LeaseSpecWire, *, pod: str | None = None) -> Lease:
    """Return an open lease.

    The pod's name follows from the spec, except after a refinancing: then the pod is that of the
    replaced lease. Only the fold knows that lease, so the name is left empty here.
    """
    ref, place, payer = spec.run_ref, spec.slice, spec.paid_by
    group, index = _ordinal(spec.comp_path[0]), _ordinal(spec.comp_path[1])
    if pod is None:
        pod = ""
        if place.role is not Role.SPARE and spec.reason is not Opened.REFINANCE:
            pod = pod_name(ref.name, spec.batch, group, index)
    return Lease(
        name=name,
        owner=_shared(spec.owner),
        namespace=_shared(ref.namespace),
        run=_shared(ref.name),
        uid=_shared(ref.uid),
        attempt=ref.attempt,
        group=group,
        index=index,
        node=_shared(place.node),
        slots=_shared_slots(place.slots),
        role=place.role,
        start=_parse(spec.interval.start),
        payer=_payer(payer.namespace, payer.budget, payer.envelope),
        payer_owner=_shared(payer.owner),
        relation=payer.relation,
        reason=spec.reason,
        batch=spec.batch,
        pod=pod,
    )


def _from_struct(wire: _LeaseWire) -> Lease:
    status = wire.status
    lease = lease_from_spec(wire.metadata.name, wire.spec, pod=wire.metadata.labels.pod)
    if status.ending is None and status.end_time is None:
        return lease
    ending = status.ending
    return msgspec.structs.replace(
        lease,
        ending=None
        if ending is None
        else Ending(
            why=_why(ending.reason),
            deadline=_parse(ending.deadline),
            batch=ending.batch,
            at=_parse(ending.at),
        ),
        closed=None
        if status.end_time is None
        else Closure(
            at=_parse(status.end_time),
            why=_why(status.closure_reason),
            cause=status.cause,
            began=None if status.began is None else _parse(status.began),
            saved=None if status.saved is None else _parse(status.saved),
            batch=status.batch,
        ),
    )


@lru_cache(maxsize=_WHYS_MAX)
def _why(text: str) -> ClosureReason:
    """Parse a reason; cached, because a million leases share few of them."""
    try:
        return parse_why(text)
    except ValueError:
        raise msgspec.ValidationError(f"{text!r} is not a reason why a lease ends") from None


def _hashed(text: str, length_max: int) -> str:
    tail = hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{text[: length_max - _HASH_LENGTH - 1].rstrip('-.')}-{tail}"


# The leases of a fleet repeat few strings; these caches share them.
@lru_cache(maxsize=1 << 16)
def _shared(text: str) -> str:
    return text


@lru_cache(maxsize=1 << 12)
def _shared_slots(slots: tuple[int, ...]) -> tuple[int, ...]:
    return slots


@lru_cache(maxsize=1 << 12)
def _payer(namespace: str, budget: str, envelope: str) -> str:
    return f"{namespace}/{budget}/{envelope}"


@lru_cache(maxsize=1 << 12)
def _ordinal(part: str) -> int:
    """Return the number in brackets: `POD[3]` is 3."""
    number = part[part.find("[") + 1 : -1]
    if not (part.endswith("]") and number.isascii() and number.isdigit()):
        raise msgspec.ValidationError(f"{part!r} is not SHARD[n], POD[n] or SPARE[n]")
    return int(number)


@lru_cache(maxsize=1 << 12)
def _parse(text: str) -> Instant:
    at = parse_instant(text)
    if at is None:
        raise msgspec.ValidationError(f"{text!r} is not an RFC 3339 time")
    return at


@lru_cache(maxsize=1 << 12)
def _format(at: Instant) -> str:
    return format_instant(at)
