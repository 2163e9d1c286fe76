"""An owner takes its own envelope back from its family.

If the use its family makes of an owner's envelope keeps the owner's run from starting, then at the
run's activation those shared leases are treated as an overdraft: another payer is found for them,
else they are cut, by the same rules, among themselves alone. All of it is rehearsed first, with the
cuts the run would need besides: a family is asked to move only if the run then starts.
"""

from msgspec.structs import replace

from leasehold.control.cuts.overdrafts import move_lease
from leasehold.control.cuts.publish import Announced, publish_cuts
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish
from leasehold.core.decisions.cuts import Cuts, Seeder
from leasehold.core.decisions.funded import funded
from leasehold.core.decisions.overdraft import cut_shared, other_payer, refinance_order
from leasehold.core.decisions.resolve import count_money_back, kept_before_cuts, plan_after_cuts
from leasehold.core.facts import EnvelopeKey, Lease, Location, Record, Relation
from leasehold.core.reservations import Reservation
from leasehold.core.resolutions import CutCause
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Covered, Refused
from leasehold.core.world.accounts import Claim
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

_ANY_SEED = "0" * 64  # for a rehearsal long before the draw


class Reclaim(Record):
    """Leases that others pay for from now on, and what is cut of the rest."""

    moved: tuple[tuple[Lease, Covered], ...]
    cuts: Cuts | None
    plan: Admitted  # where the run would start then, with the cuts it needs besides
    places: tuple[tuple[str, int], ...]  # what of that those ahead leave before these: node, GPUs
    envelope: EnvelopeKey = ""  # the owner's, of whose leases the first was cut
    deficit: int = 0  # GPUs that the cut ones end


def can_reclaim(turn: Turn, wish: Wish) -> bool:
    """Whether the run would start if it took its envelopes back, and made room."""
    return _rehearsed(turn, wish, lambda: _ANY_SEED, in_earnest=False) is not None


def reclaim(turn: Turn, wish: Wish, reservation: Reservation) -> Reclaim | None:
    """Refinance the family's leases, or cut them; None if that would not help."""
    subject = Announced(
        reservation.subject, batch=reservation.batch, commitment=reservation.commitment
    )
    found = _rehearsed(turn, wish, lambda: subject.seed(turn), in_earnest=True)
    if found is None:
        return None
    for lease, covered in found.moved:
        move_lease(turn, lease, covered)
    if found.cuts is not None:
        publish_cuts(
            turn,
            found.cuts,
            subject,
            cause=CutCause.OVERDRAFT,
            beneficiary=(wish.run.key, wish.run.uid),
            envelope=found.envelope,
            deficit=found.deficit,
        )
    return found


def _rehearsed(turn: Turn, wish: Wish, seeder: Seeder, *, in_earnest: bool) -> Reclaim | None:
    """Until it is paid for in any of its locations, or over several; if there is no room where
    that is, in the first where it helps: an owner is not locked out of one by another.
    `in_earnest`: it will be done in this very batch."""
    world = turn.world
    everywhere = locations_for(world, wish.run.spec)
    for locations in _choices(everywhere):
        mark = world.what_if.mark()
        turn.agenda.respect(world, wish.run.uid)
        found = _in(turn, wish, locations, seeder, in_earnest=in_earnest)
        world.what_if.undo(mark)
        if found is not None:
            return found
    return None


def _choices(locations: list[Location]) -> list[list[Location]]:
    return [locations, *([each] for each in locations)] if len(locations) > 1 else [locations]


def _in(
    turn: Turn, wish: Wish, locations: list[Location], seeder: Seeder, *, in_earnest: bool
) -> Reclaim | None:
    """Under a mark."""
    world = turn.world
    own = _own_envelopes(world, wish, locations, turn.now)
    shared = _shared(turn, own, but_new=in_earnest)
    if not shared or _is_covered(turn, wish, locations):
        return None  # what it lacks is kept for others ahead, not used by its family
    money = _Money(world, turn.now)
    moved: list[tuple[Lease, Covered]] = []
    for lease in refinance_order(shared):
        if _is_covered(turn, wish, locations):
            break
        covered = other_payer(world, lease, now=turn.now, but=own)
        if covered is not None:
            money.move(lease, covered)
            moved.append((lease, covered))
    cuts = None
    gone: set[str] = set()
    if not _is_covered(turn, wish, locations):
        left = tuple(lease for lease in shared if lease.name not in money.moved)
        cuts = cut_shared(
            world,
            left,
            lambda: _is_covered(turn, wish, locations),
            end=money.end,
            restore=money.restore,
            seeder=seeder,
            now=turn.now,
            but=wish.run.uid,
        )
        if cuts is None:
            return None
        gone = _end(world, cuts, money)
    # It will be protected like everybody for whom others had to go, so those ahead must find their
    # room beside it.
    plan = plan_after_cuts(world, wish, turn.agenda, now=turn.now, gone=gone)
    if plan is None:
        return None
    kept = cuts.kept if cuts is not None else ()
    # A lot takes a whole run, and a spare its fillers: what of them others were to pay for ends
    # instead.
    ended = {lease.name for cut in kept for lease in (*cut.leases, *cut.fillers)}
    stay = tuple(pair for pair in moved if pair[0].name not in ended)
    paid = (lease.payer for cut in kept for lease in cut.leases)
    return Reclaim(
        moved=stay,
        cuts=cuts,
        plan=plan,
        places=kept_before_cuts(world, wish, turn.agenda, plan.packed, now=turn.now, gone=gone),
        envelope=next((payer for payer in paid if payer in own), ""),
        deficit=sum(cut.gpus for cut in kept),
    )


class _Money:
    """In the rehearsal: who pays for the family's leases. One that others pay for already gives
    nothing back to the owner when its run is cut."""

    def __init__(self, world: World, now: Instant) -> None:
        self._world, self._now = world, now
        self.moved: dict[str, list[Claim]] = {}

    def move(self, lease: Lease, covered: Covered) -> None:
        """Others pay for it."""
        world, now = self._world, self._now
        term = world.terms[lease.name]
        horizon = now + world.policy.accounting_horizon
        committed_to = horizon if term.committed_to is None else term.committed_to
        world.accounts.end(lease, term, at=now)
        self.moved[lease.name] = [
            Claim(
                uid=lease.uid,
                payer=segment.envelope,
                start=now,
                end=term.frees_at,
                gpus=segment.gpus,
                borrowed=segment.relation is Relation.BORROWED,
                gpu_ms=segment.gpus * max(0, min(end, committed_to) - now),
            )
            for segment in covered.segments
            for end in (world.envelopes[segment.envelope].end,)
        ]
        self.restore(lease)

    def end(self, lease: Lease) -> None:
        """It is gone, and so is what it costs."""
        if lease.name not in self.moved:
            self._world.accounts.end(lease, self._world.terms[lease.name], at=self._now)
        for claim in self.moved.get(lease.name, ()):
            self._world.accounts.claim(replace(claim, gpus=-claim.gpus, gpu_ms=-claim.gpu_ms))

    def restore(self, lease: Lease) -> None:
        if lease.name not in self.moved:
            self._world.accounts.unend(lease, self._world.terms[lease.name], at=self._now)
        for claim in self.moved.get(lease.name, ()):
            self._world.accounts.claim(claim)


def _end(world: World, cuts: Cuts, money: _Money) -> set[str]:
    """In the rehearsal: they are gone, and so are their GPUs and what they cost."""
    gone: set[str] = set()
    for cut in cuts.kept:
        for lease in (*cut.leases, *cut.fillers):
            if lease.name not in gone:
                gone.add(lease.name)
                world.fleet.give(lease)
                money.end(lease)
    return gone


def _is_covered(turn: Turn, wish: Wish, locations: list[Location]) -> bool:
    """With the money of what is ending already: nobody is asked to go for that."""
    world, now = turn.world, turn.now
    mark = world.what_if.mark()
    count_money_back(world, now)
    answer = not isinstance(funded(world, wish, now, now, locations=locations), Refused)
    world.what_if.undo(mark)
    return answer


def _own_envelopes(
    world: World, wish: Wish, locations: list[Location], now: Instant
) -> tuple[EnvelopeKey, ...]:
    """Those that pay now, in one of these locations."""
    spec = wish.run.spec
    return tuple(
        envelope.key
        for envelope in world.tree.envelopes((spec.owner,), spec.flavor)
        if envelope.start <= now < envelope.end
        and any(envelope.covers(*location) for location in locations)
    )


def _shared(turn: Turn, own: tuple[EnvelopeKey, ...], *, but_new: bool) -> tuple[Lease, ...]:
    """The family's open leases in these envelopes. One that was opened in this very batch cannot
    be ended in it: the next turn may ask it."""
    world = turn.world
    return tuple(
        lease
        for key in own
        for name in sorted(world.open_by_payer.get(key, ()))
        if (lease := world.leases[name]).relation is Relation.SHARED
        and lease.ending is None
        and not (but_new and lease.batch == turn.seq)
    )
