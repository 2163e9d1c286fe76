"""Keeps the logs of pods whose objects are deleted, so that `kubectl logs` can still show them.

A log is found by the pod's name, or by a later attempt of the same rank (`kubectl logs
--previous`). Used by `pods`, which hands over the journal of every pod that it drops, and by
`agent`, which reads logs. A journal is removed with its logs when it is old, or when there are too
many journals.
"""

import asyncio
from collections.abc import Mapping

from leasehold.adapters.agent.journals import PodJournal, PodStage
from leasehold.adapters.agent.limits import Limits
from leasehold.core.facts import Pod
from leasehold.ports.runtime import Clock

_RANK = ("run", "group", "index")


class PastLogs:
    def __init__(self, clock: Clock, limits: Limits, held: Mapping[str, PodJournal]) -> None:
        """`held`: the journals of pods whose objects exist."""
        self._held = held
        self._clock = clock
        self._limits = limits
        self._kept: dict[str, PodJournal] = {}  # by uid, oldest first

    def keep(self, journal: PodJournal) -> None:
        """Keep the journal of a pod whose object is gone, and remove it later. A journal without a
        log is kept only briefly, so that an administrator can still look at it."""
        self._kept[journal.uid] = journal
        left = self._limits.retention_ms
        if journal.stage() is PodStage.OVER and journal.logs.exists():
            due = journal.exit().finished_at + self._limits.past_logs_ms
            left = max(left, due - self._clock.now())
        loop = asyncio.get_running_loop()
        loop.call_later(left / 1000, self._let_go, journal.uid)
        while len(self._kept) > self._limits.past_logs_max:
            self._let_go(next(iter(self._kept)))

    def _let_go(self, uid: str) -> None:
        journal = self._kept.pop(uid, None)
        if journal is not None:
            journal.remove()

    def find(self, namespace: str, name: str) -> PodJournal | None:
        """Return the newest kept journal of the pods with this name."""
        named = [
            each
            for each in self._kept.values()
            if (each.request.get("namespace"), each.request.get("name")) == (namespace, name)
        ]
        return named[-1] if named else None

    def before(self, pod: Pod) -> PodJournal | None:
        """Return the journal of the same rank in the latest attempt before the pod's own; None if
        there is none."""
        rank = (pod.run_uid, pod.group, pod.index)
        earlier: dict[int, PodJournal] = {}
        for journal in (*self._kept.values(), *self._held.values()):
            request = journal.request
            attempt = request.get("attempt")
            is_same = tuple(request.get(key) for key in _RANK) == rank
            if is_same and isinstance(attempt, int) and attempt < pod.attempt:
                earlier[attempt] = journal
        return earlier[max(earlier)] if earlier else None
