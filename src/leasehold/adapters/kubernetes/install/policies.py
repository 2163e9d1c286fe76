"""Admission policies, which the API server evaluates itself without webhooks.

A CRD's schema checks only the object. These policies check who makes a request: spending, funding
and lending need the matching right (as `core.objects.rights` checks in the embedded server), and
only the ledger may write its own objects. Deletions, and requests of Kubernetes' own controllers,
are not checked, so that namespace deletion and garbage collection always work.
"""

from leasehold.adapters.api.schemas import schema_of
from leasehold.adapters.kubernetes.install.roles import KEEP, LEDGERS, OWNERS
from leasehold.core.names import GROUP, LEASES_CLOSED, Wire
from leasehold.core.objects.wire import part

ADMISSION = "admissionregistration.k8s.io/v1"
SUBMITTER = f"{GROUP}/submitter"  # annotation: the creator of a Run
_KEEPS = f"authorizer.group('{GROUP}').resource('{LEDGERS}').check('{KEEP}').allowed()"
_OF_USERS = ("labels", "annotations", "finalizers", "ownerReferences")
_SYSTEM = (
    "request.userInfo.username == 'system:kube-controller-manager'"
    " || 'system:serviceaccounts:kube-system' in request.userInfo.groups"
)
_STRANGERS: list[Wire] = [
    {"name": "not-the-cluster-itself", "expression": f"!({_SYSTEM})"},
    {"name": "not-the-ledger", "expression": f"!{_KEEPS}"},
]


def policies() -> list[Wire]:
    found: list[Wire] = []
    for name, spec in (
        ("leasehold-ledger", _ledger()),
        ("leasehold-spend", _spend()),
        ("leasehold-fund", _fund()),
        ("leasehold-pods", _pods()),
    ):
        found += _policy("Validating", name, {"failurePolicy": "Fail", **spec})
    return found


def mutations() -> list[Wire]:
    """Return the mutating policies: a new Run gets our finalizer and the name of the user who
    created it. On servers without mutating policies, a Run gets neither."""
    return _policy(
        "Mutating",
        "leasehold-birth",
        {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": _matches(GROUP, ["runs"], ["CREATE"]),
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{metadata: Object.metadata{"
                        f"finalizers: ['{LEASES_CLOSED}'], "
                        f"annotations: {{'{SUBMITTER}': request.userInfo.username}}}}}}"
                    },
                }
            ],
        },
    )


def _policy(kind: str, name: str, spec: Wire) -> list[Wire]:
    bound: Wire = {"policyName": name}
    if kind == "Validating":
        bound["validationActions"] = ["Deny"]
    return [
        {
            "apiVersion": ADMISSION,
            "kind": f"{kind}AdmissionPolicy",
            "metadata": {"name": name},
            "spec": spec,
        },
        {
            "apiVersion": ADMISSION,
            "kind": f"{kind}AdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": bound,
        },
    ]


def _matches(group: str, resources: list[str], operations: list[str]) -> Wire:
    rule: Wire = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "resources": resources,
        "operations": operations,
    }
    return {"resourceRules": [rule]}


def _ledger() -> Wire:
    resources = [
        "leases",
        "leases/status",
        "ledgerheads",
        "ledgerheads/status",
        "ledgerbatches",
        "ledgerbatches/status",
        "ledgercheckpoints",
        "ledgercheckpoints/status",
        "resolutions",
        "reservations",
        "reservations/status",
        "runs/status",
        "budgets/status",
    ]
    return {
        "matchConstraints": _matches(GROUP, resources, ["CREATE", "UPDATE"]),
        "matchConditions": _STRANGERS,
        "validations": [
            {
                "expression": "false",
                "message": "only the ledger writes this kind; submit a Run or a Budget instead",
                "reason": "Forbidden",
            }
        ],
    }


def _pods() -> Wire:
    ours = f"k.startsWith('{GROUP}/')"
    mine = "has(object.metadata.labels) ? object.metadata.labels : {}"
    had = "oldObject == null || !has(oldObject.metadata.labels) ? {} : oldObject.metadata.labels"
    return {
        "matchConstraints": _matches("", ["pods"], ["CREATE", "UPDATE"]),
        "matchConditions": _STRANGERS,
        "variables": [
            {"name": "labels", "expression": mine},
            {"name": "before", "expression": had},
        ],
        "validations": [
            {
                "expression": f"variables.labels.all(k, !{ours} || (k in variables.before"
                " && variables.before[k] == variables.labels[k]))"
                f" && variables.before.all(k, !{ours} || k in variables.labels)",
                "message": f"only the ledger writes labels under {GROUP}/; submit a Run instead",
                "reason": "Forbidden",
            }
        ],
    }


def _spend() -> Wire:
    """Return the policy on new and edited Runs: the user needs the right `spend` on the Run's
    owner.

    An edit that changes the owner needs the right on the old owner and on the new one. An edit of
    nothing but `stop` needs no right, because cancelling spends nothing."""
    return {
        "matchConstraints": _matches(GROUP, ["runs"], ["CREATE", "UPDATE"]),
        "matchConditions": _STRANGERS,
        "variables": [{"name": "same", "expression": _same_as_before("Run", but="stop")}],
        "validations": [
            {
                "expression": f"variables.same || {_may('spend', 'object.spec.owner')}",
                "messageExpression": _lacks("spend", "object.spec.owner"),
                "reason": "Forbidden",
            },
            {
                "expression": "variables.same || oldObject == null"
                f" || {_may('spend', 'oldObject.spec.owner')}",
                "messageExpression": _lacks("spend", "oldObject.spec.owner"),
                "reason": "Forbidden",
            },
        ],
    }


def _fund() -> Wire:
    """Return the policy on new and edited Budgets: the user needs the right `fund` on the Budget's
    owner. For an edit of nothing but lending, the right `lend` is enough."""
    lending = (
        f"({_same_as_before('Budget', but='envelopes')})"
        " && object.spec.envelopes.size() == oldObject.spec.envelopes.size()"
        " && object.spec.envelopes.all(e, oldObject.spec.envelopes.exists(o, o.name == e.name"
        f" && {_same_fields(_envelope_fields(), 'e', 'o', but='lending')}))"
    )
    stranger = (
        "!object.spec.owner.startsWith(p + ':') && !(oldObject != null"
        " && has(oldObject.spec.parents) && p in oldObject.spec.parents)"
    )
    return {
        "matchConstraints": _matches(GROUP, ["budgets"], ["CREATE", "UPDATE"]),
        "matchConditions": _STRANGERS,
        "variables": [
            {"name": "same", "expression": _same_as_before("Budget")},
            {"name": "lendingOnly", "expression": f"oldObject != null && {lending}"},
            {"name": "mayFund", "expression": _may("fund", "object.spec.owner")},
            {
                "name": "strange",
                "expression": "has(object.spec.parents) ?"
                f" object.spec.parents.filter(p, {stranger}) : []",
            },
        ],
        "validations": [
            {
                "expression": "variables.same || variables.mayFund"
                f" || (variables.lendingOnly && {_may('lend', 'object.spec.owner')})",
                "messageExpression": _lacks("fund", "object.spec.owner"),
                "reason": "Forbidden",
            },
            {
                "expression": f"variables.same || variables.strange.all(p, {_may('fund', 'p')})",
                "messageExpression": "'a parent outside the owner\\'s own path needs the verb fund"
                " on it: ' + variables.strange.join(', ')",
                "reason": "Forbidden",
            },
        ],
    }


def _may(verb: str, owner: str) -> str:
    return (
        f"authorizer.group('{GROUP}').resource('{OWNERS}').namespace(request.namespace)"
        f".name({owner}).check('{verb}').allowed()"
    )


def _lacks(verb: str, owner: str) -> str:
    return (
        f"request.userInfo.username + ' may not {verb} as ' + {owner} + ': that needs the verb"
        f" {verb} on {OWNERS}.{GROUP} with this name, in namespace ' + request.namespace"
    )


def _same_as_before(kind: str, *, but: str = "") -> str:
    """Return a CEL expression that is true for an update which leaves the spec and the users' part
    of the metadata unchanged. The field `but` may change."""
    fields = part(part(part(schema_of(kind), "properties"), "spec"), "properties")
    spec = _same_fields(list(fields), "object.spec", "oldObject.spec", but=but)
    metadata = _same_fields(list(_OF_USERS), "object.metadata", "oldObject.metadata")
    return f"oldObject != null && {spec} && {metadata}"


def _envelope_fields() -> list[str]:
    spec = part(part(part(schema_of("Budget"), "properties"), "spec"), "properties")
    return list(part(part(part(spec, "envelopes"), "items"), "properties"))


def _same_fields(fields: list[str], new: str, old: str, *, but: str = "") -> str:
    return " && ".join(
        f"has({new}.{each}) == has({old}.{each})"
        f" && (!has({new}.{each}) || {new}.{each} == {old}.{each})"
        for each in fields
        if each != but
    )
