"""Planted bugs of the plane and the port: what is told, bound or swept by who may not."""

from tests.mutants.mutant import Mutant

_BINDING = ("tests/unit/shell/test_binding.py",)
_STATUSES = ("tests/unit/shell/test_late_statuses.py",)
_SILENCE = ("tests/unit/shell/test_silence.py",)
_PLANE = ("tests/unit/shell/test_plane.py",)
_FOLLOWING = ("tests/unit/test_following.py",)
_MEMORY = ("tests/conformance/test_store_binding.py", "-k", "memory and not faults")

PLANES = (
    Mutant(
        "an answer does not wait for the commit",
        "shell/loop/loop.py",
        "        while self._is_committing:\n",
        "        while self._is_committing and patience == 0:\n",
        ("tests/questions/test_committed.py", "-k", "1"),
    ),
    Mutant(
        "the World is at rest before the last batch is committed",
        "shell/loop/loop.py",
        "            if batch is batches[-1]:\n                self._set_committing",
        "            if batch is not None:\n                self._set_committing",
        ("tests/unit/shell/test_rest.py",),
    ),
    Mutant(
        "a pod is bound without a look at the head",
        "shell/loop/effects.py",
        "            await self._ledger.confirm()\n            complete &=",
        "            complete &=",
        _BINDING,
    ),
    Mutant(
        "a finalizer is taken off without a look at the head",
        "shell/loop/effects.py",
        "        return self._finalizers(run, others, needs_confirmation=True)",
        "        return self._finalizers(run, others, needs_confirmation=False)",
        _BINDING,
    ),
    Mutant(
        "a status is written over the next owner's",
        "shell/loop/effects.py",
        "        is_disputed = self._said.is_disputed(place)\n",
        "        is_disputed = False\n",
        _STATUSES,
    ),
    Mutant(
        "a status that somebody else wrote is taken for ours",
        "shell/loop/status_cache.py",
        "        if version <= self._versions.get(place, version):\n",
        "        if version >= self._versions.get(place, 0):\n",
        _STATUSES,
    ),
    Mutant(
        "our own status is taken for somebody else's",
        "shell/loop/status_cache.py",
        "        if version <= self._versions.get(place, version):\n",
        "        if version < self._versions.get(place, version + 1):\n",
        _STATUSES,
    ),
    Mutant(
        "what is written over a quarantined object stays",
        "shell/loop/quarantine.py",
        "        kept.is_told = False\n",
        "        kept.is_told = True\n",
        ("tests/unit/shell/test_contained.py",),
    ),
    Mutant(
        "silence is counted by whatever clock says so",
        "control/running/failures.py",
        "    return max(state.node.not_ready_since, state.node.unheard_since or 0) + after\n",
        "    return state.node.not_ready_since + after\n",
        _SILENCE,
    ),
    Mutant(
        "silence is noted by a clock that is not believed",
        "shell/loop/timekeeping.py",
        "        return self._clock.now() if self._agrees(head) else max(head, self._expected())\n",
        "        return max(head, self._clock.now())\n",
        _SILENCE,
    ),
    Mutant(
        "who is deposed keeps what it believed",
        "shell/loop/loop.py",
        "            except Deposed:\n                self.drop()\n                raise\n",
        "            except Deposed:\n                raise\n",
        _PLANE,
    ),
    Mutant(
        "who lost its tenure goes on telling",
        "shell/plane.py",
        "        self.controller.drop()\n        self.teller.forget()\n",
        "        self.controller.drop()\n",
        _PLANE,
    ),
    Mutant(
        "who is unsure has a turn all the same",
        "shell/loop/loop.py",
        "        while self._is_still:\n",
        "        while self._is_still and self.world is None:\n",
        _PLANE,
    ),
    Mutant(
        "a seal takes the epoch of the last owner",
        "shell/ledger/commit.py",
        "found.head.epoch + 1 if epoch is None else epoch",
        "max(found.head.epoch, 1) if epoch is None else epoch",
        ("tests/unit/shell/test_ledger.py",),
    ),
    Mutant(
        "a follower goes on from where its watch broke",
        "adapters/following.py",
        "            await clock.sleep(pause)\n        version = None\n",
        "            await clock.sleep(pause)\n",
        _FOLLOWING,
    ),
    Mutant(
        "a pod is bound twice",
        "adapters/objects/writes.py",
        ' or "deletionTimestamp" in metadata or spec.get("nodeName"):',
        ' or "deletionTimestamp" in metadata:',
        _MEMORY,
    ),
    Mutant(
        "finalizers are replaced whatever they are",
        "adapters/objects/writes.py",
        '        if metadata.get("finalizers", []) != list(known):\n',
        '        if metadata.get("finalizers", []) is known:\n',
        _MEMORY,
    ),
    Mutant(
        "what was deposed is swept away",
        "shell/loop/ended_pods.py",
        "            if not await leads():\n",
        "            if not leads:\n",
        ("tests/unit/shell/test_ended_pods.py",),
    ),
)
