"""`plan`: what would happen if a run were submitted now. Changes nothing."""

from msgspec.structs import replace

from leasehold.control.questions.answers.reasons import (
    PlaceRow,
    PlanAnswer,
    PlannedCuts,
    PlanPayer,
    ShrunkRun,
    WalkStep,
    no_cuts,
)
from leasehold.control.questions.answers.runs import Chance
from leasehold.control.questions.cover import walk_of
from leasehold.control.questions.explain import time_may_help
from leasehold.control.questions.formats import (
    domain_of,
    instant,
    listed,
    moment,
    places,
    wait_of,
)
from leasehold.control.questions.rehearse import Rehearsed, rehearse
from leasehold.control.questions.subject import Subject
from leasehold.control.running.life import UnitStanding, units_of
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Phase, Relation, Run
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import Instant, plural
from leasehold.core.verdicts import Admitted, PodPlace
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World

_SURE = {
    Confidence.EXACT: "when leases with a known end have ended",
    Confidence.WINDOW: "when a budget window opens",
    Confidence.CUTS: "at the latest, if necessary by preempting other runs",
    Confidence.MONEY: "if budget is available by then; it does not wait for GPUs",
}


def as_submitted(world: World, run: Run, now: Instant) -> tuple[Run, list[str]]:
    """Return the run that a manifest would create, and notes if a run of that name already
    exists."""
    uid = world.uid_of.get(run.key)
    known = world.runs.get(uid) if uid is not None else None
    if known is None:
        return replace(run, uid="(planned)", created=now), []
    if world.open_by_run.get(known.uid):
        note = f"{known.key} exists and holds GPUs: this is the plan for a second run like it"
        return replace(run, uid="(planned)", created=now), [note]
    note = f"{known.key} exists: this is the plan for the run after the change"
    return replace(run, uid=known.uid, created=known.created), [note]


def plan_of(world: World, subject: Subject, now: Instant) -> PlanAnswer:
    """Return the plan of an existing run; if it runs or is over, return its state."""
    run = subject.run
    view = run_view(world, subject.uid, now)
    if run is not None and view.phase is Phase.PENDING and not open_leases(world, run.uid):
        return plan(world, run, now)
    leases = open_leases(world, subject.uid)
    payers: dict[tuple[str, str, Relation], int] = {}
    for lease in leases:
        key = (lease.payer, lease.payer_owner, lease.relation)
        payers[key] = payers.get(key, 0) + lease.gpus
    verdict = "Running" if leases else "Over"
    words = f"{subject.key} is {view.phase}: {view.message}; there is nothing to plan"
    return _answer(
        subject.key,
        subject.owner,
        verdict,
        sentences=[words],
        start=view.started,
        payers=[_payer(*key, gpus) for key, gpus in sorted(payers.items())],
        places=places(world, leases),
    )


def plan(world: World, run: Run, now: Instant) -> PlanAnswer:
    """Return the run's payers, places, earliest start, expected preemptions and odds."""
    turn, outcome = rehearse(world, run, now)
    if outcome.started and outcome.reservation is None:
        return _starts(world, run, outcome, turn.now)
    if outcome.reservation is not None:
        return _reserved(turn, run, outcome)
    refused = outcome.refused
    if run.spec.stop:
        words = "It would not start: spec.stop is true."
        return _answer(run.key, run.spec.owner, "Refused", sentences=[words])
    if refused is None:
        return _answer(run.key, run.spec.owner, "Waits", sentences=[_pause(world, run)])
    verdict = "Waits" if time_may_help(refused) else "Refused"
    return _answer(
        run.key,
        run.spec.owner,
        verdict,
        sentences=[f"It would not start: {refused.says}."],
        reason=str(refused.reason),
        remedies=[refused.remedy],
        walk=walk_of(world, refused.trace),
    )


def _pause(world: World, run: Run) -> str:
    waits = [
        where
        for where in units_of(world, run).values()
        if where.standing is UnitStanding.WAITING and where.retry_at
    ]
    if not waits:
        return "All its groups have started or ended."
    at = min(where.retry_at for where in waits)
    return f"The next try is at {moment(at)}, after {waits[0].why}."


def _starts(world: World, run: Run, outcome: Rehearsed, now: Instant) -> PlanAnswer:
    plans = outcome.started
    payers = _payers_of(plans)
    where = _places_of(world, plans)
    nodes = sorted({each.node for each in where})
    gpus = sum(each.gpus for each in where)
    sentences = [
        f"It would start at once: {plural(gpus, 'GPU')} on {listed(nodes)}.",
        f"Paid by {listed(_paid(payers))}.",
    ]
    if any(each.fills for each in plans):
        sentences.append(
            "It would use spares of other runs, and be preempted when they are needed."
        )
    if outcome.groups_waiting:
        sentences.append(f"{plural(outcome.groups_waiting, 'group')} would wait for free GPUs.")
    return _answer(
        run.key,
        run.spec.owner,
        "StartsNow",
        sentences=sentences,
        start=now,
        confidence=str(Confidence.EXACT),
        payers=payers,
        places=where,
        walk=walk_of(world, plans[0].trace),
    )


def _reserved(turn: Turn, run: Run, outcome: Rehearsed) -> PlanAnswer:
    world, refused = turn.world, outcome.refused
    reservation = outcome.reservation
    assert reservation is not None, run.key
    assert refused is not None, run.key
    payers = _claimed(turn, run) or [_envelope(world, run, key) for key in reservation.payers]
    where = _held(turn, run, reservation)
    sentences = [f"It would not start at once: {refused.says}.", _when(turn, reservation)]
    if outcome.started:
        first = f"{plural(len(outcome.started), 'group')} would start at once; the others wait."
        sentences.insert(0, first)
    if any(each.gpus for each in payers):
        sentences.append(f"Paid by {listed(_paid(payers))}.")
    cuts, told = _cuts(outcome)
    return _answer(
        run.key,
        run.spec.owner,
        "Blocked" if reservation.state is State.BLOCKED else "Reserved",
        sentences=[*sentences, *told],
        reason=str(refused.reason),
        start=None if reservation.state is State.BLOCKED else reservation.starts,
        confidence=str(reservation.confidence),
        deficit=reservation.deficit,
        payers=payers,
        places=where,
        cuts=cuts,
        odds=[Chance(run=name, percent=percent) for name, percent in reservation.odds],
        remedies=[refused.remedy],
        walk=walk_of(world, refused.trace),
    )


def _when(turn: Turn, reservation: Reservation) -> str:
    if reservation.state is State.BLOCKED:
        return f"Nothing is planned until something changes: {reservation.message}."
    if reservation.state is State.ACTIVATING:
        return "Other runs are being preempted for it now; it starts when they have ended."
    wait = wait_of(reservation.starts - turn.now)
    return (
        f"It would start at {moment(reservation.starts)}, in {wait}, "
        f"{_SURE[reservation.confidence]}."
    )


def _cuts(outcome: Rehearsed) -> tuple[PlannedCuts, list[str]]:
    seen, reservation = outcome.preview, outcome.reservation
    if seen is None or reservation is None:
        return no_cuts(), []
    shrunk: dict[str, list[int]] = {}
    for run, group in seen.shrunk:
        shrunk.setdefault(run, []).append(group)
    told = []
    if seen.spares:
        told.append(
            f"If no GPUs are freed before, spares of {plural(seen.spares, 'GPU')} are dropped."
        )
    for run, groups in sorted(shrunk.items()):
        told.append(f"{run} would give up {plural(len(groups), 'group')}.")
    if seen.left_to_lottery:
        odds = [f"{run} with {percent} %" for run, percent in reservation.odds]
        chance = f". Odds to be drawn: {listed(odds)}" if odds else ""
        told.append(f"{plural(seen.left_to_lottery, 'GPU')} would be taken by lottery{chance}.")
    cuts = PlannedCuts(
        spares=seen.spares,
        shrunk=[ShrunkRun(run=run, groups=groups) for run, groups in sorted(shrunk.items())],
        lottery=seen.left_to_lottery,
        domains=list(reservation.domains),
    )
    return cuts, told


def _claimed(turn: Turn, run: Run) -> list[PlanPayer]:
    """Return the payers that the run's plan has on the calendar."""
    found: dict[tuple[str, bool], int] = {}
    for claim in turn.calendar.claims.get(run.uid, ()):
        key = (claim.payer, claim.borrowed)
        found[key] = found.get(key, 0) + claim.gpus
    return [
        replace(_envelope(turn.world, run, payer, borrowed=borrowed), gpus=gpus)
        for (payer, borrowed), gpus in sorted(found.items())
    ]


def _envelope(world: World, run: Run, key: str, *, borrowed: bool | None = None) -> PlanPayer:
    envelope = world.envelopes.get(key)
    owner = envelope.owner if envelope is not None else ""
    family = {run.spec.owner, *world.tree.siblings(run.spec.owner)}
    family.update(each for level in world.tree.ancestors(run.spec.owner) for each in level)
    lent = owner not in family if borrowed is None else borrowed
    if lent:
        relation = Relation.BORROWED
    else:
        relation = Relation.OWNED if owner == run.spec.owner else Relation.SHARED
    return PlanPayer(envelope=key, payer_owner=owner, relation=str(relation), gpus=None)


def _held(turn: Turn, run: Run, reservation: Reservation) -> list[PlaceRow]:
    """Return the nodes that the run's plan has on the calendar."""
    rows: list[PlaceRow] = []
    for node in reservation.nodes:
        gpus = sum(entry.gpus for entry in turn.calendar.entries_of(run.uid) if entry.node == node)
        rows.append(_place(node, domain_of(turn.world, node), gpus, group=None, spare=False))
    return rows


def _payers_of(plans: tuple[Admitted, ...]) -> list[PlanPayer]:
    found: dict[tuple[str, str, Relation], int] = {}
    for plan_ in plans:
        for _, covered in plan_.covered:
            for segment in covered.segments:
                key = (segment.envelope, segment.owner, segment.relation)
                found[key] = found.get(key, 0) + segment.gpus
    return [_payer(*key, gpus) for key, gpus in found.items()]


def _payer(envelope: str, owner: str, relation: Relation, gpus: int) -> PlanPayer:
    return PlanPayer(
        envelope=envelope,
        payer_owner=owner,
        relation=str(relation),
        gpus=gpus,
    )


def _paid(payers: list[PlanPayer]) -> list[str]:
    return [
        f"{each.envelope} ({each.relation}, {plural(each.gpus or 0, 'GPU')})" for each in payers
    ]


def _places_of(world: World, plans: tuple[Admitted, ...]) -> list[PlaceRow]:
    found: dict[tuple[int, bool, str], list[PodPlace]] = {}
    for plan_ in plans:
        for each in plan_.packed.places:
            found.setdefault((each.group, each.spare, each.node), []).append(each)
    return [
        _place(
            node, domain_of(world, node), sum(each.gpus for each in pods), group=group, spare=spare
        )
        for (group, spare, node), pods in sorted(found.items())
    ]


def _place(node: str, domain: str, gpus: int, *, group: int | None, spare: bool) -> PlaceRow:
    return PlaceRow(group=group, node=node, domain=domain, gpus=gpus, spare=spare)


def _answer(
    run: str,
    owner: str,
    verdict: str,
    *,
    sentences: list[str],
    reason: str = "",
    start: Instant | None = None,
    confidence: str = "",
    deficit: int = 0,
    payers: list[PlanPayer] | None = None,
    places: list[PlaceRow] | None = None,
    cuts: PlannedCuts | None = None,
    odds: list[Chance] | None = None,
    remedies: list[str] | None = None,
    walk: list[WalkStep] | None = None,
) -> PlanAnswer:
    return PlanAnswer(
        run=run,
        owner=owner,
        verdict=verdict,
        reason=reason,
        sentences=sentences,
        start=instant(start),
        confidence=confidence,
        deficit=deficit,
        payers=payers or [],
        places=places or [],
        cuts=cuts or no_cuts(),
        odds=odds or [],
        remedies=remedies or [],
        walk=walk or [],
        notes=[],
    )
