"""Fixtures: leasehold installed on the worker's cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.closing import sweep
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import Plane, plane_on


@pytest.fixture(autouse=True)
def _swept() -> Iterator[None]:
    """Collect connections that a killed server has left, so that no later test is blamed for
    them."""
    yield
    sweep()


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Cluster:
    """A cluster with everything that `leasehold install` applies."""
    cluster.install()
    return cluster


# Short, so that no test waits long after a controller is killed.
SETTINGS = """
tenure: {take: 3s, hold: 2s, softStop: 1500ms, renew: 500ms, timeout: 500ms}
"""


@pytest.fixture
def plane(installed: Cluster, tmp_path: Path) -> Iterator[Plane]:
    with plane_on(installed, tmp_path, SETTINGS) as found:
        yield found
