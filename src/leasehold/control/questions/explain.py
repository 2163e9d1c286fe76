"""`explain`: why a run waits, why these payers and places, why it was preempted, and what to do."""

from leasehold.control.questions.answers.money import WhoPaysAnswer
from leasehold.control.questions.answers.reasons import (
    AttemptRow,
    CutRow,
    ExplainAnswer,
    PlaceRow,
    RefusalRow,
)
from leasehold.control.questions.cover import says, walk_of
from leasehold.control.questions.explain_drain import drain_words
from leasehold.control.questions.explain_preemption import Resolutions, cuts, no_resolutions
from leasehold.control.questions.formats import instant, listed, moment, places, wait_of
from leasehold.control.questions.passed_by import Passing
from leasehold.control.questions.payer_warnings import money_ahead
from leasehold.control.questions.reservations import reservation_row
from leasehold.control.questions.subject import Subject
from leasehold.control.questions.who_pays import who_pays
from leasehold.control.reservations import present
from leasehold.control.running.life import UnitStanding, units_of
from leasehold.control.scheduling.requests import all_waiting_groups, start_request_for
from leasehold.control.views.numbers import RunView, run_view
from leasehold.core.facts import (
    Cause,
    Closed,
    Failed,
    Gang,
    Opened,
    Phase,
    PodPhase,
    Role,
    Run,
)
from leasehold.core.placement.pack import pack
from leasehold.core.placement.resize import may_resize
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import Instant, format_span, plural
from leasehold.core.verdicts import CoverStep, Refusal, Refused
from leasehold.core.world.book import WHOLE
from leasehold.core.world.width import active_gpus, desired_gpus, locations_for, open_leases
from leasehold.core.world.world import World

_SURE = {
    Confidence.EXACT: "leases with a known end will have freed enough GPUs",
    Confidence.WINDOW: "a budget window opens",
    Confidence.CUTS: "other runs are preempted for it then, unless enough GPUs are free before",
    Confidence.MONEY: "it starts then if budget is available; it does not wait for GPUs",
}

_ENDING = {str(Closed.RANDOM_PREEMPT), str(Closed.RECLAIMED)}  # preemptions that end what they take
_CUT = (Failed.RANDOM_PREEMPT, Failed.RECLAIMED, Failed.OVERDRAWN)
_FAILURES_MAX = 5
_PASSING = (Refusal.HELD, Refusal.RETRYING, Refusal.BIND_FAILING)


def explain(
    world: World, subject: Subject, now: Instant, *, archived: Resolutions = no_resolutions
) -> ExplainAnswer:
    """Explain everything known about how the run came into its present state."""
    view = run_view(world, subject.uid, now)
    run = subject.run
    refused = world.memory.refusals.get(subject.uid) if view.phase is Phase.PENDING else None
    reservation = present(world, run) if run is not None else None
    lost = cuts(world, subject, archived)
    paid = who_pays(world, subject, now)
    trace = world.memory.traces.get(subject.uid, ())
    where = places(world, open_leases(world, subject.uid))
    sentences = [_summary(subject.key, view)]
    sentences += _stopping(world, subject)
    sentences += _failures(world, subject)
    planned = (
        None if reservation is None else reservation_row(world, reservation, now, Passing(world))
    )
    sentences += _waiting(refused, reservation, now)
    sentences += _room_now(world, run, refused)
    sentences += [
        f"{each.run} was backfilled ahead of it with {plural(each.gpus, 'GPU')}: {each.says}."
        for each in (planned.passed_by if planned is not None else ())
    ]
    sentences += _asked(world, trace)
    sentences += _money(paid)
    sentences += money_ahead(world, subject, now)
    sentences += _here(run, where)
    sentences += _swaps(subject)
    sentences += _resizing(world, run, now)
    sentences += drain_words(world, subject)
    sentences += [words for cut in lost for words in cut.sentences]
    sentences += _aftermath(world, run, lost)
    attempts = _attempts(world, subject)
    return ExplainAnswer(
        run=subject.key,
        owner=subject.owner,
        phase=str(view.phase),
        reason=view.because,
        message=view.message,
        sentences=sentences,
        refusal=None if refused is None else _refusal(refused),
        reservation=planned,
        payers=paid.payers,
        walk=walk_of(world, trace),
        places=where,
        cuts=lost,
        attempts=attempts,
        remedies=_remedies(run, view, refused, lost, is_unstarted=_is_unstarted(attempts)),
    )


def _summary(key: str, view: RunView) -> str:
    because = "" if view.because == str(view.phase) else f" ({view.because})"
    # the hint to `explain` is useless within `explain`
    message = view.message.partition("; `explain`")[0]
    return f"{key} is {view.phase}{because}: {message}."


def _resizing(world: World, run: Run | None, now: Instant) -> list[str]:
    """Say when an elastic run is resized next, if it must wait until `resize.interval` has
    passed."""
    if run is None or run.spec.malleable is None or run.spec.gang is Gang.GROUP:
        return []
    width, desired = active_gpus(world, run.uid), desired_gpus(run.spec)
    at = may_resize(world, run.uid, now)
    if not width or width == desired or at <= now:
        return []
    return [
        f"It should have {plural(desired, 'GPU')} and has {width}. Its last resize was less than "
        f"resize.interval ({format_span(world.policy.resize_interval)}) ago, so the next one "
        f"starts at {moment(at)} at the earliest."
    ]


def _stopping(world: World, subject: Subject) -> list[str]:
    """Describe the leases that are ending and whose pods still exist."""
    gpus: dict[str, int] = {}
    due: dict[str, Instant] = {}
    for lease in open_leases(world, subject.uid):
        if lease.ending is not None:
            reason = str(lease.ending.why.reason)
            gpus[reason] = gpus.get(reason, 0) + lease.gpus
            due[reason] = max(due.get(reason, 0), lease.ending.deadline)
    return [
        f"It is giving up {plural(count, 'GPU')} ({reason}); processes that still run at "
        f"{moment(due[reason])} are killed."
        for reason, count in sorted(gpus.items())
    ]


def _failures(world: World, subject: Subject) -> list[str]:
    """Describe the failed pods that still exist, in the words of their nodes."""
    words = []
    for pod in subject.pods(world):
        if pod.phase is not PodPhase.FAILED:
            continue
        code = "an unknown exit code" if pod.exit_code is None else f"exit code {pod.exit_code}"
        how = f"was rejected by {pod.node}" if pod.reason else f"ended with {code} on {pod.node}"
        said = f": {pod.said}" if pod.said else ""
        words.append(f"Pod {pod.name} (group {pod.group}, pod {pod.index}) {how}{said}.")
    return words[:_FAILURES_MAX] + (
        [f"{len(words) - _FAILURES_MAX} more pods failed."] if len(words) > _FAILURES_MAX else []
    )


def time_may_help(refused: Refused) -> bool:
    """Return whether the refusal may disappear without anybody acting.

    The reasons for pauses and holds disappear by themselves.
    """
    return refused.time_may_help or refused.reason in _PASSING


def _refusal(refused: Refused) -> RefusalRow:
    return RefusalRow(
        reason=str(refused.reason),
        subject=refused.subject,
        asked=refused.asked,
        short_by=refused.short_by,
        time_may_help=time_may_help(refused),
        remedy=refused.remedy,
    )


def _waiting(refused: Refused | None, reservation: Reservation | None, now: Instant) -> list[str]:
    words = []
    if refused is not None and refused.asked:
        hope = (
            "it may start without a change"
            if time_may_help(refused)
            else "it cannot start without a change"
        )
        words.append(
            f"It requested {plural(refused.asked, 'GPU')} and was short of {refused.short_by}; "
            f"{hope}."
        )
    if reservation is None:
        return words
    if reservation.state is State.BLOCKED:
        words.append(f"Its reservation {reservation.name} is Blocked: {reservation.message}.")
    elif reservation.state is State.ACTIVATING:
        words.append(f"Other runs are being preempted for it (reservation {reservation.name}).")
    else:
        wait = wait_of(reservation.starts - now)
        words.append(
            f"It is planned to start at {moment(reservation.starts)}, in {wait}: "
            f"{_SURE[reservation.confidence]} (reservation {reservation.name})."
        )
        told = () if refused is None else (refused.remedy,)
        if reservation.confidence is Confidence.CUTS and reservation.remedies not in ((), told):
            words.append(f"As things stand, {listed(reservation.remedies)}.")
        odds = [f"{run} with {percent} %" for run, percent in reservation.odds]
        if odds:
            words.append(f"If a lottery is needed, the odds to be drawn are: {listed(odds)}.")
    return words


def _room_now(world: World, run: Run | None, refused: Refused | None) -> list[str]:
    """Say which GPUs are free for the run at present.

    A status does not say that, because the status would change all the time.
    """
    if run is None or refused is None or not refused.reason.is_about_room:
        return []
    groups = all_waiting_groups(world, run)
    if not groups:
        return []
    with world.what_if.opened():
        world.fleet.tolerate(run.spec.tolerations)
        request = start_request_for(world, run, groups)
        answer = pack(world, request.placement, locations_for(world, run.spec))
    if isinstance(answer, Refused):
        return [f"Right now {answer.now}."] if answer.now else []
    gpus = plural(request.placement.gpus, "GPU")
    return [f"Right now there is room for {gpus}, but runs ahead of it are planned on these GPUs."]


def _asked(world: World, trace: tuple[CoverStep, ...]) -> list[str]:
    """Explain the choice of payers by the envelopes asked, unless the first one paid for
    everything."""
    if len(trace) < 2 and not any(step.held_back for step in trace):
        return []
    steps = [f"{step.envelope} ({step.relation}) {says(world, step)}" for step in trace]
    return [f"Envelopes asked to pay, in this order: {'; '.join(steps)}."]


def _swaps(subject: Subject) -> list[str]:
    """Describe each pod lost with a node, and the spare that took over."""
    words = []
    leases = subject.every_lease()
    for lost in leases:
        closed = lost.closed
        if closed is None or lost.role is Role.SPARE:
            continue
        if closed.why.reason is not Closed.NODE_FAILURE:
            continue
        heirs = [
            lease.node
            for lease in leases
            if lease.reason is Opened.SWAP
            and (lease.attempt, lease.group, lease.index) == (lost.attempt, lost.group, lost.index)
            and lease.start >= closed.at
        ]
        after = (
            f"; its pod moved to the spare on {heirs[0]}" if heirs else ", and there was no spare"
        )
        words.append(f"At {moment(closed.at)} node {lost.node} was lost{after}.")
    return list(dict.fromkeys(words))


def _money(paid: WhoPaysAnswer) -> list[str]:
    rows = paid.payers
    now = [
        f"{row.envelope} ({row.relation}, {plural(row.gpus, 'GPU')})" for row in rows if row.gpus
    ]
    words = [f"Paid by {listed(now)}."] if now else []
    if rows and not now:
        past = [f"{row.envelope} ({row.relation})" for row in rows]
        words.append(f"It was paid by {listed(past)}.")
    if rows:
        words.append(f"To date it has cost {paid.gpu_hours} GPU-hours.")
    return words


def _here(run: Run | None, where: list[PlaceRow]) -> list[str]:
    if not where:
        return []
    domains = sorted({each.domain for each in where})
    nodes = sorted({each.node for each in where if not each.spare})
    spares = sorted({each.node for each in where if each.spare})
    words = f"It is on {listed(nodes)}" if nodes else "It holds spares only"
    words += f", with spares on {listed(spares)}" if spares else ""
    asked = run is not None and run.spec.selector.domain
    why = (
        "as its selector asks"
        if asked
        else "the tightest fit among the places that its payers pay for"
    )
    return [f"{words}, in {listed(domains)}: {why}."]


def _aftermath(world: World, run: Run | None, lost: list[CutRow]) -> list[str]:
    """Say whether the run, or its lost groups, were requeued after the last preemption."""
    if not lost or run is None or not _ENDING & set(lost[-1].reasons):
        return []
    units = units_of(world, run)
    found = (units.get(world.unit_of(run.uid, group)) for group in lost[-1].groups)
    standings = {where.standing for where in found if where is not None}
    what = "It" if run.spec.gang is Gang.RUN else "What was lost"
    if UnitStanding.FAILED in standings:
        if run.spec.checkpoint is None:
            return [f"{what} was not requeued, because the run declares no runtime.checkpoint."]
        return [f"{what} was requeued and has ended since."]
    if UnitStanding.WAITING in standings:
        return [f"{what} was requeued at its old place and will start again from its checkpoint."]
    return [f"{what} was requeued and started again from its checkpoint."]


def _remedies(
    run: Run | None,
    view: RunView,
    refused: Refused | None,
    lost: list[CutRow],
    *,
    is_unstarted: bool,
) -> list[str]:
    words = []
    if refused is not None and refused.reason is not Refusal.RETRYING:
        words.append(refused.remedy)
    if run is None:
        return words
    if refused is not None and refused.reason is Refusal.RETRYING and not is_unstarted:
        words.append(f"see its output: kubectl runs logs {run.name} -n {run.namespace}")
    if lost and view.because in _CUT:
        if run.spec.checkpoint is None:
            words.append("set runtime.checkpoint, so that a preempted run is requeued")
        if lost[-1].cause == "Overdraft":
            payer = lost[-1].subject
            words.append(f"raise the caps of {payer}, or give the run another payer or a sponsor")
        elif run.spec.malleable is None:
            words.append(
                "make the run malleable: it then gives up groups before a lottery is needed"
            )
    if is_unstarted:
        words.append(
            "fix what its pods wait for, or raise runtime.startTimeout, and submit the run again"
        )
    elif view.because == "WorkloadFailed" and view.phase is Phase.FAILED:
        words.append(
            f"see `kubectl runs logs {run.name} -n {run.namespace}`; set runtime.retries to "
            "restart the run after such an exit"
        )
    return words


def _is_unstarted(attempts: list[AttemptRow]) -> bool:
    return bool(attempts) and attempts[-1].cause == Cause.UNSTARTED


def _attempts(world: World, subject: Subject) -> list[AttemptRow]:
    book = world.books.get(subject.uid)
    rows: list[AttemptRow] = []
    for key, unit in sorted(book.units.items()) if book else ():
        for attempt in unit.attempts:
            rows.append(
                AttemptRow(
                    group=None if key == WHOLE else key,
                    attempt=attempt.number,
                    started=instant(attempt.started),
                    ended=None if attempt.open else instant(attempt.ended_at),
                    outcome="" if attempt.open else str(attempt.outcome),
                    cause="" if attempt.cause is None else str(attempt.cause),
                )
            )
    return rows
