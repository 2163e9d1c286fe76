"""The facts: nodes, envelopes, leases, pods, runs, plans and holds, as plain records in lists.

This module decides nothing. Derived values are computed from the records when they are needed.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.model.story import DAY, FOREVER, Story, instant, span

Place = tuple[str, str]  # region, cluster
Segment = tuple[str, int, str]  # envelope, GPUs, relation


@dataclass
class Node:
    name: str
    gpus: int
    flavor: str
    region: str
    cluster: str
    fabric: str
    foreign: int = 0
    dead: bool = False
    silent: bool = False
    cordoned: bool = False
    gone: bool = False

    def __post_init__(self) -> None:
        self.domain = f"{self.region}/{self.cluster}/{self.fabric}"
        self.place: Place = (self.region, self.cluster)

    @property
    def usable(self) -> bool:
        """Cordoned and silent nodes take no new work."""
        return not (self.dead or self.silent or self.cordoned or self.gone)

    @property
    def heard(self) -> bool:
        return not (self.dead or self.silent or self.gone)


@dataclass
class Envelope:
    name: str  # namespace/budget/envelope
    owner: str
    flavor: str
    selector: dict[str, str]
    concurrency: int
    hours: int | None  # GPU-milliseconds
    start: int
    end: int
    shares: bool
    lends: bool
    lends_to: list[str]
    lends_gpus: int | None
    lends_hours: int | None
    caps: list[tuple[str, int, set[str]]]  # aggregates: name, GPUs, member envelopes

    def covers(self, place: Place) -> bool:
        region, cluster = place
        wanted = self.selector
        return wanted.get("region", region) == region and wanted.get("cluster", cluster) == cluster

    def is_open(self, at: int) -> bool:
        return self.start <= at < self.end


@dataclass
class Lease:
    number: int
    run: str
    group: int
    pod: int
    attempt: int
    role: str  # Active, Spare, Borrowed
    node: str
    slots: tuple[int, ...]
    payer: str
    relation: str  # Owned, Shared, Borrowed
    start: int
    opened: str
    ending: str = ""  # the reason, once the lease must end
    marked: int = 0
    deadline: int = 0
    end: int | None = None
    closed: str = ""

    @property
    def gpus(self) -> int:
        return len(self.slots)

    @property
    def is_open(self) -> bool:
        return self.end is None


@dataclass
class Pod:
    """A process on a node. `until` is its end by itself; `stops` is how long stopping takes."""

    run: str
    group: int
    index: int
    node: str
    until: int | None
    code: int
    stops: int
    stuck: bool = False
    told: int | None = None  # when the stop signal reached it
    wanted: int | None = None  # when the control plane requested its stop
    allowed: int = 0  # its grace period

    @property
    def ends(self) -> int | None:
        """Return the known time at which the pod will be gone."""
        ends = [] if self.until is None else [self.until]
        if self.told is not None and not self.stuck:
            ends.append(self.told + min(self.stops, self.allowed))
        return min(ends) if ends else None


@dataclass
class Unit:
    """What starts and ends together: a whole run, or one group of a sweep."""

    index: int
    standing: str = "waiting"  # waiting, live, done, failed
    attempt: int = 0
    started: int = 0
    fate: str = ""  # why its leases end, if all of them must
    reason: str = ""  # the reason of the Failed condition
    ended: int = 0
    failures: int = 0  # retries used
    rejections: int = 0  # rejected binds in a row
    pause: int = 0  # the unit is not considered before this instant
    paused_by: str = ""
    blocked_binds: bool = False
    avoids: list[str] = field(default_factory=list)
    swaps: list[tuple[int, int, int]] = field(default_factory=list)  # group, lost pod, spare pod
    settled: int = 0  # exits up to this instant are restarts in place


@dataclass
class Spot:
    """The place of one pod."""

    group: int
    role: str  # Active, Spare, Borrowed
    pod: int
    node: str


@dataclass
class Placement:
    """The nodes of groups, and their payers in each location."""

    spots: list[Spot] = field(default_factory=list)
    bills: dict[Place, list[Segment]] = field(default_factory=dict)

    def segments(self) -> list[Segment]:
        return [segment for bill in self.bills.values() for segment in bill]

    def gpus_by_node(self, pod_gpus: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for spot in self.spots:
            found[spot.node] = found.get(spot.node, 0) + pod_gpus
        return found

    def groups(self) -> list[int]:
        return sorted({spot.group for spot in self.spots})


@dataclass
class Plan:
    """The content of a waiting run's Reservation (Q4 to Q6, Q11)."""

    state: str = "Pending"  # Pending, Activating, Blocked
    confidence: str = ""  # exact, window-aligned, needs-cuts, needs-money
    start: int = 0
    reason: str = ""
    placement: Placement | None = None  # its calendar entry from `start` on
    is_site: bool = False  # leases that may be cut may use the same GPUs
    is_kept: bool = False  # Q10: the site is kept from now on until it becomes free
    claims: list[Segment] = field(default_factory=list)  # Q6: money kept from now on
    cuts_at: int | None = None  # the announced start by cuts
    reclaim_at: int | None = None  # the announced start with the owner's own envelope
    known_at: int | None = None  # the known start, if `start` is that of `reclaim_at`


@dataclass
class Hold:
    """The GPUs and the payers that an activation keeps for its beneficiary (A4)."""

    at: int
    victims: list[int]
    placement: Placement


@dataclass
class Run:
    key: str
    created: int
    spec: dict[str, Any]
    works: list[dict[str, Any]]
    node_gpus: int  # of the largest node of its flavor
    units: dict[int, Unit] = field(default_factory=dict)
    plans: dict[int, Plan] = field(default_factory=dict)  # by first group; -1: the minimum
    history: list[Plan] = field(default_factory=list)
    beyond: list[int] = field(default_factory=list)  # planned starts of groups above the minimum
    hold: Hold | None = None
    last_victims: list[int] = field(default_factory=list)  # the victims of its last Resolution
    waiting_since: int = 0
    wait_over: int | None = None  # the start that ended its present or last wait
    resized: int | None = None
    said: str = ""  # the reported reason that it waits

    def __post_init__(self) -> None:
        self.waiting_since = self.created
        self.read_spec()

    def read_spec(self) -> None:
        spec = self.spec
        resources, locality = spec["resources"], spec.get("locality") or {}
        runtime, funding = spec.get("runtime") or {}, spec.get("funding") or {}
        elastic = spec.get("malleable")
        self.owner: str = spec["owner"]
        self.flavor: str = resources["gpuType"]
        self.total: int = resources["totalGPUs"]
        self.group_gpus: int = locality.get("groupGPUs") or self.total
        self.spares: int = spec.get("sparesPerGroup") or 0
        self.pod_gpus: int = resources.get("gpusPerPod") or _pod_size(
            self.group_gpus, self.spares, self.node_gpus
        )
        self.spread: bool = locality.get("allowCrossGroupSpread", True)
        self.selector: dict[str, str] = locality.get("selector") or {}
        self.is_sweep: bool = spec.get("gang", "Run") == "Group"
        self.elastic: bool = elastic is not None
        elastic = elastic or {}
        floor = self.group_gpus if self.is_sweep else self.total
        self.least: int = elastic.get("minTotalGPUs", floor)
        self.step: int = elastic.get("stepGPUs") or self.group_gpus
        self.desired: int = elastic.get("desiredTotalGPUs") or self.total
        self.opportunistic: bool = spec.get("opportunistic") or False
        self.stop: bool = spec.get("stop") or False
        self.limit: int | None = _span(runtime.get("maxDuration"))
        self.checkpoint: int | None = _span(runtime.get("checkpoint"))
        self.retries: int = runtime.get("retries") or 0
        grace = runtime.get("gracePeriod")
        self.grace: int = 30_000 if grace is None else span(grace)
        self.may_borrow: bool = bool(funding.get("allowBorrow") and funding.get("sponsors"))
        self.sponsors: list[str] = list(funding.get("sponsors") or [])
        self.most_borrowed: int | None = funding.get("maxBorrowGPUs")
        self.units = self.units or {0: Unit(0)}
        if self.is_sweep:
            for index in range(self.total // self.group_gpus):
                self.units.setdefault(index, Unit(index))

    @property
    def namespace(self) -> str:
        return self.key.split("/")[0]

    @property
    def order(self) -> tuple[int, str, str]:
        """Q1: submission, namespace, name. A requeued run keeps it."""
        namespace, name = self.key.split("/")
        return (self.created, namespace, name)

    @property
    def pods_per_group(self) -> int:
        return self.group_gpus // self.pod_gpus

    @property
    def spare_pods(self) -> int:
        return self.spares // self.pod_gpus

    @property
    def least_groups(self) -> int:
        return self.least // self.group_gpus

    @property
    def most_groups(self) -> int:
        """Q3, G2: return how many groups may run."""
        return min(self.total, self.desired) // self.group_gpus

    def unit_of(self, group: int) -> Unit:
        return self.units[group] if self.is_sweep else self.units[0]

    def work(self, attempt: int) -> dict[str, Any]:
        return self.works[min(attempt, len(self.works)) - 1]


@dataclass
class World:
    story: Story
    now: int
    config: dict[str, Any]
    nodes: dict[str, Node] = field(default_factory=dict)
    budgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    debts: dict[str, int] = field(default_factory=dict)  # overdraft -> its beginning
    lowered: dict[str, int] = field(default_factory=dict)  # envelope -> when its cap was lowered
    failing_binds: int = 0
    rejected: list[Any] = field(default_factory=list)  # rejected starts of this instant
    tried: set[str] = field(default_factory=set)  # runs started since the last look at rejections
    envelopes: list[Envelope] = field(default_factory=list)
    seeds: Any = None
    notes: list[tuple[int, str]] = field(default_factory=list)

    def read_budgets(self) -> None:
        """Read the Budgets again; must be called after every write of a Budget."""
        self.envelopes = [
            each for key in sorted(self.budgets) for each in _envelopes(key, self.budgets[key])
        ]

    def envelope(self, name: str) -> Envelope | None:
        return next((each for each in self.envelopes if each.name == name), None)

    def open_leases(self) -> list[Lease]:
        return [lease for lease in self.leases if lease.end is None]

    def leases_of(self, run: Run, unit: Unit | None = None) -> list[Lease]:
        """Return the open leases of a run, or of one unit."""
        return [
            lease
            for lease in self.open_leases()
            if lease.run == run.key and (unit is None or run.unit_of(lease.group) is unit)
        ]

    def limit_of(self, lease: Lease) -> int | None:
        """Return when the time limit of the lease's attempt is reached, or None without a limit."""
        run = self.runs[lease.run]
        return None if run.limit is None else run.unit_of(lease.group).started + run.limit

    def known_end(self, lease: Lease) -> int:
        """Return the lease's deadline or limit. A lease past its deadline has no known end."""
        if lease.ending:
            return lease.deadline if lease.deadline > self.now else FOREVER
        limit = self.limit_of(lease)
        return FOREVER if limit is None else limit

    def protected_until(self, run: Run) -> int:
        """Return until when the run is not drawn in a lottery for a waiting run."""
        if run.wait_over is None:
            return -FOREVER
        return run.wait_over + self.tenure_of(run)

    def tenure_of(self, run: Run) -> int:
        """Return how long a start protects the run."""
        tenure = self.config["resolver.minTenure"]
        if tenure == "byCheckpoint":
            return min(max(7_200_000, 2 * (run.checkpoint or 0)), DAY)
        return int(tenure)

    def pod_of(self, lease: Lease) -> Pod | None:
        """Return the pod of a lease; a spare has none."""
        for pod in self.pods if lease.role != "Spare" else []:
            if (pod.run, pod.group, pod.index) == (lease.run, lease.group, lease.pod):
                return pod
        return None

    def waiting(self) -> list[Run]:
        """Return the waiting runs in the order of the queue."""
        return sorted((r for r in self.runs.values() if waiting_units(r)), key=lambda r: r.order)

    def ready_units(self, run: Run) -> list[Unit]:
        """Return the run's waiting units that are not in back-off."""
        return [unit for unit in waiting_units(run) if unit.pause <= self.now]

    def drop_plans(self, run: Run, state: str = "Canceled") -> None:
        for plan in run.plans.values():
            plan.state = state
            run.history.append(plan)
        run.plans = {}

    def note(self, text: str) -> None:
        self.notes.append((self.now, text))


def waiting_units(run: Run) -> list[Unit]:
    return [unit for _, unit in sorted(run.units.items()) if unit.standing == "waiting"]


def _span(text: str | None) -> int | None:
    return None if text is None else span(text)


def _pod_size(group: int, spares: int, node: int) -> int:
    """The largest size that divides the group (and its spares) and fits a node."""
    sizes = range(min(group, max(node, 1)), 0, -1)
    return next(size for size in sizes if group % size == 0 and spares % size == 0)


def _envelopes(key: str, spec: dict[str, Any]) -> list[Envelope]:
    found = []
    for each in spec.get("envelopes") or []:
        lending = each.get("lending") or {}
        caps = [
            (
                f"{key}/{cap['name']}",
                cap["maxConcurrency"],
                {f"{key}/{n}" for n in cap["envelopes"]},
            )
            for cap in spec.get("aggregateCaps") or []
            if each["name"] in cap["envelopes"]
        ]
        found.append(
            Envelope(
                name=f"{key}/{each['name']}",
                owner=spec["owner"],
                flavor=each["flavor"],
                selector=each.get("selector") or {},
                concurrency=each["concurrency"],
                hours=_hours(each.get("maxGPUHours")),
                start=instant(each["start"]) if each.get("start") else -FOREVER,
                end=instant(each["end"]) if each.get("end") else FOREVER,
                shares=each.get("sharing", "family") == "family",
                lends=lending.get("allow", False),
                lends_to=lending.get("to") or [],
                lends_gpus=lending.get("maxConcurrency"),
                lends_hours=_hours(lending.get("maxGPUHours")),
                caps=caps,
            )
        )
    return found


def _hours(hours: int | None) -> int | None:
    return None if hours is None else hours * 3_600_000


def new_world(story: Story) -> World:
    world = World(story=story, now=story.start, config=story.config)
    for row in story.fleet:
        before = sum(1 for node in world.nodes.values() if node.fabric == row["domain"])
        for index in range(row["nodes"]):
            name = f"{row['domain']}-{before + index:02d}"
            world.nodes[name] = Node(
                name, row["gpus"], row["flavor"], row["region"], row["cluster"], row["domain"]
            )
    world.budgets = {key: dict(spec) for key, spec in story.budgets.items()}
    world.read_budgets()
    return world
