"""fill — an opportunistic run on top of other runs' spares.

Its own payer pays for the use; the spare's payer goes on paying for the right to fail over. A
filler's pod does not mix free and spare slots. Called when an opportunistic run found no free GPUs.
"""

from leasehold.core.admit import Wish, ask_for
from leasehold.core.cover import cover
from leasehold.core.drain import is_spoken_for
from leasehold.core.facts import Role
from leasehold.core.fleet import Shape
from leasehold.core.pack import Place, shape_of
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Covered, Packed, PodPlace, Refusal, Refused
from leasehold.core.width import places_for
from leasehold.core.world import World


def fill(world: World, wish: Wish, *, now: Instant) -> Admitted | Refused:
    """The whole run on spare slots of one location, or why not; a filler has no spares itself."""
    places = places_for(world, wish.run.spec)
    best: Refused | None = None
    for place in places:
        gpus = wish.want.pods * wish.want.pod_gpus * len(wish.want.groups)
        ask = ask_for(wish, place, gpus, start=now, borrowed=wish.borrowed_already)
        covered = cover(world, ask, now=now)
        if isinstance(covered, Refused):
            best = best or covered
            continue
        pods = _place(world, wish, place)
        if pods is not None:
            packed = Packed(places=tuple(pods))
            return Admitted(covered=((place, covered),), packed=packed, fills=True)
        assert isinstance(covered, Covered)
    return best or Refused(
        reason=Refusal.CAPACITY,
        remedy="neither free GPUs nor spares of other runs have room for it",
        asked=wish.want.gpus,
        short_by=wish.want.gpus,
    )


def _place(world: World, wish: Wish, place: Place) -> list[PodPlace] | None:
    want = wish.want
    by_domain: dict[str, dict[str, int]] = {}
    for name in sorted(world.fleet.fillable):
        state = world.fleet.nodes[name]
        node = state.node
        if (
            node.flavor == want.flavor
            and (node.region, node.cluster) == place
            and state.takes_work
            and want.selector.domain in (None, node.fabric)
        ):
            free = (state.spare & ~state.filler).bit_count() // want.pod_gpus
            if free and _has_room(world, name, shape_of(want)) and not _is_needed(world, name):
                by_domain.setdefault(node.domain, {})[name] = free
    whole = want.pods * len(want.groups)
    for domain in sorted(by_domain, key=lambda each: (sum(by_domain[each].values()), each)):
        if sum(by_domain[domain].values()) >= whole:
            return _deal(wish, want.groups, by_domain[domain])
    if not want.spread:
        return None
    pods: list[PodPlace] = []
    for group in want.groups:
        domains = [each for each in by_domain if sum(by_domain[each].values()) >= want.pods]
        if not domains:
            return None
        tightest = min(domains, key=lambda each: (sum(by_domain[each].values()), each))
        pods.extend(_deal(wish, (group,), by_domain[tightest]))
    return pods


def _is_needed(world: World, name: str) -> bool:
    """A filler that came now would be in the way of the pod that the last one made room for."""
    leases = (world.leases[each] for each in sorted(world.open_by_node.get(name, ())))
    return any(lease.role is Role.SPARE and is_spoken_for(world, lease) for lease in leases)


def _has_room(world: World, name: str, shape: Shape) -> bool:
    """CPU, memory and pod count: the spare's own are reserved beside the filler's."""
    state = world.fleet.nodes[name]
    node = state.node
    return (
        state.pods_used < node.pods_max
        and state.cpu_used + shape.cpu_milli <= node.cpu_milli
        and state.memory_used + shape.memory_bytes <= node.memory_bytes
    )


def _deal(wish: Wish, groups: tuple[int, ...], rooms: dict[str, int]) -> list[PodPlace]:
    pods: list[PodPlace] = []
    for group in groups:
        for index in range(wish.want.pods):
            name = min(
                (each for each in rooms if rooms[each]), key=lambda each: (rooms[each], each)
            )
            rooms[name] -= 1
            pods.append(PodPlace(group=group, index=index, node=name, gpus=wish.want.pod_gpus))
    return pods
