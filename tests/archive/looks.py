"""Compares a World that is read back from its store with the World that wrote the store."""

from msgspec.structs import replace
from tests.properties.snapshots import snapshot

from leasehold.core.objects.node import Labels
from leasehold.core.units import HOUR
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.recover import read_world
from leasehold.sim.scenario.ledger import at_once
from leasehold.sim.scenario.stage import Stage


def read_again(store: Store, clock: Clock, world: World) -> World:
    """Return the World that a server that starts now would read."""
    ledger = Ledger(store, clock)
    at_once(ledger.look())
    found = at_once(read_world(store, clock, ledger, policy=world.policy, labels=Labels()))
    return found.world


def differences(stage: Stage) -> list[str]:
    """Return the differences between the loop's World and one that is read from its store."""
    world = stage.world
    assert world is not None
    again = read_again(stage.store, stage.user.clock, world)
    found = []
    mine, theirs = comparable(world, stage.now), comparable(again, stage.now)
    for name in mine:
        if mine[name] != theirs[name]:
            found.append(f"{name}: {mine[name]} is not {theirs[name]}")
    return found


def comparable(world: World, now: int) -> dict[str, object]:
    """Return everything that decisions and views read, also for other windows of the envelopes."""
    books = {uid: book for uid, book in world.books.items() if uid in world.runs}
    seen = snapshot(world, now)
    seen["books"] = {uid: seen["books"][uid] for uid in books}  # type: ignore[index]
    nodes = {name: state.node for name, state in world.fleet.nodes.items()}
    seen["nodes"] = {
        # A node's silence counts from its first observation; a fresh reader has not observed it.
        name: (replace(nodes[name], unheard_since=None), *state[1:])
        for name, state in seen["nodes"].items()  # type: ignore[attr-defined]
    }
    return {
        **seen,
        "leases": dict(world.leases),
        "resolutions": sorted(world.resolutions),
        "victims": dict(world.victims),
        "names": {uid: book.names for uid, book in books.items()},
        "verdicts": {
            uid: {key: [each.verdict for each in unit.attempts] for key, unit in book.units.items()}
            for uid, book in books.items()
        },
        "reservations": {
            subject: (each.batch, each.commitment) for subject, each in world.reservations.items()
        },
        "budget facts": world.budget_facts,
        "node facts": world.node_facts,
        "spent since": {
            payer: [_spent_since(world, payer, now - span, now) for span in (0, HOUR, 7 * HOUR)]
            for payer in world.accounts.payers()
            if world.accounts.of(payer).gpus or world.accounts.of(payer).used_ms(now)
        },
    }


def _spent_since(world: World, payer: str, since: int, now: int) -> tuple[int, int]:
    """Return the GPU-time used and lent if the envelope's window began at `since`."""
    used, lent = world.accounts.carried_ms(payer, since)
    for lease in world.leases.values():
        if lease.payer == payer:
            end = now if lease.end is None else lease.end
            amount = lease.gpus * max(0, end - max(lease.start, since))
            used += amount
            lent += amount if lease.relation == "Borrowed" else 0
    return used, lent
