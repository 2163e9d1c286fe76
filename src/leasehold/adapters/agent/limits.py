"""The agent's limits, with units, and its notes about objects.

Given by the composition root (`cli.up`), which also decides how notes are delivered.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    log_bytes_max: int = 10 * 1024 * 1024  # of one log file of a pod
    log_files_max: int = 5  # beyond that the oldest is dropped
    retention_ms: int = 60_000  # a pod's records outlive its object by this
    past_logs_ms: int = 7 * 24 * 3_600_000  # its output outlives its end by this
    past_logs_max: int = 1_000  # kept logs of pods without objects; the oldest go first
    sign_of_life_ms: int = 30_000  # how often shim and agent touch a file
    records_ms: int = 5_000  # how often the journals of running pods are checked
    heartbeat_ms: int = 60_000  # how often the Node objects are refreshed
    devices_ms: int = 5_000  # how often NVML is asked for the users of GPUs
    devices_patience_ms: int = 10_000  # what still uses a GPU after that counts as foreign
    leases_patience_ms: int = 2_000  # then an ended pod goes with open leases
    pids_max: int = 32_768  # processes and threads of one pod; less if the kernel allows few
    starts_max: int = 3  # shims that may die before starting a pod until it is rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNote:
    """Something that the agent reports as an Event on the named object."""

    kind: str
    namespace: str
    name: str
    uid: str
    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class AgentError(Exception):
    """The agent cannot run on this machine; the text gives the reason and a remedy."""


class CannotStart(Exception):  # noqa: N818
    """This pod can never be started on this node; the text gives the reason."""
