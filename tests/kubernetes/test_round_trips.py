"""How many round trips to a distant API server a start takes: requests are counted, not seconds."""

import re
from collections.abc import Iterator

import pytest
from tests.kubernetes.delaying import Delaying, Trip, longest_chain
from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.test_readiness import asked

ROUND_TRIP_S = 0.2
_BESIDE = re.compile(r"coordination|/events|/budgets/|/nodes")  # no start waits for these requests


@pytest.fixture
def way(plane: Plane) -> Iterator[Delaying]:
    made = Delaying(plane.cluster, ROUND_TRIP_S)
    yield made
    plane.kill_controllers()
    made.stop()


def places(chain: list[Trip]) -> list[str]:
    """Return the plural kinds of the requests, in order."""
    return [re.findall(r"/v1/(?:namespaces/[^/]+/)?([a-z]+)", each.path)[0] for each in chain]


def _is_status_write(trip: Trip) -> bool:
    return trip.path.endswith("/runs/far/status")


@pytest.mark.parametrize("gpus", [8, 24], ids=["one pod", "a gang"])
def test_start_takes_five_round_trips_after_template_dry_run(
    plane: Plane, way: Delaying, gpus: int
) -> None:
    """The five round trips are: the batch; the head; the leases, the pods and the pods' Service;
    the head again; the bindings. The dry run of the template comes before them."""
    plane.kubelets.add("n1", "n2", "n3")
    controller = plane.controller("a", server=way.server)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
    plane.until(lambda: asked(controller, "/readyz")[0] == 200)
    way.forget()

    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("far", gpus)))
    plane.until_phase("far", "Running")

    plane.until(lambda: way.trips(_is_status_write) != [])
    trips = way.trips(lambda trip: not _BESIDE.search(trip.path))
    bindings = [each for each in trips if each.path.endswith("/binding")]
    assert len(bindings) == gpus // 8
    last = max(each.answered for each in bindings)
    before = [each for each in trips if each.answered <= last]
    tried = [each for each in before if "dryRun" in each.path or "resourcequotas" in each.path]
    start = longest_chain([each for each in before if each not in tried])
    assert len(start) == 5, list(map(str, start))
    assert places(start)[:2] == ["ledgerbatches", "ledgerheads"]
    assert places(start)[3:] == ["ledgerheads", "pods"]
    assert len(longest_chain(before)) == 6, list(map(str, longest_chain(before)))
    # The Run's status follows two round trips later: a condition keeps the time that it had.
    told = next(each for each in trips if _is_status_write(each))
    assert len(longest_chain([each for each in trips if each.answered <= told.answered])) == 8


def test_head_is_read_after_all_creates_and_before_every_binding(
    plane: Plane, way: Delaying
) -> None:
    plane.kubelets.add("n1", "n2", "n3")
    controller = plane.controller("a", server=way.server)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
    plane.until(lambda: asked(controller, "/readyz")[0] == 200)
    way.forget()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("far", 24)))
    plane.until_phase("far", "Running")

    trips = way.trips(lambda _: True)
    swap = next(each for each in trips if each.method == "PUT" and "ledgerheads" in each.path)
    made = [each for each in trips if each.method == "POST" and "dryRun" not in each.path
            and re.search(r"/(leases|pods|services)$", each.path)]  # fmt: skip
    read = next(each for each in trips if each.method == "GET" and "ledgerheads" in each.path)
    bound = [each for each in trips if each.path.endswith("/binding")]
    assert len(made) == 3 + 3 + 1
    assert all(swap.answered < each.asked for each in made)
    assert all(each.answered < read.asked for each in made)
    assert all(read.answered < each.asked for each in bound)
