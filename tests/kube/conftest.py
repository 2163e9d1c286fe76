"""Fixture: leasehold on the session's cluster, as in `tests/kubernetes`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import Plane, plane_on


@pytest.fixture
def plane(cluster: Cluster, tmp_path: Path) -> Iterator[Plane]:
    cluster.install()
    with plane_on(
        cluster, tmp_path, "activationLead: 2s\nreservation.patience: 2s\nresolver.minTenure: 0s"
    ) as found:
        yield found
