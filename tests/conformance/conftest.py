"""All stores of ours, one after another: a test that takes `harness` runs on each of them."""

from collections.abc import Iterator

import pytest
from tests.conformance.harness import STORES, KubernetesHarness, MemoryHarness

KUBERNETES = "kubernetes"


@pytest.fixture(params=[*sorted(STORES), pytest.param(KUBERNETES, marks=pytest.mark.kube)])
def harness(request: pytest.FixtureRequest) -> Iterator[MemoryHarness]:
    if request.param == KUBERNETES:
        made: MemoryHarness = KubernetesHarness(request.getfixturevalue("cluster"))
    else:
        made = STORES[request.param]()
    yield made
    made.close()


@pytest.fixture(params=sorted(STORES))
def own_harness(request: pytest.FixtureRequest) -> Iterator[MemoryHarness]:
    """Yield each store whose history and admission a test can set."""
    made = STORES[request.param]()
    yield made
    made.close()
