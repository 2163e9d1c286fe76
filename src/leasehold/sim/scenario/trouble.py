"""The records of a story's faults: their rates, and attacks at fixed times.

They are drawn from a seed or read from a file. A story with trouble is played by three controllers
(`sim.faults`). A story without trouble is played by one controller, without faults.
"""

from enum import StrEnum

from msgspec import field

from leasehold.core.facts import Record
from leasehold.core.units import Millis

CONTROLLERS = ("c1", "c2", "c3")
NODES = "nodes"
LEADER, STANDBY, ANY = "leader", "standby", "any"
RECOVERING = "recovering"  # leads but has no World yet
BUSY_NODE, ANY_NODE = "busy-node", "any-node"  # a node on which something runs, or any node
NODE_ROLES = (BUSY_NODE, ANY_NODE)


class Profile(StrEnum):
    """Which kinds of faults a simulation has.

    - `quiet`: none
    - `uniform`: some of each kind
    - `hunter`: attacks on the leader at the worst moments
    - `liveness`: only one controller is repaired at the end
    - `breaking`: clocks run so wrong that only the epoch in the head still protects the ledger
    """

    QUIET = "quiet"
    UNIFORM = "uniform"
    HUNTER = "hunter"
    LIVENESS = "liveness"
    BREAKING = "breaking"


class Harm(StrEnum):
    """What an attack does to its target."""

    CRASH = "crash"
    PAUSE = "pause"
    CUT = "cut"
    CUT_REQUESTS = "cut-requests"
    CUT_ANSWERS = "cut-answers"
    STOP = "stop"
    DRIFT = "drift"
    JUMP = "jump"
    TWIN = "twin"
    MEDDLE = "meddle"  # the process is unharmed, but a user cancels or deletes a run at that moment


CUTS = (Harm.CUT, Harm.CUT_REQUESTS, Harm.CUT_ANSWERS)


class Attack(Record, frozen=True):
    """One attack. `who` is a role, such as `leader`, or the name of a process. `point` names a
    store call. With it, the attack happens when the target next makes that call after `at`; without
    it, exactly at `at`."""

    at: Millis
    harm: Harm
    who: str
    lasts: Millis = 0
    amount: int = 0  # ppm of a drift, or milliseconds of a jump
    point: str = ""

    def __str__(self) -> str:
        return f"{self.harm} {self.who} {self.point}".rstrip()


class Rollout(Record, frozen=True):
    """How some starts of controllers differ from the story's configuration."""

    settings: dict[str, object] = field(default_factory=dict)  # the settings that differ
    older: float = 0.0  # rate of starts with these settings
    outdated: float = 0.0  # rate of starts of a program that does not know the ledger's format


class Trouble(Record, frozen=True):
    seed: int  # of the order of tasks and the times of faults
    profile: Profile
    lasts: Millis  # duration of faults and attacks
    store: dict[str, float] = field(default_factory=dict)
    nodes: dict[str, float] = field(default_factory=dict)
    network: dict[str, float] = field(default_factory=dict)
    drifts: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, Millis] = field(default_factory=dict)
    stale: float = 0.0  # rate of reads answered by a lagging replica
    late: float = 0.0  # rate of statuses that arrive again, much later
    rollout: Rollout = Rollout()
    core: str = ""  # the controller that is healed at the end; "": all of them
    is_shuffled: bool = True
