"""overdraft: find what an envelope pays for beyond its caps, and preempt it (O1 to O4).

The envelope may be lowered, exhausted, closed or deleted. Each case gives an `Excess`: a set of
leases, and how many of their GPUs must find another payer or end. Only leases that this envelope
pays for are preempted.
"""

from collections.abc import Callable

from leasehold.core.facts import Envelope, EnvelopeKey, Lease, Record, Relation, Role
from leasehold.core.funding.cover import cover
from leasehold.core.preemption.victims import Cuts, Scope, Seeder, cut_until_it_fits
from leasehold.core.requests import FundingRequest
from leasehold.core.units import FOREVER, GpuMs, Instant
from leasehold.core.verdicts import Covered
from leasehold.core.world.accounts import UNLIMITED
from leasehold.core.world.world import World


class Excess(Record):
    """An overdraft: leases of which a number of GPUs must find another payer or end."""

    subject: str  # the envelope or aggregate that is overdrawn
    leases: tuple[Lease, ...]  # the scope: open leases that are not ending
    gpus: int
    why: str


def excesses(world: World, payer: EnvelopeKey, now: Instant) -> list[Excess]:
    """Return every excess of an envelope at `now`."""
    envelope = world.envelopes.get(payer)
    if envelope is not None and _is_clearly_within(world, envelope, now):
        return []
    leases = _standing(world, payer)
    if not leases:
        return []
    if envelope is None:
        return [_all(payer, leases, "its Budget no longer has this envelope")]
    if not envelope.in_window(now):
        return [_all(payer, leases, "its window is closed")]
    elsewhere = _not_covered(world, envelope, leases)
    if not elsewhere:
        world.work.note_in_place(envelope, world.node_changes)
    found = [
        _all(payer, elsewhere, "it no longer covers the place of these leases"),
        _over(payer, leases, envelope.concurrency, "concurrency"),
        *_lending(envelope, leases),
        *_aggregates(world, envelope),
        *_hours(world, envelope, leases, now),
    ]
    return [each for each in found if each.gpus > 0]


def _is_clearly_within(world: World, envelope: Envelope, now: Instant) -> bool:
    """Return True if the envelope's totals alone prove that it is not overdrawn.

    False proves nothing, because the totals include ending leases. A lease is opened only where its
    payer covers it; `is_in_place` is false after an edit of the envelope or a node change.
    """
    if not world.work.is_in_place(envelope, world.node_changes) or not envelope.in_window(now):
        return False
    account = world.accounts.of(envelope.key)
    lent_cap = envelope.lending.max_concurrency
    if account.gpus > envelope.concurrency or (lent_cap is not None and account.lent > lent_cap):
        return False
    for aggregate in world.aggregates[envelope.key]:
        used = sum(world.accounts.of(key).gpus for key in aggregate.members)
        if used > aggregate.max_concurrency:
            return False
    return all(left > 0 for _, left in _hours_left(world, envelope, now))


def overdrawn_gpus(world: World, payer: EnvelopeKey, now: Instant) -> int:
    """Return the largest excess of the envelope itself, for display."""
    found = [each.gpus for each in excesses(world, payer, now) if each.subject == payer]
    return max(found, default=0)


def next_money_event(world: World, payer: EnvelopeKey, now: Instant) -> Instant:
    """Return when the envelope becomes overdrawn if nothing but time passes; FOREVER if never.

    Example: with 10 GPU-hours left and 5 GPUs under leases without a limit, in two hours.
    """
    envelope = world.envelopes.get(payer)
    if envelope is None or not world.open_by_payer.get(payer):
        return FOREVER
    found = [envelope.end]
    account = world.accounts.of(payer)
    unlimited, lent = account.unlimited()
    limited, lent_limited = account.limited_ms(now, until=envelope.end)
    if envelope.max_gpu_ms is not None and unlimited:
        left = envelope.max_gpu_ms - account.used_ms(now) - limited
        found.append(now + -(-max(0, left) // unlimited))
    if envelope.lending.max_gpu_ms is not None and lent:
        left = envelope.lending.max_gpu_ms - account.lent_used_ms(now) - lent_limited
        found.append(now + -(-max(0, left) // lent))
    return min((at for at in found if at > now), default=FOREVER)


def refinance_order(leases: tuple[Lease, ...]) -> list[Lease]:
    """Return the leases in the order in which they are refinanced (O2).

    The last bound comes first, spares after pods. Ties by run, group, pod and slots, descending.
    """
    return sorted(
        leases,
        key=lambda each: (
            each.start,
            each.role is not Role.SPARE,
            each.run_key,
            each.group,
            each.index,
            each.slots,
        ),
        reverse=True,
    )


def other_payer(
    world: World,
    lease: Lease,
    *,
    now: Instant,
    beside: list[Lease],
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Covered | None:
    """Return other payers for the slots of `lease`, or None.

    Its present payer and the envelopes of `except_for` must not pay.

    `beside`: the open leases of its run, with their payers.
    """
    run = world.runs.get(lease.uid)
    state = world.fleet.nodes.get(lease.node)
    if run is None or state is None:
        return None
    term = world.terms[lease.name]
    borrowed = sum(
        each.gpus
        for each in beside
        if each.relation is Relation.BORROWED and each.name != lease.name
    )
    ask = FundingRequest(
        owner=lease.owner,
        flavor=run.spec.flavor,
        region=state.node.region,
        cluster=state.node.cluster,
        gpus=lease.gpus,
        start=now,
        span=None if term.committed_to is None else max(1, term.committed_to - now),
        funding=run.spec.funding,
        borrowed_already=borrowed,
        except_for=(lease.payer, *except_for),
    )
    covered = cover(world, ask, now=now)
    return covered if isinstance(covered, Covered) else None


def cut_overdraft(world: World, excess: Excess, *, seeder: Seeder, now: Instant) -> Cuts | None:
    """Return the cuts that remove the excess, in the order of R3.

    Only leases of the excess are cut, and no run is protected. If even all of them are not enough,
    all are cut.
    """
    total = sum(lease.gpus for lease in excess.leases)
    allowed = total - excess.gpus

    def fits() -> bool:
        left = sum(lease.gpus for lease in excess.leases if lease.name not in scope.gone)
        return left <= allowed

    scope = Scope(world, excess.leases, fits, free=_nothing, restore=_nothing)
    return cut_until_it_fits(scope, seeder=seeder, now=now, beneficiary="", partly=True)


def cut_shared(
    world: World,
    leases: tuple[Lease, ...],
    covered: Callable[[], bool],
    *,
    end: Callable[[Lease], None],
    restore: Callable[[Lease], None],
    seeder: Seeder,
    now: Instant,
) -> Cuts | None:
    """Return the cuts among shared leases that give an owner its envelope back, or None (O5).

    As in any overdraft, no run is protected.
    `covered`: returns whether enough money has come free.
    `end`, `restore`: end a lease in the caller's accounts, and undo that.
    """
    with world.what_if.opened():
        scope = Scope(world, leases, covered, free=end, restore=restore)
        return cut_until_it_fits(scope, seeder=seeder, now=now, beneficiary="")


def _nothing(lease: Lease) -> None:
    """Do nothing: `cut_overdraft` only counts leases."""


def _standing(world: World, payer: EnvelopeKey) -> tuple[Lease, ...]:
    """Return the open leases of the envelope that are not ending, sorted by name."""
    leases = (world.leases[name] for name in sorted(world.open_by_payer.get(payer, ())))
    return tuple(lease for lease in leases if lease.ending is None)


def _all(payer: EnvelopeKey, leases: tuple[Lease, ...], why: str) -> Excess:
    """Return an excess of all GPUs of these leases, for the reason `why`."""
    gpus = sum(lease.gpus for lease in leases)
    return Excess(subject=payer, leases=leases, gpus=gpus, why=why)


def _over(subject: str, leases: tuple[Lease, ...], cap: int, why: str) -> Excess:
    """Return the excess of these leases over a cap; its `gpus` is zero or less if there is none."""
    gpus = sum(lease.gpus for lease in leases)
    return Excess(subject=subject, leases=leases, gpus=gpus - cap, why=why)


def _not_covered(world: World, envelope: Envelope, leases: tuple[Lease, ...]) -> tuple[Lease, ...]:
    """Return leases in places that the envelope no longer covers after an edit of its flavor or
    selector."""
    nodes = world.fleet.nodes
    return tuple(
        lease
        for lease in leases
        if (state := nodes.get(lease.node)) is not None
        and not (
            envelope.flavor == state.node.flavor
            and envelope.covers(state.node.region, state.node.cluster)
        )
    )


def _lending(envelope: Envelope, leases: tuple[Lease, ...]) -> list[Excess]:
    """Return the excess of the GPUs that the envelope lends over its cap on lending."""
    cap = envelope.lending.max_concurrency
    if cap is None:
        return []
    lent = tuple(lease for lease in leases if lease.relation is Relation.BORROWED)
    return [_over(envelope.key, lent, cap, "lending.maxConcurrency")]


def _aggregates(world: World, envelope: Envelope) -> list[Excess]:
    """Return, for each aggregate with this envelope, the excess of its members' leases over its
    cap."""
    return [
        _over(
            aggregate.key,
            tuple(lease for key in aggregate.members for lease in _standing(world, key)),
            aggregate.max_concurrency,
            "an aggregate cap",
        )
        for aggregate in world.aggregates[envelope.key]
    ]


def _hours(
    world: World, envelope: Envelope, leases: tuple[Lease, ...], now: Instant
) -> list[Excess]:
    """Return the excesses of GPU-hours, of the envelope and of its lending."""
    lent = tuple(lease for lease in leases if lease.relation is Relation.BORROWED)
    return [
        excess
        for is_lent, left in _hours_left(world, envelope, now)
        for excess in _exhausted(
            world, envelope, lent if is_lent else leases, left, now, lent=is_lent
        )
    ]


def _hours_left(world: World, envelope: Envelope, now: Instant) -> list[tuple[bool, GpuMs]]:
    """Return (is_lent, GPU-ms that leases without a limit may still use) for each cap on hours."""
    account = world.accounts.of(envelope.key)
    limited, lent_limited = account.limited_ms(now, until=envelope.end)
    found = []
    if envelope.max_gpu_ms is not None:
        found.append((False, envelope.max_gpu_ms - account.used_ms(now) - limited))
    if envelope.lending.max_gpu_ms is not None:
        left = envelope.lending.max_gpu_ms - account.lent_used_ms(now) - lent_limited
        found.append((True, left))
    return found


def forgive_lowering(world: World, payer: EnvelopeKey, now: Instant) -> None:
    """Forget that a cap on GPU-hours was lowered, if the new cap still pays for every lease that
    has a time limit until that limit (O4).

    Called in the turn in which a Budget changes. Runs that declared a limit must not be cut because
    other leases use up the hours later.
    """
    envelope = world.envelopes.get(payer)
    for lent, left in _hours_left(world, envelope, now) if envelope is not None else []:
        if left >= 0:
            world.fold_forgiven(payer, lent=lent)


def was_enough(world: World, envelope: Envelope, *, lent: bool, at: Instant) -> bool:
    """Return whether, at a past instant `at`, the cap paid for every lease that has a time limit
    until that limit.

    Computes from the leases what `forgive_lowering` found at that instant.
    """
    cap = envelope.lending.max_gpu_ms if lent else envelope.max_gpu_ms
    if cap is None:
        return True
    now = max(world.head.instant, at)
    account = world.accounts.of(envelope.key)
    left = cap - (account.lent_used_ms(now) if lent else account.used_ms(now))
    for lease in world.leases.values():
        if lease.payer != envelope.key or (lent and lease.relation is not Relation.BORROWED):
            continue
        end = now if lease.end is None else lease.end
        left += lease.gpus * max(0, end - max(lease.start, account.since, at))  # used since `at`
        is_ending = lease.ending is not None and lease.ending.at <= at
        if lease.start <= at < (end if lease.end is not None else FOREVER) and not is_ending:
            left -= lease.gpus * max(0, min(_limit(world, lease), envelope.end) - at)
    return left >= 0


def _limit(world: World, lease: Lease) -> Instant:
    """Return the instant up to which the lease's hours were committed at its start; 0 without a
    limit."""
    run, attempt = world.runs.get(lease.uid), world.attempt_of(lease)
    if run is None or attempt is None or run.spec.max_duration is None:
        return 0
    return attempt.started + run.spec.max_duration


def _exhausted(
    world: World,
    envelope: Envelope,
    leases: tuple[Lease, ...],
    left: int,
    now: Instant,
    *,
    lent: bool,
) -> list[Excess]:
    """Return the excesses if no GPU-hours are left (O4).

    All leases without a limit are too many. Leases with a limit are too many only if the cap was
    lowered under them and does not suffice for them alone.

    `left`: GPU-ms left after everything that leases with a limit may still use.
    """
    if left > 0:
        return []
    why = "lending.maxGPUHours" if lent else "GPU-hours"
    unlimited = tuple(each for each in leases if world.terms[each.name] == UNLIMITED)
    scope = tuple(
        each
        for each in leases
        if each not in unlimited and world.lowered.was_lowered_under(each, lent=lent)
    )
    gpus = 0
    for lease in refinance_order(scope):
        if left >= 0:
            break
        committed_to = world.terms[lease.name].committed_to or now
        left += lease.gpus * max(0, min(committed_to, envelope.end) - now)
        gpus += lease.gpus
    limited = Excess(subject=envelope.key, leases=scope, gpus=gpus, why=f"a lowered cap of {why}")
    return [_all(envelope.key, unlimited, why), limited]
