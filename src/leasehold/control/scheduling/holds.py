"""What activations hold for their beneficiaries (A4).

From the Resolution on, the place and payers of a beneficiary are held against all other runs. The
hold ends when the run is bound or Blocked, or after `drain.timeout`. The run starts in the held
place as soon as all of it is free.
"""

from msgspec.structs import replace

from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import cancel_reservation, release
from leasehold.control.running.life import BIND_FAILING, UnitStanding, units_of
from leasehold.control.scheduling.plans import can_pay_held, claims_of_held
from leasehold.control.scheduling.requests import start_request_for, waiting_groups
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import as_found_by
from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.facts import Gang, Record, Run
from leasehold.core.placement.pack import try_pack
from leasehold.core.preemption.resolve import PlannedSite, free_ending_leases
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import HeldMoney, Reservation
from leasehold.core.resolutions import Resolution
from leasehold.core.units import FOREVER, Instant, plural
from leasehold.core.verdicts import Admitted, Packed, PodPlace
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World


class Hold(Record):
    """What an activation under way holds: the run's reservation, and the Resolutions made for it so
    far."""

    run: Run
    reservation: Reservation
    resolutions: tuple[Resolution, ...]

    @property
    def victims(self) -> tuple[str, ...]:
        """Return the names of all victims' leases."""
        return tuple(name for each in self.resolutions for name in each.victims)


def hold_of(world: World, run: Run) -> Hold | None:
    """Return what the run's activation holds; None if no activation of the run is under way."""
    if run.uid not in world.activating:
        return None
    reservation = world.reservations[world.reservation_of[run.uid]]
    found = world.resolutions_of_subject(reservation.subject)
    return Hold(run=run, reservation=reservation, resolutions=found)


def still_there(world: World, hold: Hold) -> list[str]:
    """Return the victims whose leases are still open."""
    return [name for name in hold.victims if name in world.leases and world.leases[name].is_open]


def ends_at(world: World, hold: Hold) -> Instant:
    """Return when the hold is given up.

    That is `drain.timeout` after the first Resolution, but not before the last deadline of a
    victim.
    """
    begun = min((each.instant for each in hold.resolutions), default=hold.reservation.since)
    return max(begun + world.policy.victim_timeout, _last_deadline(world, hold))


def _last_deadline(world: World, hold: Hold) -> Instant:
    """Return the latest deadline of the victims; 0 without victims."""
    leases = (world.leases[name] for name in hold.victims if name in world.leases)
    return max((x.ending.deadline for x in leases if x.ending is not None), default=0)


def enter_holds(turn: Turn) -> None:
    """Enter all holds on the calendar, before any run is considered.

    Ends the holds of runs that are bound. Also ends holds that have timed out while their run may
    not start.
    """
    world = turn.world
    for uid in sorted(world.activating):
        run = world.wanted_run(uid)
        hold = hold_of(world, run) if run is not None else None
        if run is None or hold is None:
            continue
        if _is_bound(world, run):
            release(turn, run)
            continue
        is_over = turn.now >= ends_at(world, hold)
        if (is_over and not _is_ready(turn, run)) or _is_blocked(turn, run):
            give_up(turn, hold)
            continue
        turn.wake(ends_at(world, hold))
        enter_hold(turn, hold)


def _is_bound(world: World, run: Run) -> bool:
    """Return whether nodes have accepted everything that the run started."""
    book = world.books.get(run.uid)
    began = world.reservations[world.reservation_of[run.uid]].since
    started = [
        (key, unit.last)
        for key, unit in (book.units.items() if book else ())
        if unit.last is not None and unit.last.open and unit.last.started >= began
    ]
    return bool(started) and all(
        not last.is_taken_back and world.bound.get((run.uid, key)) == last.number
        for key, last in started
    )


def _is_blocked(turn: Turn, run: Run) -> bool:
    """Return whether too many binds in a row were rejected (B3)."""
    attempts = turn.world.policy.bind_attempts
    return any(
        where.why == BIND_FAILING and where.rejected >= attempts and where.retry_at > turn.now
        for where in units_of(turn.world, run).values()
        if where.standing is UnitStanding.WAITING
    )


def _is_ready(turn: Turn, run: Run) -> bool:
    """Return whether some of the run's groups may start now."""
    return bool(waiting_groups(turn.world, run, turn.now))


def give_up(turn: Turn, hold: Hold, why: str = "") -> None:
    """Give up a hold: the run waits like any other, and other runs may use the place.

    If part of the run has started, its reservation is released instead.
    `why`: the reason for people; "" means that the hold has timed out.
    """
    world, run = turn.world, hold.run
    turn.calendar.forget(run.uid)
    if any(where.standing is UnitStanding.LIVE for where in units_of(world, run).values()):
        release(turn, run)
        return
    if not why:
        left = plural(len(still_there(world, hold)), "victim")
        why = f"{left} did not end in time; the GPUs that were held are released"
        turn.tell("Run", run.key, NoticeReason.DRAIN_TIMEOUT, why)
    cancel_reservation(turn, run, why)
    turn.again = True


def enter_hold(turn: Turn, hold: Hold) -> None:
    """Enter on the calendar the places and payers that the run holds, less what it has already
    leased.

    If `is_site`, the held places are only the announced site, where other runs' leases may be. That
    is so if only money was taken back from the family so far (O5), or if a restart lost the status
    (A4). Then only the payers are entered; `finish_activations` chooses the final places later.
    """
    world, run, found = turn.world, hold.run, hold.reservation
    places = {} if found.is_site else dict(found.held_places)
    money = list(found.held_money)
    for lease in open_leases(world, run.uid):
        if lease.start >= found.since and lease.node in places:
            places[lease.node] = max(0, places[lease.node] - lease.gpus)
            money = _less(money, lease.payer, lease.gpus)
    request = start_request_for(world, run, (0,))
    end = min(FOREVER, max(turn.now, _last_deadline(world, hold)) + request.end_after)
    uid = run.uid
    turn.calendar.enter(
        uid,
        [
            Entry(uid=uid, node=node, gpus=gpus, start=turn.now, end=end)
            for node, gpus in sorted(places.items())
            if gpus
        ],
        claims_of_held(world, request, tuple(money), start=turn.now, end=end),
    )


def _less(money: list[HeldMoney], payer: str, gpus: int) -> list[HeldMoney]:
    """Return the held money with `gpus` GPUs of this payer taken off."""
    left = []
    for each in money:
        taken = min(each.gpus, gpus) if each.payer == payer else 0
        gpus -= taken
        left.append(replace(each, gpus=each.gpus - taken))
    return left


def groups_held_for(world: World, hold: Hold, now: Instant) -> tuple[int, ...]:
    """Return the groups that start in the held place; none if too few of them may start now."""
    waiting = waiting_groups(world, hold.run, now)
    if not waiting:
        return ()
    request = start_request_for(world, hold.run, waiting[:1])
    held = sum(gpus for _, gpus in hold.reservation.held_places)
    count = held // request.placement.gpus_per_group
    if hold.run.spec.gang is Gang.RUN:
        return tuple(range(count))
    return waiting[:count] if len(waiting) >= count else ()


def still_paid(turn: Turn, hold: Hold, request: StartRequest) -> bool:
    """Return whether the held payers can pay, now or once ending leases are gone."""
    world = turn.world
    with world.what_if.opened():
        free_ending_leases(world, now=turn.now)
        return _pays(turn, hold, request)


def start_where_held(turn: Turn, hold: Hold, request: StartRequest) -> Admitted | None:
    """Return the start in the held place with the held payers, or None if not all of it is free."""
    world = turn.world
    planned = PlannedSite(domains=hold.reservation.domains, money=hold.reservation.held_money)
    others = turn.calendar.only(uid for uid in world.activating if uid != request.run.uid)
    held = dict(hold.reservation.held_places)
    with world.what_if.opened():
        as_found_by(world, request, others, start=turn.now)
        nodes = world.fleet.nodes
        if not all(name in nodes and nodes[name].free >= gpus for name, gpus in held.items()):
            return None
        if not _pays(turn, hold, request):
            return None
        packed = _pack_in(world, request, planned, held)
    return None if packed is None else Admitted(covered=planned.covered(world), packed=packed)


def _pack_in(
    world: World, request: StartRequest, planned: PlannedSite, held: dict[str, int]
) -> Packed | None:
    """Place the pods on the held GPUs, or return None.

    The caller must hold an open what-if.
    """
    fleet = world.fleet
    domains = sorted({fleet.nodes[name].node.domain for name in held})
    for domain in domains:
        for name in fleet.pools[(request.placement.flavor, domain)].nodes:
            fleet.plan(name, fleet.nodes[name].free - held.get(name, 0))
    places: list[PodPlace] = []
    left = list(request.placement.groups)
    for location, count in sorted(planned.groups_at(request.placement).items()):
        groups, left = tuple(left[:count]), left[count:]
        within = tuple(d for d in domains if d.startswith("/".join(location) + "/"))
        placement = replace(
            request.placement, groups=groups, own_domains=(), last=(), within=within
        )
        part = try_pack(world, placement, [location])
        if part is None:
            return None
        places += part.places
    return Packed(places=tuple(sorted(places, key=lambda each: (each.group, each.spare))))


def _pays(turn: Turn, hold: Hold, request: StartRequest) -> bool:
    """Return whether the held payers can pay. Other holds count as used money, plans do not
    (A4)."""
    world = turn.world
    others: Calendar = turn.calendar.only(uid for uid in world.activating if uid != request.run.uid)
    with world.what_if.opened():
        others.respect(world, request.run.uid, request.limit)
        return can_pay_held(turn, request, hold.reservation.held_money, at=turn.now)
