"""What goes wrong with one object, kept to it: told once, counted, and tried again ever later.

Given by `leasehold up` to the agent and to the loop. Nobody but us writes most of what they read,
and still a record may be damaged and a defect may be ours: whoever it is about waits, fails or is
left alone, and everybody else goes on. It decides nothing about the object.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leasehold.core.objects.problems import Unsound
from leasehold.core.world.steps import TooManySteps
from leasehold.ports.runtime import Clock

PAUSE_MS = 500  # after the first failure; each one after it waits twice as long
PAUSE_MS_MAX = 60_000
WORDS_MAX = 300


@dataclass(frozen=True, slots=True)
class About:
    """The object that something went wrong with; for a task of ours only kind and name."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def words(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {place}"


Tell = Callable[[About, str, Exception], None]


class Containment:
    """`tell(about, why, error)` hears of every failure that is news."""

    def __init__(self, tell: Tell = lambda _about, _why, _error: None) -> None:
        self._tell = tell
        self._failures: dict[About, int] = {}
        self._told: dict[About, str] = {}

    def failed(self, about: About, error: Exception) -> int:
        """Notes a failure; how many milliseconds to leave the object alone."""
        why = reason_of(error)
        if self._told.get(about) != why:
            self._told[about] = why
            self._tell(about, why, error)
        count = self._failures.get(about, 0)
        self._failures[about] = count + 1
        return min(PAUSE_MS << min(count, 10), PAUSE_MS_MAX)

    def went_well(self, about: About) -> None:
        """What goes wrong from now on is news again."""
        self._failures.pop(about, None)
        self._told.pop(about, None)


def reason_of(error: Exception) -> str:
    """One line: the error's own words, and what it is."""
    said = " ".join(str(error).split())[:WORDS_MAX]
    if isinstance(error, Unsound | TooManySteps):
        return said  # the author of the object reads it
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


async def kept_up(
    name: str, work: Callable[[], Awaitable[None]], *, clock: Clock, containment: Containment
) -> None:
    """Has something done that never ends, again after each failure."""
    while True:
        try:
            await work()
            return
        except Exception as error:
            await clock.sleep(containment.failed(About("Task", name), error))
