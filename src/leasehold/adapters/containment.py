"""Contains a failure to one object: reports it once, counts it, and retries with growing pauses.

Used by agent and loop; the composition root provides it. Most of what agent and loop read was
written by leasehold itself. But a record may be damaged, or leasehold may have a defect. The object
concerned then waits, fails or is quarantined, and everything else continues. The caller decides
what happens to the object.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from leasehold.core.objects.problems import InvalidManifest
from leasehold.core.world.steps import TooManySteps
from leasehold.ports.runtime import Clock

PAUSE_MS = 500  # after the first failure; doubles each time
PAUSE_MS_MAX = 60_000
WORDS_MAX = 300


@dataclass(frozen=True, slots=True)
class About:
    """What failed: an object, or one of our own tasks, which has only kind and name."""

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
    """Counts the failures of each object. Calls `tell(about, why, error)` when an object fails for
    a new reason."""

    def __init__(self, tell: Tell = lambda _about, _why, _error: None) -> None:
        self._tell = tell
        self._failures: dict[About, int] = {}
        self._told: dict[About, str] = {}

    def failed(self, about: About, error: Exception) -> int:
        """Count a failure of the object and return how long to wait before a retry, in ms."""
        why = reason_of(error)
        if self._told.get(about) != why:
            self._told[about] = why
            self._tell(about, why, error)
        count = self._failures.get(about, 0)
        self._failures[about] = count + 1
        return min(PAUSE_MS << min(count, 10), PAUSE_MS_MAX)

    def went_well(self, about: About) -> None:
        """Forget the object's failures: its next failure is reported, even if the reason is an old
        one."""
        self._failures.pop(about, None)
        self._told.pop(about, None)


def reason_of(error: Exception) -> str:
    """Return the error as one line: type and message."""
    said = " ".join(str(error).split())[:WORDS_MAX]
    if isinstance(error, InvalidManifest | TooManySteps):
        return said  # written for the author of the object
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


async def kept_up(
    name: str, work: Callable[[], Awaitable[None]], *, clock: Clock, containment: Containment
) -> None:
    """Run work that should never end; restart it after each exception."""
    while True:
        try:
            await work()
            return
        except Exception as error:
            await clock.sleep(containment.failed(About("Task", name), error))
