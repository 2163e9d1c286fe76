"""Checks a whole manifest: API version, kind, metadata, and then the rules of its kind.

Called by `leasehold lint`, the scenario runner and the stores' admission check for everything that
users write. Looks at one object; rules between objects are in `budget.parent_cycles`.
"""

from leasehold.core.names import API_VERSION
from leasehold.core.objects import readers
from leasehold.core.objects.bounds import check_bounds, check_sizes
from leasehold.core.objects.budget import check_budget
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.labels import check_labels
from leasehold.core.objects.problems import Problem, shown
from leasehold.core.objects.run import check_run

USER_KINDS = ("Budget", "Run")
OUR_KINDS = frozenset({"Lease", "Reservation", "Resolution", "LedgerHead", "LedgerBatch"})

# Set by a server; allowed in a manifest that was read back.
_STAMPED = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)


def check_manifest(
    raw: object, *, require_template: bool = False, before: object = None
) -> list[Problem]:
    """Return every mistake in a manifest. If there is none, `budget_from_wire` or `run_from_wire`
    can read it.

    `before`: the object that is edited; it may exceed limits that were lowered since.
    """
    problems: list[Problem] = []
    if not isinstance(raw, dict):
        return [Problem(path="", value=shown(raw), remedy="use an object with kind and spec")]
    known = check_bounds(before)
    over = [problem for problem in check_bounds(raw) if problem not in known]
    if over:
        return over  # reporting thousands of mistakes would help nobody
    manifest = Fields(raw, "", problems)
    manifest.need("apiVersion", _api_version)
    kind = manifest.need("kind", _kind)
    _check_metadata(manifest.inside("metadata", required=True))
    manifest.allow("spec", "status")
    manifest.finish()
    if kind == "Budget":
        problems += check_budget(raw)
    elif kind == "Run":
        problems += check_run(raw, require_template=require_template)
    if not problems:
        large = check_sizes(before) if isinstance(before, dict) else []
        problems = [problem for problem in check_sizes(raw) if problem not in large]
    return problems


def _api_version(value: object) -> str:
    if value != API_VERSION:
        raise readers.WrongValue(f"use {API_VERSION}")
    return API_VERSION


def _kind(value: object) -> str:
    if isinstance(value, str) and value in USER_KINDS:
        return value
    if isinstance(value, str) and value in OUR_KINDS:
        raise readers.WrongValue(
            "only the control plane writes this kind; submit a Budget or a Run"
        )
    raise readers.WrongValue("use Budget or Run")


def _check_metadata(metadata: Fields) -> None:
    metadata.need("name", readers.object_name)
    metadata.need("namespace", readers.namespace)
    metadata.allow(*_STAMPED)
    check_labels(metadata)
    metadata.finish()
