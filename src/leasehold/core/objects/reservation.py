"""Converts reservations between the record and the API object.

Called by the shell when it publishes a plan, and when it reads plans back after a restart. The spec
holds only the run; the plan changes and is therefore status.
"""

import msgspec

from leasehold.core.facts import Record, Relation
from leasehold.core.names import API_VERSION, GROUP, Wire
from leasehold.core.objects.lease import cut_run, label_value
from leasehold.core.reservations import Confidence, HeldMoney, Reservation, State
from leasehold.core.units import Instant, format_instant, parse_instant


def reservation_name(run: str, batch: int) -> str:
    return f"{cut_run(run)}-{batch}"


def reservation_to_wire(reservation: Reservation) -> Wire:
    ref: Wire = {
        "namespace": reservation.namespace,
        "name": reservation.run,
        "uid": reservation.uid,
    }
    metadata: Wire = {
        "name": reservation.name,
        "namespace": reservation.namespace,
        "labels": {f"{GROUP}/run": label_value(reservation.run)},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "Reservation",
        "metadata": metadata,
        "spec": {"runRef": ref},
        "status": reservation_status(reservation),
    }


def reservation_status(reservation: Reservation) -> Wire:
    """Return the plan as a status; empty parts are left out."""
    status: Wire = {
        "state": reservation.state.value,
        "since": format_instant(reservation.since),
        "announced": format_instant(reservation.announced),
        "confidence": reservation.confidence.value,
        "deficitGPUs": reservation.deficit,
        "commitment": reservation.commitment,
    }
    if reservation.starts:
        status["earliestStart"] = format_instant(reservation.starts)
    if reservation.by_cuts:
        status["startByCuts"] = format_instant(reservation.by_cuts)
    if reservation.by_family:
        status["startByFamilyRule"] = format_instant(reservation.by_family)
    intended = {"domains": list(reservation.domains), "nodes": list(reservation.nodes)}
    optional: Wire = {
        "reason": reservation.reason,
        "message": reservation.message,
        "intendedSlice": {name: listed for name, listed in intended.items() if listed},
        "scope": {"domains": list(reservation.domains)} if reservation.domains else {},
        "payingEnvelopes": list(reservation.payers),
        "releases": [
            {"lease": lease, "at": format_instant(at)} for lease, at in reservation.releases
        ],
        "remedies": list(reservation.remedies),
        "held": _held(reservation),
        "odds": [{"run": run, "percent": percent} for run, percent in reservation.odds],
    }
    status.update({name: value for name, value in optional.items() if value})
    return status


def _held(reservation: Reservation) -> Wire:
    held: Wire = {
        "nodes": [{"node": node, "gpus": gpus} for node, gpus in reservation.held_places],
        "payers": [
            {
                "envelope": each.payer,
                "gpus": each.gpus,
                "relation": each.relation.value,
                "location": "/".join(each.location),
            }
            for each in reservation.held_money
        ],
    }
    if reservation.held_from:
        held["from"] = format_instant(reservation.held_from)
    if reservation.is_site:
        held["site"] = True
    return {name: listed for name, listed in held.items() if listed}


class _Ref(Record):
    name: str
    uid: str


class _Spec(Record, rename="camel"):
    run_ref: _Ref


class _Metadata(Record):
    name: str
    namespace: str


class _Slice(Record):
    domains: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class _Release(Record):
    lease: str
    at: str


class _Odds(Record):
    run: str
    percent: int


class _HeldNode(Record):
    node: str
    gpus: int


class _HeldMoney(Record):
    envelope: str
    gpus: int
    relation: Relation | None = None
    location: str = "/"
    borrowed: bool = False  # written by versions without `relation`


class _Held(Record):
    nodes: tuple[_HeldNode, ...] = ()
    payers: tuple[_HeldMoney, ...] = ()
    begins: str = msgspec.field(default="", name="from")
    site: bool = False


class _Status(Record, rename="camel"):
    """The status as decoded.

    Every member has a default, because a crash may leave the object without a status.
    """

    state: State = State.PENDING
    since: str = ""
    announced: str = ""
    confidence: Confidence = Confidence.EXACT
    deficit: int = msgspec.field(default=0, name="deficitGPUs")
    commitment: str = ""
    earliest_start: str = ""
    reason: str = ""
    message: str = ""
    intended_slice: _Slice = _Slice()
    paying_envelopes: tuple[str, ...] = ()
    releases: tuple[_Release, ...] = ()
    remedies: tuple[str, ...] = ()
    odds: tuple[_Odds, ...] = ()
    held: _Held = _Held()
    start_by_cuts: str = ""
    start_by_family_rule: str = ""


class _ReservationWire(Record):
    metadata: _Metadata
    spec: _Spec
    status: _Status = _Status()


def reservation_from_wire(wire: Wire) -> Reservation:
    found = msgspec.convert(wire, _ReservationWire)
    status = found.status
    return Reservation(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        run=found.spec.run_ref.name,
        uid=found.spec.run_ref.uid,
        batch=batch_in_name(found.metadata.name),
        announced=_instant(status.announced),
        state=status.state,
        commitment=status.commitment,
        reason=status.reason,
        message=status.message,
        starts=_instant(status.earliest_start),
        confidence=status.confidence,
        deficit=status.deficit,
        domains=status.intended_slice.domains,
        nodes=status.intended_slice.nodes,
        payers=status.paying_envelopes,
        releases=tuple((each.lease, _instant(each.at)) for each in status.releases),
        remedies=status.remedies,
        odds=tuple((each.run, each.percent) for each in status.odds),
        since=_instant(status.since),
        by_cuts=_instant(status.start_by_cuts),
        by_family=_instant(status.start_by_family_rule),
        held_from=_instant(status.held.begins),
        is_site=status.held.site,
        held_places=tuple((each.node, each.gpus) for each in status.held.nodes),
        held_money=tuple(_held_money(each) for each in status.held.payers),
    )


def _held_money(found: _HeldMoney) -> HeldMoney:
    before = Relation.BORROWED if found.borrowed else Relation.OWNED
    region, _, cluster = found.location.partition("/")
    return HeldMoney(
        payer=found.envelope,
        gpus=found.gpus,
        relation=found.relation or before,
        location=(region, cluster),
    )


def batch_in_name(name: str) -> int:
    """Return the batch in a name: `train-16-4702` was announced in batch 4702."""
    _, _, tail = name.rpartition("-")
    if not (tail.isascii() and tail.isdigit()):
        raise msgspec.ValidationError(f"{name!r} does not end in the number of its batch")
    return int(tail)


def _instant(text: str) -> Instant:
    at = parse_instant(text) if text else 0
    if at is None:
        raise msgspec.ValidationError(f"{text!r} is not an RFC 3339 time")
    return at
