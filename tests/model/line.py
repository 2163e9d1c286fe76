"""The line: who waits, in order of submission; who starts, what is planned, what is kept.

Plans are made in order, each on top of the claims of those ahead, so nobody behind delays anybody
ahead whose plan is exact, window-aligned or needs-cuts. A run that is short of money only, or
blocked, keeps nothing. What a Resolution has freed is kept from everybody.
"""

from dataclasses import replace
from typing import TypeGuard

from tests.model.admit import Place, Plan, Refusal, admit, admit_in, borrowed_by, put_in
from tests.model.money import Segment, can_give, is_allowed
from tests.model.places import room_for
from tests.model.reclaim import could_reclaim
from tests.model.resolve import Case, claim_of, foresee, shelters, tenures
from tests.model.start import start
from tests.model.story import DAY, FOREVER
from tests.model.view import Claim, View, end_of, is_expected_to_go
from tests.model.world import Activation, Booking, Run, Unit, World


def in_line(world: World) -> list[Run]:
    return sorted((r for r in world.runs.values() if waiting_units(r)), key=lambda run: run.order)


def waiting_units(run: Run) -> list[Unit]:
    return [unit for _, unit in sorted(run.units.items()) if unit.standing == "waiting"]


def ready_units(world: World, run: Run) -> list[Unit]:
    """Those that may be considered now: not in back-off."""
    return [unit for unit in waiting_units(run) if unit.pause <= world.now]


def avoided(run: Run) -> list[str]:
    """Nodes that rejected any part of it since that part last held."""
    return sorted({name for unit in run.units.values() for name in unit.avoids})


def groups_of(run: Run, units: list[Unit]) -> list[int]:
    if run.is_sweep:
        return [unit.index for unit in units]
    return list(range(run.start_groups))


def lead_of(world: World, run: Run) -> int:
    """It doubles each time the run was cut, up to a day."""
    lead: int = world.config["activationLead"]
    return max(lead, min(lead << run.cuts, DAY))


def take_turn(world: World) -> bool:
    """One pass over the line, in order; True if anybody has started. After one for whom others were
    cut nobody else is considered: those ahead of it have planned without it."""
    if _time_out(world):
        return True
    everybody = sorted(world.runs.values(), key=lambda run: run.order)
    holds = [hold_of(world, run) for run in everybody if _holds(run) and _is_short(run)]
    claims: list[Claim] = []
    planned: dict[str, int] = {}
    world.ahead = {}
    started = False
    for run in in_line(world):
        # Who has started in this pass holds its leases.
        kept = [hold for hold in holds if _is_short(world.runs[hold.run])]
        others = [hold for hold in kept if hold.run != run.key] + claims
        world.ahead[run.key] = others
        if run.stop or not _may_be_considered(world, run):
            continue
        while waiting_units(run) and ready_units(world, run):
            is_first = run.booking is not None and run.booking.state == "Activating"
            if not _try_to_start(world, run, others):
                break
            started = True
            if is_first:
                return True
        if not waiting_units(run) or not ready_units(world, run):
            continue
        if run.activation is not None:
            _look_after(world, run)
            if run.activation is not None:
                continue
            return True  # what it held is there for those ahead first
        if not _is_planned(world, run, planned):
            world.book(run, None)
            continue
        claim = _plan(world, run, others)
        if claim is not None:
            claims.append(claim)
    world.claims = holds + claims
    return started


def _is_planned(world: World, run: Run, planned: dict[str, int]) -> bool:
    """Only so many are, of an owner and in all; of those short of money so many for one reason."""
    if not groups_to_plan(world, run):
        return True
    kind, of_owner = ("depth", run.owner)
    if run.short_of_money:
        kind, of_owner = ("moneyDepth", f"{run.owner} {run.said}")
    in_all = f"all {kind}"
    if (
        planned.get(of_owner, 0) >= world.config[f"reservation.{kind}PerOwner"]
        or planned.get(in_all, 0) >= world.config[f"reservation.{kind}"]
    ):
        return False
    planned[of_owner] = planned.get(of_owner, 0) + 1
    planned[in_all] = planned.get(in_all, 0) + 1
    return True


def _may_be_considered(world: World, run: Run) -> bool:
    if not is_allowed(world, run):
        run.said, run.activation = "OwnerNotAllowed", None
        world.book(run, None)
        return False
    if not ready_units(world, run):
        unit = waiting_units(run)[0]
        run.said = unit.paused_by
        blocked = unit.blocked_binds
        world.book(run, Booking("Blocked", because="BindFailing") if blocked else None)
        return False
    return True


# Starting


def _try_to_start(
    world: World, run: Run, others: list[Claim], *, only_in_scope: bool = False
) -> bool:
    units = ready_units(world, run)
    groups = groups_of(run, units)
    view = View(world, world.now, others)
    most = len(groups)
    if run.is_sweep and _holds(run) and _is_short(run):
        assert run.activation is not None
        most = min(most, len(run.activation.domains))
    for roomy in (True, False) if run.is_sweep and not run.spread else (False,):
        for count in _counts(run, most):
            some = units[:count] if run.is_sweep else units
            if only_in_scope:
                plan = _plan_in_scope(view, run, groups[:count], avoided(run))
            else:
                plan = _plan_now(view, run, groups[:count], roomy=roomy)
            if isinstance(plan, Plan) and shelters(world, run, plan, others):
                plan = Refusal("HeldForReservation", of_money=False)
            if isinstance(plan, Plan):
                start(world, run, some, plan)
                return True
    assert isinstance(plan, Refusal)
    run.said, run.walk, run.short_of_money = plan.reason, plan.walk, plan.of_money
    return False


def what_it_lacks(world: World, run: Run) -> str:
    """Nothing, a place, or why money, now, as those ahead of it were last planned."""
    units = ready_units(world, run)
    if not units or run.key not in world.ahead:
        return "its turn"
    view = View(world, world.now, world.ahead[run.key])
    groups = groups_of(run, units)
    plans = [_plan_now(view, run, groups[:count]) for count in _counts(run, len(groups))]
    if any(isinstance(plan, Plan) for plan in plans):
        return "nothing"
    last = plans[-1]
    assert isinstance(last, Refusal)
    return last.reason if last.of_money else "a place"


def _counts(run: Run, most: int) -> list[int]:
    """All that wait. If a sweep cannot: the lowest alone, then the next; in one domain, as many of
    them as fit in one."""
    if not run.is_sweep:
        return [most]
    return sorted({most, 1}, reverse=True) if run.spread else list(range(most, 0, -1))


def _plan_now(view: View, run: Run, groups: list[int], *, roomy: bool = False) -> Plan | Refusal:
    avoids = avoided(run)
    activation = run.activation
    plan = admit(view, run, groups, avoids=avoids, roomy=roomy)
    if activation is not None and _holds(run) and _is_short(run) and not activation.only_money:
        there = plan if isinstance(plan, Plan) else _plan_in_scope(view, run, groups, avoids)
        return there if isinstance(there, Plan) else plan
    if isinstance(plan, Refusal) and run.opportunistic and not plan.of_money:
        filling = admit(view, run, groups, fill=True, avoids=avoids)
        if isinstance(filling, Plan):
            return filling
    return plan


def _plan_in_scope(view: View, run: Run, groups: list[int], avoids: list[str]) -> Plan | Refusal:
    """A beneficiary starts in the domains that room was made in, as soon as it fits there.

    What is held for it is its own whatever others have planned; beside that it may use what nobody
    ahead counts on.
    """
    activation = run.activation
    assert activation is not None
    for shun in (True, False) if avoids else (False,):
        room = room_for(view, run, avoids=avoids, shun=shun)
        room = room.only_in(list(activation.domains.values()))
        plan = admit_in(view, run, groups, room)
        if isinstance(plan, Refusal):
            plan = _put_where_held(view, run, groups, avoids if shun else [])
        if isinstance(plan, Plan):
            return plan
    return plan


def _put_where_held(view: View, run: Run, groups: list[int], avoids: list[str]) -> Plan | Refusal:
    """The very places that were planned, once they are free."""
    activation = run.activation
    assert activation is not None
    held_for = sorted(activation.domains)
    holds = [claim for claim in view.claims if claim.kind == "hold"]
    free = View(view.world, view.at, holds).room(run.flavor, end_of(run, view.at))
    bills = _bills_held(view, run, groups)
    if bills is None or any(
        name in avoids or free.get(name, 0) < gpus for name, gpus in activation.held.items()
    ):
        return Refusal("InsufficientCapacity", of_money=False)
    index = dict(zip(held_for, groups, strict=True))
    return Plan([replace(spot, group=index[spot.group]) for spot in activation.spots], bills)


def _bills_held(view: View, run: Run, groups: list[int]) -> dict[Place, list[Segment]] | None:
    """The money that is held for it, if it is still there."""
    activation = run.activation
    assert activation is not None
    if len(groups) != len(activation.domains):
        return None
    holds = [claim for claim in view.claims if claim.kind == "hold"]
    alone = View(view.world, view.at, holds)
    spent: list[Segment] = []
    for name, gpus, relation in (s for bill in activation.bills.values() for s in bill):
        envelope = view.world.envelope(name)
        if envelope is None:
            return None
        loans = borrowed_by(view.world, run)
        most, _ = can_give(alone, run, envelope, relation, end_of(run, view.at), spent, loans)
        if most < gpus:
            return None
        spent.append((name, gpus, relation))
    return activation.bills


# Planning


def groups_to_plan(world: World, run: Run) -> list[int]:
    """Of a sweep only those that are missing to its minimum: more needs no Reservation."""
    groups = groups_of(run, ready_units(world, run))
    if not run.is_sweep:
        return groups
    running = sum(1 for unit in run.units.values() if unit.standing == "live")
    return groups[: max(0, run.least // run.group_gpus - running)]


def _plan(world: World, run: Run, others: list[Claim]) -> Claim | None:
    """Its Reservation, and what that keeps from those behind."""
    groups = groups_to_plan(world, run)
    if not groups:
        world.book(run, None)
        return None
    was = run.booking
    found = first_known(world, run, groups, others)
    in_time = found is not None and not _is_too_late(world, run, groups, others, found[0])
    if found is not None and in_time:
        kept = _kept_start(world, run)
        if kept is None or found[0] <= kept:
            return _book_known(world, run, found)
    if was is not None and was.state == "Blocked" and not _would_help(world, run, groups, others):
        return None
    claim = _announce(world, run, groups, others, known=found is not None)
    if found is None or not in_time:
        return claim
    if claim is not None and found[0] <= claim.start:
        return _book_known(world, run, found)  # it need not wait for a tenure, and then cut
    return claim


def book_what_is_known(world: World, run: Run, others: list[Claim]) -> bool:
    """Its time has come, and cuts are no help: a later start, if one is known and soon enough."""
    groups = groups_to_plan(world, run)
    found = first_known(world, run, groups, others)
    if found is None or _is_too_late(world, run, groups, others, found[0]):
        return False
    _book_known(world, run, found)
    return True


def _book_known(world: World, run: Run, found: tuple[int, Plan, bool]) -> Claim:
    at, plan, aligned = found
    confidence = "window-aligned" if aligned else "exact"
    run.booking = Booking("Pending", confidence, at, run.said)
    return claim_of(world, run, plan, at, "plan")


def _kept_start(world: World, run: Run) -> int | None:
    """A start that was announced with cuts, or for want of money, only moves earlier. One that was
    announced this very instant, when what happens in it was not over yet, is none; one that was put
    off in it stands as it was before."""
    if not _only_moves_earlier(run.booking):
        return None
    before = world.was.get(run.key)
    start = run.booking.start
    if _only_moves_earlier(before) and before.start < start:
        start = before.start
    return None if start == world.now + lead_of(world, run) else start


def _only_moves_earlier(booking: Booking | None) -> TypeGuard[Booking]:
    return (
        booking is not None
        and booking.state == "Pending"
        and booking.confidence in ("needs-cuts", "needs-money")
    )


def _announce(
    world: World, run: Run, groups: list[int], others: list[Claim], *, known: bool
) -> Claim | None:
    """No start is known, or none soon enough: at the lead, or when its patience is over."""
    was, kept = run.booking, _kept_start(world, run)
    lead = world.now + lead_of(world, run)
    soonest = max(run.created + world.config["reservation.maxWait"], lead) if known else lead
    start = soonest
    if _is_short_of_money_only(world, run, groups, others):
        start = start if kept is None else min(start, kept)
        run.booking = Booking("Pending", "needs-money", start, run.said)
        return None
    awaits = False
    if kept is not None:
        assert was is not None
        start, awaits = min(start, kept), was.awaits_since > 0 and kept <= start
    case = Case(world, run, groups, others, max(start, world.now))
    can = foresee(case)
    if not can:
        later = _after_tenures(world, run, groups, others, start, soonest)
        if later is not None and kept is not None and _may_stand(world, kept, later):
            return next((each for each in world.claims if each.run == run.key), None)
        if later is not None:
            case, awaits, can = later, later.at != soonest, True
            start = later.at
        elif kept is not None and was is not None:
            # That cuts would not help any more is no reason to come earlier, or to wait longer for
            # those behind it.
            start, awaits = kept, was.awaits_since > 0
            case.domains = was.places
    places = dict(case.domains)
    since = (was.awaits_since if was is not None else 0) or world.now
    run.booking = Booking("Pending", "needs-cuts", start, run.said, places, since if awaits else 0)
    return _claim_for_cuts(world, case, start, others) if can else None


def _may_stand(world: World, kept: int, later: Case) -> bool:
    """Nobody's start moves later for somebody of whom it is not known yet whether it holds."""
    domains = set(later.domains.values())
    return later.at > kept and any(domains & made for made in world.sitting.values())


def _after_tenures(
    world: World, run: Run, groups: list[int], others: list[Claim], start: int, soonest: int = 0
) -> Case | None:
    """If protected tenures keep it out: its case when enough of them have ended, or as soon as one
    could be announced for today: who is protected may have ended by then."""
    after = max(start, world.now)
    for end in tenures(world, run):
        for at in (soonest, end) if after < soonest < end else (end,):
            case = Case(world, run, groups, others, at)
            if at > after and foresee(case):
                return case
    return None


def _claim_for_cuts(world: World, case: Case, start: int, others: list[Claim]) -> Claim:
    """The free GPUs of its domains, at once (or a lead before its start), and its money."""
    assert case.scope is not None
    run = case.run
    plan = case.plan(case.scope.gone())
    assert plan is not None, "it was thought through"
    claim = claim_of(world, run, plan, max(start, world.now), "cut")
    claim.nodes = {}
    claim.since = start - world.config["activationLead"]
    claim.pod_gpus = run.pod_gpus
    claim.groups = case.groups
    claim.before = others
    claim.places = dict(case.domains)
    for domain in case.domains.values():
        pods = run.pods_per_group + run.spare_pods
        claim.pods[domain] = claim.pods.get(domain, 0) + pods
    claim.rests_on = [
        number for cut in case.scope.cuts if cut.kind == "spare" for number in cut.leases
    ]
    return claim


def _is_short_of_money_only(world: World, run: Run, groups: list[int], others: list[Claim]) -> bool:
    """GPUs would be there now."""
    plan = admit(View(world, world.now, others), run, groups)
    if not isinstance(plan, Refusal) or not plan.of_money:
        return False
    room = room_for(View(world, world.now, others), run)
    return put_in(room, groups, room.domains()) is not None


def _would_help(world: World, run: Run, groups: list[int], others: list[Claim]) -> bool:
    """Whether one who is blocked may be announced anew: if resolve would now succeed."""
    start = world.now + lead_of(world, run)
    if foresee(Case(world, run, groups, others, world.now)):
        return True
    if _after_tenures(world, run, groups, others, start) is not None:
        return True
    return could_reclaim(world, run, groups, others)


def _is_too_late(world: World, run: Run, groups: list[int], others: list[Claim], at: int) -> bool:
    """Longer than the longest wait, for want of GPUs and not of money."""
    patience = max(
        run.created + world.config["reservation.maxWait"], world.now + lead_of(world, run)
    )
    if at <= patience:
        return False
    plan = admit(View(world, patience, others), run, groups)
    return isinstance(plan, Refusal) and not plan.of_money


def first_known(
    world: World, run: Run, groups: list[int], others: list[Claim]
) -> tuple[int, Plan, bool] | None:
    """The first instant of the known future at which it is funded and placed."""
    avoids = avoided(run)
    openings = {e.start for e in world.envelopes() if e.flavor == run.flavor}
    instants = {world.known_end(lease) for lease in world.open_leases()} | openings
    instants |= {claim.end for claim in others}
    for at in sorted(instants):
        if world.now < at < FOREVER:
            plan = admit(View(world, at, others), run, groups, avoids=avoids)
            if isinstance(plan, Plan):
                payers = {name for name, _, _ in plan.segments()}
                aligned = any(e.name in payers and e.start == at for e in world.envelopes())
                return at, plan, aligned
    return None


# Activations


def _holds(run: Run) -> bool:
    return run.activation is not None and not run.activation.timed_out


def _is_short(run: Run) -> bool:
    """It has not started, or fewer groups of it than its minimum: one that is being bound holds
    its own leases. What a node rejected has not started, though some of it may not be gone."""
    live = [unit for unit in run.units.values() if unit.standing == "live"]
    running = sum(1 for unit in live if unit.fate != "Rejected")
    return not running or (run.is_sweep and running * run.group_gpus < run.least)


def hold_of(world: World, run: Run) -> Claim:
    """What a Resolution has freed, and what it was planned with."""
    activation = run.activation
    assert activation is not None
    return Claim(
        run.key, "hold", activation.at, end_of(run, world.now),
        nodes=activation.held, money=activation.money, lent=activation.lent,
        hours=activation.hours, lent_hours=activation.lent_hours,
    )  # fmt: skip


def _time_out(world: World) -> bool:
    """A victim is not gone after `drain.timeout`: the beneficiary takes what is free in its scope,
    before those ahead; failing that, what is held is open to others."""
    for run in in_line(world):
        activation = run.activation
        if activation is None or activation.timed_out:
            continue
        if world.now >= activation.at + world.config["drain.timeout"]:
            ahead = world.ahead.get(run.key, [])
            held = [claim for claim in ahead if claim.kind == "hold"]
            if ready_units(world, run) and (
                _try_to_start(world, run, ahead)
                or _try_to_start(world, run, held, only_in_scope=True)
            ):
                return True
            activation.timed_out = True
    return False


def _look_after(world: World, run: Run) -> None:
    """It stays Activating until all are gone that it waits for. If it does not fit even then it is
    blocked; if it had started and was rejected, it is planned like everybody."""
    activation = run.activation
    assert activation is not None
    if run.booking is None or run.booking.state != "Activating":
        if not _is_bound_again_later(world, run):
            run.activation = None
    elif not activation.only_money and not _undrained(world, activation):
        run.activation = None
        world.book(run, Booking("Blocked", because=run.said), before="")


def _is_bound_again_later(world: World, run: Run) -> bool:
    """Part of it was rejected and is in back-off, or is about to be, once all of it has gone: its
    room is kept for that."""
    return any(each is run for each, _, _ in world.rejected) or any(
        (unit.standing == "live" and unit.fate == "Rejected")
        or (
            unit.standing == "waiting"
            and unit.pause > world.now
            and unit.paused_by == "BindFailing"
            and not unit.blocked_binds
        )
        for unit in run.units.values()
    )


def _undrained(world: World, activation: Activation) -> bool:
    """Victims, or what was ending already in its scope or on its payers' account, are still there:
    their GPUs and their money were counted as back."""
    domains = set(activation.domains.values())
    payers = set(activation.money)
    for envelope in world.envelopes():
        if envelope.name in activation.money:
            payers.update(member for _, _, members in envelope.caps for member in members)
    return any(
        lease.number in activation.victims
        or (
            lease.ending
            and lease.marked <= activation.at
            and (world.nodes[lease.node].domain in domains or lease.payer in payers)
            and is_expected_to_go(world, lease)
        )
        for lease in world.open_leases()
    )
