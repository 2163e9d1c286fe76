"""Requests to start a run, to pay for it and to place it. `verdicts` has the results."""

from msgspec.structs import replace

from leasehold.core.facts import EnvelopeKey, Funding, Record, Run, Selector
from leasehold.core.units import FOREVER, HOUR, Instant, Millis


class PlacementRequest(Record):
    """A request to place groups of a run: how many pods of which size, and where they may go."""

    flavor: str
    groups: tuple[int, ...]  # indices
    pods: int  # per group
    spares: int  # per group, counted in pods
    pod_gpus: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    spread: bool = True  # groups may be in several domains (P1)
    selector: Selector = Selector()
    own_domains: tuple[str, ...] = ()  # domains that the run already uses; preferred (P2)
    last: tuple[str, ...] = ()  # nodes that rejected a bind of this attempt: tried last (P3)
    within: tuple[str, ...] = ()  # only these domains; set by a resolution
    spares_on_reserved: bool = False  # spares only on nodes that other schedulers leave alone
    only: frozenset[str] | None = None  # only these nodes, because others cannot reach its volumes

    @property
    def gpus_per_group(self) -> int:
        """Return the GPUs of one group with its spares."""
        return (self.pods + self.spares) * self.pod_gpus

    @property
    def gpus(self) -> int:
        return self.gpus_per_group * len(self.groups)


class StartRequest(Record):
    """A request to start groups of a run: all of a gang, or more groups of a running run."""

    run: Run
    placement: PlacementRequest
    span: Millis | None  # how long the groups may run, i.e. the rest of the limit; None: no limit
    borrowed_already: int = 0  # GPUs that the run borrows already
    waiting: int = 0  # number of waiting groups, of a sweep that must choose a domain (G3)

    @property
    def end_after(self) -> Millis:
        """Return `span`, or FOREVER without a limit."""
        return FOREVER if self.span is None else self.span

    @property
    def limit(self) -> Millis:
        """Return the whole limit that the run declares, not only the rest of it (Q10)."""
        limit = self.run.spec.max_duration
        return FOREVER if limit is None else limit

    @property
    def linger(self) -> Millis:
        """Return how long the run's pods may take to stop after the limit; at most an hour counts
        (Q8)."""
        return min(self.run.spec.grace, HOUR)

    @property
    def in_the_way(self) -> Millis:
        """Return for how long the run keeps other runs off its GPUs: its limit, then until its pods
        stop (Q8)."""
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
