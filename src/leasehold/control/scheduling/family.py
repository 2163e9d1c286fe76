"""The family rule (O5, Q6): an owner gets its own envelope back if its family uses it.

The family's leases in the owner's envelopes are treated as an overdraft of these envelopes. As few
as needed move to other payers; if that is not enough, others end by the rules of a Resolution. All
of it is tried in a what-if first, because it happens only if the run then starts.
"""

from collections.abc import Callable, Collection
from itertools import islice

from msgspec.structs import replace

from leasehold.control.preemption.overdrafts import payer_beside
from leasehold.control.scheduling.queue_pass import QueuePass
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import admit
from leasehold.core.facts import Envelope, EnvelopeKey, Lease, Record, Relation, Uid
from leasehold.core.funding.funded import why_unpaid
from leasehold.core.policy import CutPolicy
from leasehold.core.preemption.overdraft import cut_shared, refinance_order
from leasehold.core.preemption.resolve import counts_as_gone
from leasehold.core.preemption.victims import Cuts, Seeder
from leasehold.core.requests import StartRequest
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Covered
from leasehold.core.world.width import locations_for, open_leases
from leasehold.core.world.world import World


class FamilySettlement(Record):
    """How a family gives back an owner's envelopes, and where the owner's run then starts.

    Some leases move to other payers. Of the rest, some are cut.
    """

    moved: tuple[tuple[Lease, Covered], ...]
    cuts: Cuts | None
    plan: Admitted | None  # where the run starts; None if only payers were looked for
    envelope: EnvelopeKey = ""  # the owner's envelope that paid for the first victim
    deficit: int = 0  # GPUs of the leases that are cut


def leases_to_give_back(turn: Turn, request: StartRequest, walk: QueuePass) -> tuple[str, ...]:
    """Return the family's leases in the owner's envelopes if they keep the run from starting (Q6).

    That is so if the owner's own envelopes do not pay for the run now, but would without these
    leases. Otherwise nothing is returned.
    """
    world, now = turn.world, turn.now
    if world.policy.cuts is CutPolicy.NEVER:
        return ()
    shared = tuple(lease.name for lease in _shared(world, request))
    if not shared:
        return ()
    mine = {each.key for each in _own_envelopes(world, request)}
    others = tuple(sorted(key for key in world.envelopes if key not in mine))
    where = walk.could_hold(turn, request)

    def is_paid(returned: Collection[str]) -> bool:
        unpaid = why_unpaid(
            world,
            request,
            turn.calendar,
            at=now,
            now=now,
            rooms=where,
            returned=returned,
            except_for=others,
        )
        return unpaid is None

    return shared if not is_paid(()) and is_paid(shared) else ()


def take_back(
    turn: Turn, request: StartRequest, *, seeder: Seeder, is_paid: Callable[[], bool] | None = None
) -> FamilySettlement | None:
    """Return how an owner gets its envelopes back so that its run starts now; None if it cannot.

    `is_paid`: returns whether the run has payers. If it is given, no place is looked for: the GPUs
    are preempted in the next turn.
    """
    world, now = turn.world, turn.now
    own = tuple(each.key for each in _own_envelopes(world, request))
    shared = tuple(
        lease
        for lease in _shared(world, request)
        if lease.ending is None and lease.batch != turn.seq  # a batch closes nothing that it opens
    )
    with world.what_if.opened():
        return _rehearse(turn, request, own, shared, seeder=seeder, is_paid=is_paid, now=now)


def _rehearse(
    turn: Turn,
    request: StartRequest,
    own: tuple[EnvelopeKey, ...],
    shared: tuple[Lease, ...],
    *,
    seeder: Seeder,
    is_paid: Callable[[], bool] | None,
    now: Instant,
) -> FamilySettlement | None:
    """Move and end leases in the what-if until the run fits, and return how.

    Returns None if the run never fits. The caller must hold an open what-if.
    """
    world = turn.world
    trial = _TrialPayers(world, now)
    for name in sorted(world.ending):
        if counts_as_gone(world.leases[name], now):
            trial.end(world.leases[name])

    def plan() -> Admitted | None:
        answer = admit(
            world, request, turn.calendar, start=now, now=now, gone=frozenset(trial.gone)
        )
        return answer if isinstance(answer, Admitted) else None

    def fits() -> bool:
        return plan() is not None if is_paid is None else is_paid()

    moved: list[tuple[Lease, Covered]] = []
    for lease in refinance_order(shared):
        if fits():
            break
        claims = (claim for each in turn.calendar.claims.values() for claim in each)
        covered = payer_beside(
            world, lease, claims, now=now, beside=trial.leases_of(lease.uid), except_for=own
        )
        if covered is not None:
            trial.move(lease, covered)
            moved.append((lease, covered))
    cuts = None
    if not fits():
        left = tuple(lease for lease in shared if lease.name not in trial.moved)
        cuts = cut_shared(
            world,
            left,
            fits,
            end=trial.end,
            restore=trial.restore,
            seeder=seeder,
            now=now,
        )
        if cuts is None:
            return None
        for cut in cuts.kept:
            for lease in cut.ends.values():
                if lease.name not in trial.gone:
                    trial.end(lease)
    # A draw ends a whole run, and a spare ends its fillers. Their leases may be among those that
    # were to move to other payers: these end instead.
    ended = {name for cut in (cuts.kept if cuts else ()) for name in cut.ends}
    paid = (lease.payer for cut in (cuts.kept if cuts else ()) for lease in cut.leases)
    return FamilySettlement(
        moved=tuple(pair for pair in moved if pair[0].name not in ended),
        cuts=cuts,
        plan=plan() if is_paid is None else None,
        envelope=next((payer for payer in paid if payer in own), ""),
        deficit=sum(cut.gpus for cut in cuts.kept) if cuts else 0,
    )


class _TrialPayers:
    """Moves leases to other payers and ends leases, in a what-if only.

    The caller must hold an open what-if.
    """

    def __init__(self, world: World, now: Instant) -> None:
        self._world, self._now = world, now
        self.moved: dict[str, list[Lease]] = {}  # lease -> one for each payer that took it over
        self.gone: set[str] = set()

    def leases_of(self, uid: Uid) -> list[Lease]:
        """Return the run's open leases with their payers in this trial."""
        return [
            each
            for lease in open_leases(self._world, uid)
            for each in self.moved.get(lease.name, [lease])
        ]

    def move(self, lease: Lease, covered: Covered) -> None:
        """Let the payers of `covered` pay for the lease from now on."""
        accounts, term = self._world.accounts, self._world.terms[lease.name]
        accounts.end(lease, term, at=self._now)
        slots = iter(lease.slots)
        self.moved[lease.name] = [
            replace(
                lease,
                slots=tuple(islice(slots, segment.gpus)),
                start=self._now,
                payer=segment.envelope,
                payer_owner=segment.owner,
                relation=segment.relation,
            )
            for segment in covered.segments
        ]
        for each in self.moved[lease.name]:
            accounts.add(each, term)

    def end(self, lease: Lease) -> None:
        """End the lease: free its GPUs and its money."""
        world, term = self._world, self._world.terms[lease.name]
        self.gone.add(lease.name)
        world.what_if.note(lambda: self.gone.discard(lease.name))
        world.fleet.give(lease)
        for each in self.moved.get(lease.name, [lease]):
            world.accounts.end(each, term, at=self._now)

    def restore(self, lease: Lease) -> None:
        """Undo `end` for a victim that is not needed."""
        world, term = self._world, self._world.terms[lease.name]
        self.gone.discard(lease.name)
        world.what_if.note(lambda: self.gone.add(lease.name))
        world.fleet.take(lease)
        for each in self.moved.get(lease.name, [lease]):
            world.accounts.unend(each, term, at=self._now)


def _own_envelopes(world: World, request: StartRequest) -> list[Envelope]:
    """Return the envelopes of the run's owner for its flavor."""
    spec = request.run.spec
    return list(world.tree.envelopes((spec.owner,), spec.flavor))


def _shared(world: World, request: StartRequest) -> list[Lease]:
    """Return the family's open leases in the owner's envelopes.

    Only envelopes count that pay in a location that the run may use.
    """
    places = locations_for(world, request.run.spec)
    return [
        lease
        for envelope in _own_envelopes(world, request)
        if any(envelope.covers(*place) for place in places)
        for name in sorted(world.open_by_payer.get(envelope.key, ()))
        if (lease := world.leases[name]).relation is Relation.SHARED
    ]
