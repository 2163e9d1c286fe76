"""One fleet for all tests: a kubelet takes a while to start, and each test repairs what it has
broken."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubelets.site import Site
from tests.kubernetes.closing import sweep

SETTINGS = """
activationLead: 3s
reservation.patience: 6s
resolver.minTenure: 0s
retry.backoff: 1s
"""


@pytest.fixture(autouse=True)
def _swept() -> Iterator[None]:
    """Collect the connections that a controller has left at a gate."""
    yield
    sweep()


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(Path(tmp_path_factory.mktemp("site")), "n1", "n2", "n3", settings=SETTINGS)
    yield site
    site.close()
