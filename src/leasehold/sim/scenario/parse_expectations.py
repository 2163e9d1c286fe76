"""Reads the `expect:` of a step; one table defines what can be claimed about each subject.

Called by `parse` for every expectation. Mistakes are noted in the given fields; nothing is
evaluated.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from leasehold.core.facts import Closed, Opened, Phase, Role
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import Problem, shown
from leasehold.core.objects.readers import WrongValue
from leasehold.core.reservations import Confidence, State
from leasehold.sim.scenario import values
from leasehold.sim.scenario.story import (
    AuditIsOk,
    CoverIs,
    EnvelopeIs,
    Expectation,
    ExpectedField,
    LeaseFilter,
    LeasesAre,
    LedgerIsOk,
    NodeShows,
    ReservationIs,
    ResolutionIs,
    RunIs,
    RunsAre,
    Want,
)

Reader = Callable[[object], Want]

_PHASE = values.one_of(Phase)

CLAIMS: dict[str, dict[str, Reader]] = {
    "run": {
        "phase": _PHASE,
        "because": values.word,
        "gpus": values.count,
        "spares": values.count,
        "pending": values.count,
        "owned": values.count,
        "shared": values.count,
        "borrowed": values.count,
        "gpuHours": values.hours,
        "attempt": values.count,
        "started": values.span,
        "ended": values.span,
        "says": values.words,
    },
    "runs": {"phase": _PHASE, "because": values.word, "count": values.count},
    "leases": {
        "count": values.count,
        "gpus": values.count,
        "gpuHours": values.hours,
        "nodes": values.names,
        "groups": values.groups,
    },
    "envelope": {
        "used": values.count,
        "lent": values.count,
        "free": values.count,
        "gpuHours": values.hours,
        "committed": values.hours,
        "left": values.hours,
        "overdrawn": values.count,
    },
    "reservation": {
        "none": values.only_true,
        "state": values.one_of(State),
        "because": values.word,
        "starts": values.span,
        "confidence": values.one_of(Confidence),
        "deficit": values.count,
        "odds": values.odds,
    },
    "resolution": {
        "none": values.only_true,
        "spares": values.count,
        "shrunk": values.count,
        "drawn": values.count,
        "returned": values.count,
        "shrunkFrom": values.shrunk_from,
        "verifies": values.only_true,
    },
    "node": {"free": values.count, "state": values.word},
    "cover": {"walk": values.walk},
    "ledger": {},
    "audit": {},
}


@dataclass(frozen=True)
class Named:
    """The names that the scenario file defines; references to runs, nodes and envelopes are checked
    against them."""

    runs: Collection[str]
    nodes: (
        Mapping[str, int] | None
    )  # name -> GPUs; None: the fleet is invalid, so names cannot be checked
    envelopes: Collection[str]
    line_of: Callable[[str], int]

    def run(self, value: object) -> str:
        return values.known(values.run_key, self.runs, "run")(value)

    def node(self, value: object) -> str:
        if self.nodes is None:
            return readers.text(value)
        return values.known(readers.text, self.nodes, "node")(value)

    def envelope(self, value: object) -> str:
        return values.known(values.envelope_key, self.envelopes, "envelope")(value)

    def run_or_envelope(self, value: object) -> str:
        """Read the subject of a Resolution: a run or an envelope. Only a run is checked, because a
        name of three parts may also be an aggregate."""
        name = values.run_or_envelope(value)
        return self.run(value) if name.count("/") == 1 else name


def read_expectation(fields: Fields, named: Named) -> Expectation | None:
    """Read one item of an `expect` list. Return None if it has not exactly one subject, or an
    invalid one."""
    subjects = [name for name in CLAIMS if name in fields.members]
    if len(subjects) != 1:
        remedy = "name exactly one of " + ", ".join(CLAIMS)
        if not fields.is_void:
            found = ", ".join(subjects) or "no subject"
            fields.problems.append(Problem(path=fields.path, value=found, remedy=remedy))
        return None
    (subject,) = subjects
    expectation = _read_subject(fields, subject, named)
    claims = _read_claims(fields, subject, named)
    fields.finish()
    if expectation is None:
        return None
    return expectation(named.line_of(fields.path), claims)


def _read_claims(fields: Fields, subject: str, named: Named) -> tuple[ExpectedField, ...]:
    readers = CLAIMS[subject]
    claims = []
    for name, reader in readers.items():
        want = fields.take(name, reader, None)
        if want is not None:
            claims.append(ExpectedField(name=name, want=want, line=named.line_of(fields.at(name))))
    said = {name for name in readers if fields.has(name)}
    if readers and len(fields.members) == 1:
        _note(fields, "the expectation has no claim", "add one of " + ", ".join(readers))
    if "none" in said and len(said) > 1:
        fields.note("none", "with none, no other claim is possible; keep one of them")
    if subject == "runs" and said and ("count" not in said or len(said) == 1):
        _note(fields, ", ".join(sorted(said)), "add count, and phase or because or both")
    return tuple(claims)


def _note(fields: Fields, value: str, remedy: str) -> None:
    fields.problems.append(Problem(path=fields.path, value=value, remedy=remedy))


Made = Callable[[int, tuple[ExpectedField, ...]], Expectation]


def _read_subject(fields: Fields, subject: str, named: Named) -> Made | None:
    """Return a function that makes the expectation's record from its line and its claims; None if
    the subject is invalid."""
    match subject:
        case "runs":
            runs = fields.set_of(subject, named.run)
            return lambda line, claims: RunsAre(line=line, claims=claims, runs=runs)
        case "leases":
            which = _read_filter(fields.inside(subject, required=True), named)
            return lambda line, claims: LeasesAre(line=line, claims=claims, which=which)
        case "ledger":
            fields.need(subject, _ok)
            return lambda line, _: LedgerIsOk(line=line)
        case "audit":
            fields.need(subject, _ok)
            return lambda line, _: AuditIsOk(line=line)
        case _:
            return _read_name(fields, subject, named)


def _read_name(fields: Fields, subject: str, named: Named) -> Made | None:
    reader = {
        "envelope": named.envelope,
        "resolution": named.run_or_envelope,
        "node": named.node,
    }.get(subject, named.run)
    name = fields.need(subject, reader)
    if name is None:
        return None
    match subject:
        case "run":
            return lambda line, claims: RunIs(line=line, claims=claims, run=name)
        case "envelope":
            return lambda line, claims: EnvelopeIs(line=line, claims=claims, envelope=name)
        case "reservation":
            return lambda line, claims: ReservationIs(line=line, claims=claims, run=name)
        case "resolution":
            return lambda line, claims: ResolutionIs(line=line, claims=claims, made_for=name)
        case "node":
            return lambda line, claims: NodeShows(line=line, claims=claims, node=name)
        case _:
            assert subject == "cover", subject
            return lambda line, claims: CoverIs(line=line, claims=claims, run=name)


def _read_filter(fields: Fields, named: Named) -> LeaseFilter:
    which = LeaseFilter(
        run=fields.take("run", named.run, None),
        group=fields.take("group", values.index, None),
        pod=fields.take("pod", values.index, None),
        node=fields.take("node", named.node, None),
        owner=fields.take("owner", readers.owner, None),
        payer=fields.take("payer", values.envelope_key, None),
        role=fields.take("role", readers.one_of(Role), None),
        attempt=fields.take("attempt", values.index, None),
        open=fields.take("open", readers.flag, None),
        opened=fields.take("opened", readers.one_of(Opened), None),
        closed=fields.take("closed", _closure, None),
    )
    fields.finish()
    return which


def _closure(value: object) -> str:
    """Read why a lease was closed, with or without the detail in brackets."""
    base = value.partition("(")[0] if isinstance(value, str) else value
    readers.one_of(Closed)(base)
    return str(value)


def _ok(value: object) -> str:
    if value != "ok":
        raise WrongValue(f"use ok, not {shown(value)}")
    return "ok"
