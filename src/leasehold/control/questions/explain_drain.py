"""Explains how a run left drained nodes: the endings of its leases name the node.

Used by `explain`, and by `drain` for runs that have left. The user who asked for the drain is known
as long as the node's annotation exists.
"""

from leasehold.control.questions.formats import listed, moment
from leasehold.control.questions.subject import Subject
from leasehold.core.facts import Closed, Lease, Opened, Role
from leasehold.core.units import Instant, plural
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World


def drain_words(world: World, subject: Subject) -> list[str]:
    """Return a sentence for each time the run had to leave a node, oldest first."""
    found: dict[tuple[Instant, str], list[Lease]] = {}
    for lease in subject.every_lease():
        node = "" if lease.why is None else lease.why.drained_node
        if node:
            found.setdefault((_decided(lease), node), []).append(lease)
    return [
        f"At {moment(at)} node {node} was drained{_by(world, node)}: {_what(world, leases)}."
        for (at, node), leases in sorted(found.items())
    ]


def is_requeued(world: World, lease: Lease) -> bool:
    """Return whether the whole attempt ended with this lease, or only one pod left for its
    spare."""
    unit = world.unit_of(lease.uid, lease.group)
    mates = [
        each
        for each in open_leases(world, lease.uid)
        if each.attempt == lease.attempt and world.unit_of(lease.uid, each.group) == unit
    ]
    if mates:
        return all(
            each.ending is not None and each.ending.why.reason is Closed.SWAP for each in mates
        )
    attempt = world.attempt_of(lease)
    return attempt is not None and attempt.outcome is Closed.SWAP


def heir_of(lease: Lease, leases: list[Lease]) -> Lease | None:
    """Return the lease on a spare under which this lease's pod continued, or None."""
    for each in leases:
        if (
            each.reason is Opened.SWAP
            and each.batch > lease.batch
            and (each.attempt, each.group, each.index) == (lease.attempt, lease.group, lease.index)
        ):
            return each
    return None


def _by(world: World, node: str) -> str:
    state = world.fleet.nodes.get(node)
    asker = "" if state is None else state.node.drained_by
    return f" by {asker}" if asker else ""


def _decided(lease: Lease) -> Instant:
    assert lease.ending is not None, f"{lease.name}: whatever leaves a drained node is marked first"
    return lease.ending.at


def _what(world: World, leases: list[Lease]) -> str:
    moved = [each for each in leases if _is(each, Closed.SWAP) and each.role is not Role.SPARE]
    if moved and is_requeued(world, moved[0]):
        gpus = sum(lease.gpus for lease in moved)
        whole = "it" if world.unit_of(moved[0].uid, 0) else f"group {moved[0].group}"
        return f"{whole} was stopped, with {plural(gpus, 'GPU')}, and requeued at its old place"
    words = []
    for lease in moved:
        heir = heir_of(lease, [world.leases[name] for name in world.book(lease.uid).names])
        where = "moves to its spare" if heir is None else f"moved to its spare on {heir.node}"
        words.append(f"group {lease.group} pod {lease.index} {where}")
    given_up = sorted({lease.group for lease in leases if _is(lease, Closed.SHRINK)})
    if given_up:
        groups = "group" if len(given_up) == 1 else "groups"
        words.append(f"it gave up {groups} {listed(map(str, given_up))} and continued")
    dropped = [lease for lease in leases if _is(lease, Closed.DROP_SPARE)]
    if dropped:
        words.append(f"it gave up spares of {plural(sum(x.gpus for x in dropped), 'GPU')}")
    return listed(dict.fromkeys(words))


def _is(lease: Lease, reason: Closed) -> bool:
    return lease.why is not None and lease.why.reason is reason
