"""Settles overdrafts: refinance at once, announce the rest, and preempt after the grace (O1 to O4).

Checks only Budgets that changed, and those whose window or hours run out now.
"""

from collections.abc import Iterable

from leasehold.control.cuts.publish import Announced, can_publish, publish_cuts
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.decisions.calendar import uid_of_run
from leasehold.core.decisions.overdraft import (
    Excess,
    cut_overdraft,
    excesses,
    forgive_lowering,
    next_money_event,
    other_payer,
    refinance_order,
)
from leasehold.core.facts import EnvelopeKey, Lease
from leasehold.core.resolutions import CutCause
from leasehold.core.units import FOREVER, Instant, format_instant, plural
from leasehold.core.verdicts import Covered
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import Overdraft, World


def handle_overdrafts(turn: Turn) -> bool:
    """Bring every envelope that may be overdrawn back within its caps.

    Returns whether something was preempted; more may have to be once those leases are gone.
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
                "Budget", subject.rpartition("/")[0], Told.HEALTHY, f"{subject} is within cap"
            )
    turn.wake(world.work.next_money_alarm)
    return len(turn.resolutions) > cuts_before


def forgive_lowered_caps(turn: Turn) -> None:
    """Forgive caps that were lowered and still hold all that was paid for ahead (O4).

    This is decided once, at the end of the turn that states the Budget, as a successor repeats it
    from the ledger."""
    for key in turn.stated_budgets:
        for envelope in turn.world.budgets[key].envelopes:
            forgive_lowering(turn.world, envelope.key, turn.now)


def _payers(world: World, budget: str, strays: list[EnvelopeKey]) -> list[EnvelopeKey]:
    """Return a Budget's envelopes, including former ones that still pay for open leases."""
    known = world.budgets.get(budget)
    keys = {envelope.key for envelope in known.envelopes} if known is not None else set()
    return sorted(keys | {key for key in strays if key.rpartition("/")[0] == budget})


def _settle(turn: Turn, payer: EnvelopeKey) -> list[Excess]:
    """Refinance what can be; announce the rest, or preempt it if it is due. Returns the excesses
    left."""
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
                Told.OVERDRAWN,
                f"{excess.subject} pays for {plural(excess.gpus, 'GPU')} too many "
                f"({excess.why}), and no other envelope can pay; preemption starts at {due}",
            )
            _warn_runs(turn, excess, due)
        due_at = known.since + world.policy.overdraft_grace
        if turn.now < due_at:
            turn.wake(due_at)
        elif world.policy.binder_enabled and _cut(turn, excess, known):
            return left  # the cut leases may count for other excesses, too: compute them again
    return left


def _warn_runs(turn: Turn, excess: Excess, due: str) -> None:
    for run in sorted({lease.run_key for lease in excess.leases}):
        turn.tell(
            "Run",
            run,
            Told.OVERDRAWN,
            f"its payer {excess.subject} is overdrawn; preemption starts at {due}",
        )
    for lease in excess.leases:
        turn.touched[lease.uid] = None


def _refinance_all(turn: Turn, payer: EnvelopeKey) -> None:
    """Refinance each excess in turn; a lease moved for one no longer counts for the next."""
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
    """Find another payer for the same slots; the run is not affected. Returns whether there is
    one."""
    if lease.batch == turn.seq:
        return False
    covered = payer_beside(turn.world, lease, turn.world.memory.claims, now=turn.now)
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
    but: tuple[EnvelopeKey, ...] = (),
) -> Covered | None:
    """Return other payers of a lease, if possible without money that plans claim: a run that waits
    is not delayed without need, but no running one is preempted for a mere plan (O2). Money that an
    activation holds is never used. `but`: envelopes that are not asked."""
    # What the lease's own run claims for later is not in its way.
    claims = [each for each in claims if uid_of_run(each.uid) != lease.uid]
    covered = _other_payer(world, lease, claims, now=now, but=but)
    if covered is None:
        held = [each for each in claims if not _is_plan(world, each)]
        covered = _other_payer(world, lease, held, now=now, but=but)
    return covered


def _other_payer(
    world: World,
    lease: Lease,
    claims: list[Claim],
    *,
    now: Instant,
    but: tuple[EnvelopeKey, ...],
) -> Covered | None:
    by_payer: dict[EnvelopeKey, list[Claim]] = {}
    for claim in claims:
        by_payer.setdefault(claim.payer, []).append(claim)
    with world.what_if.opened():
        world.accounts.respect(by_payer, but=frozenset())
        return other_payer(world, lease, now=now, but=but)


def _is_plan(world: World, claim: Claim) -> bool:
    """Return whether no run was preempted for the claim yet: what a Resolution was planned with is
    kept from all others."""
    return uid_of_run(claim.uid) not in world.activating


def move_lease(turn: Turn, lease: Lease, covered: Covered) -> None:
    """Let other payers pay for the lease from now on."""
    turn.refinance(lease, covered.segments)
    payers = ", ".join(each.envelope for each in covered.segments)
    turn.tell(
        "Run",
        lease.run_key,
        Told.REFINANCED,
        f"{plural(lease.gpus, 'GPU')} of {lease.payer} now paid by {payers}",
    )
    turn.again = True


def _cut(turn: Turn, excess: Excess, known: Overdraft) -> bool:
    """Preempt until the excess is gone. Returns whether something was cut."""
    subject = Announced(excess.subject, batch=known.batch, commitment=known.commitment)
    if not can_publish(turn, subject):
        turn.again = True
        return False
    cuts = cut_overdraft(turn.world, excess, seeder=lambda: subject.seed(turn), now=turn.now)
    if cuts is None or not cuts.kept:
        return False  # its runs are gone, or everything it pays for is ending
    publish_cuts(
        turn, cuts, subject, cause=CutCause.OVERDRAFT, envelope=excess.subject, deficit=excess.gpus
    )
    turn.tell(
        "Budget",
        excess.subject.rpartition("/")[0],
        Told.RESOLVED,
        f"{excess.subject} was overdrawn by {plural(excess.gpus, 'GPU')}; runs that it paid "
        "for were preempted",
    )
    return True
