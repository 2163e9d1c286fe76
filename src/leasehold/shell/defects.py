"""Whom the loop leaves alone after a defect of ours, and when it starts nothing at all any more.

Told by the loop of decisions that would break an invariant and of decisions that failed. The named
runs are left alone, everybody else goes on; it forgets at a restart.
"""

from collections.abc import Callable

from leasehold.adapters.containment import About, Containment
from leasehold.control.undecided import Undecided
from leasehold.core.facts import Run, Uid
from leasehold.core.units import HOUR, MINUTE, Instant, Millis
from leasehold.core.world.invariants import Violation
from leasehold.core.world.steps import TooManySteps
from leasehold.core.world.world import World

AGAIN_FIRST: Millis = MINUTE  # after a decision that took too many steps; then twice as long each
AGAIN_MAX: Millis = HOUR
FAILURES_MAX = 3  # in a row, about nobody, until binding and cutting are stopped
_LOOP = About("Task", "controller")


class InvariantBroken(Exception):  # noqa: N818 - it says what happened
    """A decision would break an invariant: a defect of ours."""

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
        self._in_a_row = 0  # failures about nobody, without a good turn between them
        self._has_stopped = False  # for good: nothing has begun since
        self.quarantined: frozenset[Uid] = frozenset()  # neither started nor grown
        self.left_alone: frozenset[Uid] = frozenset()  # nor looked at in any other way
        self._costly: dict[Uid, tuple[int, Instant]] = {}  # how often, and when to try again
        self.trouble = ""  # why nothing is decided; "" while it is

    def went_well(self) -> None:
        """A whole turn."""
        if self._in_a_row:
            self._containment.went_well(_LOOP)
        self.trouble, self._in_a_row = "", 0

    def lift(self, uid: Uid) -> None:
        """It was edited: another run, which may be tried again."""
        self._costly.pop(uid, None)
        self._try_again(uid)

    @property
    def costly(self) -> frozenset[Uid]:
        """Runs that are put aside because deciding about them took too many steps."""
        return frozenset(uid for uid in self._costly if uid in self.quarantined)

    def try_again(self, now: Instant, world: World) -> None:
        """Lift the quarantine of costly runs whose pause is over (`now` is monotonic), and forget
        those that are gone."""
        for uid, (_, at) in list(self._costly.items()):
            if uid not in world.runs:
                self.lift(uid)
            elif at <= now and uid in self.quarantined:
                self._try_again(uid)
                world.work.look_at(uid)
        world.steps.put_aside(self.costly)

    @property
    def next_try(self) -> Instant | None:
        """When the next costly run is tried again, by the monotonic clock."""
        return min((self._costly[uid][1] for uid in self.costly), default=None)

    def _try_again(self, uid: Uid) -> None:
        self.quarantined -= {uid}
        self.left_alone -= {uid}

    def broken(self, broken: InvariantBroken) -> None:
        """Leave the named runs alone; if that is not enough, stop binding and cutting."""
        named = frozenset(uid for each in broken.violations for uid in each.runs)
        for each in broken.violations:
            self._alert(f"defect: {each}")
        if not named or self.quarantined - self.costly:
            self._stop()
        self.quarantined |= named

    def failed(self, error: Exception, run: Run | None, now: Instant) -> Millis:
        """Leave the run alone that it was about, first in part and then wholly. What was about none
        is tried again, ever later; if that does not help, without binding and cutting. `now` is
        monotonic. Returns how long to wait before the next try."""
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
        # Whoever asks for it needs no token: what went wrong, and with whom, is in the log.
        self.trouble = f"no decision can be taken ({type(cause).__name__}); the log says why"
        return pause

    def _stop(self) -> None:
        self._has_stopped = True
        self._stop_starting()
        self._alert("binding and cutting are stopped")


def about_whom(error: Exception) -> Uid:
    """The run that a decision failed about; "" if about none."""
    return error.about if isinstance(error, Undecided) else ""


def cause_of(error: Exception) -> Exception:
    """What went wrong, where a decision only says about whom."""
    if isinstance(error, Undecided) and isinstance(error.__cause__, Exception):
        return error.__cause__
    return error
