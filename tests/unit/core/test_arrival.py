"""Who came first, where an API server tells it to the second only."""

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


def test_within_a_second_whoever_the_server_took_first_is_ahead() -> None:
    assert is_ahead(_run("z", 10), of=_run("a", 11))
    assert not is_ahead(_run("a", 11), of=_run("z", 10))


def test_a_place_is_kept_when_the_run_is_written_again() -> None:
    first = _run("z", 10)
    assert is_ahead(run_from_wire(_wire("z", 99), known=first), of=_run("a", 11))


def test_a_place_is_read_back_from_the_status() -> None:
    told = {"instant": "2026-11-16T05:00:00.000Z", "number": 10}
    assert is_ahead(_run("z", 99, arrived=told), of=_run("a", 11))


def test_a_store_that_stamps_milliseconds_goes_by_them_and_then_by_name() -> None:
    assert is_ahead(_run("a", 11, MILLIS), of=_run("z", 10, MILLIS))
    assert is_ahead(_run("z", 11, MILLIS), of=_run("a", 10, "2026-11-16T05:00:00.251Z"))


def test_another_run_of_the_same_name_has_a_place_of_its_own() -> None:
    later = _wire("z", 99)
    later["metadata"] = {**later["metadata"], "uid": "another"}  # type: ignore[dict-item]
    assert run_from_wire(later, known=_run("z", 10)).number == 99
