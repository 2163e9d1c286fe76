"""RBAC roles on a cluster, for the controller and for people.

Besides Kubernetes' verbs there are five of ours, on two virtual resources. `spend`, `fund` and
`lend` apply to `owners`, by the owner's name. `keep` on `ledgers` is for the writer of the ledger,
and `compact` for users who may request a compaction. Like any right, they are granted by a Role,
with `resourceNames`. The API server's admission policies (`policies`) check them; the controller
checks `compact`. Both ask Kubernetes' authorizer.
"""

from leasehold.core.names import GROUP, Wire

QUERY_GROUP = f"query.{GROUP}"
QUESTIONS = "questions"  # the resource of all questions; a question's name selects it
COMPACTION = "compaction"
RBAC = "rbac.authorization.k8s.io"
CONTROLLER = "leasehold-controller"
OWNERS = "owners"
LEDGERS = "ledgers"
KEEP = "keep"
COMPACT = "compact"

READ = ["get", "list", "watch"]
WRITE = ["create", "update", "patch", "delete"]
_OURS = [
    "runs",
    "budgets",
    "reservations",
    "leases",
    "resolutions",
    "ledgerheads",
    "ledgerbatches",
    "ledgercheckpoints",
]
_WITH_STATUS = ["runs", "budgets", "reservations", "leases"]


def roles(namespace: str) -> list[Wire]:
    """Return the controller's account with its roles and bindings, and the roles that an
    administrator binds to people."""
    people = {
        "leasehold-asker": _ASKER,
        "leasehold-viewer": _VIEWER,
        "leasehold-researcher": [*_VIEWER, *_RESEARCHER],
        "leasehold-budget-owner": [*_VIEWER, *_BUDGET_OWNER],
        "leasehold-operator": [*_VIEWER, *_RESEARCHER, *_BUDGET_OWNER, *_OPERATOR],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": CONTROLLER, "namespace": namespace},
        },
        _role("ClusterRole", CONTROLLER, _CONTROLLER),
        _role("Role", CONTROLLER, _AT_HOME, namespace),
        _binding("ClusterRoleBinding", CONTROLLER, "ClusterRole", namespace),
        _binding("RoleBinding", CONTROLLER, "Role", namespace),
        _reader_of_authorities(namespace),
        *(_role("ClusterRole", name, rules) for name, rules in people.items()),
    ]


def _rule(group: str, resources: list[str], verbs: list[str]) -> Wire:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _role(kind: str, name: str, rules: list[Wire], namespace: str = "") -> Wire:
    metadata: Wire = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _binding(kind: str, name: str, role: str, namespace: str) -> Wire:
    metadata: Wire = {"name": name}
    if kind == "RoleBinding":
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": namespace}],
    }


def _reader_of_authorities(namespace: str) -> Wire:
    """Return the binding that lets the controller read the API server's front-proxy settings, which
    are in kube-system."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": CONTROLLER, "namespace": "kube-system"},
        "roleRef": {
            "apiGroup": RBAC,
            "kind": "Role",
            "name": "extension-apiserver-authentication-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": CONTROLLER, "namespace": namespace}],
    }


_CONTROLLER: list[Wire] = [
    _rule(GROUP, _OURS, [*READ, *WRITE]),
    _rule(GROUP, [f"{each}/status" for each in _WITH_STATUS], ["get", "update", "patch"]),
    _rule(GROUP, ["runs/finalizers"], ["update"]),
    _rule(GROUP, [LEDGERS], [KEEP]),
    _rule("", ["pods"], [*READ, *WRITE]),
    _rule("", ["pods/binding"], ["create"]),
    _rule("", ["pods/status"], ["get", "update", "patch"]),
    _rule("", ["nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes"], READ),
    _rule("", ["resourcequotas"], READ),
    _rule("storage.k8s.io", ["storageclasses"], READ),
    _rule("", ["services"], [*READ, *WRITE]),
    _rule("", ["events"], [*READ, *WRITE]),
    _rule("events.k8s.io", ["events"], [*READ, *WRITE]),
    _rule("policy", ["poddisruptionbudgets"], [*READ, *WRITE]),
    _rule("authorization.k8s.io", ["subjectaccessreviews"], ["create"]),
    _rule("apiregistration.k8s.io", ["apiservices"], ["get", *WRITE]),
]
_AT_HOME: list[Wire] = [
    _rule("coordination.k8s.io", ["leases"], [*READ, "create", "update", "patch"]),
    _rule("", ["secrets"], ["get", "create", "update"]),
]
# Bind it cluster-wide: questions concern the cluster. Answers depend on the asker's rights.
_ASKER: list[Wire] = [
    _rule(QUERY_GROUP, [QUESTIONS], ["get", "create"]),
    _rule(QUERY_GROUP, [COMPACTION], ["create"]),
]
_VIEWER: list[Wire] = [
    _rule(GROUP, _OURS, READ),
    *_ASKER,
    _rule("", ["pods", "nodes"], READ),
]
_RESEARCHER: list[Wire] = [
    _rule(GROUP, ["runs"], WRITE),
    _rule("", ["pods/log"], ["get"]),
]
_BUDGET_OWNER: list[Wire] = [_rule(GROUP, ["budgets"], WRITE)]
_OPERATOR: list[Wire] = [
    _rule(GROUP, [OWNERS], ["spend", "fund", "lend"]),
    _rule(GROUP, [LEDGERS], [COMPACT]),
    _rule("", ["nodes"], ["patch", "update"]),
    _rule("", ["pods"], ["delete"]),
    _rule("", ["pods/eviction"], ["create"]),
]
