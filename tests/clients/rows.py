"""The calls that every client makes for every kind, and their expected results.

A cell is `ok`, or the HTTP status of the refusal that an administrator gets. The expected results
follow from the same table of resources as the server.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from leasehold.adapters.api.resources import RESOURCES, Resource
from leasehold.core.objects.access import CallerRole

VERBS = ("list", "watch", "create", "patch", "delete")
Row = dict[str, str]
Wire = dict[str, object]
NAMESPACE = "team"


class Refused(Exception):  # noqa: N818 - named after the outcome
    """The server refused a call with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(str(status))
        self.status = status


class Client(Protocol):
    """A third-party library; it raises its own error for an answer that it cannot read."""

    def names(self, resource: Resource) -> list[str]:
        """Return the names of the listed objects."""

    def watch(self, resource: Resource) -> list[str]:
        """Return the names in the first events of a watch, one per existing object."""

    def create(self, resource: Resource, obj: Wire) -> None: ...

    def patch(self, resource: Resource, name: str, patch: Wire) -> None: ...

    def delete(self, resource: Resource, name: str) -> None: ...


def expected(resource: Resource) -> Row:
    """Return the expected row of a kind: `ok` for an administrator's verbs, else the refusal."""
    allowed = resource.writers.get(CallerRole.ADMIN, ())
    row = dict.fromkeys(("list", "watch"), "ok")
    for verb in ("create", "patch", "delete"):
        offered = verb in resource.verbs
        row[verb] = "ok" if verb in allowed else "403" if offered else "405"
    return row


def manifest(resource: Resource, name: str) -> Wire:
    metadata: Wire = {"name": name, "labels": {"of": "clients"}}
    if resource.is_namespaced:
        metadata["namespace"] = NAMESPACE
    made: Wire = {
        "apiVersion": resource.api_version,
        "kind": resource.served_kind,
        "metadata": metadata,
        **_BODIES.get(resource.kind, {}),
    }
    return made


_CONTAINERS = [{"name": "main", "image": "none", "command": ["true"]}]
_BODIES: Mapping[str, Wire] = {
    "Run": {
        "spec": {
            "owner": "org:team",
            "resources": {"gpuType": "virtual", "totalGPUs": 1},
            "template": {"spec": {"containers": _CONTAINERS}},
        }
    },
    "Budget": {"spec": {"owner": "org:team", "envelopes": []}},
    "Pod": {"spec": {"containers": _CONTAINERS}},
    "Event": {
        "involvedObject": {"kind": "Run", "name": "r", "namespace": NAMESPACE},
        "reason": "Test",
        "message": "m",
    },
    "Service": {"spec": {"ports": [{"port": 80}]}},
    "Lease": {"spec": {}},
    "Tenure": {"spec": {"holderIdentity": "nobody"}},
    "Resolution": {"spec": {}},
    "Reservation": {"spec": {}},
    "LedgerHead": {"spec": {}},
    "LedgerBatch": {"spec": {}},
    "LedgerCheckpoint": {"spec": {}},
}


def played(client: Client, prefix: str, existing: Mapping[str, str]) -> dict[str, Row]:
    """Return the whole table. `existing` names an object of kinds that clients do not create."""
    return {each.kind: _row(client, each, prefix, existing) for each in RESOURCES}


def _row(client: Client, resource: Resource, prefix: str, existing: Mapping[str, str]) -> Row:
    name = f"{prefix}-{resource.kind.lower()}"
    created = _cell(lambda: client.create(resource, manifest(resource, name)))
    there = name if created == "ok" else existing.get(resource.kind, name)
    return {
        "list": _cell(lambda: _sees(client.names(resource), resource, there, existing, created)),
        "watch": _cell(lambda: _sees(client.watch(resource), resource, there, existing, created)),
        "create": created,
        "patch": _cell(lambda: client.patch(resource, there, _PATCH)),
        # The Node and Pod that exist must stay: delete those reserved for this.
        "delete": _cell(lambda: client.delete(resource, _victim(resource, there, existing))),
    }


_PATCH: Wire = {"metadata": {"labels": {"seen": "yes"}}}


def _victim(resource: Resource, there: str, existing: Mapping[str, str]) -> str:
    return existing.get(f"{resource.kind} to go", there)


def _sees(
    names: list[str], resource: Resource, there: str, existing: Mapping[str, str], created: str
) -> None:
    if created == "ok" or resource.kind in existing:
        assert there in names, f"{resource.kind}: {there} is not in {names[:20]}"


def _cell(action: Callable[[], object]) -> str:
    try:
        action()
    except Refused as refused:
        return str(refused.status)
    return "ok"


def shown(title: str, table: Mapping[str, Row]) -> str:
    """Return the table as printable text."""
    width = max(map(len, table))
    head = " ".join([title.ljust(width), *(verb.ljust(6) for verb in VERBS)])
    lines = [
        " ".join([kind.ljust(width), *(row[verb].ljust(6) for verb in VERBS)])
        for kind, row in table.items()
    ]
    return "\n".join(line.rstrip() for line in (head, *lines))
