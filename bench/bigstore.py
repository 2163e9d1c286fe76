"""Makes a data folder with many finished runs and closed leases, as the control loop leaves them.

Used by `bench.embedded`. It writes the objects and the chain of batches with the code of the ledger
itself, but many writes in one transaction. `leasehold ledger verify` accepts the result.
"""

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.facts import Closed, Closure, ClosureReason, Lease, Opened, Relation, Role
from leasehold.core.ledger.batch import Batch, Closing, NodeFact, line
from leasehold.core.ledger.chain import GENESIS, canonical
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.lease import lease_status, lease_to_wire
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.ports.store import Create, PatchStatus, StoreError, Write
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.ledger.commit import SHARD, batch_name

NODES, GPUS = 64, 8
TEAMS = 20
PER_BATCH = 20  # runs that one batch opens
ROUND = 500
FLEET = "fleet: [{domain: a, nodes: 64, gpus: 8, flavor: virtual, region: r, cluster: c}]\n"


def budget(team: int) -> Wire:
    envelope = {"name": "e", "flavor": "virtual", "concurrency": NODES * GPUS}
    return {
        "apiVersion": API_VERSION,
        "kind": "Budget",
        "metadata": {"name": "b", "namespace": f"t{team}"},
        "spec": {"owner": f"org:t{team}", "envelopes": [envelope]},
    }


def manifest(index: int, pods: int) -> Wire:
    team = index % TEAMS
    container = {"name": "main", "image": "none", "command": ["true"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {
            "name": f"run-{index}",
            "namespace": f"t{team}",
            "finalizers": ["rq.davidlangworthy.io/leases-closed"],
        },
        "spec": {
            "owner": f"org:t{team}",
            "resources": {"gpuType": "virtual", "totalGPUs": pods, "gpusPerPod": 1},
            "template": {"spec": {"containers": [container]}},
        },
    }


def leases_of(
    index: int, uid: str, pods: int, *, batch: int, first: int, start: int
) -> list[Lease]:
    team = index % TEAMS
    return [
        Lease(
            name=f"run-{index}-{batch}-{first + pod}",
            owner=f"org:t{team}",
            namespace=f"t{team}",
            run=f"run-{index}",
            uid=uid,
            attempt=1,
            group=0,
            index=pod,
            node=f"a-{(index * pods + pod) // GPUS % NODES:02d}",
            slots=((index * pods + pod) % GPUS,),
            role=Role.ACTIVE,
            start=start,
            payer=f"t{team}/b/e",
            payer_owner=f"org:t{team}",
            relation=Relation.OWNED,
            reason=Opened.START,
            batch=batch,
            pod=f"run-{index}-{batch}-g0-p{pod}",
        )
        for pod in range(pods)
    ]


class Past:
    """Writes the history of a fleet: runs that started and ended, until a few minutes ago."""

    def __init__(self, store: GroupStore, *, now: int) -> None:
        self._store = store
        self._now = now
        self._seq, self._digest = 0, GENESIS
        self._instant = now - 6 * HOUR

    async def write(self, runs: int, leases: int) -> None:
        pods = leases // runs
        await self._all([Create(_namespace(f"t{team}")) for team in range(TEAMS)])
        await self._all([Create(budget(team)) for team in range(TEAMS)])
        made = await self._all([Create(manifest(index, pods)) for index in range(runs)])
        uids = [str(_metadata(each)["uid"]) for each in made]
        step = (6 * HOUR - 10 * MINUTE) // (2 * -(-runs // PER_BATCH) + 1)
        for first in range(0, runs, PER_BATCH):
            chosen = range(first, min(first + PER_BATCH, runs))
            await self._generation(chosen, uids, pods, step)
        head = {"seq": self._seq, "digest": self._digest, "epoch": 1, "instant": self._instant,
                "materialised": self._seq}  # fmt: skip
        await self._all([Create({"apiVersion": API_VERSION, "kind": "LedgerHead",
                                 "metadata": {"name": SHARD}, "spec": head})])  # fmt: skip

    async def _generation(self, chosen: range, uids: list[str], pods: int, step: int) -> None:
        """Write one batch that starts the chosen runs, and a second batch in which all of them have
        ended."""
        start = self._instant + step
        opened = [
            lease
            for place, index in enumerate(chosen)
            for lease in leases_of(
                index, uids[index], pods, batch=self._seq + 1, first=place * pods, start=start
            )
        ]
        await self._commit(start, opened=tuple(opened))
        end = start + step - SECOND
        closed = [
            Closing(lease=lease.name, end=end, reason="Completed") for lease in opened
        ]  # fmt: skip
        await self._commit(start + step, closed=tuple(closed))
        writes: list[Write] = [Create(lease_to_wire(lease)) for lease in opened]
        for lease in opened:
            from msgspec.structs import replace

            over = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=end, batch=self._seq)
            done = replace(lease, closed=over)
            writes.append(PatchStatus("Lease", "", lease.name, lease_status(done)))
        await self._all(writes)

    async def _commit(
        self, instant: int, *, opened: tuple[Lease, ...] = (), closed: tuple[Closing, ...] = ()
    ) -> None:
        facts = {}
        if not self._seq:
            facts = {
                "facts_budgets": tuple(
                    (f"t{team}/b", canonical(budget(team)["spec"])) for team in range(TEAMS)
                ),
                "facts_nodes": tuple(
                    NodeFact(name=f"a-{i:02d}", gpus=GPUS, flavor="virtual", domain="r/c/a")
                    for i in range(NODES)
                ),
            }
        self._seq += 1
        self._instant = instant
        batch = Batch(seq=self._seq, epoch=1, instant=instant, opened=opened, closed=closed,
                      **facts)  # type: ignore[arg-type] # fmt: skip
        exported = line(batch, self._digest)
        self._digest = str(exported["digest"])
        name = batch_name(self._seq, self._digest)
        obj: Wire = {"apiVersion": API_VERSION, "kind": "LedgerBatch", "metadata": {"name": name},
                     "spec": exported}  # fmt: skip
        await self._all([Create(obj)])

    async def _all(self, writes: list[Write]) -> list[Wire]:
        made: list[Wire] = []
        for chunk in _chunks(writes):
            for answer in await self._store.write_all(chunk):
                if isinstance(answer, StoreError):
                    raise answer
                made.append(answer or {})
        return made


def _chunks(writes: list[Write]) -> Iterator[list[Write]]:
    for first in range(0, len(writes), ROUND):
        yield writes[first : first + ROUND]


def _namespace(name: str) -> Wire:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _metadata(wire: Wire) -> Wire:
    found = wire["metadata"]
    assert isinstance(found, dict)
    return found


def make(data: Path, runs: int, leases: int) -> None:
    """Make a data folder with this many runs and leases, on which `leasehold up` can be started."""
    folder = DataFolder(data)
    folder.prepare()

    async def main() -> None:
        tasks = AsyncioTasks()
        store = GroupStore(folder.store, tasks, AsyncioClock())
        await Past(store, now=time.time_ns() // 1_000_000).write(runs, leases)
        store.close()

    asyncio.run(main())


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
