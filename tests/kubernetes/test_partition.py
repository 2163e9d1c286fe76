"""A leader that is cut off from a real API server stops before another replica leads."""

import json
import time
from collections.abc import Iterator

import pytest
from tests.kubernetes.partition import Partition
from tests.kubernetes.plane import Controller, Plane, budget, job
from tests.kubernetes.replicas import epoch, holder
from tests.kubernetes.wellbeing import check_consistency

NODES = [f"n{number}" for number in range(16)]
HALF: dict[str, object] = {"locality": {"groupGPUs": 64}}


@pytest.fixture
def way(plane: Plane) -> Iterator[Partition]:
    """A connection to the API server that the test can cut."""
    made = Partition(plane.cluster.port)
    yield made
    made.stop()


def _logged_at(controller: Controller, event: str) -> str:
    """Return when a controller last logged `event`, as a timestamp that sorts by time."""
    lines = [line for line in controller.log().splitlines() if line.startswith("{")]
    said = [each for each in map(json.loads, lines) if each["event"] == event]
    return str(said[-1]["timestamp"]) if said else ""


def test_leader_cut_off_from_api_server_stops_before_another_leads(
    plane: Plane, way: Partition
) -> None:
    """The leader's connections stay open without data: it must find out by its own clock."""
    plane.kubelets.add(*NODES)
    first = plane.controller("a", server=way.server)
    plane.until(lambda: holder(plane) == "a")
    second = plane.controller("b")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=128)))
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("before", 64, **HALF)))
    plane.until_phase("before", "Running")
    way.cut()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 64, **HALF)))
    plane.until_phase("after", "Running")
    assert holder(plane) == "b"
    lost, gained = _logged_at(first, "tenure lost"), _logged_at(second, "tenure gained")
    assert "" < lost < gained
    there, sealed = {pod["metadata"]["uid"] for pod in plane.pods()}, epoch(plane)
    way.heal()
    time.sleep(1)  # time for requests that it had sent or still means to send
    assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
    assert (epoch(plane), holder(plane)) == (sealed, "b")
    check_consistency(plane)
    assert second.stop() == 0
    plane.until(lambda: holder(plane) == "a")  # the first replica contends again
