"""Readiness on a real API server: a replica that cannot reach it is not ready."""

import urllib.error
import urllib.request

from tests.kubernetes.delaying import Delaying
from tests.kubernetes.partition import Partition
from tests.kubernetes.plane import Controller, Plane
from tests.kubernetes.replicas import holder

NAMES = ("a", "b", "c")


def asked(controller: Controller, path: str) -> tuple[int, str]:
    """Return the status and text of a probe; the status is 0 while nothing is served."""
    try:
        url = f"http://127.0.0.1:{controller.port}{path}"
        with urllib.request.urlopen(url, timeout=10) as said:
            return said.status, said.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def leading(controllers: list[Controller]) -> list[bool]:
    return ["leasehold_decides 1.0" in asked(each, "/metrics")[1] for each in controllers]


def test_three_replicas_cut_off_from_api_server_are_not_ready(plane: Plane) -> None:
    way = Partition(plane.cluster.port)
    try:
        replicas = [plane.controller(name, server=way.server) for name in NAMES]
        plane.until(lambda: all(asked(each, "/readyz")[0] == 200 for each in replicas))
        assert sum(leading(replicas)) == 1

        way.cut()
        plane.until(lambda: all(asked(each, "/readyz")[0] == 503 for each in replicas))
        plane.until(lambda: not any(leading(replicas)))
        plane.until(
            lambda: all("the store has not answered" in asked(each, "/readyz")[1]
                        for each in replicas)
        )  # fmt: skip
        assert all(asked(each, "/livez")[0] == 200 for each in replicas)

        way.heal()
        plane.until(lambda: all(asked(each, "/readyz")[0] == 200 for each in replicas))
        assert sum(leading(replicas)) == 1
    finally:
        plane.kill_controllers()
        way.stop()


def test_three_replicas_with_very_slow_api_server_are_not_ready(plane: Plane) -> None:
    """The API server answers, but always too late for a tenure."""
    way = Delaying(plane.cluster, 0.0)
    try:
        replicas = [plane.controller(name, server=way.server) for name in NAMES]
        plane.until(lambda: all(asked(each, "/readyz")[0] == 200 for each in replicas))
        way.set_round_trip(3.0)
        plane.until(lambda: all(asked(each, "/readyz")[0] == 503 for each in replicas))
        plane.until(lambda: not any(leading(replicas)))
        assert all(asked(each, "/livez")[0] == 200 for each in replicas)
        way.set_round_trip(0.0)
        plane.until(lambda: all(asked(each, "/readyz")[0] == 200 for each in replicas))
        assert sum(leading(replicas)) == 1
    finally:
        plane.kill_controllers()
        way.stop()


def test_standbys_cut_off_from_api_server_are_not_ready_while_leader_is(plane: Plane) -> None:
    way = Partition(plane.cluster.port)
    try:
        first = plane.controller("a")
        plane.until(lambda: holder(plane) == "a")
        others = [plane.controller(name, server=way.server) for name in ("b", "c")]
        plane.until(lambda: all(asked(each, "/readyz")[0] == 200 for each in others))
        way.cut()
        plane.until(lambda: all(asked(each, "/readyz")[0] == 503 for each in others))
        assert asked(first, "/readyz") == (200, "ok\n")
        assert leading([first, *others]) == [True, False, False]
    finally:
        plane.kill_controllers()
        way.stop()
