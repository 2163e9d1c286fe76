"""`fleet`: every node with its slots and their holders, now or at a past instant.

One pass over the leases open at that time. Leases show what ran in the past; past states of nodes
are unknown.
"""

from collections.abc import Iterable

from leasehold.control.questions.answers.fleet import (
    FlavorRow,
    FleetAnswer,
    HolderRow,
    NodeRow,
)
from leasehold.control.questions.formats import instant
from leasehold.control.questions.subject import Archived, no_archive
from leasehold.core.facts import Lease, Node, Role
from leasehold.core.units import Instant
from leasehold.core.world.fleet import NodeState
from leasehold.core.world.world import World

FREE, FOREIGN = 0, -1
_BROKEN = ("NotReady", "Fenced", "Unusable")
_PAST = "Past"  # a removed node, known only from leases


def fleet(
    world: World,
    *,
    at: Instant | None = None,
    archived: Archived = no_archive,
    archived_from: Instant = 0,
) -> FleetAnswer:
    """Return the fleet now, or at the past instant `at`.

    `archived_from`: start of the first archived lease; 0 if there is none.
    """
    holders: dict[HolderRow, int] = {}
    by_node: dict[str, list[Lease]] = {}
    for lease in _open(world) if at is None else _open_at(world, at, archived):
        by_node.setdefault(lease.node, []).append(lease)
    rows = []
    for name in sorted(world.fleet.nodes.keys() | by_node.keys()):
        leases = by_node.get(name, [])
        state = world.fleet.nodes.get(name)
        if state is None:
            rows.append(_of_the_past(name, leases, holders))
        else:
            rows.append(_node(state, leases, holders, is_now=at is None))
    flavors = _flavors(rows, list(holders))
    return FleetAnswer(
        at=instant(at),
        earliest=instant(_earliest(world, archived_from)),
        total=_total(flavors),
        flavors=flavors,
        holders=list(holders),
        nodes=rows,
    )


def _earliest(world: World, archived_from: Instant) -> Instant | None:
    live = min((each.start for each in world.leases.values()), default=None)
    if live is None or not archived_from:
        return live or archived_from or None
    return min(live, archived_from)


def _open(world: World) -> Iterable[Lease]:
    return (world.leases[name] for names in world.open_by_node.values() for name in names)


def _open_at(world: World, at: Instant, archived: Archived) -> Iterable[Lease]:
    def holds(lease: Lease) -> bool:
        return lease.start <= at and (lease.end is None or lease.end > at)

    yield from filter(holds, world.leases.values())
    for lease in archived(at, at + 1):
        if lease.name not in world.leases and holds(lease):
            yield lease


def _node(
    state: NodeState, leases: list[Lease], holders: dict[HolderRow, int], *, is_now: bool
) -> NodeRow:
    node = state.node
    cells = _cells(node.gpus, leases, holders)
    if is_now:
        _mark_foreign(cells, state)
    word, says = state_of(state) if is_now else ("Ready", "")
    return NodeRow(
        node=node.name,
        flavor=node.flavor,
        domain=node.domain,
        gpus=node.gpus,
        state=word,
        says=says,
        cells=cells,
    )


def _of_the_past(name: str, leases: list[Lease], holders: dict[HolderRow, int]) -> NodeRow:
    gpus = 1 + max((slot for lease in leases for slot in lease.slots), default=-1)
    return NodeRow(
        node=name,
        flavor="",
        domain="",
        gpus=gpus,
        state=_PAST,
        says="it is gone; what it ran is known from leases",
        cells=_cells(gpus, leases, holders),
    )


def _cells(gpus: int, leases: list[Lease], holders: dict[HolderRow, int]) -> list[int]:
    """Return, for each slot of a node, the position of its holder. A filler hides the spare under
    it."""
    cells = [FREE] * gpus
    for lease in sorted(leases, key=lambda each: each.role is Role.BORROWED):
        row = HolderRow(
            run=lease.run_key,
            owner=lease.owner,
            payer=lease.payer,
            payer_owner=lease.payer_owner,
            relation=lease.relation.value,
            role=lease.role.value,
        )
        place = holders.setdefault(row, len(holders) + 1)
        for slot in lease.slots:
            if slot < gpus:  # the node may have had more GPUs than now
                cells[slot] = place
    return cells


def _mark_foreign(cells: list[int], state: NodeState) -> None:
    """Mark the slots of foreign pods. If their ordinals are unknown, the last free slots are
    marked."""
    left = state.foreign
    if not left:
        return
    for slot in range(len(cells)):
        if left and cells[slot] == FREE and state.strangers >> slot & 1:
            cells[slot] = FOREIGN
            left -= 1
    for slot in reversed(range(len(cells))):
        if left and cells[slot] == FREE:
            cells[slot] = FOREIGN
            left -= 1


def state_of(state: NodeState) -> tuple[str, str]:
    """Return the node's state in one word, with an explanation unless the node is simply ready."""
    node = state.node
    if node.fenced:
        return "Fenced", "it is declared dead: none of its processes is alive"
    if node.lacks:
        return "Unusable", f"it lacks {node.lacks}"
    if not node.ready:
        return "NotReady", f"its agent is silent{_since(node)}; what ran there may still run"
    if node.is_draining:
        return "Draining", f"{node.drained_by} has it emptied"
    if node.cordoned:
        return "Cordoned", "it takes no new work"
    return ("Ready", "") if state.takes_work else ("Tainted", "a taint keeps work away")


def _since(node: Node) -> str:
    return "" if node.not_ready_since is None else f" since {instant(node.not_ready_since)}"


def _flavors(rows: list[NodeRow], holders: list[HolderRow]) -> list[FlavorRow]:
    counts: dict[str, dict[str, int]] = {}
    names = ("nodes", "gpus", "paid", "spare", "filler", "foreign", "idle", "closed", "broken")
    kinds = [_kind(each) for each in holders]
    for row in rows:
        if row.state == _PAST:
            continue
        found = counts.get(row.flavor) or counts.setdefault(row.flavor, dict.fromkeys(names, 0))
        found["nodes"] += 1
        found["gpus"] += row.gpus
        free = "idle" if row.state == "Ready" else "closed"
        free = "broken" if row.state in _BROKEN else free
        for cell in row.cells:
            if cell == FREE:
                found[free] += 1
            elif cell == FOREIGN:
                found["foreign"] += 1
            else:
                found[kinds[cell - 1]] += 1
    return [FlavorRow(flavor=flavor, **found) for flavor, found in sorted(counts.items())]


def _total(rows: list[FlavorRow]) -> FlavorRow:
    return FlavorRow(
        flavor="",
        nodes=sum(each.nodes for each in rows),
        gpus=sum(each.gpus for each in rows),
        paid=sum(each.paid for each in rows),
        spare=sum(each.spare for each in rows),
        filler=sum(each.filler for each in rows),
        foreign=sum(each.foreign for each in rows),
        idle=sum(each.idle for each in rows),
        closed=sum(each.closed for each in rows),
        broken=sum(each.broken for each in rows),
    )


def _kind(holder: HolderRow) -> str:
    return {Role.SPARE: "spare", Role.BORROWED: "filler"}.get(Role(holder.role), "paid")
