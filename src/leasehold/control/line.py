"""The line of runs that are planned in one pass: how deep it is, and what it may cost.

Made anew by the queue for every pass. It also keeps what the runs of the pass can share: outlooks,
and the answers to those that are alike.
"""

from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.admit import Wish
from leasehold.core.alike import Alike, Kind
from leasehold.core.facts import Gang, Record, Run
from leasehold.core.outlook import Ends, Outlook
from leasehold.core.policy import Policy
from leasehold.core.units import FOREVER, SECOND, Instant
from leasehold.core.verdicts import Refusal, Refused

_PREVIEWS_PER_TURN = 32
_SAMPLES_PER_SECOND = 4
_EXACT = 16  # places in line that are told to the number
_State = tuple[int, ...]


class Place(Record):
    """Where a run stands in line; a far one is told about, or everybody would be told anew
    whenever the first one starts."""

    mine: int  # among the owner's
    total: int

    @property
    def number(self) -> str:
        return f"number {self.mine}" if self.mine < _EXACT else f"about number {self.mine}"


class Line:
    """Who is planned: so many of an owner, so many in all. Those short of money take no place
    among those short of GPUs: they have a line of their own."""

    def __init__(self, policy: Policy, alike: Alike | None = None) -> None:
        """`alike`: the kinds that are known from passes before."""
        self._policy = policy
        self._alike = alike or Alike()
        self._total = 0
        self._by_owner: dict[str, int] = {}
        self._money_total = 0
        self._money: dict[tuple[str, Refusal], int] = {}  # of an owner, for one reason
        self._answers: dict[Kind, tuple[_State, Refused]] = {}
        self._floors: dict[Kind, tuple[_State, Instant]] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self._ends: Ends = {}
        self._seen = -1  # leases that the outlooks know of
        self._previews = 0

    # Who is planned.

    def is_full(self, run: Run, refused: Refused) -> bool:
        """Whether nobody of this owner who is refused for this reason is planned any more."""
        mine, total, of_owner, of_all = self._counts(run, refused)
        return mine >= of_owner or total >= of_all

    def has_room(self, run: Run, refused: Refused) -> bool:
        """Whether this one is planned; it has its place from now on."""
        is_full = self.is_full(run, refused)
        owner = run.spec.owner
        if refused.reason.is_about_money:
            key = (owner, refused.reason)
            self._money[key] = self._money.get(key, 0) + 1
            self._money_total += 1
        else:
            self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
            self._total += 1
        return not is_full

    def place_of(self, run: Run, refused: Refused) -> Place:
        """Where the run that was asked about last stands."""
        mine, total, _, _ = self._counts(run, refused)
        return Place(mine=_about(mine), total=_about(total))

    def words_of(self, place: Place, run: Run, refused: Refused) -> str:
        """The place for a person."""
        _, _, of_owner, of_all = self._counts(run, refused)
        which = "short of money" if refused.reason.is_about_money else "in line"
        return (
            f"{place.number} of {run.spec.owner} and {place.total} of all {which}, of which the "
            f"first {of_owner} of an owner and {of_all} of all are planned"
        )

    def _counts(self, run: Run, refused: Refused) -> tuple[int, int, int, int]:
        """How many are in line of its owner, and in all; how many of them are planned."""
        owner, policy = run.spec.owner, self._policy
        if refused.reason.is_about_money:
            return (
                self._money.get((owner, refused.reason), 0),
                self._money_total,
                policy.reservation_money_depth_per_owner,
                policy.reservation_money_depth,
            )
        return (
            self._by_owner.get(owner, 0),
            self._total,
            policy.reservation_depth_per_owner,
            policy.reservation_depth,
        )

    # What those who are alike share.

    def answer(self, turn: Turn, run: Run) -> Refused | None:
        """What one just like it was told, if it would be told the same now: nothing has changed
        since, and it has nothing of its own that could make a difference."""
        known = self._answers.get(self._alike.kind(run))
        if known is None or known[0] != _state(turn) or not _is_plain(turn, run):
            return None
        return known[1]

    def remember(self, turn: Turn, run: Run, refused: Refused) -> Refused:
        """For those behind it that are alike."""
        if not _is_plain(turn, run):
            return refused
        kind = self._alike.kind(run)
        settled = kind.settle(refused)
        self._answers[kind] = (_state(turn), settled)
        return settled

    def not_before(self, turn: Turn, run: Run) -> Instant:
        """Nobody starts before one just like it that is ahead, as long as plans are only added."""
        known = self._floors.get(self._alike.kind(run))
        if known is None or known[0] != _let_go(turn) or not _has_no_past(turn, run):
            return 0
        return known[1]

    def note_start(self, turn: Turn, run: Run, at: Instant | None) -> None:
        """When it was found to start; None: no such instant is known."""
        if _has_no_past(turn, run):
            known = FOREVER if at is None else at
            self._floors[self._alike.kind(run)] = (_let_go(turn), known)

    # What a pass may cost.

    def may_preview(self) -> bool:
        """Running resolve to see what it would do is dear: so many a turn, in order.

        The plans of the others stand until an event finds fewer ahead of them; asking again
        without one would find the same ones ahead, for ever.
        """
        self._previews += 1
        return self._previews <= _PREVIEWS_PER_TURN

    def may_sample(self, turn: Turn) -> bool:
        """Drawing a thousand seeds is dearer still: once each, so many a second, others later."""
        at = turn.world.waiting.may_draw(turn.now, count=_SAMPLES_PER_SECOND, per=SECOND)
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
            mark = world.journal.mark()
            world.fleet.tolerate(wish.run.spec.tolerations)
            self._outlooks[key] = Outlook(
                world, agenda, flavor=key[0], gpus=key[1], now=turn.now, ends=self._ends
            )
            world.journal.undo(mark)
        return self._outlooks[key]


def _about(number: int) -> int:
    """The number itself, or of a far one the next lower quarter of a power of two."""
    return number if number < _EXACT else number >> (step := number.bit_length() - 3) << step


def _state(turn: Turn) -> _State:
    """The same as long as nothing was started, ended, held or let go in this turn."""
    return turn.opened, turn.released, turn.agenda.changes


def _let_go(turn: Turn) -> _State:
    """The same as long as nobody has more than before."""
    return turn.released, turn.agenda.releases


def _has_no_past(turn: Turn, run: Run) -> bool:
    return run.uid not in turn.world.books and run.spec.gang is Gang.RUN


def _is_plain(turn: Turn, run: Run) -> bool:
    """Waits for its first start, whole, and holds nothing."""
    world, uid = turn.world, run.uid
    return (
        _has_no_past(turn, run)
        and not (run.spec.stop or run.deleting)
        and uid not in turn.quarantined
        and uid not in world.blocked_binds
        and present(world, run) is None
    )
