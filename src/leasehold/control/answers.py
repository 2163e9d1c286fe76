"""The questions people ask, answered as lines of text from the World alone.

Used by `sim scenario --show`. What is answered is computed in `control.questions`, as it is for the
query API; this file only chooses words for a story that is over.
"""

from collections.abc import Mapping, Sequence

from leasehold.control.questions.envelopes import budgets as budget_rows
from leasehold.control.questions.forms import Wire
from leasehold.control.questions.lease_list import Filter, lease_list
from leasehold.control.questions.payers import who_pays as payers_of
from leasehold.control.questions.subject import Subject
from leasehold.control.questions.walk import step_row
from leasehold.control.questions.why import explain as explained
from leasehold.core.facts import Closed, State, Uid
from leasehold.core.units import Instant, format_instant, plural
from leasehold.core.world.world import World


def explain(world: World, uid: Uid, now: Instant) -> list[str]:
    """Why it waits, who pays, where it runs, why it was cut, by which draw, for whom."""
    found = explained(world, _subject(world, uid), now)
    lines = [f"{found['run']}: {found['phase']} ({found['reason']}): {found['message']}"]
    lines += _waiting(found)
    lines += [f"  walked {step}" for step in cover_lines(world, uid)]
    lines += _places(found)
    for cut in _rows(found, "cuts"):
        lines += _cut(cut)
    return lines


def who_pays(world: World, uid: Uid, now: Instant) -> list[str]:
    """Each payer's GPUs now and GPU-hours to date; historical runs too."""
    found = payers_of(world, _subject(world, uid), now)
    rows = [("payer", "relation", "GPUs", "GPU-hours")]
    for row in _rows(found, "payers"):
        keys = ("envelope", "relation", "gpus", "gpuHours")
        payer, relation, gpus, hours = (str(row[key]) for key in keys)
        rows.append((payer, relation, gpus, hours))
    return [str(found["run"]), *_table(rows)]


def cover_lines(world: World, uid: Uid) -> list[str]:
    """The newest walk of cover: every envelope, taken or why not."""
    lines = []
    for step in map(step_row, world.traces.get(uid, ())):
        short = f" (then {step['heldBack']})" if step["taken"] and step["heldBack"] else ""
        lines.append(f"{step['envelope']} {step['relation']}: {step['verdict']}{short}")
    return lines


def leases(world: World, now: Instant, *, node: str = "", payer: str = "") -> list[str]:
    """Who used what, when, who paid, why it ended."""
    rows: list[tuple[str, ...]] = [
        ("lease", "run", "where", "role", "payer", "from", "to", "opened", "ended")
    ]
    found = lease_list(world, now, Filter(node=node, payer=payer, since=0))
    rows += [_lease_row(row) for row in _rows(found, "items")]
    return [f"as of {format_instant(now)}", *_table(rows)]


def budgets(world: World, now: Instant) -> list[str]:
    """Used, lent, left, committed, until when."""
    rows = [("envelope", "used", "of", "lent", "hours", "committed", "left", "until", "overdrawn")]
    usage = _rows(budget_rows(world, now, form="usage"), "items")
    balance = _rows(budget_rows(world, now, form="balance"), "items")
    for used, money in zip(usage, balance, strict=True):
        rows.append(
            (
                str(used["envelope"]),
                str(used["used"]),
                str(used["concurrency"]),
                str(used["lent"]),
                _hours(money["used"]),
                _hours(money["committed"]),
                _hours(money["left"]),
                str(used["until"] or "-"),
                str(used["overdrawn"] or "-"),
            )
        )
    return _table(rows)


def _subject(world: World, uid: Uid) -> Subject:
    run = world.runs.get(uid)
    return Subject(world, uid if run is None else run.key, uid)


def _rows(found: Wire, key: str) -> list[Wire]:
    rows = found[key]
    assert isinstance(rows, list), key
    return rows


def _hours(amount: object) -> str:
    return str(amount["gpuHours"]) if isinstance(amount, Mapping) else "-"


def _waiting(found: Wire) -> list[str]:
    lines = []
    refused, reservation = found["refusal"], found["reservation"]
    if isinstance(refused, dict):
        wait = "time may clear it" if refused["timeMayHelp"] else "it needs somebody to act"
        lines.append(
            f"  asked {plural(refused['asked'], 'GPU')}, short by {refused['shortBy']}; {wait}"
        )
    if isinstance(reservation, dict):
        lines += _reservation(reservation)
    return lines


def _reservation(row: Wire) -> list[str]:
    lines = [
        f"  reservation {row['name']} is {row['state']}, starts {row['starts']}, "
        f"{row['confidence']}, deficit {plural(row['deficit'], 'GPU')}"
    ]
    if row["state"] == State.BLOCKED:
        lines[0] = f"  reservation {row['name']} is Blocked: {row['message']}"
    remedies = row["remedies"]
    assert isinstance(remedies, list)
    lines += [f"  {remedy}" for remedy in remedies]
    odds = _rows(row, "odds")
    return lines + [f"  {each['run']} would be drawn with {each['percent']} %" for each in odds]


def _places(found: Wire) -> list[str]:
    nodes: dict[object, dict[str, None]] = {}
    for place in _rows(found, "places"):
        nodes.setdefault(place["group"], {})[str(place["node"])] = None
    return [f"  group {group} on {', '.join(sorted(names))}" for group, names in nodes.items()]


def _cut(cut: Wire) -> list[str]:
    """One Resolution that cut this run, with the proof in words."""
    if not cut["resolution"]:
        return []  # a spare was taken back by its own run: the leases tell
    reasons = cut["reasons"]
    assert isinstance(reasons, list)
    whom = cut["beneficiary"] or f"the caps of {cut['subject']}"
    lines = [
        f"  cut by {cut['resolution']} at {cut['at']}: {plural(cut['gpus'], 'GPU')} "
        f"({', '.join(reasons)}) for {whom}"
    ]
    if cut["seed"] and Closed.RANDOM_PREEMPT in reasons:
        owners = [f"{each['owner']} with {each['bundles']}" for each in _rows(cut, "conflictSet")]
        lines.append(f"    the lottery had {', '.join(owners)} bundles; seed {cut['seed']}")
        lines += [f"    drew {draw['bundle']} of {draw['owner']}" for draw in _rows(cut, "draws")]
    return lines


def _lease_row(row: Wire) -> tuple[str, ...]:
    slots = row["slots"]
    assert isinstance(slots, list)
    return (
        str(row["lease"]),
        f"{row['run']}#{row['group']}.{row['index']}",
        f"{row['node']}[{','.join(map(str, slots))}]",
        str(row["role"]),
        str(row["payer"]),
        str(row["start"]),
        str(row["end"] or "-"),
        str(row["opened"]),
        str(row["closure"])[:24] or "-",
    )


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
