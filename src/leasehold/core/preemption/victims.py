"""The steps of a preemption: what may be cut, in which order, and which victims are given back (R3
to R6).

Shared by `resolve` (GPUs are short) and `overdraft` (money is short). These two have different
scopes, and a different meaning of "fits". Everything happens in the caller's what-if: cuts change
the indices there, never the ledger.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from leasehold.core.facts import Gang, Lease, Record, Relation, Role, Run, RunKey, Uid
from leasehold.core.ledger.lottery import Urn, bundle_order
from leasehold.core.placement.drain import will_be_taken_over
from leasehold.core.resolutions import Bundle, Draw, SweepWidth
from leasehold.core.units import DAY, HOUR, Instant, Millis
from leasehold.core.world.waiting import wait_of
from leasehold.core.world.width import minimum_gpus, standing_groups
from leasehold.core.world.world import World

Seeder = Callable[[], str]  # returns the seed of the lottery, if one is held


class CutKind(StrEnum):
    """The steps of a preemption, in order (R3)."""

    SPARE = "spare"
    SHRINK = "shrink"
    DRAW = "draw"


class Cut(Record):
    """One step of a preemption: a spare, a group or a bundle, with every lease that it ends."""

    kind: CutKind
    uid: Uid
    run: RunKey
    group: int | None
    gpus: int
    leases: tuple[Lease, ...]  # of the run itself
    fillers: tuple[Lease, ...] = ()  # of the runs that were filling the spare
    owner: str = ""

    @property
    def ends(self) -> dict[str, Lease]:
        """Return every lease that the cut ends, by name."""
        return {lease.name: lease for lease in (*self.leases, *self.fillers)}

    @property
    def name(self) -> str:
        """Return the spare's lease, `run` for a whole run, or `run#group`."""
        if self.kind is CutKind.SPARE:
            return self.leases[0].name
        return self.run if self.group is None else f"{self.run}#{self.group}"


class Scope:
    """The leases that may be cut in one preemption, and the effect of ending some of them."""

    def __init__(
        self,
        world: World,
        leases: Iterable[Lease],
        fits: Callable[[], bool],
        *,
        free: Callable[[Lease], None],
        restore: Callable[[Lease], None],
        gone: Iterable[str] = (),
    ) -> None:
        """Begin with all leases that are not ending.

        `fits`: returns whether enough has been cut.
        `free`, `restore`: end a lease in the caller's what-if, and undo that.
        `gone`: leases that end before anything is cut.
        """
        self.world = world
        self.leases = [lease for lease in leases if lease.ending is None]
        self._names = {lease.name for lease in self.leases}
        self.fits = fits
        self._free = free
        self._restore = restore
        self.gone = set(gone)  # grows with the cuts that are applied

    def apply(self, cut: Cut) -> None:
        """End the leases of a cut, except those that an earlier cut has ended."""
        for lease in (*cut.leases, *cut.fillers):
            if lease.name not in self.gone:
                self.gone.add(lease.name)
                self._free(lease)

    def give_back(self, cut: Cut, ended: Counter[str]) -> None:
        """Undo a cut (R6), except for leases that another cut ends, too.

        `ended`: lease -> number of cuts that end it.
        """
        for lease in cut.ends.values():
            if lease.name in self.gone and ended[lease.name] == 1:
                self.gone.discard(lease.name)
                self._restore(lease)

    def standing(self) -> list[Lease]:
        """Return the leases of the scope that are not cut."""
        return [lease for lease in self.leases if lease.name not in self.gone]

    # What may be cut.

    def spares(self) -> Iterator[Cut]:
        """Yield a cut of each spare, newest first (R3a).

        Spares that a lost pod is about to take over are left out.
        """
        held = [
            lease
            for lease in self.leases
            if lease.role is Role.SPARE and not will_be_taken_over(self.world, lease)
        ]
        held.sort(key=_newest_first, reverse=True)
        for lease in held:
            yield Cut(
                kind=CutKind.SPARE,
                uid=lease.uid,
                run=lease.run_key,
                group=lease.group,
                gpus=lease.gpus,
                leases=(lease,),
                fillers=fillers_on(self.world, lease),
            )

    def shrink_round(self) -> list[Cut]:
        """Return a cut of one group for each run above its minimum (R3b).

        Runs that are furthest above their minimum come first.
        """
        runs: dict[Uid, int] = {}
        for uid in sorted({lease.uid for lease in self.standing() if lease.role is not Role.SPARE}):
            run = self.world.runs.get(uid)
            if run is not None and run.spec.malleable is not None:
                above = self.width(run) - minimum_gpus(run.spec)
                if above >= run.spec.group_gpus:
                    runs[uid] = above
        order = sorted(runs, key=lambda uid: (-runs[uid], self.world.runs[uid].key))
        return [
            self._group_cut(CutKind.SHRINK, uid, max(self._groups_in_scope(uid))) for uid in order
        ]

    def conflict_set(
        self, *, now: Instant, beneficiary: Uid
    ) -> dict[str, list[tuple[Bundle, Cut]]]:
        """Return the bundles among which a lottery would draw, by owner, with their cuts (R4).

        `beneficiary`: the waiting run, for which protected runs have no bundles; "" for an
        overdraft, in which no run is protected.
        """
        found: dict[str, list[tuple[Bundle, Cut]]] = {}
        in_scope = {lease.uid for lease in self.standing() if lease.role is not Role.SPARE}
        for uid in sorted(in_scope - {beneficiary}):
            run = self.world.runs.get(uid)
            if run is None or (beneficiary and is_protected(self.world, run, now)):
                continue
            bundles = self.bundles_of(run)
            found.setdefault(run.spec.owner, []).extend(bundles)
        for bundles in found.values():
            bundles.sort(key=lambda each: bundle_order(each[0]))
        return dict(sorted(found.items()))

    def bundles_of(self, run: Run) -> list[tuple[Bundle, Cut]]:
        """Return the bundles of a run with their cuts (R4).

        A sweep that stays at its minimum with a group less has one bundle for each of its groups in
        the scope. Any other run is one bundle.
        """
        cuts = [self.whole_cut(run.uid)]
        width_after = self.width(run) - run.spec.group_gpus
        if run.spec.gang is Gang.GROUP and width_after >= minimum_gpus(run.spec):
            groups = sorted(self._groups_in_scope(run.uid))
            cuts = [self._group_cut(CutKind.DRAW, run.uid, group) for group in groups]
        return [
            (
                Bundle(
                    namespace=run.namespace,
                    run=run.name,
                    uid=run.uid,
                    group=cut.group,
                    gpus=cut.gpus,
                    is_owned=all(
                        each.relation is Relation.OWNED
                        for each in cut.leases
                        if each.name in self._names
                    ),
                ),
                cut,
            )
            for cut in cuts
        ]

    def all_that_can_be_drawn(
        self, conflicts: dict[str, list[tuple[Bundle, Cut]]]
    ) -> Iterator[Cut]:
        """Yield the cuts that would be made if every bundle were drawn.

        A sweep ends as a whole only if it has more groups in scope than it has above its minimum.
        Example: 4 groups and a minimum of 2: with 3 groups in scope it ends whole, with 2 only
        these two end.
        """
        by_run: dict[Uid, list[Cut]] = {}
        for found in conflicts.values():
            for bundle, cut in found:
                by_run.setdefault(bundle.uid, []).append(cut)
        for uid, cuts in sorted(by_run.items()):
            run = self.world.runs[uid]
            above = (self.width(run) - minimum_gpus(run.spec)) // run.spec.group_gpus
            if run.spec.gang is Gang.GROUP and len(cuts) > above:
                yield self.whole_cut(uid)
            else:
                yield from cuts

    def cut_of(self, bundle: Bundle) -> Cut:
        """Return the cut for a bundle, without leases that earlier cuts have ended."""
        if bundle.group is None:
            return self.whole_cut(bundle.uid)
        return self._group_cut(CutKind.DRAW, bundle.uid, bundle.group)

    def width(self, run: Run) -> int:
        """Return the run's width in GPUs after the cuts so far."""
        return sum(lease.gpus for lease in self._own(run.uid) if lease.role is not Role.SPARE)

    def _own(self, uid: Uid) -> list[Lease]:
        """Return every open lease of a run that is neither ending nor cut, in and out of the
        scope."""
        leases = (self.world.leases[name] for name in sorted(self.world.open_by_run.get(uid, ())))
        return [each for each in leases if each.ending is None and each.name not in self.gone]

    def _groups_in_scope(self, uid: Uid) -> set[int]:
        return {
            lease.group
            for lease in self.standing()
            if lease.uid == uid and lease.role is not Role.SPARE
        }

    def _group_cut(self, kind: CutKind, uid: Uid, group: int) -> Cut:
        leases = tuple(lease for lease in self._own(uid) if lease.group == group)
        return self._cut(kind, uid, group, leases)

    def whole_cut(self, uid: Uid) -> Cut:
        return self._cut(CutKind.DRAW, uid, None, tuple(self._own(uid)))

    def _cut(self, kind: CutKind, uid: Uid, group: int | None, leases: tuple[Lease, ...]) -> Cut:
        assert leases, (kind, uid, group)
        return Cut(
            kind=kind,
            uid=uid,
            run=leases[0].run_key,
            group=group,
            gpus=sum(lease.gpus for lease in leases if lease.role is not Role.SPARE),
            leases=leases,
            owner=leases[0].owner,
        )


def _newest_first(spare: Lease) -> tuple[Instant, RunKey, int, int, tuple[int, ...]]:
    """Return the sort key of `spares`; ties by run, group, pod and slots (a pod may have several
    payers)."""
    return spare.start, spare.run_key, spare.group, spare.index, spare.slots


def fillers_on(world: World, spare: Lease) -> tuple[Lease, ...]:
    """Return the leases that end when this spare is dropped: all leases of each unit that fills
    it (F3)."""
    assert spare.role is Role.SPARE, spare.name
    units: set[tuple[Uid, int]] = set()
    for name in sorted(world.open_by_node.get(spare.node, ())):
        lease = world.leases[name]
        if lease.role is Role.BORROWED and set(lease.slots) & set(spare.slots):
            units.add((lease.uid, world.unit_of(lease.uid, lease.group)))
    return tuple(
        world.leases[name]
        for uid, unit in sorted(units)
        for name in sorted(world.open_by_run.get(uid, ()))
        if world.unit_of(uid, world.leases[name].group) == unit and not world.leases[name].ending
    )


def surplus_of(world: World, uid: Uid) -> frozenset[int]:
    """Return the groups that shrinking may cut from an elastic run: those above its minimum (R3b).

    They are the groups with the highest indices.
    """
    run = world.runs.get(uid)
    if run is None or run.spec.malleable is None:
        return frozenset()
    groups = sorted(standing_groups(world, uid))
    above = len(groups) - minimum_gpus(run.spec) // run.spec.group_gpus
    return frozenset(groups[len(groups) - max(0, above) :])


def is_protected(world: World, run: Run, at: Instant) -> bool:
    """Return whether the run is protected: not drawn in a lottery for a waiting run."""
    until = protected_until(world, run)
    return until is not None and at < until


def protected_until(world: World, run: Run) -> Instant | None:
    """Return the end of the run's protection, or None if the run has not started in its present
    wait.

    The protection begins with the start that ends the wait.
    """
    started = wait_of(world, run).ended
    return None if started is None else started + tenure_of(world, run)


def tenure_of(world: World, run: Run) -> Millis:
    """Return for how long a start protects the run: `resolver.minTenure`, if configured.

    Otherwise 2 h, or twice the run's checkpoint interval if that is longer, but at most 24 h.
    """
    if world.policy.min_tenure is not None:
        return world.policy.min_tenure
    return min(max(2 * HOUR, 2 * (run.spec.checkpoint or 0)), DAY)


class Cuts(Record):
    """The cuts of one preemption in order, those that were not needed (R6), and its lottery."""

    taken: tuple[Cut, ...]
    returned: tuple[Cut, ...]
    seed: str
    conflict_set: tuple[tuple[str, tuple[Bundle, ...]], ...]
    sweeps: tuple[SweepWidth, ...]
    draws: tuple[Draw, ...]

    @property
    def kept(self) -> tuple[Cut, ...]:
        """Return the cuts that were needed."""
        back = {(cut.kind, cut.name) for cut in self.returned}
        return tuple(cut for cut in self.taken if (cut.kind, cut.name) not in back)


def structural(scope: Scope) -> list[Cut]:
    """Drop spares, then shrink round by round, until the run fits (R3a, R3b).

    Returns the cuts. They may not be enough.
    """
    taken: list[Cut] = []
    for cut in scope.spares():
        if scope.fits():
            return taken
        scope.apply(cut)
        taken.append(cut)
    while not scope.fits():
        cuts = scope.shrink_round()
        if not cuts:
            break
        for cut in cuts:
            if scope.fits():
                break
            scope.apply(cut)
            taken.append(cut)
    return taken


def cut_until_it_fits(
    scope: Scope, *, seeder: Seeder, now: Instant, beneficiary: Uid, partly: bool = False
) -> Cuts | None:
    """Carry out the three steps of R3, give back the victims that are not needed (R6), and return
    the cuts.

    Returns None if even all cuts are not enough; with `partly`, returns all cuts in that case.
    `beneficiary`: the waiting run, or "" for an overdraft.
    """
    taken = structural(scope)
    conflicts = {} if scope.fits() else scope.conflict_set(now=now, beneficiary=beneficiary)
    if not scope.fits() and not partly and not enough(scope, conflicts):
        return None
    lots = LotteryDraws(
        scope, conflicts, owned_last=bool(beneficiary) and scope.world.policy.owned_last
    )
    seed = seeder() if conflicts and not scope.fits() else ""
    while seed and not scope.fits():
        cut = lots.draw(seed)
        if cut is None:
            break
        scope.apply(cut)
        taken.append(cut)
    if not scope.fits() and not partly:
        return None
    returned = _given_back(scope, taken) if scope.fits() else ()
    return Cuts(
        taken=tuple(taken),
        returned=returned,
        seed=seed,
        conflict_set=tuple(
            (owner, tuple(bundle for bundle, _ in found)) for owner, found in conflicts.items()
        ),
        sweeps=lots.sweeps,
        draws=tuple(lots.draws),
    )


class LotteryDraws:
    """The draws of one lottery, and the cut that belongs to each draw."""

    def __init__(
        self,
        scope: Scope,
        conflicts: dict[str, list[tuple[Bundle, Cut]]],
        *,
        owned_last: bool = False,
    ) -> None:
        self._scope = scope
        found = {owner: [bundle for bundle, _ in pairs] for owner, pairs in conflicts.items()}
        runs = {bundle.uid for bundles in found.values() for bundle in bundles}
        self.sweeps = tuple(
            SweepWidth(
                run=run.key,
                width=scope.width(run),
                minimum=minimum_gpus(run.spec),
                group=run.spec.group_gpus,
            )
            for uid in sorted(runs)
            if (run := scope.world.runs[uid]).spec.gang is Gang.GROUP
        )
        self.draws: list[Draw] = []
        self._urn = Urn(found, self.sweeps, owned_last=owned_last)

    def draw(self, seed: str) -> Cut | None:
        """Draw a bundle and return its cut; None if no bundle is left."""
        drawn = self._urn.draw(seed)
        if drawn is None:
            return None
        owner, bundle = drawn
        self.draws.append(Draw(owner=owner, bundle=bundle.name, gpus=bundle.gpus))
        return self._scope.cut_of(bundle)


def enough(scope: Scope, conflicts: dict[str, list[tuple[Bundle, Cut]]]) -> bool:
    """Return whether `scope.fits` would be true if everything that can be drawn ended."""
    with scope.world.what_if.opened():
        before = set(scope.gone)
        for cut in scope.all_that_can_be_drawn(conflicts):
            scope.apply(cut)
        answer = scope.fits()
    scope.gone = before
    return answer


def _given_back(scope: Scope, taken: list[Cut]) -> tuple[Cut, ...]:
    """Check the cuts in reverse order and undo each one that is not needed (R6).

    Returns the cuts that were undone.
    """
    kept: dict[Uid, list[Cut]] = {}
    for cut in taken:
        kept.setdefault(cut.uid, []).append(cut)
    ended = Counter(name for cut in taken for name in cut.ends)
    returned: list[Cut] = []
    for cut in reversed(taken):
        mine = kept[cut.uid]
        scope.world.steps.take(len(mine))
        if _ends_with_another(cut, mine):
            continue
        scope.give_back(cut, ended)
        if scope.fits():
            kept[cut.uid] = [other for other in mine if other is not cut]
            ended.subtract(cut.ends.keys())
            returned.append(cut)
        else:
            scope.apply(cut)
    return tuple(returned)


def _ends_with_another(cut: Cut, kept: list[Cut]) -> bool:
    """Return whether another cut of the same run ends the same leases anyway.

    A run that was cut as a whole loses its spares, too, and the groups that it gave up before.
    `kept`: the cuts of this run that have not been undone.
    """
    return any(
        other is not cut
        and other.kind is not CutKind.SPARE
        and (other.group is None or (other.group == cut.group and cut.kind is CutKind.SPARE))
        for other in kept
    )
