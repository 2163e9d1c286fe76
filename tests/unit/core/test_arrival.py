"""Order of arrival, where an API server stamps creation times only to the second."""

from leasehold.core.admission.order import is_ahead
from leasehold.core.facts import Run
from leasehold.core.names import Wire
from leasehold.core.objects.run import run_from_wire

SECOND = "2026-11-16T05:00:00Z"
MILLIS = "2026-11-16T05:00:00.250Z"
SPEC: Wire = {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 8}}


def _wire(name: str, version: int, created: str = SECOND, **status: object) -> Wire:
    metadata = {"name": name, "namespace": "n", "uid": f"uid-{name}", "creationTimestamp": created}
    return {
        "kind": "Run",
        "metadata": {**metadata, "resourceVersion": str(version)},
        "spec": SPEC,
        "status": status,
    }


def _run(name: str, version: int, created: str = SECOND, **status: object) -> Run:
    return run_from_wire(_wire(name, version, created, **status))


def test_lower_resource_version_is_ahead_within_the_same_second() -> None:
    assert is_ahead(_run("z", 10), of=_run("a", 11))
    assert not is_ahead(_run("a", 11), of=_run("z", 10))


def test_arrival_number_is_kept_when_run_is_updated() -> None:
    first = _run("z", 10)
    assert is_ahead(run_from_wire(_wire("z", 99), known=first), of=_run("a", 11))


def test_arrival_is_read_back_from_status() -> None:
    told = {"instant": "2026-11-16T05:00:00.000Z", "number": 10}
    assert is_ahead(_run("z", 99, arrived=told), of=_run("a", 11))


def test_millisecond_stamps_order_runs_by_time_then_by_name() -> None:
    assert is_ahead(_run("a", 11, MILLIS), of=_run("z", 10, MILLIS))
    assert is_ahead(_run("z", 11, MILLIS), of=_run("a", 10, "2026-11-16T05:00:00.251Z"))


def test_recreated_run_of_same_name_gets_its_own_arrival_number() -> None:
    later = _wire("z", 99)
    later["metadata"] = {**later["metadata"], "uid": "another"}  # type: ignore[dict-item]
    assert run_from_wire(later, known=_run("z", 10)).number == 99
