"""One batch of the ledger: everything that one compare-and-swap of the head commits.

Built by the committer, folded by `core.world`, checked by `verify`. The wire form is the exported
line of `docs/ledger-format.md`: empty parts are left out, times are integer milliseconds, lease
specs are those of the objects. Optional members of a closure:

- `cause`, for `Fail` only: Exit and Unstarted are the workload's own fault
- `began`: when its pod started to run; before that it was starting up
- `saved`, if work was lost: work before this instant was saved
"""

import msgspec

from leasehold.core.facts import Cause, Closure, Lease, Record, parse_why
from leasehold.core.ledger.chain import Digest, canonical, digest_of, next_digest
from leasehold.core.names import Wire
from leasehold.core.objects.lease import LeaseSpecWire, lease_from_spec, lease_spec
from leasehold.core.objects.resolution import resolution_spec
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant


class NodeFact(Record):
    """What the ledger states about a node, because decisions depend on it; `gone` if it was
    deleted."""

    name: str
    gpus: int = 0
    flavor: str = ""
    domain: str = ""
    gone: bool = False


class Closing(Record):
    """The end of a lease, as a batch states it. The optional members are those of the lease's
    `Closure`."""

    lease: str
    end: Instant
    reason: str
    cause: Cause | None = None
    began: Instant | None = None
    saved: Instant | None = None


def closing_of(lease: str, closure: Closure) -> Closing:
    return Closing(
        lease=lease,
        end=closure.at,
        reason=str(closure.why),
        cause=closure.cause,
        began=closure.began,
        saved=closure.saved,
    )


def closure_of(closing: Closing, batch: int) -> Closure:
    """Return the closure. Raises ValueError if the reason is unknown."""
    return Closure(
        why=parse_why(closing.reason),
        at=closing.end,
        cause=closing.cause,
        began=closing.began,
        saved=closing.saved,
        batch=batch,
    )


def resolution_digest(resolution: Resolution) -> Digest:
    """Return the digest under which a batch commits this Resolution."""
    return digest_of(resolution_spec(resolution))


class Batch(Record):
    """One batch: facts, announcements, leases that opened, are ending or closed, and
    resolutions."""

    seq: int
    epoch: int
    instant: Instant
    facts_budgets: tuple[tuple[str, bytes | None], ...] = ()  # key, canonical spec; None: deleted
    facts_nodes: tuple[NodeFact, ...] = ()
    announced: tuple[tuple[str, str], ...] = ()  # subject, commitment
    opened: tuple[Lease, ...] = ()
    ending: tuple[tuple[str, str, Instant], ...] = ()  # lease, reason, deadline
    closed: tuple[Closing, ...] = ()
    resolutions: tuple[tuple[str, Digest], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether the batch has no content.

        Such a batch is a seal, or need not be committed.
        """
        return not (
            self.facts_budgets
            or self.facts_nodes
            or self.announced
            or self.opened
            or self.ending
            or self.closed
            or self.resolutions
        )


def batch_to_wire(batch: Batch) -> Wire:
    """Return the member `batch` of the exported line."""
    wire: Wire = {"seq": batch.seq, "epoch": batch.epoch, "instant": batch.instant}
    facts = {
        "budgets": [_budget_to_wire(name, spec) for name, spec in batch.facts_budgets],
        "nodes": [_node_to_wire(fact) for fact in batch.facts_nodes],
    }
    parts: dict[str, list[Wire]] = {
        "announced": [
            {"subject": subject, "commitment": commitment}
            for subject, commitment in batch.announced
        ],
        "opened": [{"name": lease.name, "spec": lease_spec(lease)} for lease in batch.opened],
        "ending": [
            {"lease": lease, "reason": reason, "deadline": deadline}
            for lease, reason, deadline in batch.ending
        ],
        "closed": [_closing_to_wire(closing) for closing in batch.closed],
        "resolutions": [{"name": name, "digest": digest} for name, digest in batch.resolutions],
    }
    known_facts = {name: listed for name, listed in facts.items() if listed}
    if known_facts:
        wire["facts"] = known_facts
    wire.update({name: listed for name, listed in parts.items() if listed})
    return wire


def line(batch: Batch, digest_before: Digest) -> Wire:
    """Return the exported line of a batch. Its `digest` is the chain's digest after this batch."""
    wire = batch_to_wire(batch)
    digest = next_digest(digest_before, canonical(wire))
    return {"seq": batch.seq, "epoch": batch.epoch, "digest": digest, "batch": wire}


def _budget_to_wire(name: str, spec: bytes | None) -> Wire:
    if spec is None:
        return {"name": name}
    return {"name": name, "spec": msgspec.json.decode(spec, type=dict[str, object])}


def _node_to_wire(fact: NodeFact) -> Wire:
    if fact.gone:
        return {"name": fact.name}
    return {"name": fact.name, "gpus": fact.gpus, "flavor": fact.flavor, "domain": fact.domain}


def _closing_to_wire(closing: Closing) -> Wire:
    wire: Wire = {"lease": closing.lease, "end": closing.end, "reason": closing.reason}
    if closing.cause is not None:
        wire["cause"] = closing.cause.value
    if closing.began is not None:
        wire["began"] = closing.began
    if closing.saved is not None:
        wire["saved"] = closing.saved
    return wire


class _Strict(Record, forbid_unknown_fields=True):
    """Base of the decoded parts of a line; refuses members that it does not know.

    A line with content that this version does not understand must not be folded.
    """


class _BudgetWire(_Strict):
    name: str
    spec: dict[str, object] | None = None


class _NodeWire(_Strict):
    name: str
    gpus: int | None = None
    flavor: str = ""
    domain: str = ""


class _FactsWire(_Strict):
    budgets: tuple[_BudgetWire, ...] = ()
    nodes: tuple[_NodeWire, ...] = ()


class _AnnouncedWire(_Strict):
    subject: str
    commitment: str


class _OpenedWire(_Strict):
    name: str
    spec: LeaseSpecWire


class _EndingWire(_Strict):
    lease: str
    reason: str
    deadline: int


class _ClosedWire(_Strict):
    lease: str
    end: int
    reason: str
    cause: Cause | None = None
    began: int | None = None
    saved: int | None = None


class _ResolutionWire(_Strict):
    name: str
    digest: str


class _BatchWire(_Strict):
    seq: int
    epoch: int
    instant: int
    facts: _FactsWire = _FactsWire()
    announced: tuple[_AnnouncedWire, ...] = ()
    opened: tuple[_OpenedWire, ...] = ()
    ending: tuple[_EndingWire, ...] = ()
    closed: tuple[_ClosedWire, ...] = ()
    resolutions: tuple[_ResolutionWire, ...] = ()


class _SkimmedWire(_Strict):
    """A batch as `_BatchWire` has it, but its members about leases are not decoded."""

    seq: int
    epoch: int
    instant: int
    facts: _FactsWire = _FactsWire()
    announced: tuple[_AnnouncedWire, ...] = ()
    opened: msgspec.Raw = msgspec.Raw()
    ending: msgspec.Raw = msgspec.Raw()
    closed: msgspec.Raw = msgspec.Raw()
    resolutions: tuple[_ResolutionWire, ...] = ()


_decode = msgspec.json.Decoder(_BatchWire).decode
_skim = msgspec.json.Decoder(_SkimmedWire).decode


def batch_from_json(encoded: bytes) -> Batch:
    return _from_struct(_decode(encoded))


def skimmed_from_json(encoded: bytes) -> Batch:
    """Decode a batch without its leases, for callers that read the Lease objects instead."""
    wire = _skim(encoded)
    return _from_struct(
        _BatchWire(
            seq=wire.seq,
            epoch=wire.epoch,
            instant=wire.instant,
            facts=wire.facts,
            announced=wire.announced,
            resolutions=wire.resolutions,
        )
    )


def batch_from_wire(wire: Wire) -> Batch:
    """Decode a batch. Raises `msgspec.ValidationError` with the path of the first bad member."""
    return _from_struct(msgspec.convert(wire, _BatchWire))


def _from_struct(wire: _BatchWire) -> Batch:
    return Batch(
        seq=wire.seq,
        epoch=wire.epoch,
        instant=wire.instant,
        facts_budgets=tuple(
            (fact.name, None if fact.spec is None else canonical(fact.spec))
            for fact in wire.facts.budgets
        ),
        facts_nodes=tuple(_node_from_struct(fact) for fact in wire.facts.nodes),
        announced=tuple((each.subject, each.commitment) for each in wire.announced),
        opened=tuple(lease_from_spec(each.name, each.spec) for each in wire.opened),
        ending=tuple((each.lease, each.reason, each.deadline) for each in wire.ending),
        closed=tuple(
            Closing(
                lease=each.lease,
                end=each.end,
                reason=each.reason,
                cause=each.cause,
                began=each.began,
                saved=each.saved,
            )
            for each in wire.closed
        ),
        resolutions=tuple((each.name, each.digest) for each in wire.resolutions),
    )


def _node_from_struct(wire: _NodeWire) -> NodeFact:
    if wire.gpus is None:
        return NodeFact(name=wire.name, gone=True)
    return NodeFact(name=wire.name, gpus=wire.gpus, flavor=wire.flavor, domain=wire.domain)
