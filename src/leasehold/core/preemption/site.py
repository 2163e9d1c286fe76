"""site: choose where a start by preemption will take place (Q5).

The site is the place where the run fits once all leases that may be cut are gone. It is chosen
before the victims, where the loss is least (R2). The *loss* of a place is three numbers, compared
in this order: GPUs taken by lottery, GPUs taken by shrinking, and GPUs of dropped spares. Losses
are counted lease by lease and node by node; no lottery is simulated. Changes nothing.
"""

from collections.abc import Collection, Iterator

from leasehold.core.calendar.entries import Calendar, kept_gpus
from leasehold.core.facts import Lease, Location, Record, Role, Uid
from leasehold.core.funding.claims import claim_on_top, funding_request_for, preference
from leasehold.core.funding.cover import cover
from leasehold.core.placement.drain import will_be_taken_over
from leasehold.core.placement.pack import candidate_pools
from leasehold.core.policy import CutPolicy
from leasehold.core.preemption.victims import is_protected, protected_until, surplus_of, tenure_of
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import HeldMoney
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Covered
from leasehold.core.world.fleet import NodeState, mask_of
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Loss = tuple[int, int, int]  # GPUs by lottery, by shrinking, of spares

NOTHING: Loss = (0, 0, 0)


class Site(Record):
    """Places and payers of a start by preemption, and the losses that were compared."""

    places: tuple[tuple[str, int], ...]  # (node, GPUs)
    money: tuple[HeldMoney, ...]
    domains: tuple[str, ...]
    # (domain, GPUs by lottery, by shrinking, of spares): loss of the first group in each domain
    losses: tuple[tuple[str, int, int, int], ...] = ()


def money_of(covered: Covered, location: Location) -> tuple[HeldMoney, ...]:
    """Return the segments of a cover in the form that a Reservation records."""
    return tuple(
        HeldMoney(payer=each.envelope, gpus=each.gpus, relation=each.relation, location=location)
        for each in covered.segments
    )


def choose_site(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    at: Instant,
    now: Instant,
    within: tuple[str, ...] = (),
    returned: Collection[str] = (),
) -> Site | None:
    """Return a site for a start at `at`, or None (Q5).

    Payers are found as if nothing were preempted, and their windows must stay open for
    `resolver.minTenure` after `at`.

    `within`: only these domains, if any are given.
    `returned`: leases of the family whose money counts as free (O5).
    """
    with world.what_if.opened():
        world.fleet.tolerate(request.run.spec.tolerations)
        calendar.respect(world, request.run.uid, request.limit)
        for name in sorted(returned):
            world.accounts.end(world.leases[name], world.terms[name], at=now)
        return _choose(
            world, request, NodeOffers(world, request, calendar, at=at, now=now, within=within)
        )


def _choose(world: World, request: StartRequest, offers: "NodeOffers") -> Site | None:
    """Return places and payers: one location for the whole run, otherwise one per group (P4).

    The caller must hold an open what-if.
    """
    groups = len(request.placement.groups)
    funded = _funded(
        world, request, offers, request.placement.gpus, borrowed=request.borrowed_already
    )
    for location, covered in funded:
        if offers.put(groups, location):
            return offers.site(money_of(covered, location))
    if not request.placement.spread or groups == 1:
        return None
    money: list[HeldMoney] = []
    borrowed = request.borrowed_already
    for _ in range(groups):  # over several locations
        gpus = request.placement.gpus_per_group
        funded = _funded(world, request, offers, gpus, borrowed=borrowed)
        found = next((each for each in funded if offers.put(1, each[0])), None)
        if found is None:
            return None
        location, covered = found
        claims = claim_on_top(world, request, covered, start=offers.at)
        borrowed += sum(claim.gpus for claim in claims if claim.borrowed)
        money += money_of(covered, location)
    return offers.site(tuple(money))


def _funded(
    world: World, request: StartRequest, offers: "NodeOffers", gpus: int, *, borrowed: int
) -> list[tuple[Location, Covered]]:
    """Return the locations in which `gpus` GPUs are paid for, best first (P4)."""
    found = []
    for location in locations_for(world, request.run.spec):
        ask = funding_request_for(request, location, gpus, start=offers.at, borrowed=borrowed)
        ask = ask.until(offers.at + tenure_of(world, request.run))
        covered = cover(world, ask, now=offers.now)
        if isinstance(covered, Covered):
            found.append((location, covered))
    return sorted(found, key=preference)


class NodeOffers:
    """The GPUs that each node could give a run if everything that may be cut for it were cut.

    For each number of GPUs a node tells the loss: how many are cut by lottery, by shrinking, and of
    spares. `put` places groups; the GPUs that a group takes are not offered to later groups.
    """

    def __init__(
        self,
        world: World,
        request: StartRequest,
        calendar: Calendar,
        *,
        at: Instant,
        now: Instant,
        within: tuple[str, ...] = (),
    ) -> None:
        self._world, self._request, self._calendar = world, request, calendar
        self.at, self.now = at, now
        self._end = min(FOREVER, at + request.in_the_way)
        self._cut_steps = _CutSteps(world, request.run.uid, at=at, now=now)
        self._offers: dict[str, _NodeOffer] = {}
        self._taken: dict[str, int] = {}  # node -> GPUs taken by groups
        pools = candidate_pools(
            world.fleet, request.placement, locations_for(world, request.run.spec)
        )
        self._pools = {pool.domain: pool for pool in pools if not within or pool.domain in within}
        self._losses: dict[str, Loss] = {}  # domain -> loss of the first group tried there

    def holds(self, places: tuple[tuple[str, int], ...]) -> bool:
        """Return whether the run would still fit in these places, so that they are still a site
        (Q7)."""
        nodes = self._world.fleet.nodes
        return all(
            name in nodes and nodes[name].takes_work and self._offer(name).room >= gpus
            for name, gpus in places
        )

    def losses_in(self, domains: Collection[str]) -> tuple[tuple[str, int, int, int], ...]:
        """Return (domain, GPUs by lottery, by shrinking, of spares) for the first group.

        Only those of these domains are returned in which the group fits.
        """
        count = 1 if self._request.placement.spread else len(self._request.placement.groups)
        tried = {domain: self._try(count, domain) for domain in sorted(domains)}
        return tuple((domain, *found[0]) for domain, found in tried.items() if found is not None)

    def put(self, groups: int, location: Location) -> bool:
        """Put groups into the location, each in the domain with the least loss (R2).

        If groups may not spread, all go to one domain. Returns False, and takes nothing, if they
        do not fit.
        """
        before = dict(self._taken)
        domains = sorted(d for d, pool in self._pools.items() if pool.home[1:] == location)
        for count in [1] * groups if self._request.placement.spread else [groups]:
            best: tuple[Loss, str, dict[str, int]] | None = None
            for domain in domains:
                tried = self._try(count, domain)
                if tried is not None:
                    self._losses.setdefault(domain, tried[0])
                    if best is None or (tried[0], domain) < best[:2]:
                        best = (tried[0], domain, tried[1])
            if best is None:
                self._taken = before
                return False
            self._taken = best[2]
        return True

    def _try(self, groups: int, domain: str) -> tuple[Loss, dict[str, int]] | None:
        """Return the loss and the GPUs taken if the groups went to this domain, or None if they do
        not fit.

        Each pod goes to the node where its loss is least.
        """
        placement, taken = self._request.placement, dict(self._taken)
        total = NOTHING
        names = [
            n for n in self._pools[domain].nodes if placement.only is None or n in placement.only
        ]
        for _ in range(groups):
            for index in range(placement.pods + placement.spares):
                is_spare = index >= placement.pods
                found = self._cheapest(names, taken, is_spare=is_spare)
                if found is None:
                    return None
                loss, name = found
                taken[name] = taken.get(name, 0) + placement.pod_gpus
                total = _plus(total, loss)
        return total, taken

    def _cheapest(
        self, names: list[str], taken: dict[str, int], *, is_spare: bool
    ) -> tuple[Loss, str] | None:
        """Return the loss and the name of the node where one more pod has the least loss, or
        None."""
        placement, best = self._request.placement, None
        for name in names:
            node, used = self._offer(name), taken.get(name, 0)
            if used + placement.pod_gpus > node.room:
                continue
            if is_spare and placement.spares_on_reserved and not node.is_reserved:
                continue
            loss = _minus(node.loss(used + placement.pod_gpus), node.loss(used))
            if best is None or (loss, name) < best:
                best = (loss, name)
            if best == (NOTHING, name):
                return best
        return best

    def _offer(self, name: str) -> "_NodeOffer":
        known = self._offers.get(name)
        if known is None:
            self._world.steps.take()
            known = self._offers[name] = self._offer_of(self._world.fleet.nodes[name])
        return known

    def _offer_of(self, state: NodeState) -> "_NodeOffer":
        """Return what a node offers. For each lease on it, the step of R3 that may cut it is looked
        up."""
        if not state.takes_work:
            return _NodeOffer(0, 0, 0, 0, is_reserved=state.node.is_reserved)
        world, name = self._world, state.node.name
        cut: set[str] = set()
        ending: set[str] = set()
        masks = {"spare": 0, "shrink": 0}
        for lease_name in world.open_by_node.get(name, ()):
            lease = world.leases[lease_name]
            step = self._cut_steps.of(lease, state)
            if step:
                cut.add(lease_name)
            if step == "ending":
                ending.add(lease_name)
            if step in masks and world.terms[lease_name].frees_at > self.at:
                masks[step] |= mask_of(lease.slots)
        return _NodeOffer(
            self._usable_gpus(state, cut),
            self._usable_gpus(state, ending),
            masks["spare"].bit_count(),
            masks["shrink"].bit_count(),
            is_reserved=state.node.is_reserved,
        )

    def _usable_gpus(self, state: NodeState, gone: set[str]) -> int:
        """Return the GPUs of a node that the run could use for its whole duration.

        `gone`: leases that are assumed to have ended. GPUs that plans and holds need are taken off.
        """
        world, name = self._world, state.node.name
        over, taken = set(gone), 0
        for lease_name in world.open_by_node.get(name, ()):
            if self.now < world.terms[lease_name].frees_at <= self.at:
                over.add(lease_name)
            if lease_name not in over:
                taken |= mask_of(world.leases[lease_name].slots)
        entries = self._calendar.entries_on(name, self._request.run.uid, self._request.limit)
        kept = kept_gpus(world, name, entries, start=self.at, end=self._end, gone=over)
        return max(0, state.node.gpus - state.foreign - taken.bit_count() - kept)

    def site(self, money: tuple[HeldMoney, ...]) -> Site:
        """Return the site: the places that the groups have taken, with these payers."""
        places = tuple(sorted((name, gpus) for name, gpus in self._taken.items() if gpus))
        nodes = self._world.fleet.nodes
        return Site(
            places=places,
            money=money,
            domains=tuple(sorted({nodes[name].node.domain for name, _ in places})),
            losses=tuple((domain, *loss) for domain, loss in sorted(self._losses.items())),
        )


class _NodeOffer:
    """The GPUs that one node could give: free ones, those of spares, those of groups to shrink, and
    all."""

    __slots__ = ("free", "is_reserved", "room", "shrink", "spare")

    def __init__(self, room: int, free: int, spare: int, shrink: int, *, is_reserved: bool) -> None:
        self.room = room  # GPUs if all leases that may be cut were gone
        self.free = free  # GPUs without any preemption
        self.spare, self.shrink = spare, shrink
        self.is_reserved = is_reserved

    def loss(self, gpus: int) -> Loss:
        """Return the loss if `gpus` GPUs of this node are taken.

        Free GPUs are taken first, then those of spares, those of groups to shrink, and the rest by
        lottery.
        Example: a node has 3 GPUs free, 2 under spares, and 1 under a group that may be shrunk. For
        8 GPUs, the loss is 2 by lottery, 1 by shrinking and 2 of spares.
        """
        missing = max(0, gpus - self.free)
        spares = min(missing, self.spare)
        shrunk = min(missing - spares, self.shrink)
        return missing - spares - shrunk, shrunk, spares


class _CutSteps:
    """Tells by which step of R3 a lease may be cut for the run `uid` that starts at `at`."""

    def __init__(self, world: World, uid: Uid, *, at: Instant, now: Instant) -> None:
        self._world, self._uid = world, uid
        self._at, self._now = at, now
        self._surplus: dict[Uid, frozenset[int]] = {}
        self._safe: dict[Uid, bool] = {}

    def of(self, lease: Lease, state: NodeState) -> str:
        """Return "spare", "shrink" or "lottery"; "ending" if the lease is already ending; "" if it
        may not be cut."""
        if lease.uid == self._uid:
            return ""
        if lease.ending is not None:
            return "ending" if lease.ending.deadline > self._now else ""
        if lease.role is Role.SPARE:
            return "" if will_be_taken_over(self._world, lease) else "spare"
        if lease.group in self._surplus_of(lease.uid):
            return "shrink"
        if lease.role is Role.BORROWED and mask_of(lease.slots) & state.spare:
            return "spare"
        return "" if self._is_safe(lease.uid) else "lottery"

    def _surplus_of(self, uid: Uid) -> frozenset[int]:
        if uid not in self._surplus:
            self._surplus[uid] = surplus_of(self._world, uid)
        return self._surplus[uid]

    def _is_safe(self, uid: Uid) -> bool:
        """Return whether the run has no bundles in a lottery: it is protected, or unknown."""
        if uid not in self._safe:
            run = self._world.runs.get(uid)
            is_drawn = self._world.policy.cuts is CutPolicy.LOTTERY
            self._safe[uid] = run is None or (is_drawn and is_protected(self._world, run, self._at))
        return self._safe[uid]


def _plus(one: Loss, other: Loss) -> Loss:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _minus(one: Loss, other: Loss) -> Loss:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def protections_ending(world: World, after: Instant) -> Iterator[Instant]:
    """Yield the ends of protections after `after`."""
    for uid in world.open_by_run:
        run = world.runs.get(uid)
        until = protected_until(world, run) if run is not None else None
        if until is not None and until > after:
            yield until
