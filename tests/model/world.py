"""What is so: nodes, budgets, runs, leases, pods, reservations. Plain records in plain lists.

Nothing here decides. Whatever can be worked out from the records is worked out when it is asked.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.model.story import FOREVER, Story, instant, span


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
        self.place = (self.region, self.cluster)

    @property
    def usable(self) -> bool:
        """Cordoned and unheard nodes take no new work."""
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
    caps: list[tuple[str, int, set[str]]]  # aggregates: name, GPUs, members

    def covers(self, place: tuple[str, str]) -> bool:
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
    ending: str = ""  # the reason, once it must end
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
    """A process on a node. `until` is when it ends by itself, `stops` how long it needs to stop."""

    run: str
    group: int
    index: int
    node: str
    until: int | None
    code: int
    stops: int
    grace: int
    stuck: bool = False
    told: int | None = None  # when it was asked to stop; None: not yet
    wanted: int | None = None  # when the control plane asked, heard or not
    allowed: int = 0  # the time it was given
    ended: int | None = None
    exit: int = 0

    @property
    def ends(self) -> int | None:
        """When it will be gone, as things stand."""
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
    fate: str = ""  # why its leases end, once they all must
    reason: str = ""  # of the Failed condition
    ended: int = 0
    failures: int = 0  # retries that are used
    rejections: int = 0  # binds in a row
    pause: int = 0  # it is not considered before
    paused_by: str = ""
    blocked_binds: bool = False
    avoids: list[str] = field(default_factory=list)
    swaps: list[tuple[int, int, int]] = field(default_factory=list)  # group, lost pod, spare pod
    settled: int = 0  # exits up to this instant are restarts


@dataclass
class Booking:
    """A Reservation."""

    state: str  # Pending, Activating, Blocked
    confidence: str = ""
    start: int = 0
    because: str = ""
    places: dict[int, str] = field(default_factory=dict)  # group -> domain, of a cut
    awaits_since: int = 0  # since when nothing but protected tenures keeps it out


@dataclass
class Activation:
    """What a Resolution has freed, or will have, for its beneficiary."""

    run: str
    at: int
    domains: dict[int, str]  # group -> domain
    victims: list[int]
    held: dict[str, int]  # GPUs on a node
    spots: list[Any]
    bills: dict[tuple[str, str], list[tuple[str, int, str]]]  # who pays, by location
    money: dict[str, int] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)
    hours: dict[str, int] = field(default_factory=dict)
    lent_hours: dict[str, int] = field(default_factory=dict)
    timed_out: bool = False
    only_money: bool = False  # an envelope was taken back; GPUs may still be short


@dataclass
class Run:
    key: str
    created: int
    spec: dict[str, Any]
    works: list[dict[str, Any]]
    node_gpus: int  # of the largest node of its flavor
    units: dict[int, Unit] = field(default_factory=dict)
    booking: Booking | None = None
    history: list[Booking] = field(default_factory=list)
    activation: Activation | None = None
    by_resolution: bool = False  # its next start is what others were cut for, fit it or not
    tenured: int = 0  # when it started by a Resolution
    protected: int = 0  # out of lotteries until then
    unprotected: tuple[int, int] = (0, 0)  # both as before, should its start be rejected
    cuts: int = 0  # how often it was drawn
    resized: int | None = None
    said: str = ""  # why it waits
    short_of_money: bool = False
    walk: list[tuple[str, object]] = field(default_factory=list)

    def __post_init__(self) -> None:
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
        self.most: int = elastic.get("maxTotalGPUs", self.total)
        self.step: int = elastic.get("stepGPUs") or self.group_gpus
        self.desired: int = elastic.get("desiredTotalGPUs") or self.total
        self.opportunistic: bool = spec.get("opportunistic") or False
        self.stop: bool = spec.get("stop") or False
        self.limit: int | None = _span(runtime.get("maxDuration"))
        self.checkpoint: int | None = _span(runtime.get("checkpoint"))
        self.retries: int = runtime.get("retries") or 0
        self.grace: int = (
            30_000 if runtime.get("gracePeriod") is None else span(runtime["gracePeriod"])
        )
        self.may_borrow: bool = bool(funding.get("allowBorrow") and funding.get("sponsors"))
        self.sponsors: list[str] = list(funding.get("sponsors") or [])
        self.most_borrowed: int | None = funding.get("maxBorrowGPUs")
        if not self.units:
            self.units = {0: Unit(0)}
        if self.is_sweep:
            for index in range(self.total // self.group_gpus):
                self.units.setdefault(index, Unit(index))

    @property
    def namespace(self) -> str:
        return self.key.split("/")[0]

    @property
    def order(self) -> tuple[int, str, str]:
        """Place in line: creation instant, namespace, name. A requeued run keeps it."""
        namespace, name = self.key.split("/")
        return (self.created, namespace, name)

    @property
    def pods_per_group(self) -> int:
        return self.group_gpus // self.pod_gpus

    @property
    def spare_pods(self) -> int:
        return self.spares // self.pod_gpus

    @property
    def start_groups(self) -> int:
        """How many groups it starts with: the lesser of the total and the desired width."""
        return min(self.total, self.desired) // self.group_gpus

    def unit_of(self, group: int) -> Unit:
        return self.units[group] if self.is_sweep else self.units[0]

    def work(self, attempt: int) -> dict[str, Any]:
        return self.works[min(attempt, len(self.works)) - 1]

    def is_over(self) -> bool:
        return all(unit.standing in ("done", "failed") for unit in self.units.values())


@dataclass
class World:
    story: Story
    now: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    budgets: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    debts: dict[str, int] = field(default_factory=dict)  # overdraft -> since when
    lowered: dict[str, int] = field(default_factory=dict)  # hours an envelope fell short by
    failing_binds: int = 0
    rejected: list[Any] = field(default_factory=list)  # starts of this instant
    tried: set[str] = field(default_factory=set)  # runs, since rejections were last seen
    sitting: dict[str, set[str]] = field(default_factory=dict)  # where room was made for some
    envelopes_now: list[Envelope] = field(default_factory=list)
    levels: dict[str, list[list[str]]] = field(default_factory=dict)  # ancestors, as last read
    claims: list[Any] = field(default_factory=list)  # of those who wait, as last worked out
    ahead: dict[str, list[Any]] = field(default_factory=dict)  # the same, by who asks
    was: dict[str, Booking | None] = field(default_factory=dict)  # when this instant began
    was_at: int = -1  # which one that is
    seeds: Any = None
    notes: list[tuple[int, str]] = field(default_factory=list)

    def envelopes(self) -> list[Envelope]:
        return self.envelopes_now

    def read_budgets(self) -> None:
        """To be called whenever a budget was written."""
        self.levels = {}
        self.envelopes_now = [
            each for key in sorted(self.budgets) for each in _envelopes(key, self.budgets[key])
        ]

    def envelope(self, name: str) -> Envelope | None:
        return next((each for each in self.envelopes_now if each.name == name), None)

    def open_leases(self) -> list[Lease]:
        return [lease for lease in self.leases if lease.end is None]

    def leases_of(self, run: Run, unit: Unit | None = None) -> list[Lease]:
        """Open ones."""
        return [
            lease
            for lease in self.leases
            if lease.end is None
            and lease.run == run.key
            and (unit is None or run.unit_of(lease.group) is unit)
        ]

    def limit_of(self, lease: Lease) -> int | None:
        """When its attempt's time is over; None: it has no limit."""
        run = self.runs[lease.run]
        return None if run.limit is None else run.unit_of(lease.group).started + run.limit

    def known_end(self, lease: Lease) -> int:
        """When it will have ended, as far as is known: its deadline or its limit.

        A deadline that has passed says nothing any more.
        """
        if lease.ending:
            return lease.deadline if lease.deadline > self.now else FOREVER
        limit = self.limit_of(lease)
        return FOREVER if limit is None else limit

    def tenure_of(self, run: Run) -> int:
        tenure: int = self.config["resolver.minTenure"]
        return max(tenure, 2 * (run.checkpoint or 0))

    def protected_until(self, run: Run, against: str = "") -> int:
        """A run that a Resolution started is out of lotteries for so long."""
        domains = {self.nodes[x.node].domain for x in self.leases_of(run) if not x.ending}
        return self._protected(run, run.tenured, run.protected, domains, against)

    def will_be_protected(self, run: Run, nodes: list[str], against: str) -> int:
        """The same of one for whom room is being made: it starts when all have gone, or not."""
        start = self.now + self.config["drain.timeout"]
        domains = {self.nodes[name].domain for name in nodes if name in self.nodes}
        return self._protected(run, start, start + self.tenure_of(run), domains, against)

    def _protected(self, run: Run, since: int, until: int, domains: set[str], against: str) -> int:
        """Whoever waited ahead of it for the end of tenures in its domains is not kept waiting
        longer."""
        other = self.runs.get(against)
        booking = other.booking if other is not None else None
        if (
            other is not None
            and booking is not None
            and booking.state == "Pending"
            and 0 < booking.awaits_since <= since
            and other.order < run.order
            and domains & set(booking.places.values())
        ):
            return min(until, booking.start)
        return until

    def pod_of(self, lease: Lease) -> Pod | None:
        """A spare has none."""
        for pod in self.pods if lease.role != "Spare" else []:
            if (pod.run, pod.group, pod.index) == (lease.run, lease.group, lease.pod):
                return pod
        return None

    def book(self, run: Run, booking: Booking | None, before: str = "Canceled") -> None:
        """Its Reservation from now on, whatever else is planned in this instant."""
        if run.booking is not None and run.booking is not booking:
            run.booking.state = before if before else run.booking.state
            run.history.append(run.booking)
        run.booking = self.was[run.key] = booking

    def note(self, text: str) -> None:
        self.notes.append((self.now, text))


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
        name = f"{key}/{each['name']}"
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
                name=name,
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
