"""CEL rules and bounds for the CRDs: most checks of `core.objects.run`.

Used by `crds`, because a cluster has no admission check of ours in front of it. A rule is a CEL
expression that the API server evaluates on every write; its message names the field and the remedy.
Some checks cannot be written in CEL: a pod template, for example, may contain any Kubernetes field.
The controller makes those checks, and reports problems on the object.
"""

from copy import deepcopy

from leasehold.core.names import Wire
from leasehold.core.objects.bounds import BOUNDS, EACH, RUN_GROUPS_MAX, RUN_PODS_MAX
from leasehold.core.objects.edits import (
    EDITABLE_IN_A_RUN,
    FIXED_FIELDS,
    OWNER_REMEDY,
    RUN_REMEDY,
    STOP_REMEDY,
)
from leasehold.core.objects.owners import OWNER_CHARS_MAX
from leasehold.core.objects.readers import (
    GPU_HOURS_MAX,
    GPUS_MAX,
    POD_GPUS_MAX,
    RETRIES_MAX,
    TEXT_CHARS_MAX,
)
from leasehold.core.objects.template import PLACEMENT
from leasehold.core.objects.wire import part

RULES = "x-kubernetes-validations"
_OWNER: Wire = {
    "minLength": 1,
    "maxLength": OWNER_CHARS_MAX,
    "pattern": "^[A-Za-z0-9._-]+(:[A-Za-z0-9._-]+)*$",
}
_WORD: Wire = {
    "minLength": 1,
    "maxLength": 63,
    "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
}
_SPAN: Wire = {
    "minLength": 2,
    "maxLength": TEXT_CHARS_MAX,
    "pattern": "^([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
}
_GPUS: Wire = {"minimum": 1, "maximum": GPUS_MAX}
_GPUS_OR_NONE: Wire = {"minimum": 0, "maximum": GPUS_MAX}
_RUN_BOUNDS: dict[str, Wire] = {
    "owner": _OWNER,
    "resources.gpuType": _WORD,
    "resources.totalGPUs": _GPUS,
    "resources.gpusPerPod": {"minimum": 1, "maximum": POD_GPUS_MAX},
    "locality.groupGPUs": _GPUS,
    "malleable.minTotalGPUs": _GPUS,
    "malleable.maxTotalGPUs": _GPUS,
    "malleable.stepGPUs": _GPUS,
    "malleable.desiredTotalGPUs": _GPUS,
    "sparesPerGroup": _GPUS_OR_NONE,
    "funding.maxBorrowGPUs": _GPUS_OR_NONE,
    "runtime.maxDuration": _SPAN,
    "runtime.checkpoint": _SPAN,
    "runtime.startTimeout": _SPAN,
    "runtime.gracePeriod": _SPAN,
    "runtime.retries": {"minimum": 0, "maximum": RETRIES_MAX},
    "template.spec.containers": {"minItems": 1},
}
_HOURS: Wire = {"minimum": 0, "exclusiveMinimum": True, "maximum": GPU_HOURS_MAX}
_BUDGET_BOUNDS: dict[str, Wire] = {
    "owner": _OWNER,
    "parents": {"items": {"type": "string", **_OWNER}},
    "namespaces": {"items": {"type": "string", "minLength": 1, "maxLength": 63}},
}
_ENVELOPE_BOUNDS: dict[str, Wire] = {
    "name": _WORD,
    "flavor": _WORD,
    "selector.region": _WORD,
    "selector.cluster": _WORD,
    "concurrency": _GPUS,
    "maxGPUHours": _HOURS,
    "lending.maxConcurrency": _GPUS,
    "lending.maxGPUHours": _HOURS,
}
_CAP_BOUNDS: dict[str, Wire] = {
    "name": _WORD,
    "flavor": _WORD,
    "envelopes": {"minItems": 1},
    "maxConcurrency": _GPUS,
}
_TOTAL = "self.resources.totalGPUs"
_GROUP = (
    f"(has(self.locality) && has(self.locality.groupGPUs) ? self.locality.groupGPUs : {_TOTAL})"
)
_PER_POD = "self.resources.gpusPerPod"
_MIN, _MAX = "self.malleable.minTotalGPUs", "self.malleable.maxTotalGPUs"
_STEP = f"(has(self.malleable.stepGPUs) ? self.malleable.stepGPUs : {_GROUP})"
_WIDTH = f"(has(self.malleable) && {_MAX} > {_TOTAL} ? {_MAX} : {_TOTAL})"
_SPARES = "(has(self.sparesPerGroup) ? self.sparesPerGroup : 0)"
_ALLOWS = "has(self.funding.allowBorrow) && self.funding.allowBorrow"


def _rule(field: str, holds: str, says: str, *, unless: str = "") -> Wire:
    """Return a CEL rule with a fixed message. A message with numbers computed in CEL would exceed
    the server's cost limit."""
    holds = f"{unless} || ({holds})" if unless else holds
    return {"rule": holds, "fieldPath": f".{field}", "message": says}


_RUN_RULES = [
    _rule(
        "locality.groupGPUs",
        f"{_GROUP} > 0 && {_TOTAL} % {_GROUP} == 0",
        "groups must divide totalGPUs; use a divisor of it",
    ),
    _rule(
        "resources.gpusPerPod",
        f"{_PER_POD} > 0 && {_GROUP} % {_PER_POD} == 0",
        "pods must divide a group; use a divisor of groupGPUs, or of totalGPUs without it",
        unless=f"!has({_PER_POD})",
    ),
    _rule(
        "sparesPerGroup",
        f"{_PER_POD} > 0 && self.sparesPerGroup % {_PER_POD} == 0",
        "a spare replaces a pod; use a multiple of gpusPerPod",
        unless=f"!has({_PER_POD}) || !has(self.sparesPerGroup)",
    ),
    _rule(
        "locality.groupGPUs",
        f"{_GROUP} <= 0 || {_WIDTH} / {_GROUP} <= {RUN_GROUPS_MAX}",
        f"a Run has at most {RUN_GROUPS_MAX} groups; use larger groups, or submit several Runs",
    ),
    _rule(
        "resources.gpusPerPod",
        f"{_GROUP} <= 0 || {_WIDTH} + {_SPARES} * ({_WIDTH} / {_GROUP})"
        f" <= {RUN_PODS_MAX} * (has({_PER_POD}) ? {_PER_POD} : 1)",
        f"a Run has at most {RUN_PODS_MAX} pods, spares included, and without gpusPerPod a pod may "
        "have one GPU; use larger pods, or submit several Runs",
    ),
    *(
        _rule(
            f"malleable.{field}",
            f"{_GROUP} > 0 && {width} % {_GROUP} == 0",
            "use a multiple of groupGPUs, or of totalGPUs without it",
            unless="!has(self.malleable)",
        )
        for field, width in (("minTotalGPUs", _MIN), ("maxTotalGPUs", _MAX), ("stepGPUs", _STEP))
    ),
    _rule(
        "malleable.minTotalGPUs",
        f"{_MIN} <= {_MAX}",
        "the width is over maxTotalGPUs; use at most that",
        unless="!has(self.malleable)",
    ),
    *(
        _rule(
            field,
            f"{_STEP} > 0 && {width} >= {_MIN} && {width} <= {_MAX}"
            f" && ({width} - {_MIN}) % {_STEP} == 0",
            "the width goes from minTotalGPUs to maxTotalGPUs in steps of stepGPUs; use one "
            "of those",
            unless=unless,
        )
        for field, width, unless in (
            ("malleable.maxTotalGPUs", _MAX, "!has(self.malleable)"),
            ("resources.totalGPUs", _TOTAL, "!has(self.malleable)"),
            (
                "malleable.desiredTotalGPUs",
                "self.malleable.desiredTotalGPUs",
                "!has(self.malleable) || !has(self.malleable.desiredTotalGPUs)",
            ),
        )
    ),
    _rule(
        "funding.sponsors",
        f"size(self.funding.sponsors) == 0 || ({_ALLOWS})",
        "sponsors need allowBorrow: true; set it or leave them out",
        unless="!has(self.funding) || !has(self.funding.sponsors)",
    ),
    _rule(
        "funding.maxBorrowGPUs",
        f"self.funding.maxBorrowGPUs == 0 || ({_ALLOWS})",
        "borrowing needs allowBorrow: true; set it or leave this out",
        unless="!has(self.funding) || !has(self.funding.maxBorrowGPUs)",
    ),
    _rule(
        "stop",
        "!has(oldSelf.stop) || !oldSelf.stop || (has(self.stop) && self.stop)",
        STOP_REMEDY,
    ),
]


def _fixed(path: str, remedy: str) -> Wire:
    """Return a rule that refuses every update that changes the field at `path`, which may be
    absent."""
    parts = path.split(".")
    prefixes = [".".join(parts[: at + 1]) for at in range(len(parts))]
    has_new, has_old = (
        " && ".join(f"has({spec}.{each})" for each in prefixes) for spec in ("self", "oldSelf")
    )
    same = f"({has_new}) == ({has_old}) && (!({has_new}) || self.{path} == oldSelf.{path})"
    return {**_rule(path, same, remedy), "reason": "FieldValueForbidden"}


def _fixed_fields(spec: Wire) -> list[str]:
    """Return the paths of a Run's immutable fields. A mapping without editable fields is one path;
    of a mapping with editable fields, the other fields are listed one by one."""
    editable = [path.removeprefix("spec.") for path in EDITABLE_IN_A_RUN]
    found = []
    for name, schema in part(spec, "properties").items():
        inside = [path for path in editable if path.startswith(f"{name}.")]
        if inside:
            assert isinstance(schema, dict), name
            below = (f"{name}.{each}" for each in part(schema, "properties"))
            found += [path for path in below if path not in inside]
        elif name not in editable:
            found.append(name)
    return found


_OPEN: Wire = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_LIST: Wire = {"type": "array", "items": _OPEN}
_TYPES: dict[str, Wire] = {
    "activeDeadlineSeconds": {"type": "integer", "format": "int64"},
    "affinity": _OPEN,
    "nodeSelector": _OPEN,
    "resourceClaims": _LIST,
    "schedulingGates": _LIST,
    "topologySpreadConstraints": _LIST,
}


def with_run_rules(schema: Wire) -> Wire:
    """Return the schema of a Run with every rule and bound that a server can check itself."""
    found = _with_sizes(schema, "Run")
    spec = part(part(found, "properties"), "spec")
    for path, bounds in _RUN_BOUNDS.items():
        _field(spec, path).update(bounds)
    spec[RULES] = [
        *_RUN_RULES,
        *(_fixed(path, RUN_REMEDY) for path in _fixed_fields(spec)),
    ]
    pod = _field(spec, "template.spec")
    fields = part(pod, "properties")
    rules = []
    for name, remedy in PLACEMENT.items():
        # Declared so that a rule can refer to it; any value is rejected.
        kind = _TYPES.get(name, {"type": "string"})
        fields[name] = {**kind, "description": f"Refused: {remedy}."}
        rules.append(_rule(name, f"!has(self.{name})", remedy))
    fields["restartPolicy"] = {"type": "string", "description": "Never, which is the default."}
    rules.append(
        _rule(
            "restartPolicy",
            "!has(self.restartPolicy) || self.restartPolicy == 'Never'",
            "use Never, or leave it out; see spec.runtime.retries",
        )
    )
    pod[RULES] = rules
    return found


def with_budget_rules(schema: Wire) -> Wire:
    """Return the schema of a Budget with every rule and bound that a server can check itself.

    Two checks would exceed the server's cost limit: that envelopes have distinct names, and that
    caps name existing envelopes. The controller makes these two."""
    found = _with_sizes(schema, "Budget")
    spec = part(part(found, "properties"), "spec")
    for path, bounds in _BUDGET_BOUNDS.items():
        _field(spec, path).update(bounds)
    spec[RULES] = [
        _fixed(path.removeprefix("spec."), OWNER_REMEDY) for path in FIXED_FIELDS["Budget"]
    ]
    envelope = part(_field(spec, "envelopes"), "items")
    for path, bounds in _ENVELOPE_BOUNDS.items():
        _field(envelope, path).update(bounds)
    envelope[RULES] = [
        _rule(
            "end",
            "self.start < self.end",
            "the window ends before it starts; use an end after its start",
            unless="!has(self.start) || !has(self.end)",
        )
    ]
    cap = part(_field(spec, "aggregateCaps"), "items")
    for path, bounds in _CAP_BOUNDS.items():
        _field(cap, path).update(bounds)
    return found


def _with_sizes(schema: Wire, kind: str) -> Wire:
    """Return a copy of the schema in which every list and mapping of `core.objects.bounds` has its
    size limit. Parts of a pod template that the schema leaves open are checked when the controller
    tries the Run."""
    found = deepcopy(schema)
    for bound in BOUNDS[kind]:
        at = found
        for step in bound.path.split("."):
            at = part(part(at, "properties"), step.removesuffix(EACH))
            if step.endswith(EACH):
                at = part(at, "items")
        if at.get("type") == "array":
            at["maxItems"] = bound.most
        elif at.get("type") == "object" and "additionalProperties" in at:
            at["maxProperties"] = bound.most
    return found


def _field(spec: Wire, path: str) -> Wire:
    for name in path.split("."):
        spec = part(part(spec, "properties"), name)
    assert spec, path
    return spec
