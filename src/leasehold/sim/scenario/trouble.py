"""The trouble that a story is told under: faults with their rates, and attacks at their times.

A story with trouble is played by three controllers (`sim.storm`); one without by a single one, with
nothing between it and the store. Drawn from seeds, or read from a file.
"""

from enum import StrEnum

from msgspec import field

from leasehold.core.facts import Record
from leasehold.core.units import Millis

CONTROLLERS = ("c1", "c2", "c3")
NODES = "nodes"
LEADER, STANDBY, ANY = "leader", "standby", "any"
RECOVERING = "recovering"  # leads, and knows no World yet
BUSY_NODE, ANY_NODE = "busy-node", "any-node"  # one on which something runs, or whichever
NODE_ROLES = (BUSY_NODE, ANY_NODE)


class Profile(StrEnum):
    """What kind of trouble: `quiet` has none, `uniform` has some of everything, `hunter` goes for
    whoever leads, at the worst moment, `liveness` heals a core and nothing else, and `breaking`
    breaks what tenure assumes of clocks, so that only the head's epoch is left."""

    QUIET = "quiet"
    UNIFORM = "uniform"
    HUNTER = "hunter"
    LIVENESS = "liveness"
    BREAKING = "breaking"


class Harm(StrEnum):
    """What is done to a process, or beside it."""

    CRASH = "crash"
    PAUSE = "pause"
    CUT = "cut"
    CUT_REQUESTS = "cut-requests"
    CUT_ANSWERS = "cut-answers"
    STOP = "stop"
    DRIFT = "drift"
    JUMP = "jump"
    TWIN = "twin"
    MEDDLE = "meddle"  # nothing is done to it; but somebody cancels or deletes a run just then


CUTS = (Harm.CUT, Harm.CUT_REQUESTS, Harm.CUT_ANSWERS)


class Attack(Record, frozen=True):
    """`who` is a role or a process. With a `point` it waits for that call of theirs."""

    at: Millis
    harm: Harm
    who: str
    lasts: Millis = 0
    amount: int = 0  # parts per million of a drift, milliseconds of a jump
    point: str = ""

    def __str__(self) -> str:
        return f"{self.harm} {self.who} {self.point}".rstrip()


class Rollout(Record, frozen=True):
    """How starts of controllers differ from what the story says."""

    settings: dict[str, object] = field(default_factory=dict)  # those that are other ones
    older: float = 0.0  # how often a start has these
    outdated: float = 0.0  # how often it is of a program that does not know the ledger's format


class Trouble(Record, frozen=True):
    seed: int  # of the order of tasks, and of when each fault strikes
    profile: Profile
    lasts: Millis  # how long there are faults and attacks
    store: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    network: dict[str, float] = field(default_factory=dict)
    drifts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, Millis] = field(default_factory=dict)
    stale: float = 0.0  # how often a read is answered by a replica that lags
    late: float = 0.0  # how often a status arrives again, much later
    rollout: Rollout = Rollout()
    core: str = ""  # the one controller that is healed in the end; "": all of them
    is_shuffled: bool = True
