"""The invariants of every World, by name, each with the harm it prevents.

`check_delta` checks what a turn touched and runs before every commit. `check_all` checks everything
and runs in tests, in simulation and at the end of every scenario. `REJECTED` lists rules that we
considered, each with a legal state that breaks it: a wrong invariant would stop healthy fleets.
"""

from collections.abc import Iterator

from leasehold.core.facts import (
    Closed,
    ClosureReason,
    EnvelopeKey,
    Lease,
    Opened,
    Record,
    Relation,
    Role,
    Uid,
)
from leasehold.core.ledger.lottery import replay
from leasehold.core.units import Instant
from leasehold.core.world.accounts import Account
from leasehold.core.world.book import WHOLE
from leasehold.core.world.fleet import NodeState
from leasehold.core.world.rebuild import rebuilt
from leasehold.core.world.width import minimum_gpus, starting_gpus
from leasehold.core.world.world import World


class Violation(Record):
    """A broken invariant."""

    rule: str
    subject: str
    why: str
    runs: tuple[Uid, ...] = ()  # whose decision broke it, if known

    def __str__(self) -> str:
        return f"{self.rule} {self.subject}: {self.why}"


class Touched(Record):
    """What a turn changed: leases it opened, and leases it marked or closed."""

    opened: tuple[Lease, ...] = ()
    changed: tuple[Lease, ...] = ()


REJECTED = {
    "INV-RUNNING-RUN-IS-WHOLE": "a gang whose first pod has completed while the others still run",
    "INV-ENVELOPE-WITHIN-CAP-ALWAYS": "a cap that its owner lowered under running work: overdraft",
    "INV-LEASE-HAS-POD": "a lease whose batch is committed and whose pod is not made yet",
    "INV-POD-HAS-LEASE": "a pod on a fenced node, whose lease was closed by that evidence",
    "INV-WIDTH-ON-STEP-GRID": "an elastic run that the resolver shrank by one group",
    "INV-SPARE-BESIDE-ITS-GROUP": "a spare left over when its group's pods have all completed",
    "INV-PAYER-IN-WINDOW": "leases of an envelope whose window closed a minute ago: overdraft",
}


def check_delta(world: World, touched: Touched, now: Instant) -> list[Violation]:
    """Return the invariants that are broken by the turn that touched these leases."""
    found: list[Violation] = []
    nodes = {lease.node for lease in touched.opened}
    for name in sorted(nodes):
        found.extend(_slots(world, name))
    for payer in sorted({lease.payer for lease in touched.opened}):
        found.extend(_caps(world, payer, touched.opened))
        found.extend(_hours(world, payer, touched.opened, now))
    found.extend(_gangs(world, touched.opened))
    found.extend(_minimum(world, touched.changed))
    for uid in sorted({lease.uid for lease in (*touched.opened, *touched.changed)}):
        found.extend(_run(world, uid))
    for lease in (*touched.opened, *touched.changed):
        found.extend(_lease(lease, now))
    return found


def check_all(world: World, now: Instant) -> list[Violation]:
    """Check every invariant over everything, and compare the World with its own rebuild."""
    found: list[Violation] = []
    for name in sorted(world.fleet.nodes):
        found.extend(_slots(world, name))
    for uid in sorted(world.open_by_run):
        found.extend(_run(world, uid))
    for lease in world.leases.values():
        found.extend(_lease(lease, now))
    found.extend(_swaps(world))
    found.extend(_resolutions(world))
    found.extend(_rebuild(world, now))
    return found


def _slots(world: World, name: str) -> Iterator[Violation]:
    """Check INV-SLOT-EXCLUSIVE: a slot has at most one lease, and one filler if that is a spare.

    Otherwise two runs on one GPU would starve each other, and both would pay for it.
    """
    solid: dict[int, Lease] = {}
    fillers: dict[int, Lease] = {}
    for lease_name in sorted(world.open_by_node.get(name, ())):
        lease = world.leases[lease_name]
        table = fillers if lease.role is Role.BORROWED else solid
        for slot in lease.slots:
            if slot in table:
                yield Violation(
                    rule="INV-SLOT-EXCLUSIVE",
                    subject=f"{name}#{slot}",
                    why=f"both {table[slot].name} and {lease.name}",
                    runs=(table[slot].uid, lease.uid),
                )
            table[slot] = lease
    for slot, lease in fillers.items():
        under = solid.get(slot)
        if under is not None and under.role is not Role.SPARE:
            yield Violation(
                rule="INV-FILLER-ON-SPARE-ONLY",
                subject=f"{name}#{slot}",
                why=f"{lease.name} sits on active {under.name}",
                runs=(lease.uid,),
            )


def _caps(world: World, payer: EnvelopeKey, opened: tuple[Lease, ...]) -> Iterator[Violation]:
    """Check INV-CAP-AT-COMMIT: the leases that a turn opens take no envelope over a cap.

    Leases opened by a swap are exempt: they keep the payer, whose cap may have been lowered since.
    """
    mine = tuple(lease for lease in opened if lease.payer == payer)
    new = [lease for lease in mine if lease.reason is not Opened.SWAP]
    envelope = world.envelopes.get(payer)
    if not new:
        return
    runs = tuple(sorted({lease.uid for lease in new}))
    if envelope is None:
        yield Violation(rule="INV-PAYER-EXISTS", subject=payer, why="no such envelope", runs=runs)
        return
    account = world.accounts.of(payer)
    caps: list[tuple[str, int, int]] = [("concurrency", account.gpus, envelope.concurrency)]
    if envelope.lending.max_concurrency is not None and any(
        lease.relation is Relation.BORROWED for lease in new
    ):
        caps.append(("lending.maxConcurrency", account.lent, envelope.lending.max_concurrency))
    for aggregate in world.aggregates[payer]:
        used = sum(world.accounts.of(key).gpus for key in aggregate.members)
        caps.append((f"aggregate {aggregate.key}", used, aggregate.max_concurrency))
    for what, used, cap in caps:
        if used > cap:
            yield Violation(
                rule="INV-CAP-AT-COMMIT", subject=payer, why=f"{what}: {used} > {cap}", runs=runs
            )


def _hours(
    world: World, payer: EnvelopeKey, opened: tuple[Lease, ...], now: Instant
) -> Iterator[Violation]:
    """Check INV-HOURS-COMMITTED: the payers of the leases that a turn opens have the GPU-hours for
    them.

    Otherwise a run would die half-way.
    """
    envelope = world.envelopes.get(payer)
    new = [each for each in opened if each.payer == payer and each.reason is not Opened.SWAP]
    if envelope is None or not new:
        return
    account = world.accounts.of(payer)
    horizon = world.policy.accounting_horizon
    committed = account.committed_ms(now, until=envelope.end, horizon=horizon)
    runs = tuple(sorted({lease.uid for lease in new}))
    caps = [("maxGPUHours", account.used_ms(now) + committed[0], envelope.max_gpu_ms)]
    if any(lease.relation is Relation.BORROWED for lease in new):
        lent = account.lent_used_ms(now) + committed[1]
        caps.append(("lending.maxGPUHours", lent, envelope.lending.max_gpu_ms))
    for what, spent, cap in caps:
        if cap is not None and spent > cap:
            yield Violation(
                rule="INV-HOURS-COMMITTED", subject=payer, why=f"{what}: {spent} > {cap}", runs=runs
            )


def _gangs(world: World, opened: tuple[Lease, ...]) -> Iterator[Violation]:
    """Check INV-GANG-WHOLE: a turn starts whole units only.

    Half a gang would hold GPUs and be paid for, but do no work.
    """
    width: dict[tuple[Uid, int], int] = {}
    for lease in opened:
        if lease.reason is Opened.START and lease.role is not Role.SPARE:
            key = (lease.uid, world.unit_of(lease.uid, lease.group))
            width[key] = width.get(key, 0) + lease.gpus
    for (uid, unit), gpus in sorted(width.items()):
        run = world.runs.get(uid)
        if run is None:
            continue
        whole = starting_gpus(run.spec) if unit == WHOLE else run.spec.group_gpus
        grid = run.spec.malleable
        is_narrower = (
            unit == WHOLE
            and grid is not None
            and grid.min_gpus <= gpus <= whole
            and not (gpus - grid.min_gpus) % grid.step_gpus
        )
        if gpus != whole and not is_narrower:
            yield Violation(
                rule="INV-GANG-WHOLE", subject=run.key, why=f"{gpus} of {whole} GPUs", runs=(uid,)
            )


def _minimum(world: World, changed: tuple[Lease, ...]) -> Iterator[Violation]:
    """Check INV-SHRINK-KEEPS-MINIMUM: a shrink leaves a run at its minimum or above, or ends it.

    A run below its minimum would use GPUs without making progress.
    """
    shrunk = {
        lease.uid
        for lease in changed
        if lease.is_open and lease.ending is not None and lease.ending.why.reason is Closed.SHRINK
    }
    for uid in sorted(shrunk):
        run = world.runs.get(uid)
        left = [world.leases[name] for name in world.open_by_run.get(uid, ())]
        gpus = sum(
            each.gpus
            for each in left
            if each.role is not Role.SPARE
            # a moving rank continues on another node
            and (each.ending is None or each.name in world.moving)
        )
        if run is not None and 0 < gpus < minimum_gpus(run.spec):
            yield Violation(
                rule="INV-SHRINK-KEEPS-MINIMUM", subject=run.key, why=f"{gpus} GPUs", runs=(uid,)
            )


def _resolutions(world: World) -> Iterator[Violation]:
    """Check INV-LOTTERY-REPLAYS and INV-ONE-ACTIVATION.

    The draws of a Resolution must follow from its record, so that the people affected can check
    them. A start must be resolved at most once for GPUs, and once for money.
    """
    # money and GPUs may be taken separately for one subject
    subjects: dict[tuple[str, str], str] = {}
    for name in sorted(world.resolutions):
        resolution = world.resolutions[name]
        for problem in replay(resolution):
            yield Violation(rule="INV-LOTTERY-REPLAYS", subject=name, why=problem)
        if resolution.beneficiary:
            known = subjects.setdefault((resolution.subject, resolution.cause), name)
            if known != name:
                yield Violation(
                    rule="INV-ONE-ACTIVATION", subject=resolution.subject, why=f"{known}, {name}"
                )


def _run(world: World, uid: Uid) -> Iterator[Violation]:
    run = world.runs.get(uid)
    leases = [world.leases[name] for name in sorted(world.open_by_run.get(uid, ()))]
    if run is None:
        return
    yield from _one_domain(world, uid, leases)
    if run.spec.funding.max_borrow_gpus is not None:
        # INV-BORROW-LIMIT. A borrower that exceeds its own guardrail spends others' goodwill.
        borrowed = sum(lease.gpus for lease in leases if lease.relation is Relation.BORROWED)
        if borrowed > run.spec.funding.max_borrow_gpus:
            yield Violation(
                rule="INV-BORROW-LIMIT", subject=run.key, why=f"{borrowed} borrowed", runs=(uid,)
            )
    yield from _one_attempt(world, uid, leases)


def _one_domain(world: World, uid: Uid, leases: list[Lease]) -> Iterator[Violation]:
    """Check INV-GROUP-ONE-DOMAIN: all leases of a group are in one domain.

    A group across fabrics would train at the speed of its slowest link.
    """
    domains: dict[int, str] = {}
    for lease in leases:
        state = world.fleet.nodes.get(lease.node)
        if state is None:
            continue
        known = domains.setdefault(lease.group, state.node.domain)
        if known != state.node.domain:
            yield Violation(
                rule="INV-GROUP-ONE-DOMAIN",
                subject=f"{lease.run_key}#{lease.group}",
                why=f"{known} and {state.node.domain}",
                runs=(uid,),
            )


def _one_attempt(world: World, uid: Uid, leases: list[Lease]) -> Iterator[Violation]:
    """Check INV-ONE-ATTEMPT and INV-ONE-POD-PER-RANK: a unit has open leases of one attempt only.

    Two live attempts of a unit would run every rank twice.
    """
    numbers: dict[int, int] = {}
    ranks: dict[tuple[int, int], str] = {}
    for lease in leases:
        unit = world.unit_of(uid, lease.group)
        latest = world.books[uid].units[unit].last
        known = numbers.setdefault(unit, latest.number if latest else 0)
        if known != lease.attempt:
            yield Violation(
                rule="INV-ONE-ATTEMPT",
                subject=lease.run_key,
                why=f"attempts {known} and {lease.attempt} are both open",
                runs=(uid,),
            )
        if lease.role is not Role.SPARE:
            pod = ranks.setdefault((lease.group, lease.index), lease.pod)
            if pod != lease.pod:
                yield Violation(
                    rule="INV-ONE-POD-PER-RANK",
                    subject=f"{lease.run_key} group {lease.group} pod {lease.index}",
                    why=f"{pod} and {lease.pod}",
                    runs=(uid,),
                )


def _lease(lease: Lease, now: Instant) -> Iterator[Violation]:
    """Check INV-LEASE-SOUND: a lease has distinct slots, and its start, end and reasons agree."""
    problem = ""
    closed, ending = lease.closed, lease.ending
    if not lease.slots or len(set(lease.slots)) != len(lease.slots):
        problem = f"slots {lease.slots}"
    elif closed is not None and not lease.start <= closed.at <= now:
        problem = f"ends at {closed.at}, started at {lease.start}"
    elif closed is not None and ending is not None and closed.why != ending.why:
        problem = f"was to end as {ending.why}, ended as {closed.why}"
    if problem:
        yield Violation(rule="INV-LEASE-SOUND", subject=lease.name, why=problem, runs=(lease.uid,))


def _swaps(world: World) -> Iterator[Violation]:
    """Check INV-SWAP-KEEPS-PAYER: a lease opened by a swap has the payer of the spare it replaced.

    A node failure must not move the cost to another payer.
    """
    consumed: dict[tuple[str, int, int], Lease] = {}
    for lease in world.leases.values():
        if lease.closed is not None and lease.closed.why == ClosureReason(reason=Closed.SWAP):
            for slot in lease.slots:
                consumed[(lease.node, slot, lease.closed.batch)] = lease
    for lease in world.leases.values():
        if lease.reason is Opened.SWAP:
            for slot in lease.slots:
                spare = consumed.get((lease.node, slot, lease.batch))
                if spare is None or spare.payer != lease.payer:
                    yield Violation(
                        rule="INV-SWAP-KEEPS-PAYER", subject=lease.name, why=f"slot {slot}"
                    )


def _rebuild(world: World, now: Instant) -> Iterator[Violation]:
    """Check INV-WORLD-IS-ITS-FOLD: every index equals the one that is rebuilt from the facts.

    An index that has drifted would make every later decision wrong.
    """
    again = rebuilt(world)
    tables: list[tuple[str, object, object]] = [
        ("open_by_run", _sets(world.open_by_run), _sets(again.open_by_run)),
        ("open_by_node", _sets(world.open_by_node), _sets(again.open_by_node)),
        ("open_by_payer", _sets(world.open_by_payer), _sets(again.open_by_payer)),
        ("terms", world.terms, again.terms),
        ("moving", set(world.moving), set(again.moving)),
        ("draining", set(world.fleet.draining), set(again.fleet.draining)),
        ("reservation_of", world.reservation_of, again.reservation_of),
    ]
    for name, state in world.fleet.nodes.items():
        tables.append((f"node {name}", _node(state), _node(again.fleet.nodes[name])))
    for key, pool in world.fleet.pools.items():
        other = again.fleet.pools[key]
        mine_of = (pool.free, pool.buckets, pool.sizes)
        tables.append((f"pool {key}", mine_of, (other.free, other.buckets, other.sizes)))
    for payer in world.accounts.payers():
        mine, theirs = world.accounts.of(payer), again.accounts.of(payer)
        tables.append((f"account {payer}", _account(mine, now), _account(theirs, now)))
    for label, mine_, theirs_ in tables:
        if mine_ != theirs_:
            yield Violation(
                rule="INV-WORLD-IS-ITS-FOLD", subject=label, why=f"{mine_} is not {theirs_}"
            )


def _sets(index: dict[str, dict[str, None]]) -> dict[str, set[str]]:
    return {key: set(names) for key, names in index.items()}


def _node(state: NodeState) -> tuple[int, ...]:
    return (
        state.solid,
        state.spare,
        state.filler,
        state.foreign,
        state.free,
        state.cpu_used,
        state.memory_used,
        state.pods_used,
        state.planned,
    )


def _account(account: Account, now: Instant) -> tuple[object, ...]:
    return (
        account.gpus,
        account.lent,
        account.used_ms(now),
        account.lent_used_ms(now),
        sorted((str(term), amounts) for term, amounts in account.terms.items()),
        account.borrowers,
    )
