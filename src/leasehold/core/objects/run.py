"""Run manifests: all rules of a Run's spec, its defaults, and the record made from it.

Called by the store's admission check, `leasehold lint`, the scenario runner and the loop that folds
objects. Checking and decoding share one reader. A rule about several fields is applied only if each
is right by itself, so that one mistake is reported once.
"""

from msgspec.structs import replace

from leasehold.core.facts import Funding, Gang, Malleable, Run, RunSpec, Selector
from leasehold.core.names import Wire
from leasehold.core.objects import readers
from leasehold.core.objects.bounds import RUN_GROUPS_MAX, RUN_PODS_MAX
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import InvalidManifest, Problem, no_spec
from leasehold.core.objects.quantity import CPU, MEMORY, milli, units
from leasehold.core.objects.template import read_template
from leasehold.core.objects.wire import Stamps, instant_at, part, stamps, text_at, whole_at
from leasehold.core.units import SECOND, Instant, Millis, format_span

GRACE_DEFAULT = 30 * SECOND

_GANG = readers.one_of(Gang)


def check_run(raw: object, *, require_template: bool = False) -> list[Problem]:
    """Return every problem of the spec, with paths; `manifests` checks the metadata."""
    return _read_spec(raw, require_template=require_template)[1]


def grace_problems(raw: object, most: Millis) -> list[tuple[str, str]]:
    """Return (path, why) if the Run's grace period is longer than `most`."""
    asked = part(part(raw, "spec"), "runtime").get("gracePeriod")
    try:
        grace = 0 if asked is None else readers.span_or_none(asked)
    except readers.WrongValue:
        return []  # reported by `check_run`
    if grace <= most:
        return []
    limit = format_span(most)
    return [
        (
            "spec.runtime.gracePeriod",
            f"{asked}: use at most {limit} (gracePeriod.max of this server); if saving takes "
            "longer, save while the run works (see runtime.checkpoint)",
        )
    ]


def run_from_wire(raw: object, *, known: Run | None = None) -> Run:
    """Return the record of a Run that was already checked.

    `known` is its previous record: the spec is reused while the generation is unchanged, because
    most updates change only the status.
    """
    stamped = stamps(raw)
    generation = whole_at(part(raw, "metadata"), "generation") or 0
    named = (stamped.uid, generation)
    if generation and known is not None and (known.uid, known.generation) == named:
        spec = known.spec
    else:
        read, problems = _read_spec(raw, require_template=False)
        if read is None:
            raise InvalidManifest(problems)
        spec = _as_tried(read, part(raw, "status"))
    created, number = _arrival(raw, stamped, known)
    return Run(
        namespace=stamped.namespace,
        name=stamped.name,
        uid=stamped.uid,
        created=created,
        spec=spec,
        version=stamped.version,
        number=number,
        deleting=stamped.is_deleting,
        finalizers=stamped.finalizers,
        generation=generation,
        seen_running=whole_at(part(raw, "status"), "boundAttempt") or 0,
    )


def _as_tried(spec: RunSpec, status: Wire) -> RunSpec:
    """Return the spec with the pod's CPU and memory as the API server determined them in a dry run.

    The result of the dry run is in the status; without it the spec is returned unchanged.
    """
    told = part(status, "podRequests")
    try:
        cpu, memory = milli(told.get(CPU)), units(told.get(MEMORY))
    except readers.WrongValue:
        return spec
    return replace(spec, cpu_milli=cpu, memory_bytes=memory, is_amended=True)


def _arrival(raw: object, stamped: Stamps, known: Run | None) -> tuple[Instant, int]:
    """Return (instant, number) of the Run's creation; the number breaks ties.

    A store with millisecond stamps needs no number. An API server stamps seconds, so the first
    resourceVersion that we saw is the number. Both are kept in the status, because later writes
    change the version.
    """
    told = part(part(raw, "status"), "arrived")
    instant, number = instant_at(told, "instant"), whole_at(told, "number")
    if instant is not None and number is not None:
        return instant, number
    if known is not None and known.uid == stamped.uid:
        return known.created, known.number
    is_coarse = "." not in text_at(part(raw, "metadata"), "creationTimestamp")
    return stamped.created, stamped.version if is_coarse else 0


class _Shape:
    """The numbers of GPUs that must divide each other; None if a number is missing or wrong."""

    __slots__ = ("group", "malleable", "per_pod", "spares", "total", "width_max")

    def __init__(self, total: int | None, group: int | None, per_pod: int | None) -> None:
        self.total = total
        self.group = group
        self.per_pod = per_pod
        self.width_max = total
        self.spares: int | None = 0
        self.malleable: Malleable | None = None

    def widest(self) -> int | None:
        """Return the most GPUs the run can hold: its largest width and all spares beside it."""
        if self.width_max is None or self.spares is None:
            return None
        if self.spares == 0:
            return self.width_max
        if self.group is None:
            return None
        return self.width_max + self.spares * (self.width_max // self.group)


def _read_spec(raw: object, *, require_template: bool) -> tuple[RunSpec | None, list[Problem]]:
    problems: list[Problem] = []
    spec = Fields(raw, "", problems).inside("spec", required=True)
    owner = spec.need("owner", readers.owner)
    resources = spec.inside("resources", required=True)
    locality = spec.inside("locality")
    flavor = resources.need("gpuType", readers.word)
    shape = _read_shape(resources, locality)
    _read_malleable(spec.inside("malleable"), resources, shape)
    _read_spares(spec, shape)
    _check_count(resources, locality, shape)
    spread = locality.take("allowCrossGroupSpread", readers.flag, True)
    selector = _read_selector(locality.inside("selector"))
    gang = spec.take("gang", _GANG, Gang.RUN)
    opportunistic = spec.take("opportunistic", readers.flag, False)
    stop = spec.take("stop", readers.flag, False)
    runtime = spec.inside("runtime")
    funding = _read_funding(spec.inside("funding"), shape)
    template = read_template(spec, required=require_template)
    max_duration = runtime.take("maxDuration", readers.span, None)
    checkpoint = runtime.take("checkpoint", readers.span, None)
    retries = runtime.take("retries", readers.retries, 0)
    grace = runtime.take("gracePeriod", readers.span_or_none, GRACE_DEFAULT)
    start_timeout = runtime.take("startTimeout", readers.span, None)
    for fields in (spec, resources, locality, runtime):
        fields.finish()
    if problems or spec.is_void:
        return None, problems or [no_spec(raw)]
    assert owner is not None, "a missing owner is a problem"
    assert flavor is not None, "a missing flavor is a problem"
    assert shape.total is not None, "a missing total is a problem"
    assert shape.group is not None, "the group defaults to the total"
    assert shape.spares is not None, "spares default to none"
    return (
        RunSpec(
            owner=owner,
            flavor=flavor,
            total_gpus=shape.total,
            group_gpus=shape.group,
            gpus_per_pod=shape.per_pod,
            spread=spread,
            selector=selector,
            gang=gang,
            malleable=shape.malleable,
            spares_per_group=shape.spares,
            opportunistic=opportunistic,
            stop=stop,
            max_duration=max_duration,
            checkpoint=checkpoint,
            retries=retries,
            grace=grace,
            start_timeout=start_timeout,
            funding=funding,
            cpu_milli=template.cpu_milli,
            memory_bytes=template.memory_bytes,
            tolerations=template.tolerations,
            template=template.raw,
        ),
        [],
    )


def _read_shape(resources: Fields, locality: Fields) -> _Shape:
    """Read total, group and pod size.

    A number that breaks a rule becomes None, so that rules about it are skipped.
    """
    total = resources.need("totalGPUs", readers.gpus)
    group = locality.take("groupGPUs", readers.gpus, None)
    per_pod = resources.take("gpusPerPod", readers.pod_gpus, None)
    if total is not None and group is not None and total % group:
        locality.note("groupGPUs", f"groups must divide totalGPUs; use a divisor of {total}")
        group = None
    if not locality.has("groupGPUs"):
        group = total
    if group is not None and per_pod is not None and group % per_pod:
        resources.note("gpusPerPod", f"pods must divide a group; use a divisor of {group}")
        per_pod = None
    return _Shape(total, group, per_pod)


def _read_malleable(fields: Fields, resources: Fields, shape: _Shape) -> None:
    if fields.is_void:
        return
    least = fields.need("minTotalGPUs", readers.gpus)
    most = fields.need("maxTotalGPUs", readers.gpus)
    step = fields.take("stepGPUs", readers.gpus, None if fields.has("stepGPUs") else shape.group)
    desired = fields.take("desiredTotalGPUs", readers.gpus, None)
    fields.finish()
    group = shape.group
    shape.width_max = None if shape.total is None or most is None else max(shape.total, most)
    if group is None or least is None or most is None or step is None:
        return
    widths = {"minTotalGPUs": least, "maxTotalGPUs": most, "stepGPUs": step}
    for key, width in widths.items():
        if width % group:
            fields.note(key, f"use a multiple of the group's {group} GPUs")
    if least > most:
        fields.note("minTotalGPUs", f"the width is over maxTotalGPUs; use at most {most}")
    if fields.is_wrong(*widths):
        return
    grid = Malleable(min_gpus=least, max_gpus=most, step_gpus=step, desired_gpus=most)
    if (most - least) % step:
        fields.note("maxTotalGPUs", _near(grid, most))
    elif shape.total is not None and not _on(grid, shape.total):
        resources.note("totalGPUs", _near(grid, shape.total))
    if desired is not None and not _on(grid, desired):
        fields.note("desiredTotalGPUs", _near(grid, desired))
    shape.malleable = Malleable(
        min_gpus=least,
        max_gpus=most,
        step_gpus=step,
        desired_gpus=desired or shape.total or least,
    )


def _on(grid: Malleable, width: int) -> bool:
    return grid.min_gpus <= width <= grid.max_gpus and not (width - grid.min_gpus) % grid.step_gpus


def _near(grid: Malleable, width: int) -> str:
    """Return a remedy that names the nearest legal widths."""
    inside = min(max(width, grid.min_gpus), grid.max_gpus)
    below = inside - (inside - grid.min_gpus) % grid.step_gpus
    above = below + grid.step_gpus
    choice = f"{below}" if above > grid.max_gpus or below == inside else f"{below} or {above}"
    return (
        f"the width goes from minTotalGPUs {grid.min_gpus} to maxTotalGPUs {grid.max_gpus} in "
        f"steps of {grid.step_gpus}; use {choice}"
    )


def _read_spares(spec: Fields, shape: _Shape) -> None:
    spares = spec.take("sparesPerGroup", readers.gpus_or_none, 0)
    per_pod = shape.per_pod
    if per_pod is not None and spares % per_pod:
        spec.note("sparesPerGroup", f"a spare replaces a pod; use a multiple of {per_pod}")
    shape.spares = None if spec.is_wrong("sparesPerGroup") else spares


def _check_count(resources: Fields, locality: Fields, shape: _Shape) -> None:
    """Check the number of groups and pods at the largest width, because every decision walks
    them."""
    widest = shape.widest()
    if widest is None or shape.width_max is None or shape.group is None:
        return
    groups = shape.width_max // shape.group
    if groups > RUN_GROUPS_MAX:
        least = -(-shape.width_max // RUN_GROUPS_MAX)
        locality.note(
            "groupGPUs",
            f"this makes {groups} groups; a Run has at most {RUN_GROUPS_MAX}; use {least} or "
            "more, or submit several Runs",
        )
        return
    if resources.is_wrong("gpusPerPod"):
        return
    pods = widest // (shape.per_pod or 1)
    if pods > RUN_PODS_MAX:
        least = -(-widest // RUN_PODS_MAX)
        counted = "" if shape.per_pod else "without gpusPerPod a pod may have one GPU: "
        resources.note(
            "gpusPerPod",
            f"{counted}this makes up to {pods} pods, spares included; a Run has at most "
            f"{RUN_PODS_MAX}; use {least} or more, or submit several Runs",
        )


def _read_selector(fields: Fields) -> Selector:
    selector = Selector(
        region=fields.take("region", readers.word, None),
        cluster=fields.take("cluster", readers.word, None),
        domain=fields.take("fabric.domain", readers.word, None),
    )
    fields.finish()
    return selector


def _read_funding(fields: Fields, shape: _Shape) -> Funding:
    allowed = fields.take("allowBorrow", readers.flag, False)
    most = fields.take("maxBorrowGPUs", readers.gpus_or_none, None)
    sponsors = fields.set_of("sponsors", readers.owner)
    fields.finish()
    if not allowed and not fields.is_wrong("allowBorrow"):
        if sponsors:
            fields.note("sponsors", "sponsors need allowBorrow: true; set it or leave them out")
        if most:
            fields.note(
                "maxBorrowGPUs", "borrowing needs allowBorrow: true; set it or leave this out"
            )
    elif most is not None:
        widest = shape.widest()
        if widest is not None and most > widest:
            fields.note("maxBorrowGPUs", f"the run never has more GPUs; use at most {widest}")
    return Funding(allow_borrow=allowed, max_borrow_gpus=most, sponsors=sponsors)
