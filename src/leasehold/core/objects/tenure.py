"""The record of a tenure, and how it is stored: a `coordination.k8s.io/v1` Lease.

A store knows it under the kind `Tenure`, since `Lease` is the ledger's word; whoever speaks to
Kubernetes, or serves it, says Lease there. The instants in it are for people to read: no decision
looks at them. Epoch and write stand in annotations, because `leaseTransitions` has 32 bits.
"""

from leasehold.core.facts import Record
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.wire import instant_at, part, stamps, text_at, whole_at
from leasehold.core.units import SECOND, Instant, Millis, format_instant

KIND = "Tenure"
API_VERSION = "coordination.k8s.io/v1"
NAMESPACE = "leasehold-system"
EPOCH = f"{GROUP}/epoch"
WRITE = f"{GROUP}/write"
NOBODY = ""


class Holder(Record, frozen=True):
    """A process: its nonce is new with every start, so that a restarted one is somebody else."""

    name: str
    nonce: str

    @property
    def identity(self) -> str:
        return f"{self.name}_{self.nonce}"


class TenureRecord(Record, frozen=True):
    """What the store has of one key. `write` names the one write that made it so."""

    key: str
    holder: str  # a Holder's identity; NOBODY: it was given back
    epoch: int
    write: str
    version: int = 0
    duration: Millis = 0
    acquired: Instant = 0
    renewed: Instant = 0
    transitions: int = 0

    @property
    def is_free(self) -> bool:
        return self.holder == NOBODY


def tenure_name(key: str) -> str:
    return f"leasehold-{key}"


def tenure_to_wire(record: TenureRecord, *, kept: Wire | None = None) -> Wire:
    """`kept` is the stored object that it replaces: what others wrote there stays."""
    metadata = dict(part(kept or {}, "metadata"))
    metadata |= {"name": tenure_name(record.key), "namespace": NAMESPACE}
    metadata["annotations"] = {
        **part(metadata, "annotations"),
        EPOCH: str(record.epoch),
        WRITE: record.write,
    }
    if record.version:
        metadata["resourceVersion"] = str(record.version)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {
            **part(kept or {}, "spec"),
            "holderIdentity": record.holder,
            "leaseDurationSeconds": max(1, -(-record.duration // SECOND)),
            "acquireTime": _micro(record.acquired),
            "renewTime": _micro(record.renewed),
            "leaseTransitions": record.transitions,
        },
    }


def tenure_from_wire(wire: Wire) -> TenureRecord:
    """Also of an object that somebody else made or edited: what it lacks is as if never held."""
    stamped, spec = stamps(wire), part(wire, "spec")
    annotations = part(part(wire, "metadata"), "annotations")
    epoch = text_at(annotations, EPOCH)
    return TenureRecord(
        key=stamped.name.removeprefix("leasehold-"),
        holder=text_at(spec, "holderIdentity"),
        epoch=int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 19 else 0,
        write=text_at(annotations, WRITE),
        version=stamped.version,
        duration=(whole_at(spec, "leaseDurationSeconds") or 0) * SECOND,
        acquired=instant_at(spec, "acquireTime") or 0,
        renewed=instant_at(spec, "renewTime") or 0,
        transitions=whole_at(spec, "leaseTransitions") or 0,
    )


def _micro(at: Instant) -> str:
    """As Kubernetes wants a MicroTime: six digits after the second."""
    return f"{format_instant(at)[:-1]}000Z"
