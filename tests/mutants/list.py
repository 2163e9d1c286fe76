"""The planted bugs: each a change of exact text, and the few tests that must notice it.

A bug is here because somebody made it, here or in a scheduler like ours. A text that is no longer
found exactly once fails the run, so that the list moves with the source.
"""

from tests.mutants.mutant import Mutant, prop, story, unit
from tests.mutants.of_activation import ACTIVATION
from tests.mutants.of_drains import DRAINS, LIMITS
from tests.mutants.of_input import INPUT
from tests.mutants.of_overdrafts import OVERDRAFTS
from tests.mutants.of_placement import PLACEMENT
from tests.mutants.of_planes import PLANES
from tests.mutants.of_queue import QUEUE
from tests.mutants.of_reports import REPORTS
from tests.mutants.of_resolutions import RESOLUTIONS
from tests.mutants.of_runs import RUNS
from tests.mutants.of_standby import STANDBY
from tests.mutants.of_stress import STRESS
from tests.mutants.of_sweeps import SWEEPS
from tests.mutants.of_tenure import TENURE

MONEY = (
    Mutant(
        "borrowed not counted on grow",
        "control/running/elastic.py",
        "        borrowed_already=borrowed_gpus(world, run.uid),\n",
        "        borrowed_already=0,\n",
        story("C3-the-loan-limit-counts-the-whole-width"),
    ),
    Mutant(
        "float GPU-hours",
        "core/world/accounts.py",
        "        used = lease.gpus * max(0, lease.end - max(lease.start, account.since))\n",
        "        hours = max(0, lease.end - max(lease.start, account.since)) / 3.6e6\n"
        "        used = int(lease.gpus * hours * 3.6e6)\n",
        prop("ledger_fold"),
    ),
    Mutant(
        "GPU-hours not committed",
        "core/funding/cover.py",
        "    return since, used + committed + sum(",
        "    return since, used + sum(",
        prop("cover"),
    ),
    Mutant(
        "ACL ignored",
        "core/funding/cover.py",
        "    if not admits(envelope, ask.owner):\n",
        "    if not envelope.lending.allow:\n",
        prop("cover"),
    ),
    Mutant(
        "lending cap ignored",
        "core/funding/cover.py",
        "        if lending.max_concurrency is not None:\n",
        "        if lending.max_concurrency is not None and not borrowed:\n",
        prop("cover"),
    ),
    Mutant(
        "aggregate cap forgets what this walk took",
        "core/funding/cover.py",
        "return known + self._taken.get(aggregate.key, 0)",
        "return known",
        prop("cover"),
    ),
    Mutant(
        "aggregate cap ignored",
        "core/funding/cover.py",
        "    for aggregate in world.aggregates[envelope.key]:\n        used, cap =",
        "    for aggregate in ():\n        used, cap =",
        prop("cover"),
    ),
    Mutant(
        "family order swapped",
        "core/funding/cover.py",
        "    yield tree.siblings(ask.owner), Relation.SHARED\n"
        "    for level in tree.ancestors(ask.owner):\n"
        "        yield level, Relation.SHARED\n",
        "    for level in tree.ancestors(ask.owner):\n"
        "        yield level, Relation.SHARED\n"
        "    yield tree.siblings(ask.owner), Relation.SHARED\n",
        prop("cover"),
    ),
    Mutant(
        "swap with a new payer",
        "control/turn.py",
        "            attempt=lost.attempt,\n",
        "            attempt=lost.attempt,\n            payer=lost.payer,\n",
        story("S2-two-payers-of-the-spare"),
    ),
)

PLACES = (
    Mutant(
        "lease across two nodes",
        "core/placement/bind.py",
        "                    node=pod.node,\n",
        "                    node=plan.packed.places[0].node,\n",
        prop("bind"),
    ),
    Mutant(
        "payers dealt anew to every pod",
        "core/placement/bind.py",
        "                self._left[0] = (segment, left - take)\n",
        "                self._left[0] = (segment, left)\n",
        prop("bind"),
    ),
    Mutant(
        "lease index does not advance",
        "core/placement/bind.py",
        "first_index + len(leases)",
        "len(leases)",
        prop("bind"),
    ),
    Mutant(
        "worst fit",
        "core/placement/pack.py",
        "    return bucket & 1, bucket >> 1\n",
        "    return bucket & 1, -(bucket >> 1)\n",
        prop("pack"),
    ),
    Mutant(
        "empty nodes are opened first",
        "core/placement/pack.py",
        "    return bucket & 1, bucket >> 1\n",
        "    return ~bucket & 1, bucket >> 1\n",
        prop("pack"),
    ),
    Mutant(
        "spares beside their group",
        "core/placement/pack.py",
        "best_node(fleet, pool, shape, last, mine, never=barred | unreached)",
        "best_node(fleet, pool, shape, last, last, never=barred | unreached)",
        story("P1-spares-apart-from-their-group"),
    ),
    Mutant(
        "a spare where other schedulers take its GPUs",
        "core/placement/pack.py",
        "best_node(fleet, pool, shape, last, mine, never=barred | unreached)",
        "best_node(fleet, pool, shape, last, mine, never=unreached)",
        unit("core/test_reserved"),
    ),
    Mutant(
        "pods that take the places of their spares",
        "core/placement/pack.py",
        "best_node(fleet, pool, shape, last, kept, never=unreached)",
        "best_node(fleet, pool, shape, last, never=unreached)",
        unit("core/test_reserved"),
    ),
    Mutant(
        "a what-if is undone in the wrong order",
        "core/world/what_if.py",
        "            self._inverses.pop()()\n",
        "            self._inverses.pop(mark)()\n",
        (*prop("resolve"), *prop("world")),
    ),
    Mutant(
        "slot exclusivity check off",
        "core/world/invariants.py",
        "            if slot in table:\n",
        "            if slot in ():\n",
        unit("core/test_invariants"),
    ),
)

CUTS = (
    Mutant(
        "string-sorted groups",
        "core/ledger/lottery.py",
        "-1 if bundle.group is None else bundle.group)",
        '"" if bundle.group is None else str(bundle.group))',
        unit("test_lottery"),
    ),
    Mutant(
        "seed without nonce",
        "core/ledger/lottery.py",
        "ledger_digest, nonce_hex)\n",
        "ledger_digest)\n",
        unit("test_lottery"),
    ),
    Mutant(
        "draw with modulo bias",
        "core/ledger/lottery.py",
        "    limit = _RANGE - _RANGE % n\n",
        "    limit = _RANGE\n",
        prop("lottery"),
    ),
    Mutant(
        "double-counted spares in shrink accounting",
        "core/preemption/victims.py",
        "lease.gpus for lease in self._own(run.uid) if lease.role is not Role.SPARE)",
        "lease.gpus for lease in self._own(run.uid))",
        prop("resolve"),
    ),
    Mutant(
        "pruning skipped",
        "core/preemption/victims.py",
        "        if _ends_with_another(cut, mine):\n",
        "        if kept:\n",
        prop("resolve"),
    ),
    Mutant(
        "spares dropped oldest first",
        "core/preemption/victims.py",
        "        held.sort(key=_newest_first, reverse=True)\n",
        "        held.sort(key=_newest_first)\n",
        prop("resolve"),
    ),
    Mutant(
        "shrink below the minimum",
        "core/preemption/victims.py",
        "                if above >= run.spec.group_gpus:\n",
        "                if above >= 0:\n",
        prop("resolve"),
    ),
)

LIFE = (
    Mutant(
        "last writer wins the outcome",
        "core/world/book.py",
        "        if verdict > attempt.verdict:\n",
        "        if verdict:\n",
        unit("core/test_book"),
    ),
    Mutant(
        "close before the pod is gone",
        "control/running/open_leases.py",
        "    return pod is None or pod.has_ended\n",
        "    return pod is None or pod.has_ended or pod.deleting\n",
        story("B4-a-gpu-is-free-when-its-pod-is-gone"),
    ),
    Mutant(
        "filler not ended on swap",
        "control/running/failures.py",
        "    if not make_way(turn, takeover.spares):\n        return\n",
        "    make_way(turn, takeover.spares)\n",
        story("F3-a-filler-needs-three-seconds"),
    ),
    Mutant(
        "silence taken for death",
        "control/running/failures.py",
        "    if state is None or state.node.fenced:\n        return True\n",
        "    if state is None or state.node.fenced or not state.node.ready:\n        return True\n",
        story("S1-what-ends-on-a-silent or S1-silence-and-cordons or S2-spares-on-cordoned"),
    ),
    Mutant(
        "retry counted for a rejected bind",
        "control/running/life.py",
        "    failures = unit.own_failures()\n",
        "    failures = len(unit.attempts)\n",
        unit("control/test_life"),
    ),
    Mutant(
        "resize.interval ignored",
        "core/placement/resize.py",
        "    return max(now, book.resized_at + world.policy.resize_interval)\n",
        "    return now\n",
        story("E1-a-shrink-waits-for-the-interval-too"),
    ),
    Mutant(
        "the end is when we heard of it",
        "control/turn.py",
        "        end = max(lease.start, min(end, self.now))\n",
        "        end = self.now\n",
        story("S1-what-ends-on-a-silent-node-is-seen-later"),
    ),
)

SHELL = (
    Mutant(
        "naive wall clock",
        "shell/loop/timekeeping.py",
        "        return abs(wall - self._expected()) <= self._jump_max and wall >= head\n",
        "        return wall >= head\n",
        unit("shell/test_clock"),
    ),
    Mutant(
        "OutcomeUnknown taken for a no",
        "shell/ledger/commit.py",
        "                if found.head.digest == wanted.head.digest:\n",
        "                if not found.head.digest:\n",
        unit("shell/test_ledger"),
    ),
    Mutant(
        "head CAS with whatever version is there",
        "shell/ledger/commit.py",
        "if (found.head.seq, found.head.epoch) != (before.head.seq, before.head.epoch):",
        "if found.head.seq < before.head.seq:",
        unit("shell/test_ledger"),
    ),
    Mutant(
        "head CAS without version",
        "shell/ledger/commit.py",
        "        written = await self._store.update(_to_wire(wanted, version=wanted.version))\n",
        '        there = await self._store.get("LedgerHead", "", SHARD)\n'
        "        written = await self._store.update(\n"
        "            _to_wire(wanted, version=_from_wire(there).version)\n"
        "        )\n",
        unit("shell/test_ledger"),
    ),
    Mutant(
        "materialise not replayed",
        "shell/loop/loop.py",
        "        for batch in found.unmaterialised:\n",
        "        for batch in found.unmaterialised[:0]:\n",
        unit("shell/test_death"),
    ),
    Mutant(
        "a Resolution is published after its cut",
        "shell/ledger/commit.py",
        "        for resolution in resolutions:\n            await self._publish(resolution)\n",
        "        del resolutions\n",
        unit("shell/test_death"),
    ),
    Mutant(
        "a defect stops nobody",
        "shell/loop/defects.py",
        "        self.quarantined |= named\n",
        "        self.quarantined |= named - named\n",
        unit("shell/test_quarantine"),
    ),
)

EMBEDDED = (
    Mutant(
        "an expired token lets in",
        "adapters/http/tokens.py",
        "        if record.expires is not None and record.expires <= self._now():\n",
        "        if record.expires is not None and record.expires <= 0:\n",
        ("tests/rest",),
    ),
    Mutant(
        "every namespace is everybody's",
        "core/objects/access.py",
        "        if self.is_trusted or not namespace:\n",
        "        if namespace is not None:\n",
        ("tests/rest/test_rights.py", "tests/rest/test_strangers.py"),
    ),
    Mutant(
        "whoever spends may fund",
        "core/objects/access.py",
        "OwnerVerb.FUND: self.fund,",
        "OwnerVerb.FUND: self.spend,",
        ("tests/rest/test_rights.py",),
    ),
    Mutant(
        "a dry run writes",
        "adapters/rest/writes.py",
        "            made = await backend.store.create(tried, rehearse=rehearse)\n",
        "            made = await backend.store.create(tried)\n",
        ("tests/rest",),
    ),
    Mutant(
        "a stranger's slot is dealt",
        "core/placement/bind.py",
        "        known = free & ~state.strangers & ((1 << state.node.gpus) - 1)\n",
        "        known = free & ((1 << state.node.gpus) - 1)\n",
        unit("core/test_bind_strangers"),
    ),
    Mutant(
        "logs go with the run's last lease",
        "control/running/pods.py",
        "            if key not in again and _is_kept(world, pod):\n",
        "            if key not in again and _is_kept(world, pod) and not pod:\n",
        unit("shell/test_ended_pods"),
    ),
    Mutant(
        "what was never committed stays",
        "shell/loop/recover.py",
        "    for name, uid in found.orphans:\n",
        "    for name, uid in found.orphans[:0]:\n",
        ("tests/scenarios/test_faults.py",),
    ),
    Mutant(
        "a lowered cap is never forgiven after a restart",
        "shell/loop/recover.py",
        "        if was_enough(world, envelope, lent=lent, at=at):\n",
        "        if not was_enough(world, envelope, lent=lent, at=at):\n",
        ("tests/scenarios/test_scenarios.py",),
    ),
)

MUTANTS = (
    *MONEY,
    *PLACES,
    *CUTS,
    *LIFE,
    *DRAINS,
    *QUEUE,
    *ACTIVATION,
    *RESOLUTIONS,
    *OVERDRAFTS,
    *SWEEPS,
    *PLACEMENT,
    *RUNS,
    *SHELL,
    *EMBEDDED,
    *LIMITS,
    *INPUT,
    *REPORTS,
    *STANDBY,
    *STRESS,
    *PLANES,
    *TENURE,
)
