"""The record of a tenure, stored as a `coordination.k8s.io/v1` Lease.

Stores use the kind `Tenure`, because `Lease` is a ledger object; adapters that speak or serve the
Kubernetes API translate it. The instants in it are for people: no decision uses them. Epoch and
write are annotations, because `leaseTransitions` has only 32 bits.
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
    """A process. The nonce is new at each start, so that a restarted process is a different
    holder."""

    name: str
    nonce: str

    @property
    def identity(self) -> str:
        return f"{self.name}_{self.nonce}"


class TenureRecord(Record, frozen=True):
    """The stored state of one key. `write` identifies the write that made it."""

    key: str
    holder: str  # a Holder's identity; NOBODY: released
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
    """Return the object; `kept` is the stored one that it replaces, whose other fields stay."""
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
    """Decode any object, even if others have edited it; one with missing fields reads as never
    held."""
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
    """Format as a Kubernetes MicroTime, with six digits after the second."""
    return f"{format_instant(at)[:-1]}000Z"
