"""What a plan puts on the agenda: places it holds, room it will have made, the start it announces.

Records only; `agenda` collects them, `kept` says what they leave of the fleet for one run.
"""

from leasehold.core.decisions.pack import Want
from leasehold.core.facts import Record, Uid
from leasehold.core.units import FOREVER, Instant, Millis


class Hold(Record):
    uid: Uid
    node: str
    gpus: int
    start: Instant
    end: Instant = FOREVER
    # Free GPUs that are no whole pod's: after this instant, its start, they are part of its room.
    loose_until: Instant = FOREVER


class Room(Record):
    """What a start that needs cuts will have: so many pods in each of its domains."""

    uid: Uid
    start: Instant
    end: Instant
    want: Want
    pods: tuple[tuple[str, int], ...]  # by domain

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(domain for domain, _ in self.pods)


class Start(Record):
    """A start that is known: what it asks for, so that it can be tried again."""

    uid: Uid
    at: Instant
    want: Want
    span: Millis | None
    borrowed: int
