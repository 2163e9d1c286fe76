"""The statuses that the agent writes on Pods, in a kubelet's terms.

Called by `agent`. A status is always replaced as a whole, so each one contains every field. The
controller reads the phase, `reason` (only of a pod that never started), and exit code and end time
of the first container; see `core.objects.pod`.
"""

from leasehold.adapters.agent.journals import Exit, PodJournal
from leasehold.adapters.agent.requests import moved_of
from leasehold.core.facts import PodPhase
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.pod import MOVED_ENV, UNKNOWN_EXIT
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import Instant, format_instant

NO_EXIT_CODE = 137  # kubelet's code for a container with unknown end
CLAIMED = f"{GROUP}/claimed"
REJECTED = "Rejected"
OOM_KILLED = "OOMKilled"
CANNOT_RUN = "ContainerCannotRun"

_ADDRESS = "127.0.0.1"


def claimed(agent: str, at: Instant) -> Wire:
    return {"phase": PodPhase.PENDING.value, **_placed(agent, at, is_ready=None)}


def with_env(status: Wire, journal: PodJournal | None) -> Wire:
    """Add to the status the variables whose values differ from the Pod's spec. Clients never see
    this field: the server moves its values into the spec that it returns."""
    moved = {} if journal is None else moved_of(journal.request)
    return {**status, MOVED_ENV: moved} if moved else status


def claimer(wire: Wire) -> str:
    """Return the id of the agent that has claimed the pod; "" if no agent has."""
    for condition in list_at(part(wire, "status"), "conditions"):
        if isinstance(condition, dict) and condition.get("type") == CLAIMED:
            return text_at(condition, "message")
    return ""


def running(container: Wire, agent: str, at: Instant) -> Wire:
    state: Wire = {"running": {"startedAt": format_instant(at)}}
    return {
        "phase": PodPhase.RUNNING.value,
        **_placed(agent, at, is_ready=True),
        "containerStatuses": [_container(container, state, is_ready=True)],
    }


def ended(container: Wire, agent: str, exit_: Exit, started_at: Instant) -> Wire:
    terminated: Wire = {"reason": _reason(exit_), "finishedAt": format_instant(exit_.finished_at)}
    if started_at:
        terminated["startedAt"] = format_instant(started_at)
    # Clients require a number; the reason shows that it is not the job's.
    terminated["exitCode"] = NO_EXIT_CODE if exit_.code is None else exit_.code
    if exit_.signal is not None:
        terminated["signal"] = exit_.signal
    if exit_.error:
        terminated["message"] = exit_.error
    phase = PodPhase.SUCCEEDED if exit_.code == 0 else PodPhase.FAILED
    status: Wire = {
        "phase": phase.value,
        **_placed(agent, started_at or exit_.finished_at, is_ready=False),
        "containerStatuses": [_container(container, {"terminated": terminated}, is_ready=False)],
    }
    if exit_.error:
        status["message"] = exit_.error
    return status


def rejected(why: str) -> Wire:
    return {"phase": PodPhase.FAILED.value, "reason": REJECTED, "message": why}


def _reason(exit_: Exit) -> str:
    if exit_.code is None:
        return UNKNOWN_EXIT
    if exit_.code == 0:
        return "Completed"
    if exit_.is_oom:
        return OOM_KILLED
    return CANNOT_RUN if exit_.error else "Error"


def _placed(agent: str, at: Instant, *, is_ready: bool | None) -> Wire:
    conditions = [_condition("PodScheduled", at), {**_condition(CLAIMED, at), "message": agent}]
    if is_ready is not None:
        conditions += [_condition(kind, at, is_ready) for kind in ("ContainersReady", "Ready")]
    return {
        "startTime": format_instant(at),
        "hostIP": _ADDRESS,
        "podIP": _ADDRESS,
        "podIPs": [{"ip": _ADDRESS}],
        "qosClass": "BestEffort",
        "conditions": conditions,
    }


def _condition(kind: str, at: Instant, is_true: bool = True) -> Wire:
    status = "True" if is_true else "False"
    return {"type": kind, "status": status, "lastTransitionTime": format_instant(at)}


def _container(container: Wire, state: Wire, *, is_ready: bool) -> Wire:
    return {
        "name": text_at(container, "name"),
        "image": text_at(container, "image"),
        "imageID": "",
        "ready": is_ready,
        "started": is_ready,
        "restartCount": 0,
        "state": state,
    }
