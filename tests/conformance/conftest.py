"""Every store of ours, one after another: whatever asks for a `harness` runs on each of them."""

from collections.abc import Iterator

import pytest
from tests.conformance.harness import STORES, MemoryHarness


@pytest.fixture(params=sorted(STORES))
def harness(request: pytest.FixtureRequest) -> Iterator[MemoryHarness]:
    harness = STORES[request.param]()
    yield harness
    harness.close()
