"""Settle overdrafts: refinance at once, announce the rest, preempt after the grace (O1 to O4).

A Budget is checked only if it has changed, or if a window or its GPU-hours run out now.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from leasehold.control.preemption.publish import Announced, can_publish, publish_cuts
from leasehold.control.reasons import NoticeReason
from leasehold.control.turn import Turn
from leasehold.core.calendar.entries import uid_of_run
from leasehold.core.facts import EnvelopeKey, Lease
from leasehold.core.preemption.overdraft import (
    Excess,
    cut_overdraft,
    excesses,
    forgive_lowering,
    next_money_event,
    other_payer,
    refinance_order,
)
from leasehold.core.resolutions import CutCause
from leasehold.core.units import FOREVER, Instant, format_instant, plural
from leasehold.core.verdicts import Covered
from leasehold.core.world.accounts import Claim
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import Overdraft, World


def handle_overdrafts(turn: Turn) -> bool:
    """Bring every envelope that may be overdrawn back within its caps.

    Returns whether any run was preempted. More may have to be preempted once the victims are gone.
    """
    world, cuts_before = turn.world, len(turn.resolutions)
    if not turn.time_trusted:
        return False
    world.work.raise_money_alarms(turn.now)
    for subject in world.overdrafts:
        world.work.touch_budget(subject.rpartition("/")[0])
    over: dict[str, None] = {}
    strays = [key for key in world.open_by_payer if key not in world.envelopes]
    # What this turn still opens and closes is checked in the next turn.
    for budget in world.work.take_unsettled():
        for payer in _payers(world, budget, strays):
            for excess in _settle(turn, payer):
                over[excess.subject] = None
            at = next_money_event(world, payer, turn.now)
            if at < FOREVER:
                world.work.money_alarm(budget, at)
    for subject in sorted(world.overdrafts):
        if subject not in over:
            world.drop_overdraft(subject)
            turn.tell(
                "Budget",
                subject.rpartition("/")[0],
                NoticeReason.HEALTHY,
                f"{subject} is within cap",
            )
    turn.wake(world.work.next_money_alarm)
    return len(turn.resolutions) > cuts_before


def forgive_lowered_caps(turn: Turn) -> None:
    """Forget that a cap on GPU-hours was lowered, if the new cap still pays for every lease that
    has a time limit until that limit (O4).

    This is decided once, at the end of the turn that writes the Budget to the ledger. A new leader
    can then repeat the decision from the ledger.
    """
    for key in turn.stated_budgets:
        for envelope in turn.world.budgets[key].envelopes:
            forgive_lowering(turn.world, envelope.key, turn.now)


def _payers(world: World, budget: str, strays: list[EnvelopeKey]) -> list[EnvelopeKey]:
    """Return the keys of a Budget's envelopes, and of deleted ones that still pay for open
    leases."""
    known = world.budgets.get(budget)
    keys = {envelope.key for envelope in known.envelopes} if known is not None else set()
    return sorted(keys | {key for key in strays if key.rpartition("/")[0] == budget})


def _settle(turn: Turn, payer: EnvelopeKey) -> list[Excess]:
    """Settle the overdraft of an envelope; return the excesses that are left.

    Refinances as many leases as possible. Announces the rest, or preempts it once its grace is
    over.
    """
    world = turn.world
    _refinance_all(turn, payer)
    left = excesses(world, payer, turn.now)
    for excess in left:
        known = world.overdrafts.get(excess.subject)
        if known is None:
            known = turn.announce_overdraft(excess.subject)
            due = format_instant(known.since + world.policy.overdraft_grace)
            turn.tell(
                "Budget",
                payer.rpartition("/")[0],
                NoticeReason.OVERDRAWN,
                f"{excess.subject} pays for {plural(excess.gpus, 'GPU')} too many "
                f"({excess.why}), and no other envelope can pay; preemption starts at {due}",
            )
            _warn_runs(turn, excess, due)
        due_at = known.since + world.policy.overdraft_grace
        if turn.now < due_at:
            turn.wake(due_at)
        elif world.policy.binder_enabled and _cut(turn, excess, known):
            return left  # the victims may reduce other excesses, too: compute these again
    return left


def _warn_runs(turn: Turn, excess: Excess, due: str) -> None:
    """Report the overdraft to each run that has leases in the excess."""
    for run in sorted({lease.run_key for lease in excess.leases}):
        turn.tell(
            "Run",
            run,
            NoticeReason.OVERDRAWN,
            f"its payer {excess.subject} is overdrawn; preemption starts at {due}",
        )
    for lease in excess.leases:
        turn.touched[lease.uid] = None


def _refinance_all(turn: Turn, payer: EnvelopeKey) -> None:
    """Refinance the excesses of an envelope one after the other.

    A lease that was moved for one excess does not count for the next one any more.
    """
    tried: set[tuple[str, str]] = set()
    while True:
        found = excesses(turn.world, payer, turn.now)
        excess = next((each for each in found if (each.subject, each.why) not in tried), None)
        if excess is None:
            return
        tried.add((excess.subject, excess.why))
        _refinance(turn, excess)


def _refinance(turn: Turn, excess: Excess) -> None:
    """Move whole leases, last bound first, until the excess is gone or no other payer is found."""
    gone = 0
    for lease in refinance_order(excess.leases):
        if gone >= excess.gpus:
            return
        if refinance_lease(turn, lease):
            gone += lease.gpus


def refinance_lease(turn: Turn, lease: Lease) -> bool:
    """Move the lease to another payer, if there is one; return whether there is.

    Its pod and slots stay the same.
    """
    if lease.batch == turn.seq:
        return False
    world = turn.world
    beside = open_leases(world, lease.uid)
    claims = [_from_now_on(world, each, turn.now) for each in world.memory.claims]
    covered = payer_beside(world, lease, claims, now=turn.now, beside=beside)
    if covered is None:
        return False
    move_lease(turn, lease, covered)
    return True


def payer_beside(
    world: World,
    lease: Lease,
    claims: Iterable[Claim],
    *,
    now: Instant,
    beside: list[Lease],
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Covered | None:
    """Return other payers for a lease, or None (O2).

    Money that plans claim is used only if there is no other: waiting runs should not be delayed,
    but no running run is preempted for a mere plan. Money that activations hold is never used.

    - `claims`: all claims of plans and holds
    - `beside`: the open leases of its run, with their payers
    - `except_for`: envelopes that must not pay
    """
    # The run's own claims, for groups that still wait, do not stand against its leases.
    claims = [each for each in claims if uid_of_run(each.uid) != lease.uid]
    covered = _other_payer(world, lease, claims, now=now, beside=beside, except_for=except_for)
    if covered is None:
        held = [each for each in claims if not _is_plan(world, each)]
        covered = _other_payer(world, lease, held, now=now, beside=beside, except_for=except_for)
    return covered


def _other_payer(
    world: World,
    lease: Lease,
    claims: list[Claim],
    *,
    now: Instant,
    beside: list[Lease],
    except_for: tuple[EnvelopeKey, ...],
) -> Covered | None:
    """Return another cover for the lease that does not use the money of `claims`, or None."""
    by_payer: dict[EnvelopeKey, list[Claim]] = {}
    for claim in claims:
        by_payer.setdefault(claim.payer, []).append(claim)
    with world.what_if.opened():
        world.accounts.respect(by_payer, except_for=frozenset())
        return other_payer(world, lease, now=now, beside=beside, except_for=except_for)


def _from_now_on(world: World, claim: Claim, now: Instant) -> Claim:
    """Return a claim of the last walk as a walk would make it now.

    A run that still waits starts now at the earliest, so it also claims the money for longer.
    """
    late, envelope = now - claim.start, world.envelopes.get(claim.payer)
    if late <= 0 or envelope is None:
        return claim
    span = min(claim.gpu_ms // claim.gpus, max(0, envelope.end - now))
    end = min(FOREVER, claim.end + late)
    return replace(claim, start=now, end=end, gpu_ms=claim.gpus * span)


def _is_plan(world: World, claim: Claim) -> bool:
    """Return whether the claim belongs to a plan.

    The claim of an activation is a hold: no other run may use that money (A4).
    """
    return uid_of_run(claim.uid) not in world.activating


def move_lease(turn: Turn, lease: Lease, covered: Covered) -> None:
    """Let the payers of `covered` pay for the lease from now on, and report it."""
    turn.refinance(lease, covered.segments)
    payers = ", ".join(each.envelope for each in covered.segments)
    turn.tell(
        "Run",
        lease.run_key,
        NoticeReason.REFINANCED,
        f"{plural(lease.gpus, 'GPU')} of {lease.payer} now paid by {payers}",
    )
    turn.again = True


def _cut(turn: Turn, excess: Excess, known: Overdraft) -> bool:
    """Preempt until the excess is gone. Returns whether any lease was cut."""
    subject = Announced(excess.subject, batch=known.batch, commitment=known.commitment)
    if not can_publish(turn, subject):
        turn.again = True
        return False
    cuts = cut_overdraft(turn.world, excess, seeder=lambda: subject.seed(turn), now=turn.now)
    if cuts is None or not cuts.kept:
        return False  # the runs are gone, or all leases that the envelope pays for are ending
    publish_cuts(
        turn, cuts, subject, cause=CutCause.OVERDRAFT, envelope=excess.subject, deficit=excess.gpus
    )
    turn.tell(
        "Budget",
        excess.subject.rpartition("/")[0],
        NoticeReason.RESOLVED,
        f"{excess.subject} was overdrawn by {plural(excess.gpus, 'GPU')}; runs that it paid "
        "for were preempted",
    )
    return True
