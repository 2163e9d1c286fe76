"""The immutable records that decisions read: who may claim, what is wanted, what is there.

Everything is a frozen struct of plain values. Codecs in `core.objects` make them from manifests;
`core.world` folds them. Identities are strings: an envelope is `namespace/budget/envelope`, a
run is known by its uid (its `namespace/name` may be used again by another run), a domain is
`region/cluster/fabric`.
"""

from enum import StrEnum
from typing import dataclass_transform

import msgspec

from leasehold.core.names import LEASES_CLOSED
from leasehold.core.units import FOREVER, GpuMs, Instant, Millis

EnvelopeKey = str
Location = tuple[str, str]  # region, cluster: what an envelope covers
RunKey = str
Uid = str


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The base of every fact; a change is a new record."""


class Sharing(StrEnum):
    FAMILY = "family"
    NONE = "none"


class Gang(StrEnum):
    RUN = "Run"
    GROUP = "Group"


class Role(StrEnum):
    """What a lease's slots do."""

    ACTIVE = "Active"
    SPARE = "Spare"
    BORROWED = "Borrowed"


class Relation(StrEnum):
    """What the payer is to the owner of the run."""

    OWNED = "Owned"
    SHARED = "Shared"
    BORROWED = "Borrowed"


class Opened(StrEnum):
    """Why a lease exists."""

    START = "Start"
    GROW = "Grow"
    SWAP = "Swap"
    REFINANCE = "Refinance"


class Closed(StrEnum):
    """Why a lease ended; a `Why` says more."""

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
    """What lies behind a closure `Fail`: the first two are the workload's own and use a retry."""

    EXIT = "Exit"
    UNSTARTED = "Unstarted"
    REJECTED = "Rejected"
    DELETED = "Deleted"
    REFUSED = "Refused"


class Phase(StrEnum):
    PENDING = "Pending"
    RUNNING = "Running"
    COMPLETED = "Completed"
    FAILED = "Failed"


class Failed(StrEnum):
    """The reason of the condition `Failed`."""

    WORKLOAD = "WorkloadFailed"
    NODE = "NodeFailure"
    RANDOM_PREEMPT = "RandomPreempt"
    RECLAIMED = "ReclaimedBySpare"
    OVERDRAWN = "Overdrawn"
    TIME_LIMIT = "TimeLimit"
    CANCELED = "Canceled"


class Lending(Record):
    allow: bool = False
    to: tuple[str, ...] = ()
    max_concurrency: int | None = None
    max_gpu_ms: GpuMs | None = None


class Envelope(Record):
    """One line of a Budget: so many GPUs of a flavor, at a place, in a window."""

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
        """Whether it pays for GPUs at this place."""
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
    namespace: str
    name: str
    owner: str
    parents: tuple[str, ...]
    namespaces: tuple[str, ...] = ()
    envelopes: tuple[Envelope, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    uid: Uid = ""
    version: int = 0  # resourceVersion it was read at
    wire_spec: bytes = b"{}"  # the canonical JSON of its spec as written, for the ledger's facts

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class Selector(Record):
    region: str | None = None
    cluster: str | None = None
    domain: str | None = None


class Malleable(Record):
    min_gpus: int
    max_gpus: int
    step_gpus: int
    desired_gpus: int


class Funding(Record):
    allow_borrow: bool = False
    max_borrow_gpus: int | None = None
    sponsors: tuple[str, ...] = ()


class Toleration(Record):
    key: str = ""  # empty with Exists tolerates every taint
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class RunSpec(Record):
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
    start_timeout: Millis | None = None  # from its lease to running, where its node has it
    funding: Funding = Funding()
    cpu_milli: int = 0  # asked by one pod of the template, all containers
    memory_bytes: int = 0
    is_amended: bool = False  # these two are what the API server makes of the template
    tolerations: tuple[Toleration, ...] = ()
    nodes: frozenset[str] | None = None  # the only ones from which its volumes can be reached
    template: bytes = b"{}"  # the user's pod template, as canonical JSON


class Run(Record):
    namespace: str
    name: str
    uid: Uid
    created: Instant
    spec: RunSpec
    version: int = 0
    number: int = 0  # among those of one instant, where creation is stamped to the second
    deleting: bool = False  # the user deleted it; it goes when its leases are closed
    finalizers: tuple[str, ...] = (LEASES_CLOSED,)  # who holds it
    generation: int = 0  # counts the changes of its spec
    seen_running: int = 0  # the attempt whose pods were all bound once, from its status

    @property
    def key(self) -> RunKey:
        return f"{self.namespace}/{self.name}"


class Taint(Record):
    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Node(Record):
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
    not_ready_since: Instant | None = None  # by the clock of whoever watches over nodes
    unheard_since: Instant | None = None  # by our own, when we first saw that
    cordoned: bool = False
    fenced: bool = False  # positive evidence that its processes are dead
    drained_by: str = ""  # who asked that it be emptied, while it takes no work; "": nobody
    taints: tuple[Taint, ...] = ()  # those of others
    is_reserved: bool = False  # our taint keeps other schedulers away
    lacks: str = ""  # why it cannot be used, e.g. a missing label; empty when it can
    uid: Uid = ""
    version: int = 0

    @property
    def domain(self) -> str:
        return f"{self.region}/{self.cluster}/{self.fabric}"

    @property
    def is_draining(self) -> bool:
        return bool(self.drained_by)


class PodPhase(StrEnum):
    """Where a pod is in its life. `ORDERED` is ours alone: asked for, not yet seen."""

    ORDERED = "Ordered"
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Pod(Record):
    """A pod of ours or of somebody else; `run_uid` is empty for a foreign one."""

    namespace: str
    name: str
    node: str  # where it is, or is to go
    gpus: int
    placed: bool = True  # False: it was made without its node, and its binding is to come
    uid: Uid = ""
    version: int = 0
    run_uid: Uid = ""
    group: int = 0
    index: int = 0
    attempt: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    phase: PodPhase = PodPhase.PENDING
    reason: str = ""  # why a node rejected it
    exit_code: int | None = None
    said: str = ""  # how its node put the end into words
    slots: tuple[int, ...] = ()  # its GPUs' ordinals, where that is known
    began_at: Instant | None = None  # when the first of its containers began to run
    finished_at: Instant | None = None
    deleting: bool = False
    asked_to_go: Instant | None = None  # when it was deleted; its grace comes after that
    waits_for: str | None = None  # its node has it and did not start it yet: what that waits for
    disrupted: bool = False  # evicted, or ended with its node's shutdown: no doing of its own
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        return self.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)

    @property
    def ended_because_deleted(self) -> bool:
        """Somebody deleted or evicted it before it ended: whatever its exit code is, it is no
        result. Clocks of nodes may count in seconds; of the same instant, a success was there
        before."""
        if self.disrupted and self.phase is PodPhase.FAILED:
            return True
        if not self.has_ended or self.asked_to_go is None:
            return False
        if self.finished_at is None or self.asked_to_go < self.finished_at:
            return True
        return self.phase is PodPhase.FAILED and self.asked_to_go == self.finished_at

    @property
    def is_bound(self) -> bool:
        """Its node took it."""
        return self.phase is PodPhase.RUNNING or (self.has_ended and not self.reason)


class Why(Record):
    """Why a lease ends. The detail of a `RandomPreempt` is its seed, of a `Swap`, `Shrink` or
    `DropSpare` the node that was drained, if that was why, of a `Fail` what its pod waited for in
    vain when it was to start. On the wire it stands in brackets."""

    reason: Closed
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason}({self.detail})" if self.detail else self.reason.value

    @property
    def seed(self) -> str:
        return self.detail if self.reason is Closed.RANDOM_PREEMPT else ""

    @property
    def drained_node(self) -> str:
        """The node whose draining it was for; empty if it was for something else."""
        return self.detail if self.reason in (Closed.SWAP, Closed.SHRINK, Closed.DROP_SPARE) else ""

    @property
    def unstarted(self) -> str:
        """What a pod waited for that could not be started; empty if it failed otherwise."""
        return self.detail if self.reason is Closed.FAIL else ""


def parse_why(text: str) -> Why:
    """ValueError if there is no such reason."""
    reason, _, rest = text.partition("(")
    return Why(reason=Closed(reason), detail=rest.removesuffix(")"))


class Ending(Record):
    """That a lease must end: why, by when it is killed, and the batch and instant that said so."""

    why: Why
    deadline: Instant
    batch: int = 0
    at: Instant = 0


class Closure(Record):
    """That a lease ended: why, when, and the batch that said so."""

    why: Why
    at: Instant
    batch: int
    cause: Cause | None = None  # only with `Fail`
    began: Instant | None = None  # until then its pod was starting, if that is known to take time
    saved: Instant | None = None  # of what was lost: all before this was saved


class Lease(Record):
    """These slots of one node, used by one pod (or held as its spare), paid by one envelope."""

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
    def why(self) -> Why | None:
        """Why it ended or has to; None while nothing ends it."""
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
        """What its payer owes up to `now`; fixed once it is closed."""
        return len(self.slots) * ((now if self.closed is None else self.closed.at) - self.start)


def ledger_order(lease: Lease) -> tuple[int, int]:
    """Leases in the order in which they were opened: batch, then index within it."""
    return lease.batch, int(lease.name.rpartition("-")[2])
