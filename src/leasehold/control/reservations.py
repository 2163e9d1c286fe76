"""Reservations: announced when a run cannot start, planned anew at every event, kept for audit.

A plan says when (`forecast`), at what confidence, and what it holds meanwhile. Starts that need cuts
only ever move earlier; exact ones follow the forecast.
"""

from msgspec.structs import replace

from leasehold.control.elastic import in_order
from leasehold.control.turn import Turn
from leasehold.control.wishes import groups_short_of_minimum, waiting_groups, wish_for
from leasehold.core.admit import Wish, ask_for, claims_of
from leasehold.core.agenda import Hold
from leasehold.core.cover import cover
from leasehold.core.facts import Confidence, Record, Reservation, Run, State
from leasehold.core.forecast import Known, forecast
from leasehold.core.objects.reservation import reservation_name
from leasehold.core.odds import Preview, preview
from leasehold.core.outlook import Ends, Outlook
from leasehold.core.pack import candidate_pools, fits
from leasehold.core.policy import Policy
from leasehold.core.units import FOREVER, SECOND, Instant, format_instant
from leasehold.core.verdicts import Covered, Refused
from leasehold.core.width import places_for
from leasehold.core.world import World

_PREVIEWS_PER_TURN = 32
_SAMPLES_PER_TURN = 4
_OPEN = (State.PENDING, State.ACTIVATING, State.BLOCKED)


class Line:
    """Who is planned: so many of an owner, so many in all; those short of money take no place."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._total = 0
        self._by_owner: dict[str, int] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self._ends: Ends = {}
        self._seen = -1  # leases that the outlooks know of
        self._previews = 0
        self._samples = 0

    def has_room(self, run: Run, refused: Refused) -> bool:
        if refused.reason.is_about_money:
            return True
        owner = run.spec.owner
        mine = self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self._total += 1
        return (
            mine <= self._policy.reservation_depth_per_owner
            and self._total <= self._policy.reservation_depth
        )

    def place_of(self, run: Run) -> str:
        """Where the run that was asked about last stands, for a person."""
        owner, policy = run.spec.owner, self._policy
        return (
            f"number {self._by_owner[owner]} of {owner} and {self._total} of all in line, of "
            f"which the first {policy.reservation_depth_per_owner} of an owner and "
            f"{policy.reservation_depth} of all are planned"
        )

    def may_preview(self, turn: Turn) -> bool:
        """Running resolve to see what it would do is dear: so many a turn, the others later."""
        self._previews += 1
        return self._within(turn, self._previews, _PREVIEWS_PER_TURN)

    def may_sample(self, turn: Turn) -> bool:
        """Drawing a thousand seeds is dearer still."""
        self._samples += 1
        return self._within(turn, self._samples, _SAMPLES_PER_TURN)

    def _within(self, turn: Turn, count: int, most: int) -> bool:
        if count > most:
            turn.wake(turn.now + SECOND)
        return count <= most

    def forget_outlooks(self) -> None:
        """What one run tolerates is not there for the next."""
        self._outlooks.clear()
        self._ends.clear()

    def outlook(self, turn: Turn, wish: Wish) -> Outlook:
        """Made once per pass and pod size; corrected for what plans have been put in front."""
        world, agenda = turn.world, turn.agenda
        if self._seen != len(world.leases) or wish.run.spec.tolerations:
            self.forget_outlooks()
            self._seen = len(world.leases)
        for node in agenda.changed:
            for known in self._outlooks.values():
                known.correct(node)
        agenda.changed.clear()
        key = (wish.want.flavor, wish.want.pod_gpus)
        if key not in self._outlooks:
            mark = world.journal.mark()
            world.fleet.tolerate(wish.run.spec.tolerations)
            self._outlooks[key] = Outlook(
                world, agenda, flavor=key[0], gpus=key[1], now=turn.now, ends=self._ends
            )
            world.journal.undo(mark)
        return self._outlooks[key]


class Plan(Record):
    """What a reservation says now."""

    starts: Instant
    confidence: Confidence
    known: Known | None = None
    preview: Preview | None = None
    unchanged: bool = False  # too many others were thought over in this turn already


def present(world: World, run: Run) -> Reservation | None:
    """The reservation of its present wait, if it has one."""
    subject = world.reservation_of.get(run.uid)
    reservation = world.reservations[subject] if subject else None
    return reservation if reservation is not None and reservation.state in _OPEN else None


def release(turn: Turn, run: Run) -> None:
    reservation = present(turn.world, run)
    if reservation is not None:
        turn.reserve(replace(reservation, state=State.RELEASED, since=turn.now, reason="Started"))


def cancel_reservation(turn: Turn, run: Run, why: str) -> None:
    reservation = present(turn.world, run)
    if reservation is not None:
        turn.reserve(
            replace(reservation, state=State.CANCELED, since=turn.now, reason="Canceled",
                    message=why)
        )  # fmt: skip


def block(turn: Turn, run: Run, refused: Refused) -> None:
    """It holds nothing, and is thought over again at every change."""
    reservation = present(turn.world, run)
    turn.agenda.forget(run.uid)
    if reservation is None:
        reservation = _announced(turn, run)
    blocked = replace(
        reservation, state=State.BLOCKED, reason=str(refused.reason), message=refused.remedy
    )
    if blocked != reservation:
        turn.reserve(replace(blocked, since=turn.now))
        if reservation.state is not State.BLOCKED:
            turn.tell("Run", run.key, "Blocked", refused.says)


def lead(world: World, run: Run) -> int:
    """From "cannot start" to a start that may cut; doubles for every time it was cut itself."""
    policy = world.policy
    book = world.books.get(run.uid)
    cuts = len(book.cuts) if book else 0
    return min(policy.activation_lead << min(cuts, 32), policy.activation_lead_max)


def plan_start(turn: Turn, wish: Wish, refused: Refused, line: Line) -> Reservation | None:
    """Plan it, write the plan if it changed, and put what it holds on the agenda."""
    run = wish.run
    old = present(turn.world, run)
    turn.agenda.forget(run.uid)
    plan = _plan(turn, wish, refused, line, old)
    if plan is None:
        assert old is not None
        _still_blocked(turn, old, refused)
        return None
    if old is None or old.state is State.BLOCKED:
        reservation = _announced(turn, run)
        word = f"starts at {format_instant(plan.starts)}, {plan.confidence}"
        turn.tell("Run", run.key, "Reserved", word)
    else:
        reservation = old
    reservation = _written(turn, wish, refused, plan, reservation)
    if reservation != old:
        turn.reserve(reservation)
    _hold(turn, wish, plan)
    turn.wake(plan.starts)
    return reservation


def _still_blocked(turn: Turn, old: Reservation, refused: Refused) -> None:
    blocked = replace(old, reason=str(refused.reason), message=refused.remedy)
    if blocked != old:
        turn.reserve(blocked)


def _announced(turn: Turn, run: Run) -> Reservation:
    """A new reservation: its subject and the commitment to its nonce go into the ledger."""
    name = reservation_name(run.name, turn.seq)
    commitment = turn.announce(f"{run.namespace}/{name}")
    return Reservation(
        namespace=run.namespace,
        name=name,
        run=run.name,
        uid=run.uid,
        batch=turn.seq,
        announced=turn.now,
        state=State.PENDING,
        commitment=commitment,
        since=turn.now,
    )


def _plan(
    turn: Turn, wish: Wish, refused: Refused, line: Line, old: Reservation | None
) -> Plan | None:
    """The newest plan; None for a blocked run that nothing has changed for."""
    world, now = turn.world, turn.now
    outlook = line.outlook(turn, wish)
    known = forecast(world, wish, turn.agenda, outlook=outlook, refused=refused, now=now)
    if wish.run.spec.tolerations:
        line.forget_outlooks()
    soonest = now + lead(world, wish.run)
    kept = _kept_start(old)
    if known is not None:
        patience = max(wish.run.created + world.policy.reservation_max_wait, soonest)
        patient = refused.reason.is_about_money or known.at <= patience
        if patient and (kept is None or known.at <= kept):
            aligned = Confidence.WINDOW if known.window_aligned else Confidence.EXACT
            return Plan(starts=known.at, confidence=aligned, known=known)
        soonest = max(soonest, patience)
    starts = soonest if kept is None else min(kept, soonest)
    if refused.reason.is_about_money and _has_gpus(turn, wish):
        if old is not None and old.state is State.BLOCKED and not _may_reclaim(turn, wish):
            return None
        return Plan(starts=starts, confidence=Confidence.MONEY)
    if kept is not None and starts > now and not line.may_preview(turn):
        return Plan(starts=starts, confidence=Confidence.CUTS, unchanged=True)
    seen = preview(world, wish, turn.agenda, now=now, sample=kept is None and line.may_sample(turn))
    if isinstance(seen, Refused):
        if old is not None and old.state is State.BLOCKED:
            return None
        return Plan(starts=starts, confidence=Confidence.CUTS)
    return Plan(starts=starts, confidence=Confidence.CUTS, preview=seen)


def _may_reclaim(turn: Turn, wish: Wish) -> bool:
    from leasehold.control.reclaim import can_reclaim

    return can_reclaim(turn, wish)


def _kept_start(old: Reservation | None) -> Instant | None:
    """A start that may cut, or needs money, only moves earlier."""
    if old is None or old.state is not State.PENDING:
        return None
    return old.starts if old.confidence in (Confidence.CUTS, Confidence.MONEY) else None


def _has_gpus(turn: Turn, wish: Wish) -> bool:
    """Whether money is all it is short of."""
    world = turn.world
    mark = world.journal.mark()
    end = min(FOREVER, turn.now + wish.end_after)
    turn.agenda.apply(world, wish.run.uid, start=turn.now, end=end, now=turn.now)
    if wish.run.spec.tolerations:
        world.fleet.tolerate(wish.run.spec.tolerations)
    answer = fits(world, wish.want, places_for(world, wish.run.spec))
    world.journal.undo(mark)
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
        domains=seen.site.domains if seen else tuple(domains),
        nodes=tuple(nodes),
        payers=tuple(sorted(set(payers))),
        releases=tuple((name, at) for at, name in known.releases) if known else (),
        remedies=_remedies(seen, refused),
        odds=odds,
    )


def _deficit(turn: Turn, wish: Wish) -> int:
    """Pods without a place now, in GPUs."""
    want = wish.want
    fleet = turn.world.fleet
    pools = candidate_pools(fleet, want, places_for(turn.world, wish.run.spec))
    room = sum(pool.room(want.pod_gpus) for pool in pools)
    return max(0, want.gpus // want.pod_gpus - room) * want.pod_gpus


def _remedies(seen: Preview | None, refused: Refused) -> tuple[str, ...]:
    if seen is None:
        return (refused.remedy,)
    lines = []
    if seen.spares:
        lines.append(f"dropping spares would free {seen.spares} GPUs")
    for run in sorted({run for run, _ in seen.shrunk}):
        groups = ", ".join(str(group) for each, group in seen.shrunk if each == run)
        lines.append(f"{run} would give up groups {groups}")
    if seen.left_to_lottery:
        lines.append(f"{seen.left_to_lottery} GPUs are left to the lottery")
    return tuple(lines)


def _hold(turn: Turn, wish: Wish, plan: Plan) -> None:
    """Places and money, from the start on; a start that needs cuts keeps what is free at once."""
    uid = wish.run.uid
    if plan.known is not None:
        by_node: dict[str, int] = {}
        for each in plan.known.plan.packed.places:
            by_node[each.node] = by_node.get(each.node, 0) + each.gpus
        end = min(FOREVER, plan.starts + wish.end_after)
        turn.agenda.hold_later(
            Hold(uid=uid, node=node, gpus=gpus, start=plan.starts, end=end)
            for node, gpus in sorted(by_node.items())
        )
        claims = [
            claim
            for _, covered in plan.known.plan.covered
            for claim in claims_of(turn.world, wish, covered, start=plan.starts)
        ]
        turn.agenda.claim(uid, claims)
    elif plan.unchanged:
        old = present(turn.world, wish.run)
        assert old is not None, wish.run.key
        keep_free_gpus(turn, wish, old.domains, start=plan.starts)
        claim_money(turn, wish, old.domains, start=max(turn.now, plan.starts))
    elif plan.preview is not None:
        keep_free_gpus(turn, wish, plan.preview.site.domains, start=plan.starts)
        claim_money(turn, wish, plan.preview.site.domains, start=max(turn.now, plan.starts))


def keep_free_gpus(turn: Turn, wish: Wish, domains: tuple[str, ...], *, start: Instant) -> None:
    """Hold the free GPUs of these domains from everybody, but no more than the run needs."""
    world = turn.world
    mark = world.journal.mark()
    turn.agenda.apply(world, wish.run.uid, start=turn.now, end=FOREVER, now=turn.now)
    left = wish.want.gpus
    end = min(FOREVER, max(turn.now, start) + wish.end_after)
    holds = []
    pools = [world.fleet.pools.get((wish.want.flavor, domain)) for domain in domains]
    free = [(-world.fleet.nodes[name].free, name) for pool in pools if pool for name in pool.nodes]
    for gpus, name in sorted(free):
        take = min(left, -gpus)
        if take:
            holds.append(Hold(uid=wish.run.uid, node=name, gpus=take, start=turn.now, end=end))
            left -= take
    world.journal.undo(mark)
    turn.agenda.hold_firmly(wish.run.uid, holds)


def claim_money(turn: Turn, wish: Wish, domains: tuple[str, ...], *, start: Instant) -> None:
    """Keep the payers' money for a run that will go to these domains, if they can pay at all."""
    places = sorted({(d.split("/")[0], d.split("/")[1]) for d in domains})
    for place in places:
        ask = ask_for(wish, place, wish.want.gpus, start=start, borrowed=wish.borrowed_already)
        covered = cover(turn.world, ask, now=turn.now)
        if isinstance(covered, Covered):
            turn.agenda.claim(wish.run.uid, claims_of(turn.world, wish, covered, start=start))
            return


def hold_for_cuts(turn: Turn) -> None:
    """Before anybody is considered: what announced needs-cuts starts keep from everybody.

    Who announced first keeps first: a run ahead in line that is announced later is somebody, too.
    """
    world = turn.world
    announced = [
        (reservation, run)
        for run in in_order(world, world.pending)
        if (reservation := present(world, run)) is not None
        and reservation.state is State.PENDING
        and reservation.confidence is Confidence.CUTS
        and reservation.domains
        and run.uid not in turn.quarantined
    ]
    for reservation, run in sorted(announced, key=lambda pair: pair[0].batch):
        waiting = waiting_groups(world, run, turn.now)
        groups = groups_short_of_minimum(world, run, waiting)
        if groups:
            wish = wish_for(world, run, groups)
            keep_free_gpus(turn, wish, reservation.domains, start=reservation.starts)
