"""Find queued runs with equal requests, because one answer holds for all of them.

The queue often has a thousand runs that differ only in name and command. Expensive questions are
asked once for all equal runs. Nothing is decided here.
"""

from weakref import WeakValueDictionary

from msgspec.structs import replace

from leasehold.core.facts import Run, RunSpec, Uid
from leasehold.core.verdicts import Refused


class EqualRuns:
    """The runs of the queue with the same request; two such objects are compared by identity.

    `refused`: the newest refusal of any of the runs.
    """

    __slots__ = ("__weakref__", "refused")

    def __init__(self) -> None:
        self.refused: Refused | None = None

    def settle(self, refused: Refused) -> Refused:
        """Note a refusal of one of the runs, and return it.

        If it equals the last one, the earlier object is returned, so that callers can compare with
        `is`.
        """
        if self.refused != refused:
            self.refused = refused
        assert self.refused is not None
        return self.refused


class EqualRunsIndex:
    """For each queued run, the object that it shares with all runs that equal it."""

    def __init__(self) -> None:
        self._known: dict[Uid, tuple[RunSpec, EqualRuns]] = {}
        self._likenesses: WeakValueDictionary[tuple[str, RunSpec], EqualRuns] = (
            WeakValueDictionary()
        )

    def likeness(self, run: Run) -> EqualRuns:
        """Return the object shared by all runs that equal this one. Name and command do not
        count."""
        known = self._known.get(run.uid)
        if known is not None and known[0] is run.spec:
            return known[1]
        # The namespace counts, because not every namespace may spend an owner's money.
        key = (run.namespace, replace(run.spec, template=b""))
        likeness = self._likenesses.get(key)
        if likeness is None:
            likeness = self._likenesses[key] = EqualRuns()
        self._known[run.uid] = (run.spec, likeness)
        return likeness

    def forget(self, uid: Uid) -> None:
        self._known.pop(uid, None)
