"""When a run that cannot start will start: planned when it is announced, and anew at every event.

A plan says when (`forecast`), at what confidence, and what it needs. Starts that need cuts only
ever move earlier; exact ones follow the forecast.
"""

from collections.abc import Callable

from msgspec.structs import replace

from leasehold.control.cuts.reclaim import can_reclaim
from leasehold.control.line.activation import is_sitting_down
from leasehold.control.line.holding import hold_known, hold_needs_cuts
from leasehold.control.line.one_pass import Line
from leasehold.control.reservations import announced, present
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish, admit, as_found_by
from leasehold.core.decisions.cuts import protected_until
from leasehold.core.decisions.forecast import Known, forecast
from leasehold.core.decisions.odds import Preview, preview
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import candidate_pools, fits
from leasehold.core.facts import Record, Run
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import FOREVER, Instant, format_instant, plural
from leasehold.core.verdicts import Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World


class Plan(Record):
    """What a reservation says now."""

    starts: Instant
    confidence: Confidence
    known: Known | None = None
    preview: Preview | None = None
    awaits_immunity: bool = False  # others' protection from lotteries has to end first
    unchanged: bool = False  # too many others were thought over in this turn already
    otherwise: "Plan | None" = (
        None  # a start that is known, if cuts are no help when its time comes
    )


def lead(world: World, run: Run) -> int:
    """From "cannot start" to a start that may cut; doubles for every time it was cut itself."""
    policy = world.policy
    book = world.books.get(run.uid)
    cuts = len(book.cuts) if book else 0
    return min(policy.activation_lead << min(cuts, 32), policy.activation_lead_max)


def write_plan(turn: Turn, wish: Wish, refused: Refused, plan: Plan | None) -> Reservation | None:
    """Write the plan if it changed, and put what it holds on the agenda."""
    run = wish.run
    old = present(turn.world, run)
    if plan is None:
        assert old is not None, run.key
        _still_blocked(turn, old, refused)
        return None
    reservation = reservation_for(turn, wish, refused, plan)
    memory = turn.world.memory
    if old is None or old.state is State.BLOCKED:
        word = f"starts at {format_instant(plan.starts)}, {plan.confidence}"
        turn.tell("Run", run.key, Told.RESERVED, word)
        memory.forget_put_off(run.uid)
    before = _kept_start(turn, old)
    if before is not None and plan.starts > before:
        memory.note_put_off(run.uid, turn.now, before)
    if reservation != old:
        turn.reserve(reservation)
    if plan.preview is not None:
        memory.note_room(run.uid, (plan.preview.dropped, plan.preview.pods))
    hold_plan(turn, wish, plan)
    turn.planned[reservation.subject] = None
    turn.wake(plan.starts)
    return reservation


def reservation_for(turn: Turn, wish: Wish, refused: Refused, plan: Plan) -> Reservation:
    """The plan as an object: of its present wait, or announced in the turn's batch."""
    old = present(turn.world, wish.run)
    is_new = old is None or old.state is State.BLOCKED
    known = announced(turn, wish.run) if old is None or is_new else old
    return _written(turn, wish, refused, plan, known)


def _still_blocked(turn: Turn, old: Reservation, refused: Refused) -> None:
    blocked = replace(old, reason=str(refused.reason), message=refused.remedy)
    if blocked != old:
        turn.reserve(blocked)


def plan_for(turn: Turn, wish: Wish, refused: Refused, line: Line) -> Plan | None:
    """The newest plan; None for a blocked run that nothing has changed for."""
    world, now = turn.world, turn.now
    old = present(world, wish.run)
    outlook = line.outlook(turn, wish)
    known = None
    not_before = line.not_before(turn, wish.run)
    if not_before < FOREVER:
        known = forecast(
            world,
            wish,
            turn.agenda,
            outlook=outlook,
            refused=refused,
            now=now,
            not_before=not_before,
        )
    line.note_start(turn, wish.run, known.at if known else None)
    if wish.run.spec.tolerations:
        line.forget_outlooks()
    soonest = now + lead(world, wish.run)
    kept = _kept_start(turn, old)
    if kept == soonest:
        kept = None  # it was announced this very instant, when what ends now was there still
    exact = None
    if known is not None:
        latest = max(wish.run.created + world.policy.reservation_max_wait, soonest)
        if known.at <= latest or not _lacks_gpus(turn, wish, at=latest):
            aligned = Confidence.WINDOW if known.window_aligned else Confidence.EXACT
            exact = Plan(starts=known.at, confidence=aligned, known=known)
        if exact is not None and (kept is None or known.at <= kept):
            return exact
        soonest = max(soonest, latest)
    starts = soonest if kept is None else min(kept, soonest)
    is_blocked = old is not None and old.state is State.BLOCKED
    awaited = old is not None and kept is not None and old.immunity_since > 0
    if refused.reason.is_about_money and _has_gpus(turn, wish):
        if is_blocked and not _would_be_helped(turn, wish):
            return None
        return Plan(starts=starts, confidence=Confidence.MONEY)
    if kept is not None and starts > now and not line.may_preview():
        # Whoever only asks finds those ahead as they were last planned.
        unmoved = kept if line.rehearses else starts
        return Plan(starts=unmoved, confidence=Confidence.CUTS, unchanged=True)
    unknown = kept is None or old is None or not old.odds
    found = _first_that_cuts(
        turn, wish, starts, soonest, may_sample=lambda: unknown and line.may_sample(turn)
    )
    if kept is not None and found is not None and _may_stand(world, kept, found):
        return Plan(starts=kept, confidence=Confidence.CUTS, unchanged=True)
    # Until others may be drawn.
    waits = found is not None and found[0] > starts and found[0] != soonest
    if is_blocked and not waits and not _would_be_helped(turn, wish):
        return None
    if found is None:
        # It is no reason to come earlier that cuts would not help any more.
        unmoved = starts if kept is None else kept
        return Plan(
            starts=unmoved, confidence=Confidence.CUTS, awaits_immunity=awaited, otherwise=exact
        )
    if exact is not None and exact.starts <= found[0]:
        return exact  # nobody waits until others may be cut who need cut nobody
    waits = waits or (awaited and kept == found[0])
    return Plan(
        starts=found[0], confidence=Confidence.CUTS, preview=found[1], awaits_immunity=waits
    )


def _may_stand(world: World, kept: Instant, found: tuple[Instant, Preview]) -> bool:
    """Whether a start moves later only for somebody whom its nodes have not taken yet: once they
    have, it is protected; if they do not, nothing has changed."""
    return found[0] > kept and is_sitting_down(world, found[1].site.domains)


def _lacks_gpus(turn: Turn, wish: Wish, *, at: Instant) -> bool:
    """Whether it is for want of GPUs, not of money, that it does not start then."""
    world, now = turn.world, turn.now
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    nodes = [name for pool in pools for name in pool.nodes]
    mark = world.what_if.mark()
    ended = leases_ended_by(world, nodes, at, now)
    for name in ended:
        world.fleet.give(world.leases[name])
    answer = admit(world, wish, turn.agenda, start=at, now=now, gone=frozenset(ended))
    world.what_if.undo(mark)
    return isinstance(answer, Refused) and not answer.reason.is_about_money


def _would_be_helped(turn: Turn, wish: Wish) -> bool:
    """Whether one that is blocked would be helped now, by cuts, or is kept out by nothing but
    immunity from lotteries, which may be over before it has waited longest; or, an owner whose
    family has its money, by taking that back first."""
    now = turn.now
    seen = preview(turn.world, wish, turn.agenda, at=now, now=now, may_sample=lambda: False)
    if not isinstance(seen, Refused):
        return True
    after = now + lead(turn.world, wish.run)
    if _once_protection_ends(turn, wish, after, may_sample=lambda: False) is not None:
        return True
    return can_reclaim(turn, wish)


def _first_that_cuts(
    turn: Turn,
    wish: Wish,
    starts: Instant,
    soonest: Instant,
    *,
    may_sample: Callable[[], bool],
) -> tuple[Instant, Preview] | None:
    """What resolve would do then. Whoever is kept out by nothing but immunity from lotteries starts
    when enough of it has ended, or as soon as one could be announced for today: who is immune may
    have ended by then."""
    world, now = turn.world, turn.now
    at = max(starts, now)
    seen = preview(world, wish, turn.agenda, at=at, now=now, may_sample=may_sample)
    if not isinstance(seen, Refused):
        return starts, seen
    return _once_protection_ends(turn, wish, at, soonest, may_sample=may_sample)


def _once_protection_ends(
    turn: Turn,
    wish: Wish,
    after: Instant,
    soonest: Instant = 0,
    *,
    may_sample: Callable[[], bool],
) -> tuple[Instant, Preview] | None:
    world, now = turn.world, turn.now
    instants = set(_ends_of_protection(world, wish, after=after))
    if after < soonest < max(instants, default=0):
        instants.add(soonest)
    for at in sorted(instants):
        seen = preview(world, wish, turn.agenda, at=at, now=now, may_sample=may_sample)
        if not isinstance(seen, Refused):
            return at, seen
    return None


def _ends_of_protection(world: World, wish: Wish, *, after: Instant) -> list[Instant]:
    """When runs where it may go can be drawn again, in order."""
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    leases = (
        world.leases[name]
        for pool in pools
        for node in pool.nodes
        for name in world.open_by_node.get(node, ())
    )
    runs = (world.runs.get(uid) for uid in sorted({lease.uid for lease in leases}))
    uid = wish.run.uid
    ends = {protected_until(world, run, against=uid) for run in runs if run is not None}
    return sorted(end for end in ends if end is not None and end > after)


def _kept_start(turn: Turn, old: Reservation | None) -> Instant | None:
    """A start that may cut, or needs money, only moves earlier. One that was put off in the middle
    of this instant stands as it was before: what happens in an instant happens at once."""
    if old is None or old.state is not State.PENDING:
        return None
    starts = turn.world.memory.start_before(old.uid, turn.now) or old.starts
    return starts if old.confidence in (Confidence.CUTS, Confidence.MONEY) else None


def _has_gpus(turn: Turn, wish: Wish) -> bool:
    """Whether money is all it is short of."""
    world = turn.world
    mark = world.what_if.mark()
    as_found_by(world, wish, turn.agenda, start=turn.now)
    answer = fits(world, wish.want, locations_for(world, wish.run.spec))
    world.what_if.undo(mark)
    return answer


def _written(turn: Turn, wish: Wish, refused: Refused, plan: Plan, old: Reservation) -> Reservation:
    """The plan as an object says it."""
    if plan.unchanged:
        return replace(old, starts=plan.starts, confidence=plan.confidence)
    known, seen = plan.known, plan.preview
    nodes = sorted({each.node for each in known.plan.packed.places}) if known else []
    fleet = turn.world.fleet
    domains = sorted({fleet.nodes[name].node.domain for name in nodes})
    payers = (
        [seg.envelope for _, covered in known.plan.covered for seg in covered.segments]
        if (known)
        else [step.envelope for step in refused.trace if step.taken]
    )
    if seen is not None and seen.odds is not None:
        odds = seen.odds
    else:
        odds = old.odds if plan.confidence is Confidence.CUTS else ()
    return replace(
        old,
        reason=str(refused.reason),
        message=refused.remedy,
        starts=plan.starts,
        confidence=plan.confidence,
        deficit=seen.site.deficit if seen else _deficit(turn, wish),
        domains=_domains(plan, old) if known is None else tuple(domains),
        nodes=tuple(nodes),
        payers=tuple(sorted(set(payers))),
        releases=tuple((name, at) for at, name in known.releases) if known else (),
        remedies=_remedies(seen, refused),
        odds=odds,
        immunity_since=(old.immunity_since or turn.now) if plan.awaits_immunity else 0,
    )


def _domains(plan: Plan, old: Reservation) -> tuple[str, ...]:
    """Of a start that is not known: where it would cut. If that is no help for the moment, whoever
    waits for immunity to end does so where it did, and for nobody who comes behind it."""
    if plan.preview is not None:
        return plan.preview.site.domains
    return old.domains if plan.awaits_immunity else ()


def _deficit(turn: Turn, wish: Wish) -> int:
    """Pods without a place now, in GPUs."""
    want = wish.want
    fleet = turn.world.fleet
    pools = candidate_pools(fleet, want, locations_for(turn.world, wish.run.spec))
    room = sum(pool.room(want.pod_gpus) for pool in pools)
    return max(0, want.gpus // want.pod_gpus - room) * want.pod_gpus


def _remedies(seen: Preview | None, refused: Refused) -> tuple[str, ...]:
    if seen is None:
        return (refused.remedy,)
    lines = []
    if seen.spares:
        lines.append(f"dropping spares would free {plural(seen.spares, 'GPU')}")
    for run in sorted({run for run, _ in seen.shrunk}):
        groups = ", ".join(str(group) for each, group in seen.shrunk if each == run)
        lines.append(f"{run} would give up groups {groups}")
    if seen.left_to_lottery:
        left = seen.left_to_lottery
        verb = "is" if left == 1 else "are"
        lines.append(f"{plural(left, 'GPU')} {verb} left to the lottery")
    return tuple(lines)


def hold_plan(turn: Turn, wish: Wish, plan: Plan) -> None:
    """Places and money, from the start on; a start that needs cuts keeps what is free before."""
    uid = wish.run.uid
    dropped, pods = turn.world.memory.room_of(uid)
    if plan.known is not None:
        hold_known(turn, wish, plan.known)
        return
    if plan.preview is not None:
        domains = plan.preview.site.domains
        dropped, pods = plan.preview.dropped, plan.preview.pods
    elif plan.unchanged:
        old = present(turn.world, wish.run)
        assert old is not None, wish.run.key
        domains = old.domains
    else:
        return
    hold_needs_cuts(turn, wish, domains, start=plan.starts, dropped=dropped, pods=pods)
