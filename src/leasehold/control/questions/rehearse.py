"""What the queue would do with a run now, found by letting it do so and keeping nothing.

A `Rehearsal` is a turn that writes nothing down: the runs ahead are planned on its agenda as the
queue plans them, then the run in question is admitted or planned behind them. The indices of the
World are changed only under marks and are put back. Called by `plan` and `cover`.
"""

from functools import partial

from msgspec.structs import replace

from leasehold.control.activation import hold_for_activations
from leasehold.control.elastic import in_order
from leasehold.control.holding import hold_places
from leasehold.control.line import Line
from leasehold.control.places_in_line import told_place
from leasehold.control.planning import plan_start
from leasehold.control.reservations import present
from leasehold.control.sweeps import some_of
from leasehold.control.turn import Turn
from leasehold.control.wishes import (
    groups_short_of_minimum,
    next_attempts,
    waiting_groups,
    wish_for,
)
from leasehold.core.decisions.admit import Wish, admit, as_found_by, claims_of, owner_allowed
from leasehold.core.decisions.ever import never_fits
from leasehold.core.decisions.fill import fill
from leasehold.core.decisions.odds import Preview, preview
from leasehold.core.facts import (
    Confidence,
    Gang,
    Lease,
    Opened,
    Record,
    Reservation,
    Run,
    State,
    Uid,
)
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World

# Those that wait for something else than GPUs and money are not planned.
_UNPLANNED = frozenset(
    {
        Refusal.OWNER_NOT_ALLOWED,
        Refusal.BIND_FAILING,
        Refusal.RETRYING,
        Refusal.BINDER_DISABLED,
        Refusal.QUARANTINED,
        Refusal.GANG_TOO_LARGE,
        Refusal.POD_TOO_LARGE,
        Refusal.FLEET_TOO_SMALL,
    }
)


class Rehearsal(Turn):
    """A turn whose plans stay with it."""

    def __init__(self, world: World, now: Instant) -> None:
        super().__init__(world, now=max(now, world.head.instant), key=b"", time_trusted=True)

    def reserve(self, reservation: Reservation) -> None:
        self.reservations[reservation.subject] = reservation

    def note_room(
        self, uid: Uid, dropped: tuple[str, ...], pods: tuple[tuple[str, int], ...]
    ) -> None:
        """Nothing is remembered."""

    def _open(self, leases: list[Lease], size: int) -> None:
        """Nothing begins."""

    def _state_facts(self, lease: Lease) -> None:
        """Nothing is told to the ledger."""


class _Places(Line):
    """A place in line; the dear questions are asked for the run in question only."""

    asked = False

    def may_preview(self) -> bool:
        return self.asked

    def may_sample(self, turn: Turn) -> bool:  # noqa: ARG002 - as the line has it
        return self.asked


class Outcome(Record):
    """What would become of a run; at most one of the fields is of use for each."""

    started: tuple[Admitted, ...] = ()  # now: all of it, or the groups that live alone
    groups_waiting: int = 0
    refused: Refused | None = None
    reservation: Reservation | None = None
    preview: Preview | None = None
    obstacle: Refused | None = None  # why cutting would be no answer, as things stand


def in_front_of(world: World, run: Run, now: Instant) -> tuple[Rehearsal, Line]:
    """The turn as the queue would have it when this run's time comes."""
    turn = Rehearsal(world, now)
    line = _Places(world.policy)
    hold_for_activations(turn)
    for ahead in in_order(world, world.work.pending):
        if ahead.place_in_line >= run.place_in_line or ahead.uid == run.uid:
            break
        _plan_ahead(turn, ahead, line)
    line.asked = True
    return turn, line


def _plan_ahead(turn: Turn, run: Run, line: Line) -> None:
    world = turn.world
    reservation = present(world, run)
    if reservation is not None and reservation.state is State.ACTIVATING:
        return  # it holds its places already
    groups = groups_short_of_minimum(world, run, waiting_groups(world, run, turn.now))
    if not groups:
        return
    wish = wish_for(world, run, groups)
    refused = world.memory.refusals.get(run.uid)
    if refused is None:  # submitted this very moment
        answer = admit(world, wish, turn.agenda, start=turn.now, now=turn.now)
        if isinstance(answer, Admitted):
            _keep(turn, wish, answer)
            return
        refused = answer
    if refused.reason not in _UNPLANNED and line.places.take(run, refused).is_planned:
        plan_start(turn, wish, refused, line)


def _keep(turn: Turn, wish: Wish, plan: Admitted) -> None:
    """As if it had started: its places and money are gone for those behind it."""
    hold_places(turn, wish, plan.packed.gpus_by_node, start=turn.now)
    claims = [
        claim
        for _, covered in plan.covered
        for claim in claims_of(turn.world, wish, covered, start=turn.now)
    ]
    turn.agenda.claim(wish.run.uid, claims)


def rehearse(world: World, run: Run, now: Instant) -> tuple[Rehearsal, Outcome]:
    """What the queue would decide about a run that waits, or that is only an idea."""
    turn, line = in_front_of(world, run, now)
    refused = owner_allowed(world, run)
    if refused is None and not world.policy.binder_enabled:
        refused = Refused(
            reason=Refusal.BINDER_DISABLED,
            remedy="binder.enabled is false: nothing new is started",
        )
    if refused is None and run.uid in world.memory.refusals:
        told = world.memory.refusals[run.uid]
        refused = told if told.reason in _UNPLANNED and not told.reason.is_for_good else None
    if refused is not None:
        return turn, Outcome(refused=refused)
    turn.agenda.forget(run.uid)
    groups = waiting_groups(world, run, turn.now)
    if not groups:
        return turn, Outcome(refused=world.memory.refusals.get(run.uid))
    answer = _try(turn, wish_for(world, run, groups))
    if isinstance(answer, Admitted):
        return turn, Outcome(started=(answer,))
    if answer.reason is Refusal.GANG_TOO_LARGE and run.spec.gang is Gang.RUN:
        return turn, Outcome(refused=answer)
    never = never_fits(world, wish_for(world, run, groups))
    if never is not None:
        return turn, Outcome(refused=never)
    started: tuple[Admitted, ...] = ()
    if run.spec.gang is Gang.GROUP:
        needed = len(groups_short_of_minimum(world, run, groups))
        started, left = _some(turn, run, groups)
        groups = left[: max(0, needed - len(started))]
        if not groups:  # it lives; the others start as they find room
            return turn, Outcome(started=started, groups_waiting=len(left), refused=answer)
    wish = wish_for(world, run, groups)
    planned = _planned(turn, wish, answer, line)
    return turn, replace(planned, started=started, groups_waiting=len(groups))


def _try(turn: Turn, wish: Wish) -> Admitted | Refused:
    answer = _admitted(turn, wish)
    if isinstance(answer, Refused):
        return answer
    attempts = next_attempts(turn.world, wish.run, wish.want.groups)
    opened = turn.start(wish.run, answer, attempts=attempts, reason=Opened.START)
    return _too_large(turn.world, opened) if isinstance(opened, int) else answer


def _too_large(world: World, size: int) -> Refused:
    return Refused(
        reason=Refusal.GANG_TOO_LARGE,
        remedy=f"its leases need {size} bytes in one ledger batch, which holds "
        f"{world.policy.batch_bytes_max}; use larger pods or fewer of them",
    )


def _admitted(turn: Turn, wish: Wish) -> Admitted | Refused:
    world = turn.world
    answer = admit(world, wish, turn.agenda, start=turn.now, now=turn.now)
    if isinstance(answer, Refused) and wish.run.spec.opportunistic:
        mark = world.what_if.mark()
        kept = as_found_by(world, wish, turn.agenda, start=turn.now)
        filled = fill(world, wish, turn.agenda, kept, now=turn.now)
        world.what_if.undo(mark)
        if isinstance(filled, Admitted):
            return filled
    return answer


def _some(
    turn: Turn, run: Run, groups: tuple[int, ...]
) -> tuple[tuple[Admitted, ...], tuple[int, ...]]:
    """Groups that live alone, one after the other, as many as fit; and those left."""
    started: list[Admitted] = []
    while groups:
        found = some_of(
            turn.world, run, groups, turn.agenda, now=turn.now, try_=partial(_try, turn)
        )
        if isinstance(found, Refused):
            break
        first = found.wish.want.groups
        beside = replace(run, uid=f"{run.uid}#{first[0]}")  # its own others are not in its way
        _keep(turn, replace(found.wish, run=beside), found.plan)
        started.append(found.plan)
        groups = groups[len(first) :]
    return tuple(started), groups


def _planned(turn: Rehearsal, wish: Wish, refused: Refused, line: Line) -> Outcome:
    world, run = turn.world, wish.run
    want = wish.want
    if run.spec.gang is Gang.GROUP:
        want = replace(want, groups=want.groups[:1])
    size = turn.gang_bytes_at_most(run, want)
    if turn.is_too_large(size):
        return Outcome(refused=_too_large(world, size))
    known = present(world, run)
    if known is not None and known.state is State.ACTIVATING:
        return Outcome(refused=refused, reservation=known)
    place = line.places.take(run, refused)
    if not place.is_planned:
        return Outcome(refused=told_place(refused, place, run))
    reservation = plan_start(turn, wish, refused, line)
    if reservation is None or reservation.confidence is not Confidence.CUTS:
        return Outcome(refused=refused, reservation=reservation or known)
    at = max(turn.now, reservation.starts)
    seen = preview(world, wish, turn.agenda, at=at, now=turn.now, may_sample=lambda: False)
    if isinstance(seen, Refused):  # nothing that may be cut would make room
        return Outcome(refused=refused, reservation=reservation, obstacle=seen)
    return Outcome(refused=refused, reservation=reservation, preview=seen)
