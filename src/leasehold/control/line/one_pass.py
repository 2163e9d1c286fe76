"""The line of runs that are considered in one pass: what they share, and what it may cost.

Made anew by the queue for every pass, with the places in it (`places_in_line`). Runs share
outlooks, and those that are alike share answers.
"""

from leasehold.control.line.places_in_line import PlacesInLine
from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish
from leasehold.core.decisions.outlook import Ends, Outlook
from leasehold.core.facts import Gang, Run
from leasehold.core.policy import Policy
from leasehold.core.units import FOREVER, SECOND, Instant
from leasehold.core.verdicts import Refused
from leasehold.core.world.alike import Alike, Likeness

_PREVIEWS_PER_TURN = 32
_SAMPLES_PER_SECOND = 4
_State = tuple[int, ...]
_UNKNOWN: tuple[Instant, _State, _State] = (0, (), ())


class Line:
    """The runs of a pass, in order."""

    def __init__(
        self, policy: Policy, alike: Alike | None = None, *, rehearses: bool = False
    ) -> None:
        """`alike`: the likenesses that are known from passes before. A pass that is rehearsed
        takes nobody's share of the dear questions, and asks them only while `asks` is set."""
        self.rehearses = rehearses
        self.asks = not rehearses
        self._alike = alike or Alike()
        self.places = PlacesInLine(policy)
        self._answers: dict[Likeness, tuple[_State, Refused]] = {}
        self._floors: dict[Likeness, tuple[Instant, _State, _State]] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self._ends: Ends = {}
        self._seen = -1  # leases that the outlooks know of
        self._previews = 0

    # What those who are alike share.

    def answer(self, turn: Turn, run: Run) -> Refused | None:
        """What one just like it was told, if it would be told the same now: nothing has changed
        since, and it has nothing of its own that could make a difference."""
        known = self._answers.get(self._alike.likeness(run))
        if known is None or known[0] != _state(turn) or not is_plain(turn, run):
            return None
        return known[1]

    def remember(self, turn: Turn, run: Run, refused: Refused) -> Refused:
        """For those behind it that are alike; of a plain one only."""
        likeness = self._alike.likeness(run)
        settled = likeness.settle(refused)
        self._answers[likeness] = (_state(turn), settled)
        return settled

    def not_before(self, turn: Turn, run: Run) -> Instant:
        """Nobody is planned before one just like it that is ahead, as long as nothing was let go.
        That no start is known of is the answer only while nothing has changed: whatever starts or
        is planned ends one day, which is another instant to start at."""
        at, let_go, state = self._floors.get(self._alike.likeness(run), _UNKNOWN)
        holds = state == _state(turn) if at == FOREVER else let_go == _let_go(turn)
        return at if holds and _has_no_past(turn, run) else 0

    def note_start(self, turn: Turn, run: Run, at: Instant | None) -> None:
        """When it was found to start; None: no such instant is known."""
        if _has_no_past(turn, run):
            known = FOREVER if at is None else at
            self._floors[self._alike.likeness(run)] = (known, _let_go(turn), _state(turn))

    # What a pass may cost.

    def may_preview(self) -> bool:
        """Running resolve to see what it would do is dear: so many a turn, in order.

        The plans of the others stand until an event finds fewer ahead of them; asking again
        without one would find the same ones ahead, for ever.
        """
        if self.rehearses:
            return self.asks
        self._previews += 1
        return self._previews <= _PREVIEWS_PER_TURN

    def may_sample(self, turn: Turn) -> bool:
        """Drawing a thousand seeds is dearer still: once each, so many a second, others later."""
        if self.rehearses:
            return self.asks
        at = turn.world.memory.may_draw(turn.now, count=_SAMPLES_PER_SECOND, per=SECOND)
        if at is not None:
            turn.wake(at)
        return at is None

    def forget_outlooks(self) -> None:
        """What one run tolerates is not there for the next."""
        self._outlooks.clear()
        self._ends.clear()

    def outlook(self, turn: Turn, wish: Wish) -> Outlook:
        """Made once per pass and pod size; corrected for what plans have been put in front."""
        world, agenda = turn.world, turn.agenda
        if self._seen != len(world.leases) or wish.run.spec.tolerations:
            self.forget_outlooks()
            self._seen = len(world.leases)
        for node in agenda.changed:
            for known in self._outlooks.values():
                known.correct(node)
        agenda.changed.clear()
        key = (wish.want.flavor, wish.want.pod_gpus)
        if key not in self._outlooks:
            mark = world.what_if.mark()
            world.fleet.tolerate(wish.run.spec.tolerations)
            self._outlooks[key] = Outlook(
                world, agenda, flavor=key[0], gpus=key[1], now=turn.now, ends=self._ends
            )
            world.what_if.undo(mark)
        return self._outlooks[key]


def _state(turn: Turn) -> _State:
    """The same as long as nothing was started, ended, held or let go in this turn."""
    return turn.opened, turn.released, turn.agenda.changes


def _let_go(turn: Turn) -> _State:
    """The same as long as nobody has more than before."""
    return turn.released, turn.agenda.releases


def _has_no_past(turn: Turn, run: Run) -> bool:
    return run.uid not in turn.world.books and run.spec.gang is Gang.RUN


def is_plain(turn: Turn, run: Run) -> bool:
    """Waits for its first start, whole, and holds nothing."""
    world, uid = turn.world, run.uid
    return (
        _has_no_past(turn, run)
        and not (run.spec.stop or run.deleting)
        and uid not in turn.quarantined
        and uid not in world.memory.blocked_binds
        and present(world, run) is None
    )
