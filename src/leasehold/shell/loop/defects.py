"""Decides which runs are quarantined after a defect of leasehold, and when all starts stop.

The loop reports decisions that failed or would break an invariant. The runs concerned are
quarantined, and all others continue. Quarantines are lost at a restart.
"""

from collections.abc import Callable

from leasehold.adapters.containment import About, Containment
from leasehold.control.undecided import DecisionFailed
from leasehold.core.facts import Run, Uid
from leasehold.core.units import HOUR, MINUTE, Instant, Millis
from leasehold.core.world.invariants import Violation
from leasehold.core.world.steps import TooManySteps
from leasehold.core.world.world import World

AGAIN_FIRST: Millis = MINUTE  # first retry after a decision with too many steps; doubles each time
AGAIN_MAX: Millis = HOUR
FAILURES_MAX = 3  # consecutive failures that concern no run, until binding and preemption stop
_LOOP = About("Task", "controller")


class InvariantBroken(Exception):  # noqa: N818 - named for the condition
    """A decision would break an invariant: a defect of leasehold."""

    def __init__(self, violations: list[Violation]) -> None:
        super().__init__("; ".join(map(str, violations)))
        self.violations = violations


class Defects:
    def __init__(
        self,
        containment: Containment,
        *,
        alert: Callable[[str], None],
        stop_starting: Callable[[], None],
    ) -> None:
        self._containment = containment
        self._alert = alert
        self._stop_starting = stop_starting
        self._in_a_row = 0  # failures that concern no run, since the last good turn
        self._has_stopped = False  # stopped for good: nothing is started any more
        self.quarantined: frozenset[Uid] = frozenset()  # neither started nor grown
        self.left_alone: frozenset[Uid] = frozenset()  # excluded from decisions altogether
        self._costly: dict[Uid, tuple[int, Instant]] = {}  # failures so far, and when to retry
        self.trouble = ""  # why no decisions are taken; "" if they are

    def went_well(self) -> None:
        """Note that a turn was completed without failure."""
        if self._in_a_row:
            self._containment.went_well(_LOOP)
        self.trouble, self._in_a_row = "", 0

    def lift(self, uid: Uid) -> None:
        """End the quarantine of a run that was edited or no longer exists."""
        self._costly.pop(uid, None)
        self._try_again(uid)

    @property
    def costly(self) -> frozenset[Uid]:
        """The quarantined runs about which a decision took too many steps. They are tried again
        later."""
        return frozenset(uid for uid in self._costly if uid in self.quarantined)

    def try_again(self, now: Instant, world: World) -> None:
        """End the quarantine of runs that took too many steps and whose pause is over; forget runs
        that no longer exist. `now` is monotonic."""
        for uid, (_, at) in list(self._costly.items()):
            if uid not in world.runs:
                self.lift(uid)
            elif at <= now and uid in self.quarantined:
                self._try_again(uid)
                world.work.look_at(uid)
        world.steps.put_aside(self.costly)

    @property
    def next_try(self) -> Instant | None:
        """When the next quarantined run that took too many steps is tried again, by the monotonic
        clock; None if there is none."""
        return min((self._costly[uid][1] for uid in self.costly), default=None)

    def _try_again(self, uid: Uid) -> None:
        self.quarantined -= {uid}
        self.left_alone -= {uid}

    def broken(self, broken: InvariantBroken) -> None:
        """Quarantine the runs that the violations name. Also stop binding and preemption if they
        name none, or if any run is already quarantined for a reason other than too many steps."""
        named = frozenset(uid for each in broken.violations for uid in each.runs)
        for each in broken.violations:
            self._alert(f"defect: {each}")
        if not named or self.quarantined - self.costly:
            self._stop()
        self.quarantined |= named

    def failed(self, error: Exception, run: Run | None, now: Instant) -> Millis:
        """Note a failed decision, and return how long to wait before the next try.

        A run that the failure concerns is quarantined: the first time it may not start or grow, the
        second time no decision concerns it. A failure that concerns no run is retried with growing
        pauses; after several in a row, binding and preemption stop. `now` is monotonic.
        """
        uid, cause = about_whom(error), cause_of(error)
        about = _LOOP
        if uid:
            about = About("Run", uid, uid=uid)
        if run is not None:
            about = About("Run", run.name, run.namespace, uid)
        pause = self._containment.failed(about, cause)
        if uid and uid not in self.quarantined and isinstance(cause, TooManySteps):
            times = self._costly.get(uid, (0, 0))[0]
            self._costly[uid] = (times + 1, now + min(AGAIN_FIRST << min(times, 10), AGAIN_MAX))
        if uid and uid not in self.left_alone:
            if uid in self.quarantined:
                self.left_alone |= {uid}
            self.quarantined |= {uid}
            return 0
        self._in_a_row += 1
        if self._in_a_row > FAILURES_MAX and not self._has_stopped:
            self._stop()
        # `trouble` is served without authentication, so it omits details and names.
        self.trouble = f"no decision can be taken ({type(cause).__name__}); see the log"
        return pause

    def _stop(self) -> None:
        self._has_stopped = True
        self._stop_starting()
        self._alert("binding and preemption are stopped")


def about_whom(error: Exception) -> Uid:
    """Return the run that a decision failed on; "" if the failure concerns none."""
    return error.about if isinstance(error, DecisionFailed) else ""


def cause_of(error: Exception) -> Exception:
    """Return the underlying error of `DecisionFailed`, or the error itself."""
    if isinstance(error, DecisionFailed) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return error
