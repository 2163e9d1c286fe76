"""What is free and what is left at one instant, now or ahead, for one who asks.

A view is a way to look at the world: at an instant, on top of the claims of others, without
certain leases (those that would be cut). Leases whose end is known are gone after it.
"""

from dataclasses import dataclass, field

from tests.model.story import FOREVER
from tests.model.world import Envelope, Lease, Node, Run, World


@dataclass
class Claim:
    """What somebody who waits keeps from others.

    A `plan` keeps its nodes and its concurrency from its start on, its GPU-hours at once. A `cut`
    keeps what is free in its domains, up to what it needs, and its money like a plan. A `hold` is
    what a Resolution has freed: it is kept from everybody, at once.
    """

    run: str
    kind: str
    start: int
    end: int
    nodes: dict[str, int] = field(default_factory=dict)
    money: dict[str, int] = field(default_factory=dict)
    lent: dict[str, int] = field(default_factory=dict)
    hours: dict[str, int] = field(default_factory=dict)
    lent_hours: dict[str, int] = field(default_factory=dict)
    since: int = 0  # a cut keeps free GPUs from then on
    flavor: str = ""
    pod_gpus: int = 0
    pods: dict[str, int] = field(default_factory=dict)  # of a cut: domain -> pods
    groups: list[int] = field(default_factory=list)
    before: list["Claim"] = field(default_factory=list)  # of a cut: those ahead of it
    gone: frozenset[int] = frozenset()  # of a cut: leases that others would end before it
    was: "Claim | None" = None  # the same without those others
    # By instant and what others have planned since, as worked out.
    kept: dict[tuple[int, tuple[tuple[str, int], ...]], dict[str, int]] = field(
        default_factory=dict
    )
    under: dict[int, dict[str, int]] = field(default_factory=dict)  # beneath leases, likewise
    rests_on: list[int] = field(default_factory=list)  # spares that a cut counts on
    places: dict[int, str] = field(default_factory=dict)  # of a cut: group -> domain


class View:
    def __init__(
        self,
        world: World,
        at: int,
        claims: list[Claim],
        gone: frozenset[int] = frozenset(),
        *,
        resolving: bool = False,
        cutting: bool = False,
    ) -> None:
        """`resolving`: a lease that is ending is free at once, not only at its deadline. `cutting`:
        whether those ahead who need cuts find their room is asked by putting each there, so that
        nothing but the free GPUs that they keep is taken off."""
        self.world = world
        self.at = at
        self.claims = claims
        self.gone = gone
        self.resolving = resolving
        self.cutting = cutting
        self.ends = {lease.number: self._until(lease) for lease in world.open_leases()}
        self.alive = [lease for lease in world.open_leases() if self.ends[lease.number] > at]
        self.starts = self._starts()
        self.on: dict[str, list[Lease]] = {}
        for lease in self.alive:
            self.on.setdefault(lease.node, []).append(lease)

    def until(self, lease: Lease) -> int:
        """When this lease will be gone, for the one who asks."""
        return self.ends[lease.number]

    def _until(self, lease: Lease) -> int:
        if lease.number in self.gone:
            return -FOREVER
        if self.resolving and lease.ending and is_expected_to_go(self.world, lease):
            return -FOREVER
        return self.world.known_end(lease)

    def instants(self, until: int) -> list[int]:
        """When less is there than at the beginning: the starts of others, up to `until`; and of one
        that needs cuts whenever something comes free that it keeps until then."""
        return [self.at, *(start for start in self.starts if start < until)]

    def _starts(self) -> list[int]:
        """After the view's own instant."""
        starts = {claim.start for claim in self.claims}
        cuts = [claim for claim in self.claims if claim.kind == "cut"]
        if cuts:
            ends = {self.world.known_end(lease) for lease in self.world.open_leases()}
            ends.update(claim.end for claim in self.claims)
            for claim in cuts:
                starts.add(claim.since)
                starts.update(at for at in ends if claim.since < at <= claim.start)
        return sorted(start for start in starts if start > self.at)

    # GPUs

    def room(self, flavor: str, until: int) -> dict[str, int]:
        """GPUs of each usable node that are there from this instant to `until`."""
        least: dict[str, int] = {}
        for instant in self.instants(until):
            for name, free in self._room_at(flavor, instant).items():
                least[name] = min(free, least.get(name, free))
        return {name: max(0, free) for name, free in least.items()}

    def _room_at(self, flavor: str, instant: int) -> dict[str, int]:
        nodes = [n for n in self.world.nodes.values() if n.flavor == flavor and n.usable]
        free = {node.name: self.free(node, instant) for node in nodes}
        for claim in self.claims:
            taken: dict[str, int] = {}
            if claim.kind == "cut":
                if claim.flavor == flavor and claim.since <= instant < claim.end:
                    then = max(claim.start, self.world.now)
                    when = min(instant, then) if self.cutting else instant
                    taken = kept_by(self.world, claim, when, self._planned_beside(claim))
            elif claim.start <= instant < claim.end:
                taken = {name: gpus for name, gpus in claim.nodes.items() if name in free}
                for lease in self._taken_back(claim, instant):
                    if lease.node in taken:
                        taken[lease.node] = max(0, taken[lease.node] - lease.gpus)
            for name, gpus in taken.items():
                free[name] -= gpus
        return free

    def _planned_beside(self, cut: Claim) -> dict[str, int]:
        """Of each node the most that known starts behind one who needs cuts will have at once while
        it runs: they were planned beside its room, which is not where they are."""
        ahead = {id(other) for other in cut.before}
        plans = [
            each
            for each in self.claims
            if each.kind == "plan"
            and id(each) not in ahead
            and each.start < cut.end
            and cut.start < each.end
        ]
        most: dict[str, int] = {}
        for at in {max(each.start, cut.start) for each in plans}:
            there = [each for each in plans if each.start <= at < each.end]
            for name in {name for each in there for name in each.nodes}:
                gpus = sum(each.nodes.get(name, 0) for each in there)
                most[name] = max(gpus, most.get(name, 0))
        return most

    def beside_claims(self, flavor: str, instant: int) -> dict[str, int]:
        """What is left of each node of which somebody has planned some for that instant."""
        nodes = self.world.nodes
        left = self._room_at(flavor, instant)
        return {name: n for name, n in left.items() if n < self.free(nodes[name], instant)}

    def free(self, node: Node, instant: int) -> int:
        """GPUs of the node that nobody has at that instant."""
        taken: set[int] = set()
        for lease in self.on.get(node.name, []):
            if self.ends[lease.number] > instant:
                taken.update(lease.slots)
        return node.gpus - node.foreign - len(taken)

    def in_use(self) -> set[str]:
        """A node with leases or with somebody else's pods; a mere plan does not count."""
        return set(self.on) | {node.name for node in self.world.nodes.values() if node.foreign}

    # Money

    def paid(self, envelope: str, instant: int, *, lent: bool = False) -> int:
        """GPUs it pays for at that instant (or lends), those of others' plans too."""
        total = sum(
            lease.gpus
            for lease in self.alive
            if lease.payer == envelope
            and self.until(lease) > instant
            and (not lent or lease.relation == "Borrowed")
        )
        for claim in self.claims:
            if claim.start <= instant < claim.end:
                held = (claim.lent if lent else claim.money).get(envelope, 0)
                for lease in self._taken_back(claim, instant):
                    if lease.payer == envelope and (not lent or lease.relation == "Borrowed"):
                        held = max(0, held - lease.gpus)
                total += held
        return total

    def _taken_back(self, claim: Claim, instant: int) -> list[Lease]:
        """Of one that a node rejected: what has not gone yet, and is held for it from then on."""
        if claim.kind != "hold":
            return []
        run = self.world.runs[claim.run]
        return [
            lease
            for lease in self.alive
            if lease.run == claim.run
            and run.unit_of(lease.group).fate == "Rejected"
            and self.ends[lease.number] > instant
        ]

    def most_paid(self, envelopes: set[str], until: int, *, lent: bool = False) -> int:
        """The most these pay for together at any instant from now to `until`."""
        return max(
            sum(self.paid(name, instant, lent=lent) for name in envelopes)
            for instant in self.instants(until)
        )

    def hours_bound(self, envelope: Envelope, at: int, *, lent: bool = False) -> int:
        """GPU-time used by then, committed by open leases, and held by plans."""
        total = 0
        for lease in self.world.leases:
            if lease.payer == envelope.name and (not lent or lease.relation == "Borrowed"):
                total += self.used_by(lease, envelope, at) + self.committed_by(lease, envelope, at)
        for claim in self.claims:
            total += (claim.lent_hours if lent else claim.hours).get(envelope.name, 0)
        return total

    def used_by(self, lease: Lease, envelope: Envelope, at: int) -> int:
        """Within the window; a lease that goes on until then is counted until then."""
        if lease.end is not None:
            end = lease.end
        else:
            end = min(at, max(self.until(lease), self.world.now))
        start = max(lease.start, envelope.start)
        return lease.gpus * max(0, end - start)

    def committed_by(self, lease: Lease, envelope: Envelope, at: int) -> int:
        """To its limit, or over the horizon; never past the window; no grace period."""
        if lease.end is not None or lease.ending or self.until(lease) <= at:
            return 0
        limit = self.world.limit_of(lease)
        end = at + self.world.config["accounting.horizon"] if limit is None else limit
        return lease.gpus * max(0, min(end, envelope.end) - at)


def is_expected_to_go(world: World, lease: Lease) -> bool:
    """A pod that will not go is not counted on once it is late by `drain.timeout`."""
    return bool(world.now < lease.deadline + world.config["drain.timeout"])


def kept_by(
    world: World, claim: Claim, instant: int, beside: dict[str, int] | None = None
) -> dict[str, int]:
    """The free GPUs of its domains that one who needs cuts keeps: no more than it needs.

    Free for it is what nobody ahead counts on while it would run. Whole pods first, where it would
    put them; for pods that have no place yet whatever is free, from the emptiest node on, since
    that is what has not to be cut. After its start its whole pods are where they were then, and the
    rest of its room is taken to be in the place of leases that it may have cut, as far as they are
    enough, and `beside` what others have planned since. What others would free by their cuts is
    nothing that it keeps.
    """
    if claim.was is not None and instant <= max(claim.start, world.now):
        return kept_by(world, claim.was, instant)
    is_later = instant > max(claim.start, world.now)
    theirs = tuple(sorted((beside or {}).items())) if is_later else ()
    if (instant, theirs) not in claim.kept:
        view = View(world, instant, claim.before, claim.gone)
        if is_later:
            found = _kept_later(view, claim, instant, dict(theirs))
        else:
            found = _kept(view, claim, claim.pods, view.room(claim.flavor, claim.end))
        claim.kept[instant, theirs] = found
    return claim.kept[instant, theirs]


def _kept_later(view: View, claim: Claim, instant: int, beside: dict[str, int]) -> dict[str, int]:
    """Of each pod that has no place yet as much as may be is beneath leases that it may have cut,
    and that nobody ahead is beneath; on nodes where little is free first."""
    size = claim.pod_gpus
    at_start = kept_by(view.world, claim, max(claim.start, view.world.now))
    kept = {name: gpus // size * size for name, gpus in at_start.items()}
    free = view.room(claim.flavor, claim.end)
    under = claim.under[instant] = {}
    ahead = [other for other in claim.before if other.kind == "cut"]
    for domain, pods in claim.pods.items():
        names = [n for n in sorted(free) if view.world.nodes[n].domain == domain]
        missing = max(0, pods - sum(kept.get(name, 0) // size for name in names))
        beneath = {name: _beneath(view, claim, name) for name in names}
        for name in names:
            theirs = sum(other.under.get(instant, {}).get(name, 0) for other in ahead)
            beneath[name] = max(0, beneath[name] - theirs)
        left = {name: max(0, free[name] - kept.get(name, 0)) for name in names}
        for name in names:
            planned = beside.get(name, 0)
            beneath[name] = max(0, beneath[name] - max(0, planned - left[name]))
            left[name] = max(0, left[name] - planned)
        for with_free in (False, True):
            for name in sorted(names, key=lambda n: (left[n], n)):
                here = min(missing, (beneath[name] + with_free * left[name]) // size)
                missing -= here
                taken = max(0, here * size - beneath[name])
                under[name] = under.get(name, 0) + here * size - taken
                beneath[name] = max(0, beneath[name] - here * size)
                left[name] -= taken
                kept[name] = kept.get(name, 0) + taken
    return kept


def _beneath(view: View, claim: Claim, name: str) -> int:
    """GPUs of a node under leases that it may have cut: a filler goes with its spare."""
    leases = [x for x in view.on.get(name, []) if _may_be_cut(view.world, x, claim)]
    return len({slot for lease in leases for slot in lease.slots})


def _may_be_cut(world: World, lease: Lease, claim: Claim) -> bool:
    """A spare, an elastic run's group above its minimum, or of a run that nothing protects then."""
    run = world.runs[lease.run]
    if lease.role == "Spare" or world.protected_until(run, claim.run) <= claim.start:
        return True
    stays = [x for x in world.leases_of(run) if x.role != "Spare" and not x.ending]
    groups = sorted({x.group for x in stays})
    return run.elastic and lease.group in groups[run.least // run.group_gpus :]


def _kept(view: View, claim: Claim, needed: dict[str, int], free: dict[str, int]) -> dict[str, int]:
    kept: dict[str, int] = {}
    in_use = view.in_use()
    for domain, pods in needed.items():
        names = [n for n in sorted(free) if view.world.nodes[n].domain == domain]
        left = {name: free[name] for name in names}
        wanted = pods
        while wanted:
            fitting = [name for name in names if left[name] >= claim.pod_gpus]
            if not fitting:
                break
            best = min(fitting, key=lambda n: (n not in in_use, left[n], n))
            left[best] -= claim.pod_gpus
            kept[best] = kept.get(best, 0) + claim.pod_gpus
            wanted -= 1
        missing = wanted * claim.pod_gpus
        for name in sorted(names, key=lambda n: (-left[n], n)):
            part = min(left[name], missing)
            missing -= part
            if part:
                kept[name] = kept.get(name, 0) + part
    return kept


def end_of(run: Run, start: int) -> int:
    """When a run that starts then will have ended, as far as is known."""
    return FOREVER if run.limit is None else start + run.limit


def cost_of_segments(
    world: World, claim: Claim, segments: list[tuple[str, int, str]], start: int
) -> None:
    """Puts the money of a plan into its claim: GPUs, loans and GPU-hours."""
    horizon = start + world.config["accounting.horizon"]
    until = claim.end if claim.end < FOREVER else horizon
    for name, gpus, relation in segments:
        envelope = world.envelope(name)
        assert envelope is not None
        hours = gpus * max(0, min(until, envelope.end) - start)
        claim.money[name] = claim.money.get(name, 0) + gpus
        claim.hours[name] = claim.hours.get(name, 0) + hours
        if relation == "Borrowed":
            claim.lent[name] = claim.lent.get(name, 0) + gpus
            claim.lent_hours[name] = claim.lent_hours.get(name, 0) + hours
