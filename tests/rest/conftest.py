"""Provide one facade per module, in its state after the first start."""

from collections.abc import Iterator

import pytest
from tests.rest.facade import Facade, prepared


@pytest.fixture(scope="module")
def facade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facade]:
    found = prepared(tmp_path_factory.mktemp("facade"))
    yield found
    found.__exit__()
