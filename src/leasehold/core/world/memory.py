"""What controllers remember from turn to turn: messages already reported, and cached answers.

Kept with the World, never stored. Nothing here is a fact: with an empty memory the same decisions
are made, some messages are repeated, and some answers are computed again.
"""

from typing import TypeVar

from leasehold.core.facts import Uid
from leasehold.core.units import Instant, Millis
from leasehold.core.verdicts import CoverStep, Refused
from leasehold.core.world.accounts import Claim
from leasehold.core.world.alike import EqualRunsIndex

T = TypeVar("T")


class Memory:
    """What controllers remember from turn to turn: messages already reported, and cached answers.

    Anyone may read the fields; only methods change them.
    """

    def __init__(self) -> None:
        self.refusals: dict[Uid, Refused] = {}  # why a pending run waits
        self.traces: dict[Uid, tuple[CoverStep, ...]] = {}  # the newest search for payers
        # runs beyond the depth (Q9): the refusal, and the place among the owner's and in all
        self.behind: dict[Uid, tuple[Refused, int, int]] = {}
        self.blocked_binds: dict[Uid, int] = {}  # run -> `node_changes` when its binds were blocked
        self.held: dict[str, int] = {}  # node -> GPUs kept by activations under way
        self.claims: tuple[Claim, ...] = ()  # claims of all plans and holds, from the last walk
        self.foreseen: set[Uid] = set()  # runs whose odds of a start by preemption were announced
        self.alike = EqualRunsIndex()
        self._kept: dict[type, object] = {}
        self._was_postponed = False  # whether the last turn postponed the queue
        # instant from which on every turn has opened or closed leases; None: the last turn did not
        self._moving_since: Instant | None = None
        self._drawn_since: Instant = 0
        self._drawn = 0

    def kept(self, kind: type[T]) -> T:
        """Return the object of this class that a controller keeps from turn to turn.

        The object is created at the first call.
        """
        found = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        assert isinstance(found, kind)
        return found

    def forget(self, uid: Uid) -> None:
        """Forget a run that is gone."""
        self.forget_refusal(uid)
        self.traces.pop(uid, None)
        self.blocked_binds.pop(uid, None)
        self.alike.forget(uid)
        self.foreseen.discard(uid)

    # Why a run waits.

    def refuse(self, uid: Uid, refused: Refused) -> bool:
        """Note why the run waits. Returns whether the reason is new; a changed number alone is
        not."""
        known = self.refusals.get(uid)
        is_news = known is None or known.essence != refused.essence
        self.refusals[uid] = refused
        self.behind.pop(uid, None)
        self.note_trace(uid, refused.trace)
        return is_news

    def note_place(
        self, uid: Uid, refused: Refused, reported: Refused, place: tuple[int, int]
    ) -> None:
        """Note the place in the queue of a run beyond the depth (Q9).

        `refused`: the refusal that equal runs share. `reported`: the same with the place in words.
        """
        assert reported.reason is refused.reason, uid
        self.behind[uid] = (refused, *place)
        self.refusals[uid] = reported
        self.note_trace(uid, refused.trace)

    def forget_refusal(self, uid: Uid) -> None:
        """Forget why the run waited, because it no longer waits."""
        self.refusals.pop(uid, None)
        self.behind.pop(uid, None)

    def note_trace(self, uid: Uid, trace: tuple[CoverStep, ...]) -> None:
        """Note the newest search for payers. An empty trace does not replace an earlier one."""
        if trace:
            self.traces[uid] = trace

    # Binds that keep failing.

    def block_binds(self, uid: Uid, node_changes: int) -> None:
        """Block binds of a run until a node changes, unless they are already blocked."""
        self.blocked_binds.setdefault(uid, node_changes)

    def unblock_binds(self, uid: Uid) -> None:
        self.blocked_binds.pop(uid, None)

    # What plans keep, and the sites of starts by preemption.

    def note_holds(self, held: dict[str, int], claims: tuple[Claim, ...]) -> None:
        self.held = held
        self.claims = claims

    def foresee(self, uid: Uid, *, is_known: bool) -> None:
        """Note whether the odds of the run's start by preemption are known or still have to be
        computed."""
        (self.foreseen.add if is_known else self.foreseen.discard)(uid)

    # The cost of a turn.

    def may_postpone(self) -> bool:
        """Return whether work may be postponed to the next turn. It may not if the last turn
        postponed it."""
        return not self._was_postponed

    def postpone_once(self, *, wanted: bool) -> bool:
        """Postpone the queue to the next turn if `wanted`, but never twice in a row. Returns
        whether it is postponed."""
        self._was_postponed = wanted and not self._was_postponed
        return self._was_postponed

    # Whether everything is still, i.e. turns open and close no leases.

    def moving_for(self, now: Instant) -> Millis:
        """Return for how long every turn up to now has opened or closed leases; 0 if the last did
        not."""
        return 0 if self._moving_since is None else now - self._moving_since

    def note_turn(self, now: Instant, *, is_still: bool) -> None:
        if is_still:
            self._moving_since = None
        elif self._moving_since is None:
            self._moving_since = now

    def may_draw(self, now: Instant, *, count: int, per: Millis) -> Instant | None:
        """Use one of the `count` simulations of lotteries that are allowed in `per` ms.

        Returns None if one was left, otherwise the instant at which the next one is allowed.
        """
        assert count > 0
        if not 0 <= now - self._drawn_since < per:
            self._drawn_since, self._drawn = now, 0
        if self._drawn == count:
            return self._drawn_since + per
        self._drawn += 1
        return None
