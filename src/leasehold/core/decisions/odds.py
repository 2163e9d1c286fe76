"""Each run's chance to be ended by a lottery that has not been drawn yet.

Announced with a reservation that needs cuts. Exact where the conflict set is small (every order of
draws is walked with its probability), else by drawing many seeds. Works on plain counts of free
GPUs per node instead of the World's indices, because a thousand draws are too many for those.
"""

import hashlib
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction

from leasehold.core.decisions.admit import Wish
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.cuts import Cut, CutKind, enough, structural
from leasehold.core.decisions.kept import Kept
from leasehold.core.decisions.pack import Want
from leasehold.core.decisions.resolve import Site, not_enough, prepare
from leasehold.core.facts import Lease, Record, RunKey
from leasehold.core.ledger.lottery import draw_order
from leasehold.core.resolutions import Bundle
from leasehold.core.units import Instant
from leasehold.core.verdicts import Refused
from leasehold.core.world.world import World


class Preview(Record):
    """What resolve would do now, as far as it can be known before the draw."""

    site: Site
    spares: int  # GPUs
    dropped: tuple[str, ...]  # the leases of those
    pods: tuple[tuple[str, int], ...]  # that it will have, by domain
    shrunk: tuple[tuple[RunKey, int], ...]  # run, group, in the order taken
    left_to_lottery: int  # GPUs
    odds: tuple[tuple[RunKey, int], ...] | None  # run, percent; None: not computed


def preview(
    world: World,
    wish: Wish,
    agenda: Agenda,
    *,
    at: Instant,
    now: Instant,
    may_sample: Callable[[], bool],
    gone: Collection[str] = (),
) -> Preview | Refused:
    """Run resolve for an instant, up to the draw; only where exact odds are too dear, ask whether
    to sample. `gone`: leases that the caller has given back."""
    seen = _preview(world, wish, agenda, at=at, now=now, may_sample=may_sample, gone=gone)
    if isinstance(seen, Refused) and not seen.reason.is_about_money:
        # Others for whom room is being made now can be cut then like anybody.
        later = agenda.as_cut_by(world, wish.run.uid, at=at, now=now)
        if later is not agenda:
            seen = _preview(world, wish, later, at=at, now=now, may_sample=may_sample, gone=gone)
    return seen


def _preview(
    world: World,
    wish: Wish,
    agenda: Agenda,
    *,
    at: Instant,
    now: Instant,
    may_sample: Callable[[], bool],
    gone: Collection[str],
) -> Preview | Refused:
    mark = world.what_if.mark()
    try:
        terrain = prepare(world, wish, agenda, at=at, now=now, gone=gone)
        if isinstance(terrain, Refused):
            return terrain
        site, want = terrain.site, terrain.want
        scope = terrain.scope()
        taken = structural(scope)
        arena = _Arena(world, want, terrain.kept)
        conflicts = {} if scope.fits() else scope.conflict_set(now=at, but=wish.run.uid)
        if not scope.fits() and not enough(scope, conflicts):
            return not_enough(want, site.deficit)
        left = 0 if scope.fits() else arena.deficit()
        odds = _odds(world, arena, conflicts, site, may_sample) if conflicts else ()
        return Preview(
            site=site,
            spares=sum(cut.gpus for cut in taken if cut.kind is CutKind.SPARE),
            dropped=tuple(cut.name for cut in taken if cut.kind is CutKind.SPARE),
            shrunk=tuple((cut.run, cut.group or 0) for cut in taken if cut.kind is CutKind.SHRINK),
            left_to_lottery=left,
            odds=odds,
            pods=terrain.pods,
        )
    finally:
        world.what_if.undo(mark)


class _Arena:
    """Free GPUs by node, less what plans keep (which may be more), and whether all groups fit."""

    def __init__(self, world: World, want: Want, kept: Kept) -> None:
        self._kept = kept
        self._gains: dict[str, int] = {}  # GPUs that the end of a lease leaves to the run
        self._gpus = want.pod_gpus
        self._per_group = want.pods + want.spares
        self._groups = len(want.groups)
        self._spread = want.spread
        self._domain: dict[str, str] = {}
        self._free: dict[str, int] = {}
        self._room: dict[str, int] = dict.fromkeys(want.within, 0)
        for domain in want.within:
            for name in world.fleet.pools[(want.flavor, domain)].nodes:
                kept.settle(name)
                state = world.fleet.nodes[name]
                self._domain[name] = domain
                self._free[name] = state.unclipped_free()
                self._room[domain] += state.free // self._gpus
        self._usable = {name for name in self._free if world.fleet.nodes[name].takes_work}

    def fits(self) -> bool:
        rooms = [room // self._per_group for room in self._room.values()]
        return (sum(rooms) if self._spread else max(rooms)) >= self._groups

    def deficit(self) -> int:
        pods = self._per_group * self._groups
        room = sum(self._room.values()) if self._spread else max(self._room.values())
        return max(self._gpus, (pods - room) * self._gpus)

    def shift(self, cut: Cut, sign: int) -> None:
        for lease in cut.leases:
            if lease.node in self._usable:
                before = self._free[lease.node]
                after = self._free[lease.node] = before + sign * self._gain(lease)
                self._room[self._domain[lease.node]] += max(0, after) // self._gpus
                self._room[self._domain[lease.node]] -= max(0, before) // self._gpus

    def _gain(self, lease: Lease) -> int:
        known = self._gains.get(lease.name)
        if known is None:
            known = self._gains[lease.name] = self._kept.gain(lease)
        return known

    def ended(self, drawn: list[tuple[Bundle, Cut]]) -> list[Bundle]:
        """Which of the drawn stay drawn after pruning; everything is put back afterwards."""
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
    arena: _Arena,
    conflicts: dict[str, list[tuple[Bundle, Cut]]],
    site: Site,
    may_sample: Callable[[], bool],
) -> tuple[tuple[RunKey, int], ...] | None:
    count = sum(len(found) for found in conflicts.values())
    if count <= world.policy.odds_exact_bundles_max:
        weighted = _every_order(arena, conflicts)
    elif may_sample():
        weighted = _sampled(arena, conflicts, site, world.policy.odds_seeds)
    else:
        return None
    chances: dict[RunKey, Fraction] = {
        f"{bundle.namespace}/{bundle.run}": Fraction(0)
        for found in conflicts.values()
        for bundle, _ in found
    }
    for weight, ended in weighted:
        for run in {f"{bundle.namespace}/{bundle.run}" for bundle in ended}:
            chances[run] += weight
    return tuple((run, _percent(chance)) for run, chance in sorted(chances.items()))


def _percent(chance: Fraction) -> int:
    return int(chance * 100 + Fraction(1, 2))


def _every_order(
    arena: _Arena, conflicts: dict[str, list[tuple[Bundle, Cut]]]
) -> Iterator[tuple[Fraction, list[Bundle]]]:
    drawn: list[tuple[Bundle, Cut]] = []

    def walk(
        left: dict[str, list[tuple[Bundle, Cut]]], weight: Fraction
    ) -> Iterator[tuple[Fraction, list[Bundle]]]:
        if arena.fits() or not left:
            ended = arena.ended(drawn)
            for each in drawn:
                arena.shift(each[1], 1)
            yield weight, ended
            return
        for owner, bundles in left.items():
            for each in bundles:
                rest = {**left, owner: [other for other in bundles if other is not each]}
                rest = {name: found for name, found in rest.items() if found}
                arena.shift(each[1], 1)
                drawn.append(each)
                yield from walk(rest, weight / len(left) / len(bundles))
                drawn.pop()
                arena.shift(each[1], -1)

    yield from walk(conflicts, Fraction(1))


def _sampled(
    arena: _Arena, conflicts: dict[str, list[tuple[Bundle, Cut]]], site: Site, seeds: int
) -> Iterator[tuple[Fraction, list[Bundle]]]:
    bundles = {owner: [bundle for bundle, _ in found] for owner, found in conflicts.items()}
    by_name = {bundle.name: (bundle, cut) for found in conflicts.values() for bundle, cut in found}
    for index in range(seeds):
        seed = hashlib.sha256(f"odds\n{site.domains}\n{index}".encode()).hexdigest()
        drawn: list[tuple[Bundle, Cut]] = []
        for _, bundle in draw_order(seed, bundles):
            if arena.fits():
                break
            drawn.append(by_name[bundle.name])
            arena.shift(by_name[bundle.name][1], 1)
        yield Fraction(1, seeds), arena.ended(drawn)
