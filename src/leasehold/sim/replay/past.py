"""Reads the jobs of an exported ledger, to replay them with other Budgets.

The ledger shows which run held which GPUs from when to when, and so how much work each run did.
Runs that never held a GPU are missing. A run counts as submitted when its reservation was
announced; if it never waited, when it started.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from leasehold.core.facts import Budget, Closed, Closure, Lease, Node, Role, Uid
from leasehold.core.ledger.batch import Batch, NodeFact, batch_from_wire, closure_of
from leasehold.core.ledger.chain import GENESIS, canonical, next_digest
from leasehold.core.objects.budget import budget_from_fact
from leasehold.core.objects.lease import cut_run
from leasehold.core.units import GpuMs, Instant, Millis, plural
from leasehold.sim.replay.jobs import NEVER_RAN, UNFINISHED, Job, Workload, bad_file
from leasehold.sim.replay.trace import opened

_LOSSES = (Closed.FAIL, Closed.NODE_FAILURE, Closed.RANDOM_PREEMPT, Closed.RECLAIMED)
_AGAIN = "export it again with `leasehold ledger export --out FILE`"

_decode = msgspec.json.Decoder(dict[str, object]).decode


@dataclass
class _PastLease:
    """A lease in the export, and its closure, if the export has it."""

    lease: Lease
    line: int
    closure: Closure | None = None


@dataclass
class PastJobs:
    """The jobs of an exported ledger, and the nodes and Budgets that the export describes."""

    workload: Workload
    unstated: list[str]  # nodes with leases that the export does not describe
    _nodes: dict[str, NodeFact] = field(default_factory=dict)
    _budgets: dict[str, bytes] = field(default_factory=dict)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes as the export last describes them. Raise `BadFile` if a node with leases
        is not described."""
        if self.unstated:
            nodes = plural(len(self.unstated), "node")
            said = f"{nodes} that it does not describe, such as {self.unstated[0]}"
            remedy = "export the ledger from its beginning, or name a fleet file with --fleet"
            raise bad_file(self.workload.path, 1, said, remedy)
        found = []
        for name, fact in sorted(self._nodes.items()):
            region, cluster, fabric = fact.domain.split("/", 2)
            found.append(
                Node(
                    name=name,
                    flavor=fact.flavor,
                    region=region,
                    cluster=cluster,
                    fabric=fabric,
                    gpus=fact.gpus,
                )
            )
        return tuple(found)

    def budgets(self) -> tuple[Budget, ...]:
        """Return the Budgets as the export last describes them. Raise `BadFile` if there are
        none."""
        if not self._budgets:
            remedy = "export the ledger from its beginning, or name Budgets with --budgets"
            raise bad_file(self.workload.path, 1, "no Budget is described", remedy)
        return tuple(budget_from_fact(key, spec) for key, spec in sorted(self._budgets.items()))


def read_past(paths: Sequence[Path], *, teams: Sequence[str] = ()) -> PastJobs:
    """Read the jobs from the files of one exported ledger, which must be in order. Raise `BadFile`.
    With `teams`, only the jobs of these owners count."""
    assert paths, "a ledger has at least one file"
    reader = _Reader()
    for path in paths:
        reader.read(path)
    if not reader.spells:
        remedy = "export a period in which runs started"
        raise bad_file(str(paths[0]), 1, "no lease starts in this ledger", remedy)
    workload = Workload(path=", ".join(map(str, paths)))
    for mine in reader.by_run().values():
        if not teams or mine[0].lease.owner in teams:
            reader.add(workload, mine)
    workload.sort()
    used = {spell.lease.node for spell in reader.spells.values()}
    return PastJobs(workload, sorted(used - set(reader.flavors)), reader.nodes, reader.budgets)


class _Reader:
    def __init__(self) -> None:
        self.spells: dict[str, _PastLease] = {}  # by lease name
        self.nodes: dict[str, NodeFact] = {}
        self.flavors: dict[str, str] = {}  # of every node that ever existed
        self.budgets: dict[str, bytes] = {}
        self._announced: dict[tuple[str, str], list[Instant]] = {}  # by namespace and short name
        self._digest: str | None = None
        self._until: Instant = 0

    def read(self, path: Path) -> None:
        """Read every batch of a file. Raise `BadFile` if one does not follow from the batch before
        it."""
        with opened(path) as file:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    self._take(number, self._batch(str(path), number, text))

    def _batch(self, path: str, number: int, text: str) -> Batch:
        try:
            line = _decode(text)
            wire, digest = line.get("batch"), line.get("digest")
            if not isinstance(wire, dict) or not isinstance(digest, str):
                raise bad_file(path, number, "not a line of a ledger", _AGAIN)
            batch = batch_from_wire(wire)
            _check(batch)
            before = GENESIS if batch.seq == 1 else self._digest
            follows = digest if before is None else next_digest(before, canonical(wire))
        except (ValueError, AssertionError, RecursionError) as error:
            said = " ".join(str(error).split())
            raise bad_file(path, number, f"not a line of a ledger: {said}", _AGAIN) from None
        if follows != digest:
            remedy = f"name the files in order, or {_AGAIN}"
            raise bad_file(path, number, "this line does not follow from the line before", remedy)
        self._digest = digest
        return batch

    def _take(self, line: int, batch: Batch) -> None:
        """Add the nodes, Budgets, announcements and leases of a batch to what was read."""
        self._until = batch.instant
        for fact in batch.facts_nodes:
            if fact.gone:
                self.nodes.pop(fact.name, None)
            else:
                self.nodes[fact.name] = fact
                self.flavors[fact.name] = fact.flavor
        for key, spec in batch.facts_budgets:
            if spec is None:
                self.budgets.pop(key, None)
            else:
                self.budgets[key] = spec
        for subject, _ in batch.announced:
            namespace, _, name = subject.partition("/")
            stem = (namespace, name.rpartition("-")[0])
            self._announced.setdefault(stem, []).append(batch.instant)
        for closing in batch.closed:
            spell = self.spells.get(closing.lease)
            if spell is not None:  # otherwise it was opened before the export
                spell.closure = closure_of(closing, batch.seq)
        for lease in batch.opened:
            self.spells[lease.name] = _PastLease(lease, line)

    def by_run(self) -> dict[Uid, list[_PastLease]]:
        """Return the leases of each run, except spares, in order of their starts."""
        found: dict[Uid, list[_PastLease]] = {}
        for spell in self.spells.values():
            if spell.lease.role is not Role.SPARE:
                found.setdefault(spell.lease.uid, []).append(spell)
        return found

    def add(self, workload: Workload, mine: Sequence[_PastLease]) -> None:
        """Add one run to the workload as a job. The job has the run's maximum width, and lasts as
        long as the run's work takes at that width."""
        first = mine[0].lease
        gpus = self._widest(mine)
        duration = -(-sum(self._work(spell, mine) for spell in mine) // gpus)
        if not duration:
            workload.remarks[NEVER_RAN] += 1
            return
        workload.remarks[UNFINISHED] += any(spell.closure is None for spell in mine)
        workload.jobs.append(
            Job(
                line=mine[0].line,
                name=f"job-{len(workload.jobs) + 1}",
                owner=first.owner,
                gpus=gpus,
                submit=self._submitted(first),
                duration=duration,
                flavor=self.flavors.get(first.node, ""),
            )
        )

    def _end(self, spell: _PastLease) -> Instant:
        return self._until if spell.closure is None else spell.closure.at

    def _widest(self, mine: Sequence[_PastLease]) -> int:
        """Return the maximum number of GPUs that a run held at the same time."""
        changes = [(spell.lease.start, spell.lease.gpus) for spell in mine]
        changes += [(self._end(spell), -spell.lease.gpus) for spell in mine]
        most = level = 0
        for _, change in sorted(changes):
            level += change
            most = max(most, level)
        return most or max(spell.lease.gpus for spell in mine)

    def _work(self, spell: _PastLease, mine: Sequence[_PastLease]) -> GpuMs:
        """Return the GPU time of a lease. If its end lost work and the run continued later, only
        the time up to the last save counts."""
        lease, end = spell.lease, self._end(spell)
        closure = spell.closure
        went_on = any(other.lease.start >= end for other in mine if other is not spell)
        if closure is not None and closure.why.reason in _LOSSES and went_on:
            end = closure.saved or lease.start
        span: Millis = end - lease.start
        return span * lease.gpus

    def _submitted(self, lease: Lease) -> Instant:
        """Return when the run's reservation was first announced, if that was before its start;
        otherwise its start."""
        waiting = self._announced.get((lease.namespace, cut_run(lease.run)), [])
        before = [at for at in waiting if at <= lease.start]
        # Later announcements belong to a later run of this name.
        waiting[:] = [at for at in waiting if at > lease.start]
        return min(before, default=lease.start)


def _check(batch: Batch) -> None:
    """Raise `ValueError` if the batch contains something that leasehold never writes."""
    for closing in batch.closed:
        closure_of(closing, batch.seq)
    for key, spec in batch.facts_budgets:
        if spec is not None:
            budget_from_fact(key, spec)
    for fact in batch.facts_nodes:
        if not fact.gone and fact.domain.count("/") != 2:
            raise ValueError(f"{fact.name} lies in no domain")
