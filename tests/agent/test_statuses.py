"""Statuses as clients require them, and as the controller reads them back."""

from leasehold.adapters.agent.journals import Exit
from leasehold.adapters.agent.statuses import ended
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire


def exited(code: int | None) -> Wire:
    exit_ = Exit(code=code, signal=None, error="nobody saw it", is_oom=False, finished_at=5_000)
    container: Wire = {"name": "main"}
    status = ended(container, "agent", exit_, 1_000)
    return {"metadata": {}, "spec": {"containers": [container]}, "status": status}


def test_an_end_that_nobody_saw_has_a_number_for_clients_and_none_for_us() -> None:
    pod = exited(None)

    [told] = pod["status"]["containerStatuses"]  # type: ignore[index, call-overload]
    assert told["state"]["terminated"]["exitCode"] == 137
    assert told["state"]["terminated"]["reason"] == "ExitUnknown"
    assert pod_from_wire(pod).exit_code is None


def test_a_job_that_was_killed_keeps_its_number() -> None:
    assert pod_from_wire(exited(137)).exit_code == 137
