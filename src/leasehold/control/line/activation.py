"""Activation: a reservation's time has come and its run does not fit; room is made.

One activation per scope at a time, until its run is bound; a victim that will not go ends it after
the drain timeout. What is kept for the run meanwhile is for `made_room` to say.
"""

from collections.abc import Callable, Collection

from msgspec.structs import replace

from leasehold.control.cuts.publish import Announced, can_publish, publish_cuts
from leasehold.control.cuts.reclaim import reclaim
from leasehold.control.line.holding import hold_places
from leasehold.control.line.motion import must_wait
from leasehold.control.reservations import block, present
from leasehold.control.running.life import BIND_FAILING, Standing, units_of
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, claims_of
from leasehold.core.decisions.pack import candidate_pools
from leasehold.core.decisions.resolve import is_going, resolve
from leasehold.core.facts import EnvelopeKey, Gang, Record, Run, Uid
from leasehold.core.reservations import Reservation, State
from leasehold.core.resolutions import CutCause, Resolution
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.book import Book
from leasehold.core.world.width import locations_for, minimum_gpus
from leasehold.core.world.world import World


def activate(
    turn: Turn,
    wish: Wish,
    reservation: Reservation,
    refused: Refused,
    *,
    otherwise: Callable[[], object] | None = None,
) -> bool:
    """Cut what must be cut; or, if that is no help, do what else there is to do, or block the
    reservation with the reason. Returns whether others have to be thought over again."""
    subject = Announced(
        reservation.subject, batch=reservation.batch, commitment=reservation.commitment
    )
    is_public = can_publish(turn, subject)
    if must_wait(turn) or not is_public:
        turn.again = turn.again or not is_public
        turn.line_is_cut_short = True  # nobody grows before it has what it may have
        return False
    made = resolution_of(turn.world, reservation)
    if made is not None and not _is_only_money(made, reservation):
        # Cut before a crash that lost the status: the ledger knows, and nobody is cut twice for it.
        _activating(turn, wish.run, reservation)
        return True
    answer = resolve(turn.world, wish, turn.agenda, now=turn.now, seeder=lambda: subject.seed(turn))
    has_moved = False
    if isinstance(answer, Refused) and made is None:
        helped = reclaim(turn, wish, reservation)
        if helped is not None and helped.cuts is not None:
            # What they leave is its own, though GPUs be short beside that.
            _hold_what_was_made(turn, wish, reservation, helped.plan, helped.places)
            return True
        has_moved = helped is not None
        if has_moved:  # its family pays from elsewhere; now for the GPUs
            answer = resolve(
                turn.world, wish, turn.agenda, now=turn.now, seeder=lambda: subject.seed(turn)
            )
    if isinstance(answer, Refused):
        domains = domains_open_to(turn.world, wish)
        if _is_busy(turn, wish.run, domains):
            turn.waited_for.update(dict.fromkeys(domains))
            return has_moved
        if otherwise is not None:
            otherwise()
            return True
        held = turn.agenda.has(wish.run.uid)
        block(turn, wish.run, _why_blocked(refused, answer))
        return held or has_moved
    if _is_busy(turn, wish.run, answer.site.domains):
        turn.waited_for.update(dict.fromkeys(answer.site.domains))
        return has_moved
    if not answer.cuts.kept:
        # Leases that are ending already will make the room; one that does not go is given up, and
        # that instant is looked at (`decide`).
        return has_moved
    publish_cuts(
        turn,
        answer.cuts,
        subject,
        cause=CutCause.RESERVATION,
        beneficiary=(wish.run.key, wish.run.uid),
        site=answer.site,
        flavor=wish.want.flavor,
    )
    _hold_what_was_made(turn, wish, reservation, answer.plan, answer.plan.packed.gpus_by_node)
    return True


def has_only_money(world: World, reservation: Reservation) -> bool:
    """An owner that has its envelope back from its family, and may need GPUs, too."""
    made = resolution_of(world, reservation)
    return made is not None and _is_only_money(made, reservation)


def _is_only_money(made: Resolution, reservation: Reservation) -> bool:
    """The owner has its envelope back from its family; the GPUs are another matter."""
    return made.cause is CutCause.OVERDRAFT and reservation.state is State.ACTIVATING


def _why_blocked(refused: Refused, answer: Refused) -> Refused:
    """For want of GPUs: the run's own reason, with what resolve found."""
    if answer.reason.is_about_money or refused.reason.is_about_money:
        return answer
    return replace(answer, reason=refused.reason)


def domains_open_to(world: World, wish: Wish) -> list[str]:
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    return [pool.domain for pool in pools]


def _hold_what_was_made(
    turn: Turn,
    wish: Wish,
    reservation: Reservation,
    plan: Admitted,
    places: tuple[tuple[str, int], ...],
) -> None:
    hold_places(turn, wish, places, start=turn.now)
    claims = [
        claim
        for _, covered in plan.covered
        for claim in claims_of(turn.world, wish, covered, start=turn.now)
    ]
    turn.agenda.claim(wish.run.uid, claims)
    nodes, gpus = turn.world.fleet.nodes, plan.packed.gpus_by_node
    _activating(
        turn,
        wish.run,
        replace(
            reservation,
            domains=tuple(sorted({nodes[name].node.domain for name, _ in gpus})),
            held_places=places,
            held_money=tuple((each.payer, each.gpus, each.borrowed) for each in claims),
        ),
    )


def _activating(turn: Turn, run: Run, reservation: Reservation) -> None:
    turn.reserve(replace(reservation, state=State.ACTIVATING, since=turn.now, reason="Resolved"))
    turn.tell("Run", run.key, Told.ACTIVATING, "room is being made by a Resolution")
    turn.again = True


# Activations under way.


class Underway(Record):
    """A Resolution whose beneficiary has not been bound yet."""

    run: Run
    reservation: Reservation
    resolution: Resolution


def underway(world: World, run: Run) -> Underway | None:
    """The activation for this run, while its room is made and until it sits there."""
    subject = world.reservation_of.get(run.uid)
    reservation = world.reservations[subject] if subject else None
    if reservation is None:
        return None
    if reservation.state is not State.ACTIVATING and not (
        reservation.state is State.RELEASED and _is_being_bound(world, run)
    ):
        return None
    resolution = resolution_of(world, reservation)
    if resolution is None:
        return None
    return Underway(run=run, reservation=reservation, resolution=resolution)


def _is_being_bound(world: World, run: Run) -> bool:
    """A Resolution started its newest attempt, which is being bound, or was rejected and is tried
    again after a pause: of a sweep until its minimum has run without that group."""
    book = world.books.get(run.uid)
    if book is None:
        return False
    waiting = units_of(world, run)
    for key, unit in book.units.items():
        last = unit.last
        if last is None or not unit.is_of_a_resolution():
            continue
        if last.open:
            if world.bound.get((run.uid, key)) != last.number:
                return True
        elif waiting[key].standing is Standing.WAITING and waiting[key].why == BIND_FAILING:
            is_missing = run.spec.gang is Gang.RUN or _is_missing(run, book, key)
            return is_missing and waiting[key].rejected < world.policy.bind_attempts
    return False


def _is_missing(run: Run, book: Book, key: int) -> bool:
    """Since it was rejected first, fewer groups than the minimum have lived without it: once they
    do, it stands in line, also when they have ended."""
    attempts = book.units[key].attempts
    first = next(each for each in attempts[::-1] if each.protected)
    others = book.most_alive(since=first.ended_at, but=key)
    return others < minimum_gpus(run.spec) // run.spec.group_gpus


def is_sitting_down(world: World, domains: Collection[str]) -> bool:
    """Somebody for whom room was made in one of these domains has started, and it is not known yet
    whether its nodes will have it."""
    for uid in uids_underway(world):
        found = underway(world, world.runs[uid])
        if found is None or _domains(found).isdisjoint(domains):
            continue
        for key, unit in world.book(uid).units.items():
            last = unit.last
            if (
                last is not None
                and last.open
                and not last.is_taken_back
                and world.bound.get((uid, key)) != last.number
            ):
                return True
    return False


def _is_busy(turn: Turn, run: Run, domains: Collection[str]) -> bool:
    """Another activation has not finished in one of these domains, or waits there to begin."""
    world = turn.world
    if not turn.waited_for.keys().isdisjoint(domains):
        return True
    for uid in world.reservation_of:
        other = world.runs.get(uid)
        found = underway(world, other) if other is not None and uid != run.uid else None
        if (
            found is not None
            and not _domains(found).isdisjoint(domains)
            and not _is_overdue(turn, found)
        ):
            return True
    return False


def _domains(found: Underway) -> set[str]:
    """Where room is made, or will be when all that it took back so far is its envelope."""
    return set(found.resolution.domains or found.reservation.domains)


def _is_overdue(turn: Turn, found: Underway) -> bool:
    """What it was kept is kept no more, though whoever had not gone may have by now."""
    if turn.now < drain_timeout(turn.world, found):
        return False
    return found.reservation.reason == Told.DRAIN_TIMEOUT or bool(
        not_gone(turn.world, found.reservation, found.resolution, turn.now)
    )


def drain_timeout(world: World, found: Underway) -> Instant:
    """When whoever was cut must have gone; that it has started meanwhile, and was rejected, gives
    it no longer."""
    return found.resolution.instant + world.policy.victim_timeout


def resolution_of(world: World, reservation: Reservation) -> Resolution | None:
    """The newest Resolution made for a reservation."""
    name = world.resolution_of_subject.get(reservation.subject)
    return None if name is None else world.resolutions[name]


def victims_are_gone(world: World, reservation: Reservation, now: Instant) -> bool:
    """Whether all GPUs are free, and all money is back, that its Resolution counted on. Who has its
    envelope back cuts for GPUs as soon as its family has gone."""
    resolution = resolution_of(world, reservation)
    if resolution is None:
        return True
    if _is_only_money(resolution, reservation):
        return not any(world.leases[name].is_open for name in resolution.victims)
    return not not_gone(world, reservation, resolution, now)


def not_gone(
    world: World, reservation: Reservation, resolution: Resolution, now: Instant
) -> list[str]:
    """Its victims, and what was ending already, in its scope or on its payers' account, and so was
    not cut."""
    victims = [name for name in resolution.victims if world.leases[name].is_open]
    known = set(victims)
    payers = _payers_and_kin(world, reservation)
    for name in sorted(world.ending):
        lease = world.leases[name]
        state = world.fleet.nodes.get(lease.node)
        is_inside = state is not None and state.node.domain in resolution.domains
        if (
            name not in known
            and (is_inside or lease.payer in payers)
            and lease.ending is not None
            and lease.ending.batch <= resolution.batch
            and is_going(world, lease, now)
        ):
            victims.append(name)
    return victims


def recall_activations(turn: Turn) -> None:
    """Others were cut for it, and whoever did that lost its tenure before the status was written:
    the ledger knows, and what they left is nobody else's from the first turn on."""
    world = turn.world
    for uid in sorted(uid for uid in world.work.pending if uid in world.reservation_of):
        run = world.runs.get(uid)
        reservation = present(world, run) if run is not None else None
        if run is None or reservation is None or reservation.state is not State.PENDING:
            continue
        if reservation.starts <= turn.now and resolution_of(world, reservation) is not None:
            _activating(turn, run, reservation)


def _payers_and_kin(world: World, reservation: Reservation) -> set[EnvelopeKey]:
    """Envelopes whose money an activation was planned with, and those that share a cap with them:
    what is ending there was counted as back."""
    payers = {payer for payer, _, _ in reservation.held_money}
    for payer in sorted(payers):
        for aggregate in world.aggregates.get(payer, ()):
            payers.update(aggregate.members)
    return payers


def uids_underway(world: World) -> list[Uid]:
    return [
        uid
        for uid in world.reservation_of
        if (run := world.runs.get(uid)) is not None and underway(world, run) is not None
    ]
