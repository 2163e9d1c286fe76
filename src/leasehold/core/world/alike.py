"""Runs that ask for the same thing: what holds for one that waits, holds for all behind it.

A line is long because somebody submitted a thousand runs that differ in name and command only. The
queue asks what a run is like, and the dear questions once per likeness. Nothing here decides
anything.
"""

from weakref import WeakValueDictionary

from msgspec.structs import replace

from leasehold.core.facts import Run, RunSpec, Uid
from leasehold.core.verdicts import Refused


class Likeness:
    """Compared by identity; `refused` is the newest answer to one of them."""

    __slots__ = ("__weakref__", "refused")

    def __init__(self) -> None:
        self.refused: Refused | None = None

    def settle(self, refused: Refused) -> Refused:
        """The same answer is the same object, so that whoever was told it can tell at a glance."""
        if self.refused != refused:
            self.refused = refused
        assert self.refused is not None
        return self.refused


class Alike:
    """What the runs that are in line are like."""

    def __init__(self) -> None:
        self._known: dict[Uid, tuple[RunSpec, Likeness]] = {}
        self._likenesses: WeakValueDictionary[tuple[str, RunSpec], Likeness] = WeakValueDictionary()

    def likeness(self, run: Run) -> Likeness:
        known = self._known.get(run.uid)
        if known is not None and known[0] is run.spec:
            return known[1]
        # Its namespace, because not everybody may spend an owner's money from everywhere.
        key = (run.namespace, replace(run.spec, template=b""))
        likeness = self._likenesses.get(key)
        if likeness is None:
            likeness = self._likenesses[key] = Likeness()
        self._known[run.uid] = (run.spec, likeness)
        return likeness

    def forget(self, uid: Uid) -> None:
        self._known.pop(uid, None)
