"""The resources of our REST server, one row each: names, columns, selectable fields, writers.

Data for `paths`, `discovery`, `openapi`, `tables`, `selectors` and `access`. To add a kind, add a
row here and a schema to `schemas`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from leasehold.adapters.api import columns
from leasehold.adapters.api.columns import Column
from leasehold.core.names import GROUP
from leasehold.core.objects.access import CallerRole

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
ALL_VERBS = tuple(sorted((*READ, *WRITE)))

BY_LEDGER = "only the ledger writes this kind; submit a Run or a Budget instead"
BY_SYSTEM = "only the control plane writes this kind"


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource. `kind` and `group` are those of a request's body. `roles`: the roles that may
    use it, besides the system role."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    group: str = ""
    version: str = ""
    roles: frozenset[CallerRole] = frozenset()
    refusal: str = BY_SYSTEM


STATUS = Subresource("status", ("get", "patch", "update"))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource.

    `writers` maps a role to the verbs it may use; the system role may use all. `is_public`: every
    token may read the resource in any namespace; otherwise a caller may read it only in the
    namespaces that its token covers. `unset` is the value that a selector assumes for a missing
    field."""

    kind: str
    plural: str
    columns: tuple[Column, ...]
    group: str = ""
    version: str = "v1"
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    subresources: tuple[Subresource, ...] = ()
    selectable: tuple[str, ...] = ()
    selectable_lists: tuple[str, ...] = ()  # select by any member; a CRD can select scalars only
    unset: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    writers: Mapping[CallerRole, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    refusal: str = BY_LEDGER
    is_public: bool = False
    shown_kind: str = ""  # the kind's name in the API, if it differs

    @property
    def served_kind(self) -> str:
        return self.shown_kind or self.kind

    @property
    def singular(self) -> str:
        return self.served_kind.lower()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The resource's name in error messages, such as `runs.rq.davidlangworthy.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_ours(self) -> bool:
        return self.group == GROUP

    def subresource(self, name: str) -> Subresource | None:
        return next((each for each in self.subresources if each.name == name), None)


_ADMIN = CallerRole.ADMIN
_OF_USERS = {CallerRole.USER: WRITE, _ADMIN: WRITE}
_CHANGES = ("delete", "deletecollection", "patch", "update")
_EVICTION = Subresource(
    "eviction",
    ("create",),
    "Eviction",
    "policy",
    "v1",
    frozenset({_ADMIN}),
    "only an administrator can evict pods; to end your own run, use `kubectl runs cancel`",
)
_BINDING = Subresource("binding", ("create",), "Binding", "", "v1")
_EVERYBODY = frozenset(CallerRole)
_LOG = Subresource("log", ("get",), "Pod", "", "v1", _EVERYBODY)

RESOURCES = (
    Resource(
        "Run",
        "runs",
        columns.RUN,
        GROUP,
        short_names=("rn",),
        categories=("all", "leasehold"),
        subresources=(STATUS,),
        selectable=("spec.owner", "spec.resources.gpuType", "status.phase"),
        writers=_OF_USERS,
        refusal="this token may only read; ask for a token with the role user",
    ),
    Resource(
        "Budget",
        "budgets",
        columns.BUDGET,
        GROUP,
        categories=("leasehold",),
        subresources=(STATUS,),
        selectable=("spec.owner",),
        writers=_OF_USERS,
        refusal="this token may only read; ask for a token with the role user",
    ),
    Resource(
        "Reservation",
        "reservations",
        columns.RESERVATION,
        GROUP,
        short_names=("rsv",),
        categories=("leasehold",),
        subresources=(STATUS,),
        selectable=("spec.runRef.name", "status.state", "status.confidence"),
        is_public=True,
    ),
    Resource(
        "Lease",
        "leases",
        columns.LEASE,
        GROUP,
        is_namespaced=False,
        short_names=("gpulease", "gl"),
        subresources=(STATUS,),
        selectable=(
            "spec.owner",
            "spec.runRef.name",
            "spec.runRef.namespace",
            "spec.slice.node",
            "spec.slice.role",
            "spec.paidBy.owner",
            "spec.paidByEnvelope",
            "spec.reason",
            "status.closed",
            "status.closureReason",
        ),
        selectable_lists=("spec.slice.nodes",),
        unset={"status.closed": "false"},
        is_public=True,
    ),
    Resource(
        "Resolution",
        "resolutions",
        columns.RESOLUTION,
        GROUP,
        is_namespaced=False,
        selectable=("spec.cause", "spec.subject"),
        is_public=True,
    ),
    Resource(
        "LedgerHead",
        "ledgerheads",
        columns.LEDGER_HEAD,
        GROUP,
        is_namespaced=False,
        is_public=True,
    ),
    Resource(
        "LedgerBatch",
        "ledgerbatches",
        columns.LEDGER_OBJECT,
        GROUP,
        is_namespaced=False,
        is_public=True,
    ),
    Resource(
        "LedgerCheckpoint",
        "ledgercheckpoints",
        columns.LEDGER_OBJECT,
        GROUP,
        is_namespaced=False,
        is_public=True,
    ),
    Resource(
        "Node",
        "nodes",
        columns.NODE,
        is_namespaced=False,
        short_names=("no",),
        subresources=(STATUS,),
        selectable=("spec.unschedulable",),
        unset={"spec.unschedulable": "false"},
        writers={_ADMIN: _CHANGES},
        refusal="only an administrator can change nodes; node agents create them",
        is_public=True,
    ),
    Resource(
        "Namespace",
        "namespaces",
        columns.NAMESPACE,
        is_namespaced=False,
        short_names=("ns",),
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
        subresources=(STATUS,),
        selectable=("status.phase",),
        writers={_ADMIN: ("create", "delete", "patch", "update")},
        refusal="only an administrator can change namespaces",
        is_public=True,
    ),
    Resource(
        "Pod",
        "pods",
        columns.POD,
        short_names=("po",),
        categories=("all",),
        subresources=(STATUS, _BINDING, _EVICTION, _LOG),
        selectable=("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
        writers={_ADMIN: ("delete", "deletecollection")},
        refusal="leases create pods: submit a Run, and stop it with `kubectl runs cancel`",
    ),
    Resource(
        "Event",
        "events",
        columns.EVENT,
        short_names=("ev",),
        selectable=(
            "involvedObject.apiVersion",
            "involvedObject.kind",
            "involvedObject.name",
            "involvedObject.namespace",
            "involvedObject.uid",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        refusal="only the control plane writes events",
    ),
    Resource(
        "Service",
        "services",
        columns.SERVICE,
        short_names=("svc",),
        verbs=READ,
        refusal="this server has no services",
    ),
    # Last, so that `kubectl get leases` keeps meaning the ledger's leases.
    Resource(
        "Tenure",
        "leases",
        columns.TENURE,
        "coordination.k8s.io",
        verbs=READ,
        shown_kind="Lease",
        refusal="only the control plane writes this kind: it records the leader",
    ),
)

_BY_PLACE = {(each.group, each.version, each.plural): each for each in RESOURCES}
_BY_KIND = {each.kind: each for each in RESOURCES}
NAMESPACES = _BY_KIND["Namespace"]


def resource_at(group: str, version: str, plural: str) -> Resource | None:
    return _BY_PLACE.get((group, version, plural))


def resource_of(kind: str) -> Resource:
    return _BY_KIND[kind]


def groups() -> dict[tuple[str, str], list[Resource]]:
    """Return the resources of each (group, version), in the order of the table."""
    found: dict[tuple[str, str], list[Resource]] = {}
    for each in RESOURCES:
        found.setdefault((each.group, each.version), []).append(each)
    return found
