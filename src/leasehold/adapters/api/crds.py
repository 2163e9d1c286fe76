"""Our kinds as CustomResourceDefinitions for a real Kubernetes API server.

Printed by `leasehold crds` and applied at installation. They are built from the same tables as our
own REST server, so both servers agree: names and selectable fields from `resources`, fields from
`schemas`, columns from `columns`. Our own store makes fields immutable in code (`objects.rules`);
here CEL rules do it.
"""

from leasehold.adapters.api.columns import At, Column, Since
from leasehold.adapters.api.resources import RESOURCES, Resource
from leasehold.adapters.api.rules import with_budget_rules, with_run_rules
from leasehold.adapters.api.schemas import schema_of
from leasehold.core.names import Wire
from leasehold.core.objects.edits import IMMUTABLE_KINDS
from leasehold.core.objects.wire import part

SELECTABLE_MAX = 8  # the API server's limit per version
# Selectable only in the facade. The role is also a label; a closed lease's reason can be searched
# among `status.closed=true`.
NOT_SELECTABLE = frozenset({"spec.slice.role", "status.closureReason"})

_FIXED: Wire = {
    "rule": "self == oldSelf",
    "message": "is immutable",
    "reason": "FieldValueForbidden",
}
# On the whole object, because a rule on `status` is not evaluated when the status is removed.
# Without CEL optionals, whose estimated cost is a hundred times higher.
_CLOSED_ONCE: Wire = {
    "rule": "!(has(oldSelf.status) && has(oldSelf.status.closed) && oldSelf.status.closed)"
    " || (has(self.status) && self.status == oldSelf.status)",
    "message": "is final once the lease is closed",
    "fieldPath": ".status",
    "reason": "FieldValueForbidden",
}
_ENDING_ONCE: Wire = {
    "rule": "!(has(oldSelf.status) && has(oldSelf.status.ending)) || (has(self.status)"
    " && has(self.status.ending) && self.status.ending == oldSelf.status.ending)",
    "message": "cannot change once it is set",
    "fieldPath": ".status.ending",
    "reason": "FieldValueForbidden",
}


def definitions() -> list[Wire]:
    """Return one CustomResourceDefinition for each of our kinds."""
    return [_definition(each) for each in RESOURCES if each.is_ours]


def _definition(resource: Resource) -> Wire:
    names: Wire = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.singular,
    }
    if resource.short_names:
        names["shortNames"] = list(resource.short_names)
    if resource.categories:
        names["categories"] = list(resource.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.is_namespaced else "Cluster",
            "names": names,
            "versions": [_version(resource)],
        },
    }


def _version(resource: Resource) -> Wire:
    found: Wire = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _schema(resource)},
        "additionalPrinterColumns": _columns(resource.columns),
    }
    if resource.subresource("status") is not None:
        found["subresources"] = {"status": {}}
    chosen = [path for path in resource.selectable if path not in NOT_SELECTABLE]
    assert len(chosen) <= SELECTABLE_MAX, (
        f"{resource.kind}: the API server does not accept so many rules"
    )
    if chosen:
        found["selectableFields"] = [{"jsonPath": f".{path}"} for path in chosen]
    return found


def _schema(resource: Resource) -> Wire:
    """Return our server's schema of the kind without its metadata, which Kubernetes defines
    itself."""
    schema = _RULED.get(resource.kind, lambda plain: plain)(schema_of(resource.kind))
    fields: Wire = {**part(schema, "properties"), "metadata": {"type": "object"}}
    if resource.subresource("status") is None:
        fields.pop("status", None)
    found: Wire = {**schema, "properties": fields}
    if resource.kind in IMMUTABLE_KINDS:
        # Required, because a rule is not evaluated when its field is removed.
        found["required"] = ["spec"]
        fields["spec"] = {**part(fields, "spec"), "x-kubernetes-validations": [_FIXED]}
    if resource.kind == "Lease":
        found["x-kubernetes-validations"] = [_CLOSED_ONCE, _ENDING_ONCE]
    return found


_RULED = {"Run": with_run_rules, "Budget": with_budget_rules}


def _columns(columns: tuple[Column, ...]) -> list[Wire]:
    """Return the columns that show a field, for a CustomResourceDefinition. The name is left out,
    because Kubernetes always shows it."""
    found: list[Wire] = []
    for column in columns:
        path = _path(column)
        if not path or path == "metadata.name":
            continue
        is_age = isinstance(column.cell, Since)
        row: Wire = {
            "name": column.name,
            "type": "date" if is_age else column.type,
            "jsonPath": f".{path}",
        }
        if column.about:
            row["description"] = column.about
        if column.wide:
            row["priority"] = 1
        found.append(row)
    return found


def _path(column: Column) -> str:
    return column.cell.path if isinstance(column.cell, At | Since) else column.path
