"""odds: each run's chance to be drawn in a lottery that has not taken place yet.

The odds are announced with a start by preemption (Q5). With few bundles they are exact: every order
of draws is weighted with its probability. Otherwise many seeds are tried. Both work on counts of
free GPUs per node, because the World's indices would be too slow for a thousand draws.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Lease, Record, RunKey
from leasehold.core.ledger.lottery import Urn
from leasehold.core.preemption.resolve import PlannedSite, SiteDomains
from leasehold.core.preemption.victims import Cut, CutKind, LotteryDraws, structural
from leasehold.core.requests import StartRequest
from leasehold.core.resolutions import Bundle
from leasehold.core.units import Instant
from leasehold.core.world.world import World


class Preview(Record):
    """The expected outcome of a preemption, as far as it is known before the draw."""

    deficit: int  # GPUs that the run lacks at its start
    spares: int  # GPUs of spares that would be dropped
    shrunk: tuple[tuple[RunKey, int], ...]  # (run, group), in the order taken
    left_to_lottery: int  # GPUs that a lottery would have to free
    odds: tuple[tuple[RunKey, int], ...] | None  # (run, percent); None: not computed


def preview(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    planned: PlannedSite,
    *,
    at: Instant,
    now: Instant,
    may_sample: Callable[[], bool],
) -> Preview:
    """Return the expected outcome of the preemption at `at`.

    `may_sample`: called only if there are too many bundles for exact odds. It returns whether many
    draws may be simulated now.
    """
    with world.what_if.opened():
        site_state = SiteDomains(world, request, calendar, planned, at=at, now=now)
        deficit, scope = site_state.deficit(), site_state.scope()
        taken = structural(scope)
        conflicts = {} if scope.fits() else scope.conflict_set(now=at, beneficiary=request.run.uid)
        counts = _Counts(world, request, site_state)
        odds: tuple[tuple[RunKey, int], ...] | None = ()
        if conflicts:
            bundles = {owner: [each for each, _ in found] for owner, found in conflicts.items()}
            lots = LotteryDraws(scope, conflicts)
            urn = Urn(bundles, lots.sweeps, owned_last=world.policy.owned_last)
            odds = _odds(world, counts, urn, scope.cut_of, planned=planned, may_sample=may_sample)
        return Preview(
            deficit=deficit,
            spares=sum(cut.gpus for cut in taken if cut.kind is CutKind.SPARE),
            shrunk=tuple((cut.run, cut.group or 0) for cut in taken if cut.kind is CutKind.SHRINK),
            left_to_lottery=counts.deficit() if conflicts else 0,
            odds=odds,
        )


_Drawn = list[tuple[Bundle, Cut]]


class _Counts:
    """Counts the free GPUs of each node while cuts are tried, and tells whether all groups fit.

    GPUs that plans and holds need are taken off, so a count may be negative.
    """

    def __init__(self, world: World, request: StartRequest, site_state: SiteDomains) -> None:
        placement = request.placement
        self._arena = site_state
        self._gains: dict[str, int] = {}  # lease -> GPUs the run gains when the lease ends
        self._ended: Counter[str] = Counter()
        self._gpus = placement.pod_gpus
        self._per_group = placement.pods + placement.spares
        self._groups = len(placement.groups)
        self._spread = placement.spread
        self._domain: dict[str, str] = {}
        self._free: dict[str, int] = {}
        self._room: dict[str, int] = {pool.domain: 0 for pool in site_state.pools}
        for pool in site_state.pools:
            for name in pool.nodes:
                site_state.kept.recount(name)
                state = world.fleet.nodes[name]
                if state.takes_work:
                    self._domain[name] = pool.domain
                    self._free[name] = state.unclipped_free()
                    self._room[pool.domain] += state.free // self._gpus

    def fits(self) -> bool:
        """Return whether all groups fit."""
        rooms = [room // self._per_group for room in self._room.values()]
        return (sum(rooms) if self._spread else max(rooms)) >= self._groups

    def deficit(self) -> int:
        """Return the GPUs of the pods that do not fit; at least those of one pod."""
        pods = self._per_group * self._groups
        room = sum(self._room.values()) if self._spread else max(self._room.values())
        return max(self._gpus, (pods - room) * self._gpus)

    def shift(self, cut: Cut, sign: int) -> None:
        """Apply a cut (`sign` 1) or undo it (`sign` -1). A lease may be part of several cuts."""
        for lease in cut.leases:
            before = self._ended[lease.name]
            self._ended[lease.name] = before + sign
            if lease.node in self._domain and not (before if sign > 0 else before - 1):
                self._move(lease, sign)

    def _move(self, lease: Lease, sign: int) -> None:
        before = self._free[lease.node]
        after = self._free[lease.node] = before + sign * self._gain(lease)
        change = max(0, after) // self._gpus - max(0, before) // self._gpus
        self._room[self._domain[lease.node]] += change

    def _gain(self, lease: Lease) -> int:
        """Return the GPUs that the run gains if the lease ends."""
        known = self._gains.get(lease.name)
        if known is None:
            known = self._gains[lease.name] = self._arena.kept.gain(lease)
        return known

    def ended(self, drawn: _Drawn) -> list[Bundle]:
        """Return the drawn bundles that are really needed (R6), and undo all cuts in `drawn`."""
        kept = list(drawn)
        for each in reversed(drawn):
            self.shift(each[1], -1)
            if self.fits():
                kept.remove(each)
            else:
                self.shift(each[1], 1)
        for each in kept:
            self.shift(each[1], -1)
        return [bundle for bundle, _ in kept]


def _odds(
    world: World,
    counts: _Counts,
    urn: Urn,
    cut_of: Callable[[Bundle], Cut],
    *,
    planned: PlannedSite,
    may_sample: Callable[[], bool],
) -> tuple[tuple[RunKey, int], ...] | None:
    """Return (run, percent) for every run with a bundle.

    Returns None if only sampling could find the odds, and `may_sample` does not allow it.
    """
    bundles = [each for found in urn.choices().values() for each in found]
    if len(bundles) <= world.policy.odds_exact_bundles_max:
        weighted = _every_order(counts, urn, cut_of)
    elif may_sample():
        weighted = _sampled(counts, urn, cut_of, planned, world.policy.odds_seeds)
    else:
        return None
    chances: dict[RunKey, Fraction] = {each.run_key: Fraction(0) for each in bundles}
    for weight, ended in weighted:
        for run in {bundle.run_key for bundle in ended}:
            chances[run] = chances.get(run, Fraction(0)) + weight
    return tuple((run, _percent(chance)) for run, chance in sorted(chances.items()))


def _percent(chance: Fraction) -> int:
    return int(chance * 100 + Fraction(1, 2))


def _every_order(
    counts: _Counts, urn: Urn, cut_of: Callable[[Bundle], Cut]
) -> Iterator[tuple[Fraction, list[Bundle]]]:
    """Yield (probability, bundles that end) for every possible sequence of draws.

    Example: owner a has bundle a1, owner b has b1 and b2, and one draw suffices: a1 with 1/2, b1
    and b2 with 1/4 each (R5).
    """
    drawn: _Drawn = []

    def walk(urn: Urn, weight: Fraction) -> Iterator[tuple[Fraction, list[Bundle]]]:
        choices = urn.choices()
        if counts.fits() or not choices:
            ended = counts.ended(drawn)
            for each in drawn:
                counts.shift(each[1], 1)
            yield weight, ended
            return
        for owner, bundles in choices.items():
            for bundle in bundles:
                rest, cut = urn.copy(), cut_of(bundle)
                rest.take(owner, bundle)
                counts.shift(cut, 1)
                drawn.append((bundle, cut))
                yield from walk(rest, weight / len(choices) / len(bundles))
                drawn.pop()
                counts.shift(cut, -1)

    yield from walk(urn, Fraction(1))


def _sampled(
    counts: _Counts,
    urn: Urn,
    cut_of: Callable[[Bundle], Cut],
    planned: PlannedSite,
    seeds: int,
) -> Iterator[tuple[Fraction, list[Bundle]]]:
    """Simulate the lottery with `seeds` fixed seeds; yield (weight, bundles that end) for each.

    All weights are equal and add up to 1. The seeds are computed from the site's domains, so the
    same odds come out when the computation is repeated.
    """
    cuts: dict[str, Cut] = {}
    for index in range(seeds):
        seed = hashlib.sha256(f"odds\n{planned.domains}\n{index}".encode()).hexdigest()
        drawn: _Drawn = []
        rest = urn.copy()
        while not counts.fits() and (found := rest.draw(seed)) is not None:
            bundle = found[1]
            if bundle.name not in cuts:
                cuts[bundle.name] = cut_of(bundle)
            drawn.append((bundle, cuts[bundle.name]))
            counts.shift(cuts[bundle.name], 1)
        yield Fraction(1, seeds), counts.ended(drawn)
