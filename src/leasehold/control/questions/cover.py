"""`cover`: every envelope that is asked to pay, in order, with what it gave, or why nothing."""

from typing import assert_never

from msgspec import structs

from leasehold.control.questions.answers.reasons import CoverAnswer, StepRow, WalkRow, WalkStep
from leasehold.control.questions.formats import moment
from leasehold.control.questions.rehearse import in_front_of
from leasehold.control.scheduling.requests import start_request_for
from leasehold.core.admission.admit import as_found_by, no_such_flavor
from leasehold.core.facts import Run
from leasehold.core.funding.claims import funding_request_for
from leasehold.core.funding.cover import cover
from leasehold.core.units import Instant, format_gpu_hours, plural
from leasehold.core.verdicts import CoverStep, Refusal, Refused
from leasehold.core.world.width import group_count, locations_for, starting_gpus
from leasehold.core.world.world import World


def recorded(world: World, run: Run) -> CoverAnswer | None:
    """Return the search for payers made when the run was last considered, or None if it is not
    known."""
    trace = world.memory.traces.get(run.uid)
    if not trace:
        return None
    refused = None if world.open_by_run.get(run.uid) else world.memory.refusals.get(run.uid)
    return _answer(run, "recorded", [_walk(world, "", trace, refused)])


def afresh(world: World, run: Run, now: Instant) -> CoverAnswer:
    """Search for payers now, in every location that the run may use."""
    turn, _ = in_front_of(world, run, now)
    groups = tuple(range(group_count(run.spec, starting_gpus(run.spec))))
    request = start_request_for(world, run, groups)
    walks: list[WalkRow] = []
    with world.what_if.opened():
        as_found_by(world, request, turn.calendar, start=turn.now)
        for place in locations_for(world, run.spec):
            ask = funding_request_for(
                request,
                place,
                request.placement.gpus,
                start=turn.now,
                borrowed=request.borrowed_already,
            )
            answer = cover(world, ask, now=turn.now)
            refused = answer if isinstance(answer, Refused) else None
            walks.append(_walk(world, "/".join(place), answer.trace, refused))
    if not walks:
        walks.append(_walk(world, "", (), no_such_flavor(request.placement)))
    return _answer(run, "now", walks)


def _answer(run: Run, when: str, walks: list[WalkRow]) -> CoverAnswer:
    return CoverAnswer(run=run.key, owner=run.spec.owner, when=when, walks=walks)


def _walk(
    world: World, place: str, trace: tuple[CoverStep, ...], refused: Refused | None
) -> WalkRow:
    return WalkRow(
        place=place,
        covered=refused is None,
        reason="" if refused is None else str(refused.reason),
        remedy="" if refused is None else refused.remedy,
        short_by=0 if refused is None else refused.short_by,
        steps=walk_of(world, trace),
    )


def walk_of(world: World, trace: tuple[CoverStep, ...]) -> list[WalkStep]:
    return [WalkStep(**structs.asdict(step_row(step)), says=says(world, step)) for step in trace]


def step_row(step: CoverStep) -> StepRow:
    return StepRow(
        envelope=step.envelope,
        relation=str(step.relation),
        taken=step.taken,
        verdict=str(step.verdict),
        held_back="" if step.held_back is None else str(step.held_back),
        limit=step.limit,
        used=step.used,
    )


def says(world: World, step: CoverStep) -> str:
    """Describe one step of a search for payers as a sentence."""
    gave = f"pays for {plural(step.taken, 'GPU')}" if step.taken else "pays for nothing"
    if step.held_back is None:
        return gave
    enough = ", and no more" if step.taken else ""
    return f"{gave}{enough}: {_because(world, step)}"


def _because(world: World, step: CoverStep) -> str:
    envelope = world.envelopes.get(step.envelope)
    match step.held_back:
        case Refusal.CONCURRENCY:
            whole = plural(step.limit, "GPU")
            return f"{step.used} of its {whole} were in use or kept for planned starts"
        case Refusal.AGGREGATE:
            return (
                f"{step.used} of the {step.limit} GPUs of an aggregate cap were in use or kept "
                "for planned starts"
            )
        case Refusal.LENDING_CAP:
            return f"{step.used} of the {plural(step.limit, 'GPU')} that it may lend were lent"
        case Refusal.GPU_HOURS | Refusal.LENDING_HOURS:
            what = "it may lend" if step.held_back is Refusal.LENDING_HOURS else "it has"
            return (
                f"{format_gpu_hours(step.used)} of the {format_gpu_hours(step.limit)} GPU-hours "
                f"that {what} were used or committed"
            )
        case Refusal.BORROW_LIMIT:
            return f"the run may borrow at most {plural(step.limit, 'GPU')} (funding.maxBorrowGPUs)"
        case Refusal.WINDOW_NOT_OPEN:
            return f"its window opens at {moment(envelope.start)}" if envelope else "it is not open"
        case Refusal.WINDOW_CLOSED:
            return f"its window closed at {moment(envelope.end)}" if envelope else "it is closed"
        case Refusal.OTHER_LOCATION:
            return "it pays for GPUs in another location"
        case Refusal.LENDING_DISABLED:
            return "it does not lend"
        case Refusal.ACL_DENIED:
            return "it does not lend to this owner"
        case Refusal.RECIPROCAL_LOAN:
            return (
                "its owner already borrows from this owner, and forbidReciprocalLending does "
                "not allow loans in both directions"
            )
        case None:
            return "nothing limited it"
        case _:
            assert_never(step.held_back)
