"""What an agent keeps to, and what it tells: numbers with units, and notes about objects.

Given by the composition root (`cli.up`), which also decides what becomes of a note.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    log_bytes_max: int = 10 * 1024 * 1024  # of one file of a pod's log
    log_files_max: int = 5  # the oldest is dropped when there would be more
    retention_ms: int = 60_000  # a pod's records stay so long after its object
    past_logs_ms: int = 7 * 24 * 3_600_000  # what it printed stays so long after its end
    past_logs_max: int = 1_000  # of so many pods whose objects are gone; the oldest leave first
    sign_of_life_ms: int = 30_000  # how often a shim and the agent touch a file
    records_ms: int = 5_000  # how often it looks whether the records of what runs are there
    heartbeat_ms: int = 60_000  # how often a Node object says that it is alive
    devices_ms: int = 5_000  # how often NVML is asked who holds the GPUs
    devices_patience_ms: int = 10_000  # after that, what still holds a GPU is somebody else's
    leases_patience_ms: int = 2_000  # after that, a pod that ended goes with its leases still open
    pids_max: int = 32_768  # processes and threads of one pod; less where the kernel has few
    starts_max: int = 3  # shims that may die before they start a pod until it is rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """Something worth an Event on the object that is named."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class AgentError(Exception):
    """The agent cannot work here; the text says why and what would help."""


class CannotStart(Exception):  # noqa: N818
    """This pod cannot be started by any attempt on this node; the text says why."""
