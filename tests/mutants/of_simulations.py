"""Planted bugs that three controllers under faults must notice: of the seal, the commit, recovery,
what is written after it, the store's errors, nodes, and the resolver."""

from tests.mutants.mutant import Mutant

_SIM = ("tests/sim",)
_MOVED = (
    "                if (found.head.seq, found.head.epoch)"
    " != (before.head.seq, before.head.epoch):\n"
)


def _planted(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant(name, file, old, new, _SIM)


STORM = (
    _planted(
        "a leader keeps what a run said when it was admitted",
        "shell/loop/loop.py",
        "        run = self._tryouts.amended(run)\n",
        "        run = self._tryouts.amended(run)\n"
        "        known = world.runs.get(run.uid)\n"
        "        if known is not None and world.open_by_run.get(run.uid):\n"
        "            run = replace(run, spec=replace(known.spec, stop=run.spec.stop))\n",
    ),
    _planted(
        "a new owner does not seal",
        "shell/ledger/commit.py",
        "            try:\n                await self._swap(sealed)\n",
        "            try:\n                self._known = sealed\n",
    ),
    _planted(
        "an older epoch seals over a newer one",
        "shell/ledger/commit.py",
        "            if epoch is not None and found.head.epoch > epoch:\n"
        "                raise Deposed\n",
        "",
    ),
    _planted(
        "the head is written whatever it is",
        "shell/ledger/commit.py",
        "        written = await self._store.update(_to_wire(wanted, version=wanted.version))\n",
        "        there = await self._read()\n"
        "        written = await self._store.update(_to_wire(wanted, version=there.version))\n",
    ),
    _planted(
        "whoever was deposed commits again on top",
        "shell/ledger/commit.py",
        f"{_MOVED}                    raise Deposed from None\n",
        "",
    ),
    _planted(
        "the epoch of a deposer is not looked at",
        "shell/ledger/commit.py",
        _MOVED,
        "                if found.head.seq != before.head.seq:\n",
    ),
    _planted(
        "batches of one number have one name",
        "shell/ledger/commit.py",
        '    return f"{seq}-{digest[:8]}"\n',
        '    return f"{seq}-{digest[:0]}0"\n',
    ),
    _planted(
        "a stranger's Resolution is taken for ours",
        "shell/ledger/commit.py",
        '            if there["spec"] == wire["spec"]:\n',
        '            if there["kind"] == wire["kind"]:\n',
    ),
    _planted(
        "the deposed replace a Resolution",
        "shell/ledger/commit.py",
        "            await self.confirm()\n            # Left by a leader",
        "            # Left by a leader",
    ),
    _planted(
        "the batch is true before its Resolutions are stored",
        "shell/ledger/commit.py",
        "        for resolution in resolutions:\n            await self._publish(resolution)\n",
        "        for resolution in resolutions[1:]:\n            await self._publish(resolution)\n",
    ),
    _planted(
        "what was not materialised is not replayed",
        "shell/loop/loop.py",
        "        for batch in found.unmaterialised:\n",
        "        for batch in found.unmaterialised[:0]:\n",
    ),
    _planted(
        "orphaned Resolutions are kept",
        "shell/loop/recover.py",
        "            found.orphans.append((resolution.name,",
        "            world.fold_resolution(resolution)\n"
        "            found.orphans[:0].append((resolution.name,",
    ),
    _planted(
        "committed closures are not put on top",
        "shell/ledger/read_leases.py",
        "    for closing in batch.closed:\n",
        "    for closing in batch.closed[:0]:\n",
    ),
    _planted(
        "committed endings are not put on top",
        "shell/ledger/read_leases.py",
        "    for name, reason, deadline in batch.ending:\n",
        "    for name, reason, deadline in batch.ending[:0]:\n",
    ),
    _planted(
        "a refused write of a lease is forgotten",
        "shell/loop/materialise.py",
        "            if isinstance(answer, Unavailable | OutcomeUnknown):\n                waiting",
        "            if isinstance(answer, OutcomeUnknown):\n                waiting",
    ),
    _planted(
        "an unanswered write of a lease is forgotten",
        "shell/loop/materialise.py",
        "            if isinstance(answer, Unavailable | OutcomeUnknown):\n                waiting",
        "            if isinstance(answer, Unavailable):\n                waiting",
    ),
    _planted(
        "a lease that is there already was refused",
        "shell/loop/materialise.py",
        "    return isinstance(write, Create) and isinstance(answer, AlreadyExists)\n",
        "    return not isinstance(write, Create)\n",
    ),
    _planted(
        "pods are bound without asking the head",
        "shell/loop/effects.py",
        "            await self._ledger.confirm()\n",
        "",
    ),
    _planted(
        "a pod that could not be made is not owed",
        "shell/loop/effects.py",
        "            # AlreadyExists: it is the pod that was ordered; its event will come.\n"
        "            return isinstance(answer, dict | AlreadyExists)\n",
        "            return True\n",
    ),
    _planted(
        "a pod that could not be removed is not owed",
        "shell/loop/effects.py",
        "            return answer is None or isinstance(answer, NotFound)\n\n        pod, version",
        "            return True\n\n        pod, version",
    ),
    _planted(
        "a binding that failed is not owed",
        "shell/loop/effects.py",
        "            return answer is None or isinstance(answer, NotFound)\n\n"
        "        write = Bind(",
        "            return True\n\n        write = Bind(",
    ),
    _planted(
        "after recovery nothing is owed",
        "shell/loop/loop.py",
        "        self._effects.owe_everything(world)\n",
        "",
    ),
    _planted(
        "what somebody deposed wrote over a status stays",
        "shell/loop/status_cache.py",
        "        if version <= self._versions.get(place, version):\n",
        "        if version >= self._versions.get(place, 0):\n",
    ),
    _planted(
        "what somebody deposed wrote over a Reservation stays",
        "shell/loop/informer.py",
        '        if event.type != "DELETED" and hear(kind, event.object):\n',
        '        if event.type == "DELETED" and hear(kind, event.object):\n',
    ),
    _planted(
        "what is written over a status while we write stays",
        "shell/loop/effects.py",
        "            complete &= not self._owe_again(place, version)\n",
        "            complete &= version > 0\n",
    ),
    _planted(
        "a list says nothing of what is gone",
        "shell/loop/informer.py",
        "        for key in sorted(set(self._there) - set(now_there)):\n",
        "        for key in sorted(set(self._there) - set(self._there)):\n",
    ),
    _planted(
        "a list says of what was made since that it is gone",
        "shell/loop/informer.py",
        "        for version in [each for each in self._own if each <= listing.version]:\n",
        "        for version in list(self._own):\n",
    ),
    _planted(
        "late word of a pod that is gone is taken for the next one's",
        "shell/loop/folding.py",
        '                if known is not None and known.uid not in ("", pod.uid):\n',
        "                if known is not None and known.uid in ():\n",
    ),
    _planted(
        "what we made is not known to be there",
        "shell/loop/informer.py",
        "            self._own[version] = (_key(obj), self._kept(obj))\n",
        '            self._own[version] = ("", self._kept(obj))\n',
    ),
    _planted(
        "a run that is gone is never forgotten",
        "control/running/tend.py",
        "        world.drop_run(uid)  # its end",
        "        world.work.look_at(uid)  # its end",
    ),
    _planted(
        "a list after a broken watch is not told",
        "shell/loop/informer.py",
        "            self._tell(obj, gone=False)\n            self._hear_status",
        "            self._hear_status",
    ),
    _planted(
        "what is not committed yet is told",
        "shell/loop/loop.py",
        "        while self._is_committing:\n            rested",
        "        while self._is_committing and patience < 0:\n            rested",
    ),
    _planted(
        "whoever recovers removes proofs although it was deposed",
        "shell/loop/recover.py",
        "        await ledger.confirm()\n    for name, uid in found.orphans:\n",
        "        pass\n    for name, uid in found.orphans:\n",
    ),
    _planted(
        "whoever lost its tenure goes on deciding",
        "shell/plane.py",
        "            self._leading.cancel()\n            self._leading = None\n",
        "            self._leading = None\n",
    ),
    _planted(
        "whoever is deposed does not contend again",
        "shell/plane.py",
        '            self._on_deposed("another process moved the ledger\'s head")\n',
        "            pass\n",
    ),
    _planted(
        "a lease closes while its pod still runs",
        "control/running/tend.py",
        "            if is_gone(world, lease):\n                _close_ending(turn, lease)\n",
        "            if is_gone(world, lease) or lease.ending.at < turn.now:\n"
        "                _close_ending(turn, lease)\n",
    ),
    _planted(
        "silence is death",
        "control/running/failures.py",
        "    if state is None or state.node.fenced:\n        return True\n",
        "    if state is None or state.node.fenced or not state.node.ready:\n        return True\n",
    ),
    _planted(
        "a fenced node is not seen to be dead",
        "control/running/failures.py",
        "    if state is None or state.node.fenced:\n        return True\n",
        "    if state is None:\n        return True\n",
    ),
    _planted(
        "silence is counted by another machine's clock",
        "control/running/failures.py",
        "    return max(state.node.not_ready_since, state.node.unheard_since or 0) + after\n",
        "    return state.node.not_ready_since + after\n",
    ),
    _planted(
        "pods of dead nodes are waited for",
        "control/running/pods.py",
        "    return state is None or state.node.fenced\n",
        "    return state is None\n",
    ),
    _planted(
        "pods that nobody wants are left",
        "control/running/pods.py",
        "            elif not pod.deleting:\n"
        "                orders.append(_remove(pod, grace=_STRAY",
        "            elif pod.deleting:\n                orders.append(_remove(pod, grace=_STRAY",
    ),
    _planted(
        "a contender writes without the condition",
        "shell/leadership/tenure.py",
        "        wire = tenure_to_wire(wanted, kept=kept)\n"
        "        return _found(await self._in_time(lambda: self._store.update(wire)))\n",
        "        there = await self._in_time(\n"
        "            lambda: self._store.get(KIND, NAMESPACE, tenure_name(wanted.key))\n"
        "        )\n"
        "        wire = tenure_to_wire(replace(wanted, version=0), kept=there)\n"
        "        return _found(await self._in_time(lambda: self._store.update(wire)))\n",
    ),
    _planted(
        "a contender waits from when it asked",
        "shell/leadership/tenure.py",
        "        if stood > self._margins.take:\n",
        "        if stood > self._margins.take - 7 * self._margins.timeout // 2:\n",
    ),
)
