"""bind: turn a plan into leases, with payers, slots and names (B1).

Pods are taken in group order (a group's active pods before its spares), and payers in payer order
within the pod's location. A pod that needs two payers gets two leases, because a lease is on one
node and has one payer. Called by the turn that commits the leases.

Example: payers a with 6 GPUs and b with 10, two pods of 8: pod 0 gets a lease of 6 (a) and one of 2
(b), pod 1 a lease of 8 (b).
"""

from collections.abc import Mapping, Sequence

from leasehold.core.facts import Lease, Opened, Role, Run
from leasehold.core.objects.lease import lease_name, pod_name
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, PodPlace, Segment
from leasehold.core.world.fleet import Fleet


def bind(
    run: Run,
    plan: Admitted,
    slots: Mapping[PodPlace, Sequence[int]],
    *,
    fleet: Fleet,
    attempts: Mapping[int, int],
    reason: Opened,
    batch: int,
    first_index: int,
    now: Instant,
) -> list[Lease]:
    """Return the leases of a plan, one for each pod and payer, with their final names.

    `slots`: the slots of each pod. `attempts`: the attempt number of each group.
    `first_index`: the number of leases that the batch already opens.
    """
    dealers = {location: _Dealer(covered.segments) for location, covered in plan.covered}
    leases: list[Lease] = []
    for pod in plan.packed.places:
        node = fleet.nodes[pod.node].node
        free = list(slots[pod])
        assert len(free) == pod.gpus, pod
        for segment in dealers[(node.region, node.cluster)].deal(pod.gpus):
            mine, free = free[: segment.gpus], free[segment.gpus :]
            leases.append(
                Lease(
                    name=lease_name(run.name, batch, first_index + len(leases)),
                    owner=run.spec.owner,
                    namespace=run.namespace,
                    run=run.name,
                    uid=run.uid,
                    attempt=attempts[pod.group],
                    group=pod.group,
                    index=pod.index,
                    node=pod.node,
                    slots=tuple(mine),
                    role=_role(pod),
                    start=now,
                    payer=segment.envelope,
                    payer_owner=segment.owner,
                    relation=segment.relation,
                    reason=reason,
                    batch=batch,
                    pod="" if pod.spare else pod_name(run.name, batch, pod.group, pod.index),
                )
            )
    assert all(dealer.is_spent for dealer in dealers.values()), run.key
    return leases


def _role(pod: PodPlace) -> Role:
    if pod.spare:
        return Role.SPARE
    return Role.BORROWED if pod.on_spare else Role.ACTIVE


def deal_slots(fleet: Fleet, places: Sequence[PodPlace]) -> dict[PodPlace, tuple[int, ...]]:
    """Assign slots to pods: the lowest free ordinals of the node that no foreign process uses.

    Slots are dealt in order of `places`. A filler already has its spare's slots.
    """
    taken: dict[str, int] = {}
    dealt: dict[PodPlace, tuple[int, ...]] = {}
    for pod in places:
        if pod.on_spare:
            dealt[pod] = pod.on_spare
            continue
        state = fleet.nodes[pod.node]
        free = ~(state.occupied | taken.get(pod.node, 0))
        known = free & ~state.strangers & ((1 << state.node.gpus) - 1)
        # If a foreign process occupies a slot of ours, fewer slots are left than were counted.
        dealt[pod] = _lowest(known if known.bit_count() >= pod.gpus else free, pod.gpus)
        for slot in dealt[pod]:
            taken[pod.node] = taken.get(pod.node, 0) | 1 << slot
    return dealt


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    """Return the `count` lowest ordinals whose bits are set in `mask`."""
    slots: list[int] = []
    ordinal = 0
    while len(slots) < count:
        if mask >> ordinal & 1:
            slots.append(ordinal)
        ordinal += 1
        assert ordinal < 4096, "fewer slots than were promised"
    return tuple(slots)


class _Dealer:
    """Hands out the payers of one location in order, for a number of GPUs at a time."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._left = [(segment, segment.gpus) for segment in segments]

    @property
    def is_spent(self) -> bool:
        return not self._left

    def deal(self, gpus: int) -> list[Segment]:
        """Return the next payers, with amounts that add up to `gpus` GPUs."""
        dealt: list[Segment] = []
        while gpus:
            segment, left = self._left[0]
            take = min(gpus, left)
            dealt.append(
                Segment(
                    envelope=segment.envelope,
                    owner=segment.owner,
                    gpus=take,
                    relation=segment.relation,
                )
            )
            gpus -= take
            if take == left:
                self._left.pop(0)
            else:
                self._left[0] = (segment, left - take)
        return dealt
