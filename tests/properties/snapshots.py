"""The content of a World's indices as plain values that compare; used by several properties."""

from leasehold.core.world.accounts import Account
from leasehold.core.world.fleet import NodeState, Pool
from leasehold.core.world.world import World


def snapshot(world: World, now: int) -> dict[str, object]:
    """Return what must be equal after an undo, and in a World rebuilt from the same facts."""
    fleet = world.fleet
    names = {name: {key: set(found) for key, found in index.items()}
             for name, index in _indices(world).items()}  # fmt: skip
    return {
        **names,
        "nodes": {name: _node(state) for name, state in sorted(fleet.nodes.items())},
        "pools": {key: _pool(pool) for key, pool in sorted(fleet.pools.items())},
        "orders": {
            (flavor, place): fleet.by_free(flavor, *place)
            for flavor in sorted({key[0] for key in fleet.pools})
            for place in fleet.locations(flavor)
        },
        "fillable": set(fleet.fillable),
        "crowded": set(fleet.crowded),
        "accounts": {
            payer: _account(world.accounts.of(payer), now)
            for payer in world.accounts.payers()
            if world.accounts.of(payer).gpus or world.accounts.of(payer).used_ms(now)
        },
        "terms": dict(world.terms),
        "ending": set(world.ending),
        "yielding": dict(world.yielding),
        "envelopes": dict(world.envelopes),
        "aggregates": dict(world.aggregates),
        "uids": dict(world.uid_of),
        "books": {uid: _book(world, uid) for uid in sorted(world.books)},
    }


def _indices(world: World) -> dict[str, dict[str, dict[str, None]]]:
    return {
        "by run": world.open_by_run,
        "by node": world.open_by_node,
        "by payer": world.open_by_payer,
        "by pod": world.open_by_pod,
        "pods by run": world.pods_by_run,
        "pods by node": world.pods_by_node,
    }


def _node(state: NodeState) -> tuple[object, ...]:
    return (state.node, state.solid, state.spare, state.filler, state.foreign, state.planned,
            state.free, state.bucket, state.takes_work, state.cpu_used, state.memory_used,
            state.pods_used)  # fmt: skip


def _pool(pool: Pool) -> tuple[object, ...]:
    buckets = {key: list(names) for key, names in pool.buckets.items()}
    return pool.free, list(pool.nodes), buckets, pool.home


def _account(account: Account, now: int) -> tuple[object, ...]:
    return (account.gpus, account.lent, account.used_ms(now), account.lent_used_ms(now),
            {term: list(amounts) for term, amounts in account.terms.items()},
            dict(account.borrowers), list(account.claims))  # fmt: skip


def _book(world: World, uid: str) -> tuple[object, ...]:
    book = world.books[uid]
    attempts = {
        key: [(each.number, each.started, each.open, each.why, each.cause, each.protected,
               each.ended_at, each.completed) for each in unit.attempts]
        for key, unit in book.units.items()
    }  # fmt: skip
    return attempts, dict(book.settled), set(book.cuts), book.resized_at, book.swapped_at
