"""The immutable records that decisions read: budgets, runs, nodes, pods and leases.

Every record is a frozen struct of plain values. The codecs in `core.objects` make records from
manifests; `core.world` folds them. Identities are strings: an envelope is
`namespace/budget/envelope`, a domain is `region/cluster/fabric`, and a run is its uid, because a
later run may reuse its `namespace/name`.
"""

from enum import StrEnum
from typing import dataclass_transform

import msgspec

from leasehold.core.names import LEASES_CLOSED
from leasehold.core.units import FOREVER, GpuMs, Instant, Millis

EnvelopeKey = str
Location = tuple[str, str]  # region, cluster: where an envelope pays
RunKey = str
Uid = str


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The base of every fact; a change is a new record."""


class Sharing(StrEnum):
    """Whether an envelope also pays for its owner's family (C2, steps 2 and 3)."""

    FAMILY = "family"
    NONE = "none"


class Gang(StrEnum):
    """What starts and ends together: the whole run, or each group alone (G1)."""

    RUN = "Run"
    GROUP = "Group"


class Role(StrEnum):
    """How the slots of a lease are used; `BORROWED` is a filler on another run's spare (F1)."""

    ACTIVE = "Active"
    SPARE = "Spare"
    BORROWED = "Borrowed"


class Relation(StrEnum):
    """How the payer is related to the owner of the run (C2, C3)."""

    OWNED = "Owned"
    SHARED = "Shared"
    BORROWED = "Borrowed"


class Opened(StrEnum):
    """Why a lease was opened."""

    START = "Start"
    GROW = "Grow"
    SWAP = "Swap"
    REFINANCE = "Refinance"


class Closed(StrEnum):
    """Why a lease ended; `ClosureReason` adds the detail."""

    COMPLETED = "Completed"
    FAIL = "Fail"
    NODE_FAILURE = "NodeFailure"
    SWAP = "Swap"
    SHRINK = "Shrink"
    DROP_SPARE = "DropSpare"
    RECLAIMED = "ReclaimedBySpare"
    RANDOM_PREEMPT = "RandomPreempt"
    REFINANCED = "Refinanced"
    TIME_LIMIT = "TimeLimit"
    CANCELED = "Canceled"


class Cause(StrEnum):
    """The cause of a closure `Fail`. Only `EXIT` and `UNSTARTED` are the workload's own and use
    up a retry (B5)."""

    EXIT = "Exit"
    UNSTARTED = "Unstarted"
    REJECTED = "Rejected"
    DELETED = "Deleted"
    REFUSED = "Refused"


class Phase(StrEnum):
    """The phase of a Run, as its status shows it."""

    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Failed(StrEnum):
    """The reason of a Run's condition `Failed`."""

    WORKLOAD = "WorkloadFailed"
    NODE = "NodeFailure"
    RANDOM_PREEMPT = "RandomPreempt"
    RECLAIMED = "ReclaimedBySpare"
    OVERDRAWN = "Overdrawn"
    TIME_LIMIT = "TimeLimit"
    CANCELED = "Canceled"


class Lending(Record):
    """The lending policy of an envelope: to which owners it lends, and how much (C2, C4)."""

    allow: bool = False
    to: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_gpu_ms: GpuMs | None = None


class Envelope(Record):
    """One line of a Budget: a number of GPUs of one flavor, in a place, during a window."""

    key: EnvelopeKey
    owner: str
    flavor: str
    concurrency: int
    region: str | None = None
    cluster: str | None = None
    max_gpu_ms: GpuMs | None = None
    start: Instant = 0
    end: Instant = FOREVER
    sharing: Sharing = Sharing.FAMILY
    lending: Lending = Lending()

    def covers(self, region: str, cluster: str) -> bool:
        """Return whether the envelope pays for GPUs in this location."""
        return self.region in (None, region) and self.cluster in (None, cluster)

    def in_window(self, at: Instant) -> bool:
        return self.start <= at < self.end

    @property
    def caps_hours(self) -> bool:
        return self.max_gpu_ms is not None or self.lending.max_gpu_ms is not None


class Aggregate(Record):
    """A cap over several envelopes of one Budget; its key is `namespace/budget/aggregate`."""

    key: str
    flavor: str
    members: tuple[EnvelopeKey, ...]
    max_concurrency: int


class Budget(Record):
    """A Budget: the envelopes of one owner, and the namespaces whose runs may charge them."""

    namespace: str
    name: str
    owner: str
    parents: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    envelopes: tuple[Envelope, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    uid: Uid = ""
    version: int = 0  # the resourceVersion that was read
    wire_spec: bytes = b"{}"  # the spec as written, as canonical JSON; goes into the ledger's facts

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Selector(Record):
    """Where a run may be placed; None matches any region, cluster or domain."""

    region: str | None = None
    cluster: str | None = None
    domain: str | None = None


class Malleable(Record):
    """The widths of an elastic run, in GPUs: `min_gpus`, then in steps of `step_gpus` up to
    `max_gpus`."""

    min_gpus: int
    max_gpus: int
    step_gpus: int
    desired_gpus: int


class Funding(Record):
    """Whether a run may borrow, from which sponsors, and how many GPUs at most (C3)."""

    allow_borrow: bool = False
    max_borrow_gpus: int | None = None
    sponsors: tuple[str, ...] = ()


class Toleration(Record):
    """A toleration of the pod template, as in Kubernetes."""

    key: str = ""  # empty with operator Exists: tolerates every taint
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class RunSpec(Record):
    """What a run asks for. GPU counts are totals over the run unless the name says otherwise."""

    owner: str
    flavor: str
    total_gpus: int
    group_gpus: int
    gpus_per_pod: int | None = None  # None: the largest that divides the group and fits a node
    spread: bool = True
    selector: Selector = Selector()
    gang: Gang = Gang.RUN
    malleable: Malleable | None = None
    spares_per_group: int = 0
    opportunistic: bool = False
    stop: bool = False
    max_duration: Millis | None = None
    checkpoint: Millis | None = None
    retries: int = 0
    grace: Millis = 30_000
    start_timeout: Millis | None = None  # longest time from Start lease to running container
    funding: Funding = Funding()
    cpu_milli: int = 0  # requested by one pod of the template, all containers
    memory_bytes: int = 0
    is_amended: bool = False  # the API server's admission changed cpu_milli and memory_bytes
    tolerations: tuple[Toleration, ...] = ()
    nodes: frozenset[str] | None = None  # the only nodes that can reach its volumes; None: any
    template: bytes = b"{}"  # the user's pod template, as canonical JSON


class Run(Record):
    """A Run: its identity, its spec, and what the store reports about the object."""

    namespace: str
    name: str
    uid: Uid
    created: Instant
    spec: RunSpec
    version: int = 0
    number: int = 0  # order of creation among runs whose creation stamps are equal
    deleting: bool = False  # deleted by the user; the object stays until its leases are closed
    finalizers: tuple[str, ...] = (LEASES_CLOSED,)  # they keep the object after a deletion
    generation: int = 0  # increases with each change of the spec
    seen_running: int = 0  # the last attempt whose pods were all bound, from the run's status

    @property
    def key(self) -> RunKey:
        return f"{self.namespace}/{self.name}"


class Taint(Record):
    """A taint of a Node, as in Kubernetes."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Node(Record):
    """A node, with its GPUs, its place in the fleet and its health."""

    name: str
    flavor: str
    region: str
    cluster: str
    fabric: str
    gpus: int
    cpu_milli: int = 1 << 50
    memory_bytes: int = 1 << 60
    pods_max: int = 110
    ready: bool = True
    not_ready_since: Instant | None = None  # by the clock of the node controller or agent
    unheard_since: Instant | None = None  # by our clock, since we first saw that it is not ready
    cordoned: bool = False
    fenced: bool = False  # positive evidence that its processes are dead
    drained_by: str = ""  # name of the user who drains the node; "": not draining
    taints: tuple[Taint, ...] = ()  # taints that leasehold did not set
    is_reserved: bool = False  # has our taint, which keeps other schedulers away
    lacks: str = ""  # why the node cannot be used, e.g. a missing label; "": usable
    uid: Uid = ""
    version: int = 0

    @property
    def domain(self) -> str:
        return f"{self.region}/{self.cluster}/{self.fabric}"

    @property
    def is_draining(self) -> bool:
        return bool(self.drained_by)


class PodPhase(StrEnum):
    """The phase of a pod. `ORDERED` exists in leasehold only: requested, but not yet observed."""

    ORDERED = "Ordered"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Pod(Record):
    """A pod; `run_uid` is empty for a foreign pod, i.e. one that leasehold did not create."""

    namespace: str
    name: str
    node: str  # the node it is on, or will be bound to
    gpus: int
    placed: bool = True  # False: created without a node name, to be bound later
    uid: Uid = ""
    version: int = 0
    run_uid: Uid = ""
    group: int = 0
    index: int = 0
    attempt: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    phase: PodPhase = PodPhase.PENDING
    reason: str = ""  # why its node rejected it
    exit_code: int | None = None
    said: str = ""  # the node's message about its end
    slots: tuple[int, ...] = ()  # ordinals of its GPUs, if known
    began_at: Instant | None = None  # when its first container started
    finished_at: Instant | None = None
    deleting: bool = False
    asked_to_go: Instant | None = None  # when it was deleted; the grace period follows
    # what an accepted pod waits for before its start; None: not waiting
    waits_for: str | None = None
    disrupted: bool = False  # evicted, or ended by the shutdown of its node: not its own failure
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def ended_because_deleted(self) -> bool:
        """Return whether the pod was deleted or evicted before it ended, so that its exit code is
        not a result.

        Node clocks may have a resolution of seconds. If the deletion and the end have the same
        timestamp, a success counts as earlier than the deletion, a failure as later.
        """
        if self.disrupted and self.phase is PodPhase.FAILED:
            return True
        if not self.has_ended or self.asked_to_go is None:
            return False
        if self.finished_at is None or self.asked_to_go < self.finished_at:
            return True
        return self.phase is PodPhase.FAILED and self.asked_to_go == self.finished_at

    @property
    def is_bound(self) -> bool:
        """Return whether the node accepted the pod."""
        return self.phase is PodPhase.RUNNING or (self.has_ended and not self.reason)


class ClosureReason(Record):
    """Why a lease ends, and a detail; on the wire it is the text `Reason(detail)`.

    The detail depends on the reason:

    - `RandomPreempt`: the seed of the lottery
    - `Swap`, `Shrink`, `DropSpare`: the node that was drained, if that was the cause
    - `Fail`: what the pod was waiting for, if the pod could not be started
    """

    reason: Closed
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}({self.detail})" if self.detail else self.reason.value

    @property
    def seed(self) -> str:
        return self.detail if self.reason is Closed.RANDOM_PREEMPT else ""

    @property
    def drained_node(self) -> str:
        """Return the node whose drain caused the closure, or ""."""
        return self.detail if self.reason in (Closed.SWAP, Closed.SHRINK, Closed.DROP_SPARE) else ""

    @property
    def unstarted(self) -> str:
        """Return what the pod was waiting for, if the lease ended because its pod could not be
        started; otherwise ""."""
        return self.detail if self.reason is Closed.FAIL else ""


def parse_why(text: str) -> ClosureReason:
    """Parse `Reason(detail)`. Raises ValueError for an unknown reason."""
    reason, _, rest = text.partition("(")
    return ClosureReason(reason=Closed(reason), detail=rest.removesuffix(")"))


class Ending(Record):
    """The decision to end a lease: why, the deadline at which its pod is killed, and the batch
    and instant of the decision."""

    why: ClosureReason
    deadline: Instant
    batch: int = 0
    at: Instant = 0


class Closure(Record):
    """The end of a lease: why, when, and the batch that recorded it."""

    why: ClosureReason
    at: Instant
    batch: int
    cause: Cause | None = None  # set only for `Fail`
    # when its pod started to run, if starting takes long; before that it was starting up
    began: Instant | None = None
    saved: Instant | None = None  # work before this instant is in a checkpoint and was not lost


class Lease(Record):
    """Slots of one node, used by one pod or kept as its spare, and paid by one envelope."""

    name: str
    owner: str
    namespace: str
    run: str
    uid: Uid
    attempt: int
    group: int
    index: int  # of the pod within its group, or of the spare
    node: str
    slots: tuple[int, ...]
    role: Role
    start: Instant
    payer: EnvelopeKey
    payer_owner: str
    relation: Relation
    reason: Opened
    batch: int
    pod: str = ""  # the pod's name; empty for a spare
    ending: Ending | None = None
    closed: Closure | None = None

    @property
    def gpus(self) -> int:
        return len(self.slots)

    @property
    def is_open(self) -> bool:
        return self.closed is None

    @property
    def end(self) -> Instant | None:
        return None if self.closed is None else self.closed.at

    @property
    def cause(self) -> Cause | None:
        return None if self.closed is None else self.closed.cause

    @property
    def why(self) -> ClosureReason | None:
        """Return why the lease ended or is ending; None if it is open and not ending."""
        if self.closed is not None:
            return self.closed.why
        return None if self.ending is None else self.ending.why

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"

    @property
    def pod_key(self) -> str:
        assert self.pod, self.name
        return f"{self.namespace}/{self.pod}"

    def gpu_ms(self, now: Instant) -> GpuMs:
        """Return the GPU-time charged to the payer up to `now`; constant once the lease is
        closed."""
        return len(self.slots) * ((now if self.closed is None else self.closed.at) - self.start)


def ledger_order(lease: Lease) -> tuple[int, int]:
    """Return the sort key of opening order: batch, then index within the batch."""
    return lease.batch, int(lease.name.rpartition("-")[2])
