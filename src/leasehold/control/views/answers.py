"""Answers to users' questions as lines of text, from the World alone.

Used by `sim scenario --show`. The answers are computed in `control.questions`, as for the query
API; this module only formats them.
"""

from collections.abc import Sequence

from leasehold.control.questions.answers.leases import LeaseRow
from leasehold.control.questions.answers.money import BalanceAnswer, UsageAnswer
from leasehold.control.questions.answers.reasons import CutRow, ExplainAnswer
from leasehold.control.questions.answers.runs import ReservationRow
from leasehold.control.questions.answers.shape import GpuAmount
from leasehold.control.questions.budgets import budgets as budget_rows
from leasehold.control.questions.cover import step_row
from leasehold.control.questions.explain import explain as explained
from leasehold.control.questions.leases import Filter, lease_list
from leasehold.control.questions.subject import Subject
from leasehold.control.questions.who_pays import who_pays as payers_of
from leasehold.core.facts import Closed, Uid
from leasehold.core.reservations import State
from leasehold.core.units import Instant, format_instant, plural
from leasehold.core.world.world import World


def explain(world: World, uid: Uid, now: Instant) -> list[str]:
    """Explain why the run waits, who pays, where it runs, and each preemption of it."""
    found = explained(world, _subject(world, uid), now)
    lines = [f"{found.run}: {found.phase} ({found.reason}): {found.message}"]
    lines += _waiting(found)
    lines += [f"  walked {step}" for step in cover_lines(world, uid)]
    lines += _places(found)
    for cut in found.cuts:
        lines += _cut(cut)
    return lines


def who_pays(world: World, uid: Uid, now: Instant) -> list[str]:
    """List each payer's GPUs now and GPU-hours to date, also for past runs."""
    found = payers_of(world, _subject(world, uid), now)
    rows = [("payer", "relation", "GPUs", "GPU-hours")]
    for row in found.payers:
        rows.append((row.envelope, row.relation, str(row.gpus), row.gpu_hours))
    return [found.run, *_table(rows)]


def cover_lines(world: World, uid: Uid) -> list[str]:
    """List the newest search for payers: what each envelope gave, or why it gave nothing."""
    lines = []
    for step in map(step_row, world.memory.traces.get(uid, ())):
        short = f" (then {step.held_back})" if step.taken and step.held_back else ""
        lines.append(f"{step.envelope} {step.relation}: {step.verdict}{short}")
    return lines


def leases(world: World, now: Instant, *, node: str = "", payer: str = "") -> list[str]:
    """List leases: which run used them and when, which envelope paid, why they ended."""
    rows: list[tuple[str, ...]] = [
        ("lease", "run", "where", "role", "payer", "from", "to", "opened", "ended")
    ]
    found = lease_list(world, now, Filter(node=node, payer=payer, since=0))
    rows += [_lease_row(row) for row in found.items]
    return [f"as of {format_instant(now)}", *_table(rows)]


def budgets(world: World, now: Instant) -> list[str]:
    """List the envelopes: GPUs used and lent, hours committed and left, and until when they pay."""
    rows = [("envelope", "used", "of", "lent", "hours", "committed", "left", "until", "overdrawn")]
    usage = budget_rows(world, now, form="usage")
    balance = budget_rows(world, now, form="balance")
    assert isinstance(usage, UsageAnswer), "that is the form"
    assert isinstance(balance, BalanceAnswer), "that is the form"
    for used, money in zip(usage.items, balance.items, strict=True):
        rows.append(
            (
                used.envelope,
                str(used.used),
                str(used.concurrency),
                str(used.lent),
                _hours(money.used),
                _hours(money.committed),
                _hours(money.left),
                str(used.until or "-"),
                str(used.overdrawn or "-"),
            )
        )
    return _table(rows)


def _subject(world: World, uid: Uid) -> Subject:
    run = world.runs.get(uid)
    return Subject(world, uid if run is None else run.key, uid)


def _hours(amount: GpuAmount | None) -> str:
    return "-" if amount is None else amount.gpu_hours


def _waiting(found: ExplainAnswer) -> list[str]:
    lines = []
    refused, reservation = found.refusal, found.reservation
    if refused is not None:
        wait = "waiting may help" if refused.time_may_help else "it cannot start without a change"
        lines.append(
            f"  requested {plural(refused.asked, 'GPU')}, short of {refused.short_by}; {wait}"
        )
    if reservation is not None:
        lines += _reservation(reservation)
    return lines


def _reservation(row: ReservationRow) -> list[str]:
    lines = [
        f"  reservation {row.name} is {row.state}, starts {row.starts}, "
        f"{row.confidence}, deficit {plural(row.deficit, 'GPU')}"
    ]
    if row.state == State.BLOCKED:
        lines[0] = f"  reservation {row.name} is Blocked: {row.message}"
    lines += [f"  {remedy}" for remedy in row.remedies]
    return lines + [
        f"  {each.run} has a chance of {each.percent} % to be drawn" for each in row.odds
    ]


def _places(found: ExplainAnswer) -> list[str]:
    nodes: dict[int | None, dict[str, None]] = {}
    for place in found.places:
        nodes.setdefault(place.group, {})[place.node] = None
    return [f"  group {group} on {', '.join(sorted(names))}" for group, names in nodes.items()]


def _cut(cut: CutRow) -> list[str]:
    """Describe one Resolution that preempted this run, with its proof."""
    if not cut.resolution:
        return []  # the spare's own run took it back: the leases show that
    whom = cut.beneficiary or f"the caps of {cut.subject}"
    lines = [
        f"  cut by {cut.resolution} at {cut.at}: {plural(cut.gpus, 'GPU')} "
        f"({', '.join(cut.reasons)}) for {whom}"
    ]
    if cut.seed and Closed.RANDOM_PREEMPT in cut.reasons:
        owners = [f"{each.owner} with {each.bundles}" for each in cut.conflict_set]
        lines.append(f"    the lottery had {', '.join(owners)} bundles; seed {cut.seed}")
        lines += [f"    drew {draw.bundle} of {draw.owner}" for draw in cut.draws]
    return lines


def _lease_row(row: LeaseRow) -> tuple[str, ...]:
    return (
        row.lease,
        f"{row.run}#{row.group}.{row.index}",
        f"{row.node}[{','.join(map(str, row.slots))}]",
        row.role,
        row.payer,
        str(row.start),
        row.end or "-",
        row.opened,
        row.closure[:24] or "-",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
