"""What the runs of one walk over the queue share.

A `QueuePass` is created for every walk. It counts the places in the queue (Q9). It keeps one
`Outlook` (when pods will fit) for each size of pods. It gives equal runs one answer.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from leasehold.control.reservations import present
from leasehold.control.turn import Turn
from leasehold.core.admission.possible import could_hold
from leasehold.core.calendar.outlook import Outlook, Supply
from leasehold.core.facts import EnvelopeKey, Gang, Location, Record, Run, Uid
from leasehold.core.policy import Policy
from leasehold.core.requests import StartRequest
from leasehold.core.units import FOREVER, SECOND, Instant
from leasehold.core.verdicts import Refused
from leasehold.core.world.accounts import Accounts
from leasehold.core.world.alike import EqualRuns, EqualRunsIndex

_SAMPLES_PER_SECOND = 4
_EXACT = 16  # places below this number are reported exactly, others are rounded
_StateKey = tuple[int, ...]
_Floor = tuple[Instant, frozenset[EnvelopeKey], _StateKey, _StateKey]
_UNKNOWN: _Floor = (0, frozenset(), (), ())


class PlaceInQueue(Record):
    """A run's place in the queue, among its owner's runs and among all, and the limits of Q9.

    Far places are rounded. Otherwise the statuses of all runs would change with every start.
    """

    is_planned: bool  # the run is within the depth (Q9)
    mine: int  # place among the owner's runs
    total: int  # place among all runs
    of_owner: int  # the most runs of one owner that are planned
    of_all: int  # the most runs in all that are planned
    is_for_money: bool  # counted among the runs that need money

    def words(self, owner: str) -> str:
        """Return the place as a phrase for a status."""
        return (
            f"{'' if self.mine < _EXACT else 'about '}number {self.mine} of {owner} and "
            f"{'' if self.total < _EXACT else 'about '}{self.total} of all in the "
            f"queue{' for budget' if self.is_for_money else ''}; {self.of_owner} per owner and "
            f"{self.of_all} in all are planned"
        )


def refused_with_place(refused: Refused, place: PlaceInQueue, run: Run) -> Refused:
    """Return the refusal with the run's place in the queue added to its remedy."""
    return replace(refused, remedy=f"{refused.remedy}; {place.words(run.spec.owner)}")


class _Depth:
    """Counts the waiting runs and how many of them are planned, for GPUs or for money (Q9)."""

    def __init__(self, of_owner: int, of_all: int) -> None:
        self.of_owner, self.of_all = of_owner, of_all
        self.planned = self.total = 0
        self.planned_of: dict[str, int] = {}
        self.count_of: dict[str, int] = {}

    def is_full(self, owner: str) -> bool:
        return self.planned >= self.of_all or self.planned_of.get(owner, 0) >= self.of_owner

    def take(self, owner: str) -> tuple[bool, int]:
        """Count one more run of this owner.

        Returns whether the run is planned, and its place among the owner's runs.
        """
        is_planned = not self.is_full(owner)
        self.total += 1
        mine = self.count_of[owner] = self.count_of.get(owner, 0) + 1
        if is_planned:
            self.planned += 1
            self.planned_of[owner] = self.planned_of.get(owner, 0) + 1
        return is_planned, mine


class QueuePass:
    """What the runs of one walk over the queue share: counts, outlooks, and answers to equal
    runs."""

    def __init__(
        self,
        policy: Policy,
        alike: EqualRunsIndex | None = None,
        supply: Supply | None = None,
        *,
        is_rehearsal: bool = False,
    ) -> None:
        """Begin a walk.

        `alike`, `supply`: what earlier walks found.
        `is_rehearsal`: the walk answers a question, and must not use up the samples that real
        walks may draw.
        """
        self.is_rehearsal = is_rehearsal
        # domains in which a run has reserved its site without preemption (Q10)
        self.kept_domains: set[str] = set()
        self._alike = alike or EqualRunsIndex()
        self._gpus = _Depth(policy.reservation_depth_per_owner, policy.reservation_depth)
        self._money = _Depth(
            policy.reservation_money_depth_per_owner, policy.reservation_money_depth
        )
        self._answers: dict[EqualRuns, tuple[_StateKey, Refused]] = {}
        self._floors: dict[EqualRuns, _Floor] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self.supply = supply or Supply()
        self.possible: dict[Uid, Run] = {}  # runs that could start if nothing else ran (Q11)
        # must be called before an outlook is read: notes the leases that this walk began or ended
        self.catch_up: Callable[[], None] = lambda: None
        self._empty: Accounts | None = None

    # Places in the queue.

    def is_full(self, run: Run, refused: Refused) -> bool:
        """Return whether the depth is used up, so that no further run of the run's owner is
        planned."""
        return self._depth(refused).is_full(run.spec.owner)

    def take_place(self, run: Run, refused: Refused) -> PlaceInQueue:
        """Give the run the next place in the queue and return it."""
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

    # What equal runs share.

    def answer(self, turn: Turn, run: Run) -> Refused | None:
        """Return the refusal that an equal run got in this walk, or None.

        A refusal is reused only if no lease and no entry of the calendar has changed since, and
        only for plain runs (`is_plain`).
        """
        known = self._answers.get(self._alike.likeness(run))
        if known is None or known[0] != _state_key(turn) or not is_plain(turn, run):
            return None
        return known[1]

    def remember(self, turn: Turn, run: Run, refused: Refused) -> Refused:
        """Keep the refusal of a plain run for equal runs behind it, and return it."""
        likeness = self._alike.likeness(run)
        settled = likeness.settle(refused)
        self._answers[likeness] = (_state_key(turn), settled)
        return settled

    def not_before(self, turn: Turn, run: Run) -> tuple[Instant, frozenset[EnvelopeKey]]:
        """Return the earliest start worth trying, and the envelopes that an equal run ahead asked
        to pay.

        As long as nothing became free, a run cannot start before an equal run ahead of it. Returns
        0 and no envelopes if no equal run was planned.
        """
        at, asked, freed, state = self._floors.get(self._alike.likeness(run), _UNKNOWN)
        holds = state == _state_key(turn) if at == FOREVER else freed == _freed_key(turn)
        return (at, asked) if holds and _is_unstarted_gang(turn, run) else (0, frozenset())

    def note_start(self, turn: Turn, run: Run, at: Instant, asked: frozenset[EnvelopeKey]) -> None:
        """Note that the run cannot start before `at`. FOREVER means at no known instant."""
        if _is_unstarted_gang(turn, run):
            floor = at, asked, _freed_key(turn), _state_key(turn)
            self._floors[self._alike.likeness(run)] = floor

    # Expensive questions.

    def may_sample(self, turn: Turn) -> bool:
        """Return whether odds may be sampled now: four times per second, in all walks together.

        If not, request a turn for the instant at which the next sample is allowed.
        """
        if self.is_rehearsal:
            return False
        at = turn.world.memory.may_draw(turn.now, count=_SAMPLES_PER_SECOND, per=SECOND)
        if at is not None:
            turn.wake(at)
        return at is None

    def empty_accounts(self, turn: Turn) -> Accounts:
        """Return all accounts as if no lease were open."""
        if self._empty is None:
            self._empty = turn.world.accounts.emptied(turn.now)
        return self._empty

    def could_hold(self, turn: Turn, request: StartRequest) -> dict[Location, int]:
        return could_hold(turn.world, request)

    def outlook(self, turn: Turn, flavor: str, gpus: int) -> Outlook:
        """Return when pods of `gpus` GPUs will fit, given leases and the plans entered so far."""
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

    def outlook_for(self, turn: Turn, request: StartRequest) -> Outlook:
        """Return when pods of the request will fit (`Outlook`).

        A run that tolerates taints gets an outlook of its own, because more nodes take it.
        """
        flavor, gpus, tolerations = (
            request.placement.flavor,
            request.placement.pod_gpus,
            request.run.spec.tolerations,
        )
        if not tolerations:
            return self.outlook(turn, flavor, gpus)
        with turn.world.what_if.opened():
            turn.world.fleet.tolerate(tolerations)
            found = Outlook(turn.world, turn.calendar, flavor=flavor, gpus=gpus, now=turn.now)
            found.settle()
            return found

    def forget_all(self) -> None:
        """Drop everything computed from leases, because it is not known which nodes have
        changed."""
        self.supply.forget_all()
        self._outlooks.clear()

    def leases_changed(self, nodes: Iterable[str]) -> None:
        """Note that leases on these nodes began or ended in this walk, so that outlooks are
        recomputed."""
        self.supply.forget(nodes)
        for known in self._outlooks.values():
            for name in nodes:
                known.correct(name)


def _about(number: int) -> int:
    """Return the number if it is below 16, otherwise rounded down to its three leading bits.

    Example: 15 -> 15, 19 -> 16, 21 -> 20, 1000 -> 896.
    """
    return number if number < _EXACT else number >> (step := number.bit_length() - 3) << step


def _state_key(turn: Turn) -> _StateKey:
    """Return a value that changes whenever a lease or an entry of the calendar changes."""
    return turn.opened, turn.released, turn.calendar.changes


def _freed_key(turn: Turn) -> _StateKey:
    """Return a value that changes whenever GPUs or money may have become free."""
    return turn.released, turn.calendar.releases


def _is_unstarted_gang(turn: Turn, run: Run) -> bool:
    """Return whether the run is not a sweep and has never had a lease."""
    return run.uid not in turn.world.books and run.spec.gang is Gang.RUN


def is_plain(turn: Turn, run: Run) -> bool:
    """Return whether the run waits for its first start, as a whole, without a reservation.

    Such a run gets the same answer as any equal run.
    """
    world, uid = turn.world, run.uid
    return (
        _is_unstarted_gang(turn, run)
        and not (run.spec.stop or run.deleting)
        and uid not in turn.quarantined
        and uid not in world.memory.blocked_binds
        and present(world, run) is None
    )
