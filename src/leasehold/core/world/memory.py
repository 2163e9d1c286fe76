"""What controllers remember from one turn to the next: what was last said, and of whom in line.

Kept with the World and forgotten with it. Nothing here is a fact: a World that begins with an empty
memory decides the same, says some things again, and thinks some things over that it knew.
"""

from typing import TypeVar

from leasehold.core.facts import Uid
from leasehold.core.units import Instant, Millis
from leasehold.core.verdicts import CoverStep, Refused
from leasehold.core.world.accounts import Claim
from leasehold.core.world.alike import Alike

T = TypeVar("T")


class Memory:
    """Read freely; changed by its methods."""

    def __init__(self) -> None:
        self.refusals: dict[Uid, Refused] = {}  # why a pending run waits
        self.traces: dict[Uid, tuple[CoverStep, ...]] = {}  # the newest walk of cover
        self.behind: dict[Uid, tuple[Refused, int, int]] = {}  # why, and the place they were told
        self.blocked_binds: dict[Uid, int] = {}  # -> node_changes when its binds kept failing
        self.held: dict[str, int] = {}  # GPUs by node that activations under way keep
        self.claims: tuple[Claim, ...] = ()  # money that planned starts keep
        self.foreseen: set[Uid] = set()  # runs that were told the odds of their start by cuts
        self.alike = Alike()
        self._kept: dict[type, object] = {}
        self._was_put_off = False  # the line, in the turn before
        self._moving_since: Instant | None = None  # no turn since then in which all was still
        self._drawn_since: Instant = 0
        self._drawn = 0

    def kept(self, kind: type[T]) -> T:
        """Return what a controller keeps from turn to turn, made when it is first asked for."""
        found = self._kept.get(kind)
        if found is None:
            found = self._kept[kind] = kind()
        assert isinstance(found, kind)
        return found

    def forget(self, uid: Uid) -> None:
        """The run is gone."""
        self.forget_refusal(uid)
        self.traces.pop(uid, None)
        self.blocked_binds.pop(uid, None)
        self.alike.forget(uid)
        self.foreseen.discard(uid)

    # Why a run waits.

    def refuse(self, uid: Uid, refused: Refused) -> bool:
        """Keep why a run waits, and return whether that is news: a count alone is none."""
        known = self.refusals.get(uid)
        is_news = known is None or known.essence != refused.essence
        self.refusals[uid] = refused
        self.behind.pop(uid, None)
        self.note_trace(uid, refused.trace)
        return is_news

    def tell_place(self, uid: Uid, refused: Refused, told: Refused, place: tuple[int, int]) -> None:
        """`refused` is what it shares with those alike, `told` what it is told in its place."""
        assert told.reason is refused.reason, uid
        self.behind[uid] = (refused, *place)
        self.refusals[uid] = told
        self.note_trace(uid, refused.trace)

    def forget_refusal(self, uid: Uid) -> None:
        """It does not wait any more."""
        self.refusals.pop(uid, None)
        self.behind.pop(uid, None)

    def note_trace(self, uid: Uid, trace: tuple[CoverStep, ...]) -> None:
        """Of an answer that did not walk, the walk before is the newest."""
        if trace:
            self.traces[uid] = trace

    # Binds that keep failing.

    def block_binds(self, uid: Uid, node_changes: int) -> None:
        """Until a node changes, if it is not blocked since before."""
        self.blocked_binds.setdefault(uid, node_changes)

    def unblock_binds(self, uid: Uid) -> None:
        self.blocked_binds.pop(uid, None)

    # What plans keep, and the room that starts that need cuts will have.

    def note_holds(self, held: dict[str, int], claims: tuple[Claim, ...]) -> None:
        self.held = held
        self.claims = claims

    def foresee(self, uid: Uid, *, is_known: bool) -> None:
        """The odds of its start by cuts are known, or are still to be drawn."""
        (self.foreseen.add if is_known else self.foreseen.discard)(uid)

    # What a turn may cost.

    def may_put_off(self) -> bool:
        """Whether something may wait for the next turn: nothing does twice in a row."""
        return not self._was_put_off

    def put_off_once(self, *, wanted: bool) -> bool:
        """Whether the line waits for the next turn; never twice in a row."""
        self._was_put_off = wanted and not self._was_put_off
        return self._was_put_off

    # Whether all is still.

    def moving_for(self, now: Instant) -> Millis:
        """How long ago something first moved after all had been still."""
        return 0 if self._moving_since is None else now - self._moving_since

    def note_turn(self, now: Instant, *, is_still: bool) -> None:
        if is_still:
            self._moving_since = None
        elif self._moving_since is None:
            self._moving_since = now

    def may_draw(self, now: Instant, *, count: int, per: Millis) -> Instant | None:
        """Takes one of so many draws in a span; or when there will be another."""
        assert count > 0
        if not 0 <= now - self._drawn_since < per:
            self._drawn_since, self._drawn = now, 0
        if self._drawn == count:
            return self._drawn_since + per
        self._drawn += 1
        return None
