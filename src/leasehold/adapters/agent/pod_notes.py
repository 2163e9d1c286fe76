"""The agent's messages about pods and runs, as notes that become Events.

Called by `pods`. A note about a Run is sent once per run, however many pods it has.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from leasehold.adapters.agent.cgroups import Cgroups
from leasehold.adapters.agent.journals import Exit
from leasehold.adapters.agent.limits import EventNote
from leasehold.adapters.agent.requests import first_container, limit
from leasehold.adapters.agent.shim.records import Record
from leasehold.core.objects.quantity import CPU, MEMORY
from leasehold.core.objects.wire import text_at

if TYPE_CHECKING:
    from leasehold.adapters.agent.machine import Seen

NO_IMAGE = "none"  # written by the controller for a template without a container
Type = Literal["Normal", "Warning"]


class PodNotes:
    def __init__(self, note: Callable[[EventNote], None], cgroups: Cgroups) -> None:
        self._note = note
        self._cgroups = cgroups
        self._told: set[tuple[str, str]] = set()  # (run uid, reason)
        self._troubled: set[tuple[str, int | None]] = set()

    def started(self, seen: "Seen", request: Record) -> None:
        container = first_container(seen.wire)
        image = text_at(container, "image")
        # Only pods of the first attempt report it, so a restart does not repeat it.
        if image and image != NO_IMAGE and seen.pod.attempt <= 1:
            self._tell_run(
                seen,
                request,
                "ImageIgnored",
                f"image {image} is not used: jobs are processes of this machine",
            )
        unmet = [
            resource
            for resource in (CPU, MEMORY)
            if limit(container, resource) is not None and not self._cgroups.enforces(resource)
        ]
        if unmet and seen.pod.attempt <= 1:
            self._tell_run(
                seen,
                request,
                "LimitsNotEnforced",
                f"the limits of {' and '.join(unmet)} are not enforced, because leasehold cannot "
                "write cgroups on this machine",
                kind="Warning",
            )

    def ended(self, seen: "Seen", exit_: Exit) -> None:
        if exit_.dropped_bytes:
            said = (
                f"{exit_.dropped_bytes} bytes of the pod's output were dropped, because the disk "
                "was full"
            )
            self._tell_pod(seen, "Warning", "LogDropped", said)
        if exit_.error:
            reason = "ExitUnknown" if exit_.code is None else "ContainerCannotRun"
            self._tell_pod(seen, "Warning", reason, exit_.error)
        elif exit_.is_oom:
            said = "the pod used more memory than its limit, so the kernel killed it"
            self._tell_pod(seen, "Warning", "OOMKilled", said)

    def rejected(self, seen: "Seen", why: str) -> None:
        self._tell_pod(seen, "Warning", "Rejected", why)

    def trouble(self, seen: "Seen | None", error: OSError) -> None:
        """Report a system call that failed for a pod, once per pod and kind of error. The agent
        retries the call."""
        if seen is None or (seen.pod.uid, error.errno) in self._troubled:
            return
        self._troubled.add((seen.pod.uid, error.errno))
        self._tell_pod(seen, "Warning", "AgentTrouble", f"{error}; the agent tries again")

    def _tell_run(
        self, seen: "Seen", request: Record, reason: str, message: str, *, kind: Type = "Normal"
    ) -> None:
        pod = seen.pod
        if (pod.run_uid, reason) in self._told:
            return
        self._told.add((pod.run_uid, reason))
        env = request["env"]
        assert isinstance(env, dict)
        # The label may be shortened; the variable has the full name.
        _, _, name = str(env.get("LEASEHOLD_RUN", "")).partition("/")
        self._note(
            EventNote(
                kind="Run",
                namespace=pod.namespace,
                name=name or pod.name,
                uid=pod.run_uid,
                type=kind,
                reason=reason,
                message=message,
            )
        )

    def _tell_pod(self, seen: "Seen", kind: Type, reason: str, message: str) -> None:
        pod = seen.pod
        self._note(
            EventNote(
                kind="Pod",
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.uid,
                type=kind,
                reason=reason,
                message=message,
            )
        )
