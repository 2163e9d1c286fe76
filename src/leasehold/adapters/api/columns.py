"""The columns of `kubectl get` for each kind, and how each cell is computed.

Data for `resources`; `tables` renders it. The columns of Pods, Nodes, Events and Namespaces are
those of a real Kubernetes API server. Cells are read leniently: a missing field is blank.
"""

from collections.abc import Callable
from dataclasses import dataclass

from leasehold.core.names import Wire
from leasehold.core.objects.node import FLAVOR_WELL_KNOWN, Labels
from leasehold.core.objects.wire import list_at, part, text_at, whole_at
from leasehold.core.units import DAY, HOUR, MINUTE, SECOND, Instant, parse_instant

_FLAVOR = Labels().flavor  # a cluster with another label can use `--show-labels`
Cell = Callable[[Wire, Instant], object]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a `wide` one is only shown with `-o wide`. `path`: the field that a
    CustomResourceDefinition shows instead of the computed cell, because it can only show fields."""

    name: str
    cell: Cell
    type: str = "string"
    wide: bool = False
    about: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class At:
    """Returns the text or number at a dotted path of an object; blank if it is missing or is a
    mapping or list."""

    path: str

    def __call__(self, obj: Wire, _: Instant) -> object:
        found: object = obj
        for key in self.path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found if isinstance(found, str | int | float) else None


def at(path: str) -> Cell:
    return At(path)


def human_span(ms: int) -> str:
    """Return a duration as kubectl writes it: `12s`, `4m3s`, `2d`."""
    if ms < 0:
        return "0s" if ms > -2 * SECOND else "<invalid>"
    units = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s"))
    # kubectl's thresholds for dropping the smaller unit: 2m, 10m, 3h, 8h, 2d, 8d, 2y, 8y.
    if ms < 2 * MINUTE:
        return f"{ms // SECOND}s"
    if ms < 10 * MINUTE:
        return _two(ms, units[2], units[3])
    if ms < 3 * HOUR:
        return f"{ms // MINUTE}m"
    if ms < 8 * HOUR:
        return _two(ms, units[1], units[2])
    if ms < 2 * DAY:
        return f"{ms // HOUR}h"
    if ms < 8 * DAY:
        return _two(ms, units[0], units[1])
    if ms < 730 * DAY:
        return f"{ms // DAY}d"
    return _two(ms, (365 * DAY, "y"), units[0]) if ms < 8 * 365 * DAY else f"{ms // (365 * DAY)}y"


def _two(ms: int, large: tuple[int, str], small: tuple[int, str]) -> str:
    whole, rest = divmod(ms, large[0])
    fine = rest // small[0]
    return f"{whole}{large[1]}" + (f"{fine}{small[1]}" if fine else "")


@dataclass(frozen=True, slots=True)
class Since:
    """Returns the time since the instant under a dotted path."""

    path: str

    def __call__(self, obj: Wire, now: Instant) -> object:
        text = At(self.path)(obj, now)
        moment = parse_instant(text) if isinstance(text, str) and len(text) < 64 else None
        return "<unknown>" if moment is None else human_span(now - moment)


def since(path: str) -> Cell:
    return Since(path)


def _mappings(obj: Wire, key: str) -> list[Wire]:
    return [each for each in list_at(obj, key) if isinstance(each, dict)]


def _run_reason(obj: Wire, _: Instant) -> object:
    """Return the reason shown for a Run: that of the last true condition whose reason differs from
    its type. If there is none, return the type of the last true condition."""
    holding = [
        condition
        for condition in _mappings(part(obj, "status"), "conditions")
        if condition.get("status") == "True"
    ]
    for condition in reversed(holding):
        if condition.get("reason") not in (None, "", condition.get("type")):
            return text_at(condition, "reason")
    return text_at(holding[-1], "type") if holding else None


def _run_phase(obj: Wire, _: Instant) -> object:
    phase = text_at(part(obj, "status"), "phase") or "Pending"
    leaving = part(obj, "metadata").get("deletionTimestamp") is not None
    return "Terminating" if leaving and phase not in ("Completed", "Failed") else phase


def _run_width(obj: Wire, _: Instant) -> object:
    spec = part(obj, "spec")
    total = part(spec, "resources").get("totalGPUs")
    malleable = part(spec, "malleable")
    if malleable:
        return f"{malleable.get('minTotalGPUs')}-{malleable.get('maxTotalGPUs')}"
    return None if total is None else str(total)


def _run_payers(obj: Wire, _: Instant) -> object:
    funding = part(part(obj, "status"), "funding")
    shares = [
        f"{word} {funding[key]}"
        for word, key in (
            ("owned", "ownedGPUs"),
            ("shared", "sharedGPUs"),
            ("borrowed", "borrowedGPUs"),
        )
        if funding.get(key)
    ]
    lenders = [text_at(each, "owner") for each in _mappings(funding, "sponsors")]
    return ", ".join(shares) + (f" from {', '.join(lenders)}" if lenders else "") or None


def _budget_gpus(obj: Wire, _: Instant) -> object:
    used = sum(whole_at(each, "used") or 0 for each in _mappings(part(obj, "status"), "envelopes"))
    limits = [each.get("concurrency") for each in _mappings(part(obj, "spec"), "envelopes")]
    return f"{used}/{sum(each for each in limits if isinstance(each, int))}"


def _budget_hours(obj: Wire, _: Instant) -> object:
    spent = {
        text_at(each, "name"): each.get("gpuHoursUsed")
        for each in _mappings(part(obj, "status"), "envelopes")
    }
    cells = []
    for envelope in _mappings(part(obj, "spec"), "envelopes"):
        name, most = text_at(envelope, "name"), envelope.get("maxGPUHours")
        used = spent.get(name) or "0"
        cells.append(f"{name} {used}" + (f"/{most}" if most is not None else ""))
    return ", ".join(cells) or None


def _budget_state(obj: Wire, _: Instant) -> object:
    holding = [
        text_at(each, "type")
        for each in _mappings(part(obj, "status"), "conditions")
        if each.get("status") == "True"
    ]
    return ",".join(holding) or None


def _lease_gpus(obj: Wire, _: Instant) -> object:
    return len(list_at(part(part(obj, "spec"), "slice"), "slots"))


def _lease_state(obj: Wire, _: Instant) -> object:
    status = part(obj, "status")
    if status.get("closed"):
        return text_at(status, "closureReason") or "Closed"
    ending = part(status, "ending")
    return f"Ending ({text_at(ending, 'reason')})" if ending else "Open"


def _lease_run(obj: Wire, _: Instant) -> object:
    ref = part(part(obj, "spec"), "runRef")
    return f"{text_at(ref, 'namespace')}/{text_at(ref, 'name')}"


def _lease_payer(obj: Wire, _: Instant) -> object:
    payer = part(part(obj, "spec"), "paidBy")
    return "/".join(text_at(payer, key) for key in ("namespace", "budget", "envelope"))


def _lease_slots(obj: Wire, _: Instant) -> object:
    slots = list_at(part(part(obj, "spec"), "slice"), "slots")
    return ",".join(str(each) for each in slots)


def _beneficiary(obj: Wire, _: Instant) -> object:
    whom = part(part(obj, "spec"), "beneficiary")
    return f"{text_at(whom, 'namespace')}/{text_at(whom, 'name')}" if whom else None


def _count_of(path: str) -> Cell:
    *way, last = path.split(".")

    def cell(obj: Wire, _: Instant) -> object:
        found = obj
        for key in way:
            found = part(found, key)
        return len(list_at(found, last))

    return cell


def _pod_ready(obj: Wire, _: Instant) -> object:
    statuses = _mappings(part(obj, "status"), "containerStatuses")
    ready = sum(1 for each in statuses if each.get("ready") is True)
    return f"{ready}/{len(list_at(part(obj, 'spec'), 'containers'))}"


def _pod_status(obj: Wire, _: Instant) -> object:
    status = part(obj, "status")
    word = text_at(status, "reason") or text_at(status, "phase") or "Unknown"
    for each in _mappings(status, "containerStatuses"):
        state = part(each, "state")
        waiting, ended = part(state, "waiting"), part(state, "terminated")
        if text_at(waiting, "reason"):
            word = text_at(waiting, "reason")
        elif ended and not text_at(status, "reason"):
            word = text_at(ended, "reason") or _exit_word(ended)
    return "Terminating" if part(obj, "metadata").get("deletionTimestamp") is not None else word


def _exit_word(ended: Wire) -> str:
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended['exitCode']}" if ended.get("exitCode") else "Completed"


def _pod_restarts(obj: Wire, _: Instant) -> object:
    counts = [
        each.get("restartCount") for each in _mappings(part(obj, "status"), "containerStatuses")
    ]
    return str(sum(each for each in counts if isinstance(each, int)))


def _or_none(path: str) -> Cell:
    read = at(path)
    return lambda obj, now: read(obj, now) or "<none>"


def _node_status(obj: Wire, _: Instant) -> object:
    ready = [
        each for each in _mappings(part(obj, "status"), "conditions") if each.get("type") == "Ready"
    ]
    word = "Unknown"
    if ready:
        word = "Ready" if ready[0].get("status") == "True" else "NotReady"
    cordoned = part(obj, "spec").get("unschedulable") is True
    return f"{word},SchedulingDisabled" if cordoned else word


def _node_roles(obj: Wire, _: Instant) -> object:
    prefix = "node-role.kubernetes.io/"
    labels = part(part(obj, "metadata"), "labels")
    roles = [key[len(prefix) :] for key in labels if key.startswith(prefix) and key != prefix]
    return ",".join(sorted(roles)) or "<none>"


def _node_address(kind: str) -> Cell:
    def cell(obj: Wire, _: Instant) -> object:
        for each in _mappings(part(obj, "status"), "addresses"):
            if each.get("type") == kind:
                return text_at(each, "address")
        return "<none>"

    return cell


def _node_info(key: str) -> Cell:
    def cell(obj: Wire, _: Instant) -> object:
        return text_at(part(part(obj, "status"), "nodeInfo"), key) or "<unknown>"

    return cell


def _node_gpus(obj: Wire, _: Instant) -> object:
    allocatable = part(part(obj, "status"), "allocatable")
    for key, value in allocatable.items():
        if key.endswith("/gpu"):
            return str(value)
    return "0"


def _node_flavor(obj: Wire, _: Instant) -> object:
    labels = part(part(obj, "metadata"), "labels")
    return text_at(labels, _FLAVOR) or text_at(labels, FLAVOR_WELL_KNOWN) or "<unknown>"


def _event_seen(*keys: str) -> Cell:
    def cell(obj: Wire, now: Instant) -> object:
        for key in keys:
            text = text_at(obj, key)
            if text:
                return since(key)(obj, now)
        return "<unknown>"

    return cell


def _event_object(obj: Wire, _: Instant) -> object:
    about = part(obj, "involvedObject")
    return f"{text_at(about, 'kind').lower()}/{text_at(about, 'name')}"


def _event_source(obj: Wire, _: Instant) -> object:
    source = part(obj, "source")
    words = (text_at(source, "component"), text_at(source, "host"))
    return ", ".join(word for word in words if word) or text_at(obj, "reportingComponent")


def _event_message(obj: Wire, _: Instant) -> object:
    return text_at(obj, "message").strip()


def _namespace_phase(obj: Wire, _: Instant) -> object:
    leaving = part(obj, "metadata").get("deletionTimestamp") is not None
    return "Terminating" if leaving else "Active"


NAME = Column("Name", at("metadata.name"), about="Name, unique within its kind and namespace.")
AGE = Column("Age", since("metadata.creationTimestamp"), about="Time since the creation.")

RUN = (
    NAME,
    Column(
        "Phase", _run_phase, about="Pending, Running, Completed or Failed.", path="status.phase"
    ),
    Column("Reason", _run_reason, about="The reason for the phase."),
    Column("GPUs", at("status.width.allocated"), "integer", about="GPUs that the Run holds now."),
    Column(
        "Width",
        _run_width,
        about="GPUs that the Run requests; for a malleable Run, minimum and maximum.",
        path="spec.resources.totalGPUs",
    ),
    Column("Owner", at("spec.owner"), about="The owner of the run."),
    AGE,
    Column("Attempt", at("status.attempt"), "integer", wide=True),
    Column("Submitted", at("status.submitted"), wide=True, about="When the Run was submitted."),
    Column("Started", at("status.started"), wide=True, about="When the last attempt started."),
    Column("Ended", at("status.ended"), wide=True, about="When the Run ended."),
    Column("Payers", _run_payers, wide=True, about="GPUs by the relation of their payer."),
    Column("Message", at("status.message"), wide=True, about="One sentence for people."),
)
BUDGET = (
    NAME,
    Column("Owner", at("spec.owner"), about="The owner of the Budget."),
    Column("Envelopes", _count_of("spec.envelopes"), "integer", path="status.envelopeCount"),
    Column(
        "GPUs",
        _budget_gpus,
        about="GPUs in use, and GPUs allowed at one time.",
        path="status.gpus",
    ),
    Column("Status", _budget_state, about="Healthy, NearLimit or Overdrawn.", path="status.state"),
    AGE,
    Column("GPU-Hours", _budget_hours, wide=True, about="GPU-hours used, by envelope."),
)
LEASE = (
    NAME,
    Column("Run", _lease_run, path="spec.runRef.name"),
    Column("Node", at("spec.slice.node")),
    Column("GPUs", _lease_gpus, "integer"),
    Column("Role", at("spec.slice.role")),
    Column(
        "Payer", _lease_payer, about="Namespace, budget and envelope.", path="spec.paidByEnvelope"
    ),
    Column(
        "State",
        _lease_state,
        about="Open, Ending, or the reason of the closure.",
        path="status.closureReason",
    ),
    Column("Age", since("spec.interval.start"), about="Time since the start."),
    Column("Owner", at("spec.owner"), wide=True),
    Column("Relation", at("spec.paidBy.relation"), wide=True),
    Column("Slots", _lease_slots, wide=True),
    Column("Reason", at("spec.reason"), wide=True, about="Why the lease was opened."),
    Column("Ended", at("status.endTime"), wide=True),
    Column("Batch", at("spec.batch"), "integer", wide=True),
)
RESERVATION = (
    NAME,
    Column("Run", at("spec.runRef.name")),
    Column("State", at("status.state")),
    Column("Start", at("status.earliestStart"), about="The planned start."),
    Column(
        "Deficit", at("status.deficitGPUs"), "integer", about="GPUs that are missing for the start."
    ),
    Column("Confidence", at("status.confidence")),
    AGE,
    Column("Reason", at("status.reason"), wide=True),
    Column("Message", at("status.message"), wide=True),
)
RESOLUTION = (
    NAME,
    Column("Cause", at("spec.cause")),
    Column("Beneficiary", _beneficiary, path="spec.beneficiary.name"),
    Column("Deficit", at("spec.deficitGPUs"), "integer", about="GPUs that were missing."),
    Column("Victims", _count_of("spec.victims"), "integer", about="Leases that were preempted."),
    Column("Draws", _count_of("spec.lottery.draws"), "integer"),
    Column("Age", since("spec.instant")),
    Column("Subject", at("spec.subject"), wide=True),
)
LEDGER_HEAD = (
    NAME,
    Column("Seq", at("spec.seq"), "integer", about="The last committed batch."),
    Column("Epoch", at("spec.epoch"), "integer"),
    Column("Digest", at("spec.digest")),
    AGE,
)
LEDGER_OBJECT = (NAME, AGE)
POD = (
    NAME,
    Column("Ready", _pod_ready),
    Column("Status", _pod_status),
    Column("Restarts", _pod_restarts),
    AGE,
    Column("IP", _or_none("status.podIP"), wide=True),
    Column("Node", _or_none("spec.nodeName"), wide=True),
    Column("Nominated Node", _or_none("status.nominatedNodeName"), wide=True),
    Column("Readiness Gates", lambda _obj, _now: "<none>", wide=True),
)
NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", at("status.nodeInfo.kubeletVersion")),
    Column("GPUs", _node_gpus, about="Allocatable GPUs."),
    Column("Flavor", _node_flavor, about="Type of the GPUs, as in envelopes and Runs."),
    Column("Internal-IP", _node_address("InternalIP"), wide=True),
    Column("External-IP", _node_address("ExternalIP"), wide=True),
    Column("OS-Image", _node_info("osImage"), wide=True),
    Column("Kernel-Version", _node_info("kernelVersion"), wide=True),
    Column("Container-Runtime", _node_info("containerRuntimeVersion"), wide=True),
)
EVENT = (
    Column("Last Seen", _event_seen("lastTimestamp", "eventTime", "firstTimestamp")),
    Column("Type", at("type")),
    Column("Reason", at("reason")),
    Column("Object", _event_object),
    Column("Subobject", at("involvedObject.fieldPath"), wide=True),
    Column("Source", _event_source, wide=True),
    Column("Message", _event_message),
    Column("First Seen", _event_seen("firstTimestamp", "eventTime"), wide=True),
    Column("Count", at("count"), wide=True),
    Column("Name", at("metadata.name"), wide=True),
)
NAMESPACE = (NAME, Column("Status", _namespace_phase), AGE)
SERVICE = (NAME, AGE)
TENURE = (NAME, Column("Holder", at("spec.holderIdentity"), about="The leader."), AGE)
