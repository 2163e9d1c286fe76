"""forecast — when a run will start: the first known instant at which it is funded and placed.

Walks the known future (windows that open, leases whose end is known, planned runs ahead) on the
World's indices under a mark. Called for every planned run at every event, so it looks closely only
at instants at which some domain has just got room.
"""

from collections.abc import Iterator, Sequence

from leasehold.core.admit import Wish, admit
from leasehold.core.agenda import Agenda
from leasehold.core.facts import Record
from leasehold.core.fleet import Fleet, Pool
from leasehold.core.pack import candidate_pools
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted
from leasehold.core.width import places_for
from leasehold.core.world import World

Release = tuple[Instant, str]  # when, which lease


class Known(Record):
    """A start that is known: when, and the plan."""

    at: Instant
    plan: Admitted
    window_aligned: bool
    releases: tuple[Release, ...]  # leases of its nodes that end before it


def releases_of(world: World, flavor: str, now: Instant) -> list[Release]:
    """Every open lease of a flavor whose end is known, in order of time."""
    nodes = world.fleet.nodes
    found = []
    for name, term in world.terms.items():
        if now < term.frees_at < FOREVER:
            state = nodes.get(world.leases[name].node)
            if state is not None and state.node.flavor == flavor:
                found.append((term.frees_at, name))
    found.sort()
    return found


def forecast(
    world: World, wish: Wish, agenda: Agenda, *, releases: Sequence[Release], now: Instant
) -> Known | None:
    """The first instant after `now` at which cover and pack both succeed, if one is known."""
    watcher = _Watcher(world, wish)
    if not watcher.ever:
        return None
    openings = _openings(world, wish.want.flavor, now)
    extra = sorted({*openings, *agenda.ends_after(now), *_claim_ends(agenda, now)})
    mark = world.journal.mark()
    try:
        for at in _instants(releases, extra, watcher):
            if watcher.roomy:
                plan = admit(world, wish, agenda, start=at, now=now)
                if isinstance(plan, Admitted):
                    return _known(world, at, plan, releases, openings)
    finally:
        world.journal.undo(mark)
    return None


def _known(
    world: World,
    at: Instant,
    plan: Admitted,
    releases: Sequence[Release],
    openings: set[Instant],
) -> Known:
    nodes = {each.node for each in plan.packed.places}
    freed = tuple(
        (when, name) for when, name in releases if when <= at and world.leases[name].node in nodes
    )
    return Known(at=at, plan=plan, window_aligned=at in openings, releases=freed)


def _openings(world: World, flavor: str, now: Instant) -> set[Instant]:
    return {
        envelope.start
        for envelope in world.envelopes.values()
        if envelope.flavor == flavor and now < envelope.start
    }


def _claim_ends(agenda: Agenda, now: Instant) -> set[Instant]:
    return {
        claim.end
        for claims in agenda.claims.values()
        for claim in claims
        if now < claim.end < FOREVER
    }


def _instants(
    releases: Sequence[Release], extra: list[Instant], watcher: "_Watcher"
) -> Iterator[Instant]:
    """Every instant at which something may change, leases given back up to it."""
    place, later = 0, 0
    while place < len(releases) or later < len(extra):
        at = min(
            releases[place][0] if place < len(releases) else FOREVER,
            extra[later] if later < len(extra) else FOREVER,
        )
        while place < len(releases) and releases[place][0] == at:
            watcher.give(releases[place][1])
            place += 1
        while later < len(extra) and extra[later] == at:
            later += 1
        yield at


class _Watcher:
    """Gives leases back and notices when a pool the run may use gets room for a group."""

    def __init__(self, world: World, wish: Wish) -> None:
        self._world = world
        want = wish.want
        self._gpus = want.pod_gpus
        self._pods = want.pods + want.spares
        if not want.spread:
            self._pods *= len(want.groups)
        fleet: Fleet = world.fleet
        pools = candidate_pools(fleet, want, places_for(world, wish.run.spec))
        self._pools = {pool.domain: pool for pool in pools}
        self._flavor = want.flavor
        self.ever = bool(pools)
        self.roomy = any(self._has_room(pool) for pool in pools)

    def _has_room(self, pool: Pool) -> bool:
        return pool.room(self._gpus) >= self._pods

    def give(self, name: str) -> None:
        world = self._world
        lease = world.leases[name]
        world.fleet.give(lease)
        if not self.roomy:
            state = world.fleet.nodes.get(lease.node)
            pool = self._pools.get(state.node.domain) if state is not None else None
            self.roomy = pool is not None and self._has_room(pool)
