"""Converts resolutions between the record and the API object that proves it.

Used when a resolution is committed (its digest), published, and read by verifiers. The digest
covers the spec, so the spec must be exact: empty parts are left out, and it does not depend on the
writer. The batch that committed it is the number at the end of its name.
"""

import msgspec

from leasehold.core.facts import Record, RunKey
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.lease import cut_run
from leasehold.core.objects.reservation import batch_in_name
from leasehold.core.resolutions import (
    Bundle,
    CutCause,
    Draw,
    Lottery,
    Resolution,
    SweepWidth,
)
from leasehold.core.units import Instant, format_instant, parse_instant

GROUP_DIGITS_MAX = 9


def resolution_name(subject: str, batch: int) -> str:
    """Return the name, from the last part of the subject: a reservation, an envelope or an
    aggregate."""
    return f"{cut_run(subject.rpartition('/')[2])}-{batch}"


def resolution_to_wire(resolution: Resolution) -> Wire:
    return {
        "apiVersion": API_VERSION,
        "kind": "Resolution",
        "metadata": {"name": resolution.name},
        "spec": resolution_spec(resolution),
    }


def resolution_spec(resolution: Resolution) -> Wire:
    spec: Wire = {
        "cause": resolution.cause.value,
        "subject": resolution.subject,
        "scope": (
            {"envelope": resolution.envelope}
            if resolution.envelope
            else {"flavor": resolution.flavor, "domains": list(resolution.domains)}
        ),
        "instant": format_instant(resolution.instant),
        "deficitGPUs": resolution.deficit,
    }
    optional: Wire = {
        "beneficiary": _beneficiary_to_wire(resolution),
        "spares": [{"lease": lease, "gpus": gpus} for lease, gpus in resolution.spares],
        "shrunk": [
            {"run": run, "group": group, "gpus": gpus} for run, group, gpus in resolution.shrunk
        ],
        "lottery": None if resolution.lottery is None else lottery_to_wire(resolution.lottery),
        "returned": [_returned_to_wire(*each) for each in resolution.returned],
        "victims": list(resolution.victims),
        "need": [{"group": group, "gpus": gpus} for group, gpus in resolution.need],
        "free": dict(resolution.free),
        "losses": {
            domain: {"lottery": lottery, "shrink": shrink, "spares": spares}
            for domain, lottery, shrink, spares in resolution.losses
        },
    }
    spec.update({name: value for name, value in optional.items() if value})
    return spec


def lottery_to_wire(lottery: Lottery) -> Wire:
    return {
        "seed": lottery.seed,
        "derivedFrom": {
            "subject": lottery.subject,
            "instant": format_instant(lottery.instant),
            "ledgerDigest": lottery.ledger_digest,
            "nonce": lottery.nonce,
        },
        "commitment": lottery.commitment,
        "announcedIn": lottery.announced_in,
        "conflictSet": {
            owner: [_bundle_to_wire(bundle) for bundle in bundles]
            for owner, bundles in lottery.conflict_set
        },
        "draws": [
            {"owner": draw.owner, "bundle": draw.bundle, "gpus": draw.gpus}
            for draw in lottery.draws
        ],
        **_counting_to_wire(lottery),
    }


def _bundle_to_wire(bundle: Bundle) -> Wire:
    owned = {"owned": True} if bundle.is_owned else {}
    return {"bundle": bundle.name, "gpus": bundle.gpus, **owned}


def _counting_to_wire(lottery: Lottery) -> Wire:
    """Return the members that decide which bundles can be drawn after each draw (R4, Q10)."""
    found: Wire = {}
    if lottery.sweeps:
        found["sweeps"] = {
            each.run: {"width": each.width, "minimum": each.minimum, "group": each.group}
            for each in lottery.sweeps
        }
    if lottery.owned_last:
        found["ownedLast"] = True
    return found


def _beneficiary_to_wire(resolution: Resolution) -> Wire:
    if not resolution.beneficiary:
        return {}
    namespace, _, name = resolution.beneficiary.partition("/")
    return {"namespace": namespace, "name": name, "uid": resolution.beneficiary_uid}


def _returned_to_wire(kind: str, name: str, gpus: int) -> Wire:
    """Return an entry of `returned`: a `bundle`, a `lease`, or a `group` named
    `namespace/run#index`."""
    if kind != "group":
        return {kind: name, "gpus": gpus}
    run, group = _split_bundle(name)
    assert group is not None, name
    return {"run": run, "group": group, "gpus": gpus}


class _Beneficiary(Record):
    namespace: str
    name: str
    uid: str = ""


class _Scope(Record):
    flavor: str = ""
    domains: tuple[str, ...] = ()
    envelope: str = ""


class _Cut(Record):
    """One entry of `spares`, `shrunk`, `returned` or `need`; the members that are set tell
    which."""

    gpus: int
    lease: str = ""
    bundle: str = ""
    run: str = ""
    group: int = 0
    owned: bool = False


class _Loss(Record):
    lottery: int
    shrink: int
    spares: int


class _DerivedFrom(Record, rename="camel"):
    subject: str
    instant: str
    ledger_digest: str
    nonce: str


class _Draw(Record):
    owner: str
    bundle: str
    gpus: int


class _Sweep(Record):
    width: int
    minimum: int
    group: int


class _Lottery(Record, rename="camel"):
    seed: str
    derived_from: _DerivedFrom
    commitment: str
    announced_in: int
    conflict_set: dict[str, tuple[_Cut, ...]]
    draws: tuple[_Draw, ...]
    sweeps: dict[str, _Sweep] = msgspec.field(default_factory=dict)
    owned_last: bool = False


class _Spec(Record, rename="camel"):
    cause: CutCause
    subject: str
    scope: _Scope
    instant: str
    deficit: int = msgspec.field(name="deficitGPUs")
    beneficiary: _Beneficiary | None = None
    spares: tuple[_Cut, ...] = ()
    shrunk: tuple[_Cut, ...] = ()
    lottery: _Lottery | None = None
    returned: tuple[_Cut, ...] = ()
    victims: tuple[str, ...] = ()
    need: tuple[_Cut, ...] = ()
    free: dict[str, int] = msgspec.field(default_factory=dict)
    losses: dict[str, _Loss] = msgspec.field(default_factory=dict)


class _Metadata(Record):
    name: str


class _ResolutionWire(Record):
    metadata: _Metadata
    spec: _Spec


def resolution_from_wire(wire: Wire) -> Resolution:
    """Decode; the bundles lack the uids of their runs, which the wire form does not contain."""
    found = msgspec.convert(wire, _ResolutionWire)
    name, spec = found.metadata.name, found.spec
    whom = spec.beneficiary
    return Resolution(
        name=name,
        batch=batch_in_name(name),
        cause=spec.cause,
        subject=spec.subject,
        beneficiary="" if whom is None else f"{whom.namespace}/{whom.name}",
        beneficiary_uid="" if whom is None else whom.uid,
        flavor=spec.scope.flavor,
        domains=spec.scope.domains,
        envelope=spec.scope.envelope,
        instant=_instant(spec.instant),
        deficit=spec.deficit,
        spares=tuple((each.lease, each.gpus) for each in spec.spares),
        shrunk=tuple((each.run, each.group, each.gpus) for each in spec.shrunk),
        lottery=None if spec.lottery is None else _lottery_from_struct(spec.lottery),
        returned=tuple(_returned_from_struct(each) for each in spec.returned),
        victims=spec.victims,
        need=tuple((each.group, each.gpus) for each in spec.need),
        free=tuple(spec.free.items()),
        losses=tuple(
            (domain, loss.lottery, loss.shrink, loss.spares) for domain, loss in spec.losses.items()
        ),
    )


def _lottery_from_struct(found: _Lottery) -> Lottery:
    return Lottery(
        seed=found.seed,
        subject=found.derived_from.subject,
        instant=_instant(found.derived_from.instant),
        ledger_digest=found.derived_from.ledger_digest,
        nonce=found.derived_from.nonce,
        commitment=found.commitment,
        announced_in=found.announced_in,
        conflict_set=tuple(
            (owner, tuple(_bundle_from_struct(each) for each in bundles))
            for owner, bundles in found.conflict_set.items()
        ),
        draws=tuple(
            Draw(owner=draw.owner, bundle=draw.bundle, gpus=draw.gpus) for draw in found.draws
        ),
        sweeps=tuple(
            SweepWidth(run=run, width=each.width, minimum=each.minimum, group=each.group)
            for run, each in found.sweeps.items()
        ),
        owned_last=found.owned_last,
    )


def _bundle_from_struct(found: _Cut) -> Bundle:
    run_key, group = _split_bundle(found.bundle)
    namespace, _, run = run_key.partition("/")
    return Bundle(
        namespace=namespace, run=run, uid="", group=group, gpus=found.gpus, is_owned=found.owned
    )


def _returned_from_struct(found: _Cut) -> tuple[str, str, int]:
    if found.lease:
        return ("lease", found.lease, found.gpus)
    if found.bundle:
        return ("bundle", found.bundle, found.gpus)
    return ("group", f"{found.run}#{found.group}", found.gpus)


def _split_bundle(name: str) -> tuple[RunKey, int | None]:
    run, mark, group = name.partition("#")
    if not mark:
        return run, None
    # An external record may contain anything; int() would also accept signs, blanks and other
    # digits.
    if not (group.isascii() and group.isdigit() and len(group) <= GROUP_DIGITS_MAX):
        raise msgspec.ValidationError(f"{name!r} is not namespace/run#group")
    return run, int(group)


def _instant(text: str) -> Instant:
    at = parse_instant(text)
    if at is None:
        raise msgspec.ValidationError(f"{text!r} is not an RFC 3339 time")
    return at
