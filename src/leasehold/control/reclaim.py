"""An owner takes its own envelope back from its family.

If the use its family makes of an owner's envelope is all that keeps the owner's run from starting,
then at the run's activation those shared leases are treated as an overdraft: another payer is
found for them, else they are cut, by the same rules, among themselves alone.
"""

from leasehold.control.overdrafts import refinance_lease
from leasehold.control.publish import Subject, publish_cuts
from leasehold.control.turn import Turn
from leasehold.core.admit import Wish, ask_for
from leasehold.core.cover import cover
from leasehold.core.cuts import Cuts
from leasehold.core.facts import Lease, Relation, Reservation
from leasehold.core.overdraft import cut_shared, refinance_order
from leasehold.core.pack import Place, fits
from leasehold.core.verdicts import Covered
from leasehold.core.width import places_for
from leasehold.core.world import World


def can_reclaim(turn: Turn, wish: Wish) -> bool:
    """Whether the run could be paid for if its family's leases in its own envelopes ended."""
    return _place(turn, wish) is not None


def reclaim(turn: Turn, wish: Wish, reservation: Reservation) -> bool:
    """Refinance the family's leases, or cut them; False if that would not help."""
    place = _place(turn, wish)
    if place is None:
        return False
    world = turn.world
    for lease in refinance_order(_shared(world, wish, place)):
        if refinance_lease(turn, lease) and _is_covered(turn, wish, place):
            return True
    leases = _shared(world, wish, place)
    subject = Subject(
        reservation.subject, batch=reservation.batch, commitment=reservation.commitment
    )
    cuts = cut_shared(
        world,
        leases,
        lambda: _is_covered(turn, wish, place),
        seeder=lambda: subject.seed(turn),
        now=turn.now,
        but=wish.run.uid,
    )
    if cuts is None or not _has_room(turn, wish, place, cuts):
        return False
    publish_cuts(
        turn,
        cuts,
        subject,
        cause="Overdraft",
        beneficiary=(wish.run.key, wish.run.uid),
        envelope=leases[0].payer,
        deficit=sum(cut.gpus for cut in cuts.kept),
    )
    return True


def _place(turn: Turn, wish: Wish) -> Place | None:
    """The first location at which taking everything back would pay for the run."""
    world = turn.world
    for place in places_for(world, wish.run.spec):
        leases = _shared(world, wish, place)
        if not leases or _is_covered(turn, wish, place):
            continue  # what it lacks is kept for others ahead, not used by its family
        mark = world.journal.mark()
        for lease in leases:
            world.accounts.remove(lease, world.terms[lease.name])
        covered = _is_covered(turn, wish, place)
        world.journal.undo(mark)
        if covered:
            return place
    return None


def _is_covered(turn: Turn, wish: Wish, place: Place) -> bool:
    ask = ask_for(wish, place, wish.want.gpus, start=turn.now, borrowed=wish.borrowed_already)
    return isinstance(cover(turn.world, ask, now=turn.now), Covered)


def _shared(world: World, wish: Wish, place: Place) -> tuple[Lease, ...]:
    """The family's open leases in the owner's own envelopes there."""
    spec = wish.run.spec
    own = [
        envelope.key
        for envelope in world.tree.envelopes((spec.owner,), spec.flavor)
        if envelope.covers(*place)
    ]
    return tuple(
        lease
        for key in own
        for name in sorted(world.open_by_payer.get(key, ()))
        if (lease := world.leases[name]).relation is Relation.SHARED and lease.ending is None
    )


def _has_room(turn: Turn, wish: Wish, place: Place, cuts: Cuts) -> bool:
    """Money back is of no use without GPUs; those of the victims count."""
    world = turn.world
    mark = world.journal.mark()
    for cut in cuts.kept:
        for lease in cut.leases:
            world.fleet.give(lease)
    answer = fits(world, wish.want, [place])
    world.journal.undo(mark)
    return answer
