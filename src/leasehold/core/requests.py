"""What a run asks for: to be started, paid and placed. `verdicts` has the results."""

from msgspec.structs import replace

from leasehold.core.facts import EnvelopeKey, Funding, Record, Run, Selector
from leasehold.core.units import FOREVER, HOUR, Instant, Millis


class PlacementRequest(Record):
    """The groups to place: their indices, pods, spares and pod shape, and where they may go."""

    flavor: str
    groups: tuple[int, ...]
    pods: int  # per group
    spares: int  # per group, counted in pods
    pod_gpus: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    spread: bool = True
    selector: Selector = Selector()
    own_domains: tuple[str, ...] = ()  # domains that the run already uses; preferred (P2)
    last: tuple[str, ...] = ()  # nodes that rejected a bind of this attempt: tried last (P3)
    within: tuple[str, ...] = ()  # only these domains; set by a resolution
    spares_on_reserved: bool = False  # spares only on nodes that other schedulers leave alone
    only: frozenset[str] | None = None  # only these nodes, because others cannot reach its volumes

    @property
    def gpus_per_group(self) -> int:
        return (self.pods + self.spares) * self.pod_gpus

    @property
    def gpus(self) -> int:
        return self.gpus_per_group * len(self.groups)


class StartRequest(Record):
    """A request to start groups of a run: the first ones, or more of them."""

    run: Run
    want: PlacementRequest
    span: Millis | None  # the rest of its limit
    borrowed_already: int = 0
    waiting: int = 0  # number of waiting groups of a sweep

    @property
    def end_after(self) -> Millis:
        return FOREVER if self.span is None else self.span

    @property
    def limit(self) -> Millis:
        """Return the limit that the run declares, however much of it is left (Q10)."""
        limit = self.run.spec.max_duration
        return FOREVER if limit is None else limit

    @property
    def linger(self) -> Millis:
        """Return how long stopping may take after the limit (Q8)."""
        return min(self.run.spec.grace, HOUR)

    @property
    def in_the_way(self) -> Millis:
        """Return for how long its GPUs are unavailable to others."""
        return FOREVER if self.span is None else self.span + self.linger


class FundingRequest(Record):
    """A request for GPUs of one flavor in one location, on behalf of an owner, from `start` on."""

    owner: str
    flavor: str
    region: str
    cluster: str
    gpus: int
    start: Instant
    span: Millis | None = None  # longest run time; None: unlimited
    linger: Millis = 0  # grace period after `span`: how long stopping may take
    open_until: Instant = 0  # the payer's window must still be open then (Q5)
    funding: Funding = Funding()
    borrowed_already: int = 0  # counts against maxBorrowGPUs over the run's whole width
    # envelopes not to use, e.g. the present payer when refinancing
    except_for: tuple[EnvelopeKey, ...] = ()

    def until(self, at: Instant) -> "FundingRequest":
        """Return the same request, limited to payers whose windows are open until `at`."""
        return replace(self, open_until=at)
