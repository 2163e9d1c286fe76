"""The questions people ask, answered as lines of text from the World alone.

Used by `sim scenario --show` and by the command line. Nothing here computes a number of its own:
views and ledger records do; this file chooses words.
"""

from collections.abc import Sequence

from leasehold.control.reservations import present
from leasehold.control.views import envelope_view, run_view, spent_by
from leasehold.core.book import base_reason
from leasehold.core.facts import Closed, Lease, Reservation, Resolution, Run, State, Uid
from leasehold.core.units import FOREVER, Instant, format_gpu_hours, format_instant
from leasehold.core.width import open_leases
from leasehold.core.world import World, ledger_order


def explain(world: World, uid: Uid, now: Instant) -> list[str]:
    """Why it waits, who pays, where it runs, why it was cut, by which draw, for whom."""
    view = run_view(world, uid, now)
    run = world.runs.get(uid)
    name = run.key if run is not None else uid
    lines = [f"{name}: {view.phase} ({view.because}): {view.message}"]
    if run is not None:
        lines += _waiting(world, run)
    lines += [f"  walked {step}" for step in cover_lines(world, uid)]
    lines += _places(world, uid)
    lines += _cuts(world, uid)
    return lines


def who_pays(world: World, uid: Uid, now: Instant) -> list[str]:
    """Each payer's GPUs now and GPU-hours to date; historical runs too."""
    run = world.runs.get(uid)
    name = run.key if run is not None else uid
    gpus: dict[tuple[str, str], int] = {}
    for lease in open_leases(world, uid):
        key = (lease.payer, str(lease.relation))
        gpus[key] = gpus.get(key, 0) + lease.gpus
    rows = [("payer", "relation", "GPUs", "GPU-hours")]
    for (payer, relation), spent in sorted(spent_by(world, uid, now).items()):
        held = gpus.get((payer, str(relation)), 0)
        rows.append((payer, str(relation), str(held), format_gpu_hours(spent)))
    return [name, *_table(rows)]


def cover_lines(world: World, uid: Uid) -> list[str]:
    """The newest walk of cover: every envelope, taken or why not."""
    lines = []
    for step in world.traces.get(uid, ()):
        short = f" (then {step.held_back})" if step.taken and step.held_back else ""
        lines.append(f"{step.envelope} {step.relation}: {step.verdict}{short}")
    return lines


def leases(world: World, now: Instant, *, node: str = "", payer: str = "") -> list[str]:
    """Who used what, when, who paid, why it ended."""
    rows: list[tuple[str, ...]] = [
        ("lease", "run", "where", "role", "payer", "from", "to", "opened", "ended")
    ]
    for lease in sorted(world.leases.values(), key=ledger_order):
        if node in ("", lease.node) and payer in ("", lease.payer):
            rows.append(_lease_row(lease))
    return [f"as of {format_instant(now)}", *_table(rows)]


def budgets(world: World, now: Instant) -> list[str]:
    """Used, lent, left, committed, until when."""
    rows = [("envelope", "used", "of", "lent", "hours", "committed", "left", "until", "overdrawn")]
    for key in sorted(world.envelopes):
        envelope = world.envelopes[key]
        view = envelope_view(world, key, now)
        rows.append(
            (
                key,
                str(view.used),
                str(envelope.concurrency),
                str(view.lent),
                format_gpu_hours(view.gpu_ms),
                format_gpu_hours(view.committed_ms),
                "-" if view.left_ms is None else format_gpu_hours(view.left_ms),
                "-" if envelope.end == FOREVER else format_instant(envelope.end),
                str(view.overdrawn or "-"),
            )
        )
    return _table(rows)


def _waiting(world: World, run: Run) -> list[str]:
    lines = []
    refused = world.refusals.get(run.uid)
    if refused is not None:
        wait = "time may clear it" if refused.time_may_help else "it needs somebody to act"
        lines.append(f"  asked {refused.asked} GPUs, short by {refused.short_by}; {wait}")
    reservation = present(world, run)
    if reservation is not None:
        lines += _reservation(reservation)
    return lines


def _reservation(reservation: Reservation) -> list[str]:
    lines = [
        f"  reservation {reservation.name} is {reservation.state}, starts "
        f"{format_instant(reservation.starts)}, {reservation.confidence}, "
        f"deficit {reservation.deficit} GPUs"
    ]
    if reservation.state is State.BLOCKED:
        lines[0] = f"  reservation {reservation.name} is Blocked: {reservation.message}"
    lines += [f"  {remedy}" for remedy in reservation.remedies]
    lines += [f"  {run} would be drawn with {percent} %" for run, percent in reservation.odds]
    return lines


def _places(world: World, uid: Uid) -> list[str]:
    nodes: dict[int, dict[str, None]] = {}
    for lease in open_leases(world, uid):
        nodes.setdefault(lease.group, {})[lease.node] = None
    return [f"  group {group} on {', '.join(sorted(names))}" for group, names in nodes.items()]


def _cuts(world: World, uid: Uid) -> list[str]:
    """Every Resolution that cut this run, with the proof in words."""
    book = world.books.get(uid)
    names = book.names if book is not None else []
    found = {world.victims[name]: world.leases[name] for name in names if name in world.victims}
    lines = []
    for name in sorted(found):
        resolution = world.resolutions[name]
        lost = [world.leases[each] for each in names if world.victims.get(each) == name]
        lines += _cut(resolution, lost)
    return lines


def _cut(resolution: Resolution, lost: list[Lease]) -> list[str]:
    gpus = sum(lease.gpus for lease in lost)
    whom = resolution.beneficiary or f"the caps of {resolution.subject}"
    reasons = sorted({str(base_reason(lease.ending.reason)) for lease in lost if lease.ending})
    lines = [
        f"  cut by {resolution.name} at {format_instant(resolution.instant)}: {gpus} GPUs "
        f"({', '.join(reasons)}) for {whom}"
    ]
    lottery = resolution.lottery
    if lottery is not None and str(Closed.RANDOM_PREEMPT) in reasons:
        owners = ", ".join(f"{owner} with {len(found)}" for owner, found in lottery.conflict_set)
        lines.append(f"    the lottery had {owners} bundles; seed {lottery.seed}")
        lines += [f"    drew {draw.bundle} of {draw.owner}" for draw in lottery.draws]
    return lines


def _lease_row(lease: Lease) -> tuple[str, ...]:
    slots = ",".join(map(str, lease.slots))
    return (
        lease.name,
        f"{lease.run_key}#{lease.group}.{lease.index}",
        f"{lease.node}[{slots}]",
        str(lease.role),
        lease.payer,
        format_instant(lease.start),
        "-" if lease.end is None else format_instant(lease.end),
        str(lease.reason),
        lease.closure[:24] or "-",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
