"""What the agent has at hand: pods as they were last seen, and what they are started with.

Made by `agent` and used by `pods` and `advice`; values only.
"""

from dataclasses import dataclass

from leasehold.adapters.agent.foreign import Foreign
from leasehold.adapters.agent.forks import Forks
from leasehold.adapters.agent.journals import PodJournals
from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.nodes import Nodes
from leasehold.adapters.agent.pod_notes import PodNotes
from leasehold.adapters.agent.requests import Requests
from leasehold.adapters.containment import Containment
from leasehold.core.facts import Pod
from leasehold.core.names import Wire
from leasehold.core.objects.node import Labels
from leasehold.core.units import Instant, Millis


@dataclass(frozen=True, slots=True)
class Seen:
    """A Pod as it was last seen."""

    pod: Pod
    wire: Wire
    grace: Millis  # of its deletion
    due_at: Instant | None  # when that is over


@dataclass(frozen=True, slots=True)
class HostMachine:
    """What pods are started with, and where."""

    journals: PodJournals
    requests: Requests
    nodes: Nodes
    foreign: Foreign
    forks: Forks
    advice: PodNotes
    agent: str  # its id
    labels: Labels
    limits: Limits
    containment: Containment
