"""Pod statuses: the form that clients require, and what the controller reads from it."""

from leasehold.adapters.agent.journals import Exit
from leasehold.adapters.agent.statuses import ended
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire


def exited(code: int | None) -> Wire:
    exit_ = Exit(code=code, signal=None, error="nobody saw it", is_oom=False, finished_at=5_000)
    container: Wire = {"name": "main"}
    status = ended(container, "agent", exit_, 1_000)
    return {"metadata": {}, "spec": {"containers": [container]}, "status": status}


def test_unknown_exit_is_137_for_clients_and_none_for_the_controller() -> None:
    pod = exited(None)

    [told] = pod["status"]["containerStatuses"]  # type: ignore[index, call-overload]
    assert told["state"]["terminated"]["exitCode"] == 137
    assert told["state"]["terminated"]["reason"] == "ExitUnknown"
    assert pod_from_wire(pod).exit_code is None


def test_exit_code_137_of_the_job_itself_is_reported_to_the_controller() -> None:
    assert pod_from_wire(exited(137)).exit_code == 137
