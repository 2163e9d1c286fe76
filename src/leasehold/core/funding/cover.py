"""cover: find the payers of a run among the envelopes that its owner may use, in order (C2).

Called once per location, for starts, grows, forecasts and refinancing. Reserves nothing: the
segments (GPUs of one payer) that it returns become leases only at bind. The trace lists every
envelope that was asked, with what it gave or why it gave nothing.

Example: a run asks for 16 GPUs. Its own envelope has 10 left, a sibling's has 20: two segments of
10 (Owned) and 6 (Shared).
"""

from collections.abc import Iterator
from typing import assert_never

from msgspec.structs import replace

from leasehold.core.facts import (
    Aggregate,
    Envelope,
    EnvelopeKey,
    Record,
    Relation,
    Sharing,
)
from leasehold.core.objects.owners import glob_admits
from leasehold.core.requests import FundingRequest
from leasehold.core.reservations import HeldMoney
from leasehold.core.units import (
    FOREVER,
    GpuMs,
    Instant,
    Millis,
    format_gpu_hours,
    format_instant,
    plural,
)
from leasehold.core.verdicts import Covered, CoverStep, HeldBack, Refusal, Refused, Segment
from leasehold.core.world.world import World


class _Limit(Record):
    """The most GPUs that one cap allows, and the numbers for the refusal."""

    gpus: int
    reason: HeldBack
    limit: int
    used: int


def cover(world: World, ask: FundingRequest, *, now: Instant) -> Covered | Refused:
    """Return the payers of `ask` in payer order, or why they cannot pay for all of it."""
    assert ask.gpus > 0
    assert ask.start >= now
    left = ask.gpus
    borrow_left = _borrow_left(ask)
    segments: list[Segment] = []
    trace: list[CoverStep] = []
    aggregate_use = _AggregateUse(world, ask, now)
    for envelope, relation in _walk(world, ask):
        step = _step(
            world,
            ask,
            envelope,
            relation=relation,
            wanted=left,
            borrow_left=borrow_left,
            aggregate_use=aggregate_use,
            now=now,
        )
        trace.append(step)
        if step.taken:
            aggregate_use.take(envelope, step.taken)
            segments.append(
                Segment(
                    envelope=envelope.key,
                    owner=envelope.owner,
                    gpus=step.taken,
                    relation=relation,
                )
            )
            left -= step.taken
            if relation is Relation.BORROWED:
                borrow_left -= step.taken
            if not left:
                return Covered(segments=tuple(segments), trace=tuple(trace))
    return _refusal(world, ask, tuple(trace), left)


def can_pay(
    world: World, ask: FundingRequest, payers: tuple[HeldMoney, ...], *, now: Instant
) -> bool:
    """Return whether exactly the envelopes of a plan, `payers`, can still pay the amounts
    planned."""
    borrow_left = _borrow_left(ask)
    aggregate_use = _AggregateUse(world, ask, now)
    merged: dict[EnvelopeKey, HeldMoney] = {}
    for each in payers:  # merge: an envelope may pay for groups in several locations
        before = merged.get(each.payer)
        merged[each.payer] = replace(each, gpus=each.gpus + (before.gpus if before else 0))
    for each in merged.values():
        envelope = world.envelopes.get(each.payer)
        if envelope is None:
            return False
        region, cluster = each.location
        step = _step(
            world,
            replace(ask, region=region, cluster=cluster),
            envelope,
            relation=each.relation,
            wanted=each.gpus,
            borrow_left=borrow_left,
            aggregate_use=aggregate_use,
            now=now,
        )
        if step.taken < each.gpus:
            return False
        if each.relation is Relation.BORROWED:
            borrow_left -= each.gpus
        aggregate_use.take(envelope, each.gpus)
    return True


class _AggregateUse:
    """Counts how much of each aggregate cap is used while payers for one run are looked for.

    Each cap is summed up once, even if several of its envelopes are asked.
    """

    def __init__(self, world: World, ask: FundingRequest, now: Instant) -> None:
        self._world, self._ask, self._now = world, ask, now
        self._used: dict[tuple[str, Instant], int] = {}
        self._taken: dict[str, int] = {}  # GPUs taken by this walk, from all members

    def used(self, aggregate: Aggregate, *, end: Instant) -> int:
        """Return the most GPUs that count against the cap until `end`, including those taken in
        this search."""
        known = self._used.get((aggregate.key, end))
        if known is None:
            self._world.steps.take(len(aggregate.members))
            known, _ = self._world.accounts.peak(
                aggregate.members, start=self._ask.start, end=end, now=self._now
            )
            self._used[aggregate.key, end] = known
        return known + self._taken.get(aggregate.key, 0)

    def take(self, envelope: Envelope, gpus: int) -> None:
        """Note that the envelope pays for this many GPUs of the run."""
        for aggregate in self._world.aggregates[envelope.key]:
            self._taken[aggregate.key] = self._taken.get(aggregate.key, 0) + gpus


def _borrow_left(ask: FundingRequest) -> int:
    """Return how many more GPUs the run may borrow (`maxBorrowGPUs`, C3)."""
    limit = ask.funding.max_borrow_gpus
    return FOREVER if limit is None else max(0, limit - ask.borrowed_already)


def _walk(world: World, ask: FundingRequest) -> Iterator[tuple[Envelope, Relation]]:
    """Yield the envelopes to ask, in payer order (C2), each at the first step that reaches it."""
    tree = world.tree
    seen = set(ask.except_for)

    def fresh(owners: tuple[str, ...]) -> list[Envelope]:
        return [each for each in tree.envelopes(owners, ask.flavor) if each.key not in seen]

    elsewhere: list[tuple[Envelope, Relation]] = []
    for owners, relation in _family_levels(world, ask):
        for envelope in fresh(owners):
            if relation is Relation.SHARED and envelope.sharing is Sharing.NONE:
                continue
            seen.add(envelope.key)
            if envelope.covers(ask.region, ask.cluster):
                yield envelope, relation
            else:
                elsewhere.append((envelope, relation))
    yield from elsewhere
    if not ask.funding.allow_borrow or not ask.funding.sponsors:
        return
    for owners in _lenders(world, ask):
        for envelope in fresh(owners):
            seen.add(envelope.key)
            yield envelope, Relation.BORROWED
    for envelope in fresh(tree.relatives(ask.owner)):
        if admits(envelope, ask.owner):
            yield envelope, Relation.BORROWED


def _family_levels(world: World, ask: FundingRequest) -> Iterator[tuple[tuple[str, ...], Relation]]:
    """Yield the owner itself, its siblings, then its ancestors, nearest first (C2, 1 and 2)."""
    tree = world.tree
    yield (ask.owner,), Relation.OWNED
    yield tree.siblings(ask.owner), Relation.SHARED
    for level in tree.ancestors(ask.owner):
        yield level, Relation.SHARED


def _lenders(world: World, ask: FundingRequest) -> Iterator[tuple[str, ...]]:
    """Yield the sponsors in the run's order, then their ancestors, nearest first (C2, 4 and 5)."""
    sponsors = tuple(each for each in ask.funding.sponsors if each != ask.owner)
    for sponsor in sponsors:
        yield (sponsor,)
    climbs = [world.tree.ancestors(sponsor) for sponsor in sponsors]
    for height in range(max(map(len, climbs), default=0)):
        for climb in climbs:
            if height < len(climb):
                yield tuple(owner for owner in climb[height] if owner != ask.owner)


def admits(envelope: Envelope, owner: str) -> bool:
    """Return whether the envelope's lending policy admits `owner`."""
    lending = envelope.lending
    return lending.allow and any(glob_admits(glob, owner) for glob in lending.to)


def _step(
    world: World,
    ask: FundingRequest,
    envelope: Envelope,
    *,
    relation: Relation,
    wanted: int,
    borrow_left: int,
    aggregate_use: _AggregateUse,
    now: Instant,
) -> CoverStep:
    """Return what one envelope gives: as much as wanted, or the least of its limits (C4)."""
    world.steps.take(1 + len(world.aggregates[envelope.key]))
    closed = _why_closed(world, ask, envelope, relation)
    if closed is not None:
        return CoverStep(envelope=envelope.key, relation=relation, taken=0, held_back=closed)
    least: _Limit | None = None
    limits = _limits(
        world,
        ask,
        envelope,
        relation=relation,
        borrow_left=borrow_left,
        aggregate_use=aggregate_use,
        now=now,
    )
    for each in limits:
        if least is None or each.gpus < least.gpus:
            least = each
    assert least is not None
    if least.gpus >= wanted:
        return CoverStep(envelope=envelope.key, relation=relation, taken=wanted)
    return CoverStep(
        envelope=envelope.key,
        relation=relation,
        taken=max(0, least.gpus),
        held_back=least.reason,
        limit=least.limit,
        used=least.used,
    )


def _why_closed(
    world: World, ask: FundingRequest, envelope: Envelope, relation: Relation
) -> HeldBack | None:
    """Return why the envelope may not pay at all, however much it has left; None if it may."""
    if not envelope.covers(ask.region, ask.cluster):
        return Refusal.OTHER_LOCATION
    if ask.start < envelope.start:
        return Refusal.WINDOW_NOT_OPEN
    if ask.start >= envelope.end or ask.open_until >= envelope.end:
        return Refusal.WINDOW_CLOSED
    if relation is not Relation.BORROWED:
        return None
    if not envelope.lending.allow:
        return Refusal.LENDING_DISABLED
    if not admits(envelope, ask.owner):
        return Refusal.ACL_DENIED
    if world.policy.forbid_reciprocal_lending and _lends_to(world, ask.owner, envelope.owner):
        return Refusal.RECIPROCAL_LOAN
    return None


def _lends_to(world: World, lender: str, borrower: str) -> bool:
    """Return whether an envelope of `lender` pays for leases of `borrower` now."""
    return any(
        world.accounts.of(envelope.key).borrowers.get(borrower)
        for envelope in world.envelopes.values()
        if envelope.owner == lender
    )


def _limits(
    world: World,
    ask: FundingRequest,
    envelope: Envelope,
    *,
    relation: Relation,
    borrow_left: int,
    aggregate_use: _AggregateUse,
    now: Instant,
) -> Iterator[_Limit]:
    """Yield every limit on what the envelope can give (C4).

    Of several equal limits, the first one is reported.
    """
    end = FOREVER if ask.span is None else ask.start + ask.span + ask.linger
    end = min(end, envelope.end)
    in_use, lent = world.accounts.peak((envelope.key,), start=ask.start, end=end, now=now)
    yield _Limit(
        gpus=envelope.concurrency - in_use,
        reason=Refusal.CONCURRENCY,
        limit=envelope.concurrency,
        used=in_use,
    )
    lending = envelope.lending
    borrowed = relation is Relation.BORROWED
    for hours in hour_caps(world, envelope, relation=relation, start=ask.start, now=now):
        span = _span(world, ask, envelope, hours.since)
        left = max(0, hours.cap - hours.spent)
        yield _Limit(gpus=left // span, reason=hours.reason, limit=hours.cap, used=hours.spent)
    for aggregate in world.aggregates[envelope.key]:
        used, cap = aggregate_use.used(aggregate, end=end), aggregate.max_concurrency
        yield _Limit(gpus=cap - used, reason=Refusal.AGGREGATE, limit=cap, used=used)
    if borrowed:
        if lending.max_concurrency is not None:
            cap = lending.max_concurrency
            yield _Limit(gpus=cap - lent, reason=Refusal.LENDING_CAP, limit=cap, used=lent)
        yield _Limit(
            gpus=borrow_left,
            reason=Refusal.BORROW_LIMIT,
            limit=ask.funding.max_borrow_gpus or 0,
            used=ask.borrowed_already,
        )


class Hours(Record):
    """A cap on GPU-hours, and how much of it will be spent at `since`.

    `since` is the last planned start with a claim on the cap: leases without a limit use up hours
    until then (C5). `spent` adds up used and committed hours and the claims of plans.
    """

    cap: GpuMs
    spent: GpuMs
    since: Instant  # the last planned start that claims hours of this cap
    reason: HeldBack


def hour_caps(
    world: World, envelope: Envelope, *, relation: Relation, start: Instant, now: Instant
) -> Iterator[Hours]:
    """Yield the caps on GPU-hours that apply to a start at `start` if no other run starts before
    it."""
    lending = envelope.lending if relation is Relation.BORROWED else None
    if envelope.max_gpu_ms is not None:
        since, spent = _spent(world, envelope, start=start, now=now, lent=False)
        yield Hours(cap=envelope.max_gpu_ms, spent=spent, since=since, reason=Refusal.GPU_HOURS)
    if lending is not None and lending.max_gpu_ms is not None:
        since, spent = _spent(world, envelope, start=start, now=now, lent=True)
        yield Hours(cap=lending.max_gpu_ms, spent=spent, since=since, reason=Refusal.LENDING_HOURS)


def _spent(
    world: World, envelope: Envelope, *, start: Instant, now: Instant, lent: bool
) -> tuple[Instant, GpuMs]:
    """Return the last planned start that claims these hours, and the hours spent at that time (C5).

    Hours count as spent if they are used, if open leases may still use them, or if plans claim
    them.
    `lent`: only hours of borrowers count.
    """
    claims = [each for each in world.accounts.claims_on(envelope.key) if each.borrowed or not lent]
    since = max([start, *(each.start for each in claims)])
    account = world.accounts.of(envelope.key)
    horizon = since - now + world.policy.accounting_horizon
    committed = account.committed_ms(now, until=envelope.end, horizon=horizon)[lent]
    used = account.lent_used_ms(now) if lent else account.used_ms(now)
    return since, used + committed + sum(each.gpu_ms for each in claims)


def _span(world: World, ask: FundingRequest, envelope: Envelope, since: Instant) -> Millis:
    """Return for how long the envelope must be able to pay for each GPU of the run.

    A run without a limit is paid up to the last planned start with a claim (`since`), plus
    `accounting.horizon` (C5). Nothing is paid after the window's end.
    """
    span = since - ask.start + world.policy.accounting_horizon if ask.span is None else ask.span
    span = min(ask.start + span, envelope.end) - ask.start
    assert span > 0, envelope.key
    return span


def _refusal(
    world: World, ask: FundingRequest, trace: tuple[CoverStep, ...], short_by: int
) -> Refused:
    """Return the refusal, with the reason of one envelope (C7).

    That is the first envelope in payer order that may pay later without an edit of a Budget. If
    there is none, it is the first envelope that gave less than it was asked for.
    """
    held = [step for step in trace if step.held_back not in (None, Refusal.OTHER_LOCATION)]
    helped = [step for step in held if _time_may_help(world, step)]
    if not held:
        return Refused(
            reason=Refusal.NO_ENVELOPE,
            remedy=f"no envelope of {ask.owner} or its family pays for {ask.flavor} in "
            f"{ask.region}/{ask.cluster}; add an envelope, or name a sponsor and allow "
            "borrowing",
            asked=ask.gpus,
            short_by=short_by,
            trace=trace,
        )
    step = (helped or held)[0]
    assert step.held_back is not None
    return Refused(
        reason=step.held_back,
        remedy=_remedy(world, ask, step),
        asked=ask.gpus,
        short_by=short_by,
        subject=step.envelope,
        limit=step.limit,
        used=step.used,
        trace=trace,
        time_may_help=bool(helped),
    )


def _time_may_help(world: World, step: CoverStep) -> bool:
    """Return whether the envelope may pay later if the run just waits: its window will open, or
    leases or claims on it will end."""
    assert step.held_back is not None
    if step.held_back is Refusal.WINDOW_NOT_OPEN:
        return True
    if not step.held_back.clears_with_time:
        return False
    keys = [step.envelope]
    if step.held_back is Refusal.AGGREGATE:
        keys = [key for each in world.aggregates[step.envelope] for key in each.members]
    return any(world.accounts.of(key).gpus or world.accounts.claims_on(key) for key in keys)


def _remedy(world: World, ask: FundingRequest, step: CoverStep) -> str:
    """Return what the user can do, without a count that changes with each lease."""
    envelope = world.envelopes[step.envelope]
    name = step.envelope
    match step.held_back:
        case Refusal.WINDOW_NOT_OPEN:
            return f"{name} opens at {format_instant(envelope.start)}; wait, or move its start"
        case Refusal.WINDOW_CLOSED:
            return f"{name} closed at {format_instant(envelope.end)}; extend its end"
        case Refusal.CONCURRENCY | Refusal.AGGREGATE | Refusal.LENDING_CAP:
            return (
                f"{name} pays for at most {plural(step.limit, 'GPU')}, and fewer than the "
                f"{ask.gpus} requested GPUs are left; wait for its leases to end, or raise the "
                "cap"
            )
        case Refusal.GPU_HOURS | Refusal.LENDING_HOURS:
            return (
                f"{name} has too few of its {format_gpu_hours(step.limit)} GPU-hours left for "
                f"the {plural(ask.gpus, 'GPU')} requested; lower runtime.maxDuration or raise "
                "the cap"
            )
        case Refusal.LENDING_DISABLED:
            return f"{name} does not lend; ask {envelope.owner} to set lending.allow"
        case Refusal.ACL_DENIED:
            return (
                f"{name} does not lend to {ask.owner}; ask {envelope.owner} to add {ask.owner} "
                "to lending.to"
            )
        case Refusal.BORROW_LIMIT:
            return (
                f"the run would borrow more GPUs than its funding.maxBorrowGPUs, {step.limit}; "
                "raise that limit"
            )
        case Refusal.OTHER_LOCATION:
            return f"{name} pays for GPUs of another location; name a location in which it pays"
        case Refusal.RECIPROCAL_LOAN:
            return (
                f"{envelope.owner} borrows from {ask.owner} already, and "
                "forbidReciprocalLending does not allow loans in both directions"
            )
        case None:
            raise AssertionError(f"{name} gave all that was asked")
        case _:
            assert_never(step.held_back)
