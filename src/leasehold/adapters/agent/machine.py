"""The agent's shared records: each pod as last seen, and what is needed to start pods.

Created by `agent`, used by `pods` and `pod_notes`.
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
    """The newest version of a Pod object that the agent has seen."""

    pod: Pod
    wire: Wire
    grace: Millis  # of its deletion
    due_at: Instant | None  # the end of its grace period


@dataclass(frozen=True, slots=True)
class HostMachine:
    """Everything that is needed to start pods."""

    journals: PodJournals
    requests: Requests
    nodes: Nodes
    foreign: Foreign
    forks: Forks
    advice: PodNotes
    agent: str  # the agent's id
    labels: Labels
    limits: Limits
    containment: Containment
