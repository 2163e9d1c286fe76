"""One walk over the queue: what its runs share.

Made again for every walk. It counts the places in the queue (Q9), keeps outlooks for runs with pods
of one size, and answers runs that are alike once.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.decisions.admit import Wish
from leasehold.core.decisions.ever import could_hold
from leasehold.core.decisions.outlook import Outlook, Supply
from leasehold.core.facts import EnvelopeKey, Gang, Location, Record, Run, Uid
from leasehold.core.policy import Policy
from leasehold.core.units import FOREVER, SECOND, Instant
from leasehold.core.verdicts import Refused
from leasehold.core.world.accounts import Accounts
from leasehold.core.world.alike import Alike, Likeness

_SAMPLES_PER_SECOND = 4
_EXACT = 16  # the first places in the queue that are told about
_State = tuple[int, ...]
_Floor = tuple[Instant, frozenset[EnvelopeKey], _State, _State]
_UNKNOWN: _Floor = (0, frozenset(), (), ())


class PlaceInQueue(Record):
    """A far place is rounded; otherwise everybody would be told again whenever a run starts."""

    is_planned: bool
    mine: int  # among the owner's
    total: int
    of_owner: int  # that are planned at most
    of_all: int
    is_for_money: bool

    def words(self, owner: str) -> str:
        return (
            f"{'' if self.mine < _EXACT else 'about '}number {self.mine} of {owner} and "
            f"{'' if self.total < _EXACT else 'about '}{self.total} of all in the "
            f"queue{' for budget' if self.is_for_money else ''}; {self.of_owner} per owner and "
            f"{self.of_all} in all are planned"
        )


def told_place(refused: Refused, place: PlaceInQueue, run: Run) -> Refused:
    """The same refusal for a run that is not planned."""
    return replace(refused, remedy=f"{refused.remedy}; {place.words(run.spec.owner)}")


class _Depth:
    """How many wait for the same, and how many of them are planned."""

    def __init__(self, of_owner: int, of_all: int) -> None:
        self.of_owner, self.of_all = of_owner, of_all
        self.planned = self.total = 0
        self.planned_of: dict[str, int] = {}
        self.count_of: dict[str, int] = {}

    def is_full(self, owner: str) -> bool:
        return self.planned >= self.of_all or self.planned_of.get(owner, 0) >= self.of_owner

    def take(self, owner: str) -> tuple[bool, int]:
        """Whether the next of this owner is planned, and its number among the owner's."""
        is_planned = not self.is_full(owner)
        self.total += 1
        mine = self.count_of[owner] = self.count_of.get(owner, 0) + 1
        if is_planned:
            self.planned += 1
            self.planned_of[owner] = self.planned_of.get(owner, 0) + 1
        return is_planned, mine


class QueuePass:
    def __init__(
        self,
        policy: Policy,
        alike: Alike | None = None,
        supply: Supply | None = None,
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """`alike`, `supply`: what is known from walks before. A rehearsal takes nobody's share of
        the questions that cost most."""
        self.is_rehearsal = is_rehearsal
        self.kept_domains: set[str] = set()  # where a run keeps its site without cuts (Q10)
        self._alike = alike or Alike()
        self._gpus = _Depth(policy.reservation_depth_per_owner, policy.reservation_depth)
        self._money = _Depth(
            policy.reservation_money_depth_per_owner, policy.reservation_money_depth
        )
        self._answers: dict[Likeness, tuple[_State, Refused]] = {}
        self._floors: dict[Likeness, _Floor] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self.supply = supply or Supply()
        self.possible: dict[Uid, Run] = {}  # runs that could start if nothing else ran (Q11)
        self.catch_up: Callable[[], None] = lambda: None  # learn which leases began or ended
        self._empty: Accounts | None = None

    # Places in the queue.

    def is_full(self, run: Run, refused: Refused) -> bool:
        """Whether no run of this owner is planned any more."""
        return self._depth(refused).is_full(run.spec.owner)

    def take_place(self, run: Run, refused: Refused) -> PlaceInQueue:
        depth = self._depth(refused)
        is_planned, mine = depth.take(run.spec.owner)
        return PlaceInQueue(
            is_planned=is_planned,
            mine=_about(mine),
            total=_about(depth.total),
            of_owner=depth.of_owner,
            of_all=depth.of_all,
            is_for_money=depth is self._money,
        )

    def _depth(self, refused: Refused) -> _Depth:
        return self._money if refused.reason.is_about_money else self._gpus

    # What runs that are alike share.

    def answer(self, turn: Turn, run: Run) -> Refused | None:
        """The refusal of a run just like it, if nothing has changed since, and the run has nothing
        of its own that could make a difference."""
        known = self._answers.get(self._alike.likeness(run))
        if known is None or known[0] != _state(turn) or not is_plain(turn, run):
            return None
        return known[1]

    def remember(self, turn: Turn, run: Run, refused: Refused) -> Refused:
        """Keep the refusal of a plain run for those behind it that are alike."""
        likeness = self._alike.likeness(run)
        settled = likeness.settle(refused)
        self._answers[likeness] = (_state(turn), settled)
        return settled

    def not_before(self, turn: Turn, run: Run) -> tuple[Instant, frozenset[EnvelopeKey]]:
        """No run is planned before one just like it that is ahead, as long as nothing became
        free. Return that start, and the envelopes that were asked to pay before it."""
        at, asked, let_go, state = self._floors.get(self._alike.likeness(run), _UNKNOWN)
        holds = state == _state(turn) if at == FOREVER else let_go == _let_go(turn)
        return (at, asked) if holds and _has_no_past(turn, run) else (0, frozenset())

    def note_start(self, turn: Turn, run: Run, at: Instant, asked: frozenset[EnvelopeKey]) -> None:
        """Keep that it cannot start before `at`; FOREVER: at no instant that is known."""
        if _has_no_past(turn, run):
            floor = at, asked, _let_go(turn), _state(turn)
            self._floors[self._alike.likeness(run)] = floor

    # What costs much.

    def may_sample(self, turn: Turn) -> bool:
        """Whether a thousand seeds may be drawn for odds: so many a second."""
        if self.is_rehearsal:
            return False
        at = turn.world.memory.may_draw(turn.now, count=_SAMPLES_PER_SECOND, per=SECOND)
        if at is not None:
            turn.wake(at)
        return at is None

    def empty_accounts(self, turn: Turn) -> Accounts:
        """All accounts as if no lease were open."""
        if self._empty is None:
            self._empty = turn.world.accounts.emptied(turn.now)
        return self._empty

    def could_hold(self, turn: Turn, wish: Wish) -> dict[Location, int]:
        return could_hold(turn.world, wish)

    def outlook(self, turn: Turn, flavor: str, gpus: int) -> Outlook:
        """Return when pods of a size have room, beside what was entered so far."""
        self.catch_up()
        for node in turn.calendar.changed:
            for known in self._outlooks.values():
                known.correct(node)
        turn.calendar.changed.clear()
        found = self._outlooks.get((flavor, gpus))
        if found is None:
            found = self._outlooks[(flavor, gpus)] = Outlook(
                turn.world,
                turn.calendar,
                flavor=flavor,
                gpus=gpus,
                now=turn.now,
                supply=self.supply,
            )
        return found

    def outlook_for(self, turn: Turn, wish: Wish) -> Outlook:
        """Return the same as a run sees it that tolerates taints."""
        flavor, gpus, tolerations = (
            wish.want.flavor,
            wish.want.pod_gpus,
            wish.run.spec.tolerations,
        )
        if not tolerations:
            return self.outlook(turn, flavor, gpus)
        with turn.world.what_if.opened():
            turn.world.fleet.tolerate(tolerations)
            found = Outlook(turn.world, turn.calendar, flavor=flavor, gpus=gpus, now=turn.now)
            found.settle()
            return found

    def forget_all(self) -> None:
        """More has changed than could be named."""
        self.supply.forget_all()
        self._outlooks.clear()

    def leases_changed(self, nodes: Iterable[str]) -> None:
        """Look again at nodes on which leases began or ended in this walk."""
        self.supply.forget(nodes)
        for known in self._outlooks.values():
            for name in nodes:
                known.correct(name)


def _about(number: int) -> int:
    """The number itself, or of a far one the next lower quarter of a power of two."""
    return number if number < _EXACT else number >> (step := number.bit_length() - 3) << step


def _state(turn: Turn) -> _State:
    """The same as long as nothing was started, ended or entered in this turn."""
    return turn.opened, turn.released, turn.calendar.changes


def _let_go(turn: Turn) -> _State:
    """The same as long as nothing became free."""
    return turn.released, turn.calendar.releases


def _has_no_past(turn: Turn, run: Run) -> bool:
    return run.uid not in turn.world.books and run.spec.gang is Gang.RUN


def is_plain(turn: Turn, run: Run) -> bool:
    """Whether it waits for its first start, whole, without a reservation."""
    world, uid = turn.world, run.uid
    return (
        _has_no_past(turn, run)
        and not (run.spec.stop or run.deleting)
        and uid not in turn.quarantined
        and uid not in world.memory.blocked_binds
        and present(world, run) is None
    )
