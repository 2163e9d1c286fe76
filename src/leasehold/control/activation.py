"""Activation: a reservation's time has come and its run does not fit; room is made, then held.

One activation per scope at a time. What a Resolution frees is held for its beneficiary against
everyone until its victims are gone and it binds; a victim that will not go gives the slots back
to the others after the drain timeout.
"""

from msgspec.structs import replace

from leasehold.control.holding import claim_money, hold_places
from leasehold.control.publish import Subject, can_publish, publish_cuts
from leasehold.control.reclaim import reclaim
from leasehold.control.reservations import block, present
from leasehold.control.turn import Turn
from leasehold.control.wishes import groups_short_of_minimum, waiting_groups, wish_for
from leasehold.core.admit import Wish
from leasehold.core.facts import Reservation, Resolution, Run, State
from leasehold.core.pack import try_pack
from leasehold.core.resolve import Resolved, is_going, resolve
from leasehold.core.units import Instant
from leasehold.core.verdicts import Packed, Refused
from leasehold.core.width import places_for
from leasehold.core.world import World


def activate(turn: Turn, wish: Wish, reservation: Reservation, refused: Refused) -> None:
    """Cut what must be cut, or block the reservation with the reason."""
    subject = Subject(
        reservation.subject, batch=reservation.batch, commitment=reservation.commitment
    )
    if not can_publish(turn, subject):
        turn.again = True
        return
    if resolution_of(turn.world, reservation) is not None:
        # Cut before a crash that lost the status: the ledger knows, and nobody is cut twice for it.
        _activating(turn, wish.run, reservation)
        return
    answer = resolve(turn.world, wish, turn.agenda, now=turn.now, seeder=lambda: subject.seed(turn))
    if isinstance(answer, Refused):
        if answer.reason.is_about_money and reclaim(turn, wish, reservation):
            _activating(turn, wish.run, reservation)
            return
        block(
            turn, wish.run, answer if answer.reason.is_about_money else refused_or(refused, answer)
        )
        return
    if not answer.cuts.kept or _is_busy(turn, answer):
        return  # leases that are ending already will make the room, or another activation goes on
    publish_cuts(
        turn,
        answer.cuts,
        subject,
        cause="Reservation",
        beneficiary=(wish.run.key, wish.run.uid),
        site=answer.site,
        flavor=wish.want.flavor,
    )
    _activating(turn, wish.run, reservation)
    hold_places(turn, wish, answer.packed)
    claim_money(turn, wish, answer.site.domains, start=turn.now)


def refused_or(refused: Refused, answer: Refused) -> Refused:
    """Blocked for want of GPUs: the run's own reason, with what resolve found."""
    return answer if refused.reason.is_about_money else replace(answer, reason=refused.reason)


def _activating(turn: Turn, run: Run, reservation: Reservation) -> None:
    turn.reserve(replace(reservation, state=State.ACTIVATING, since=turn.now, reason="Resolved"))
    turn.tell("Run", run.key, "Activating", "room is being made by a Resolution")
    turn.again = True


def _is_busy(turn: Turn, answer: Resolved) -> bool:
    """Another activation has not finished in one of these domains."""
    world = turn.world
    for uid in world.pending:
        run = world.runs.get(uid)
        reservation = present(world, run) if run is not None else None
        if reservation is not None and reservation.state is State.ACTIVATING:
            resolution = resolution_of(world, reservation)
            if resolution is not None and set(resolution.domains) & set(answer.site.domains):
                return True
    return False


def resolution_of(world: World, reservation: Reservation) -> Resolution | None:
    """The newest Resolution made for a reservation."""
    found = [each for each in world.resolutions.values() if each.subject == reservation.subject]
    return max(found, key=lambda each: each.batch, default=None)


def is_drained(world: World, reservation: Reservation, now: Instant) -> bool:
    """Whether all GPUs are free that its Resolution counted on."""
    resolution = resolution_of(world, reservation)
    return resolution is None or not _undrained(world, resolution, now)


def _undrained(world: World, resolution: Resolution, now: Instant) -> list[str]:
    """Its victims, and what was ending in its scope already and so was not cut."""
    victims = [name for name in resolution.victims if world.leases[name].is_open]
    known = set(victims)
    for name in sorted(world.ending):
        lease = world.leases[name]
        state = world.fleet.nodes.get(lease.node)
        if (
            name not in known
            and state is not None
            and state.node.domain in resolution.domains
            and lease.ending is not None
            and lease.ending.batch <= resolution.batch
            and is_going(world, lease, now)
        ):
            victims.append(name)
    return victims


def hold_for_activations(turn: Turn) -> None:
    """Before anybody is considered: slots and money of activations under way."""
    world = turn.world
    for uid in sorted(uid for uid in world.pending if uid in world.reservation_of):
        run = world.runs.get(uid)
        reservation = present(world, run) if run is not None else None
        if run is None or reservation is None or reservation.state is not State.ACTIVATING:
            continue
        resolution = resolution_of(world, reservation)
        groups = groups_short_of_minimum(world, run, waiting_groups(world, run, turn.now))
        if resolution is None or not groups:
            continue
        wish = wish_for(world, run, groups)
        if resolution.domains:
            wish = replace(wish, want=replace(wish.want, within=resolution.domains))
        _hold_while_draining(turn, wish, resolution, reservation.since)


def _hold_while_draining(turn: Turn, wish: Wish, resolution: Resolution, since: Instant) -> None:
    world = turn.world
    undrained = _undrained(world, resolution, turn.now)
    for name in undrained:
        ending = world.leases[name].ending
        assert ending is not None, name
        turn.wake(ending.deadline + world.policy.drain_timeout)
    timeout = since + world.policy.drain_timeout
    if undrained and turn.now >= timeout:
        if _packed_without(world, wish, []) is None:
            turn.tell("Run", wish.run.key, "DrainTimeout",
                      f"{len(undrained)} victims have not gone; their places are open to "
                      "backfill meanwhile")  # fmt: skip
            return
        undrained = []
    turn.wake(timeout)
    packed = _packed_without(world, wish, undrained)
    if packed is not None:
        hold_places(turn, wish, packed)
        nodes = world.fleet.nodes
        domains = tuple(sorted({nodes[each.node].node.domain for each in packed.places}))
        claim_money(turn, wish, domains, start=turn.now)


def _packed_without(world: World, wish: Wish, victims: list[str]) -> Packed | None:
    """Where the beneficiary goes once these leases are gone."""
    mark = world.journal.mark()
    world.fleet.tolerate(wish.run.spec.tolerations)
    for name in victims:
        world.fleet.give(world.leases[name])
    packed = try_pack(world, wish.want, places_for(world, wish.run.spec))
    world.journal.undo(mark)
    return packed
