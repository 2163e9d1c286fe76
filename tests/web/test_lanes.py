"""The timeline of a run: the part of a lease that its pod took to start, if it is long enough."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.questions.played import FIRST_DAY, Played

from leasehold.control.questions.answers.leases import LeaseRow
from leasehold.core.units import MINUTE, SECOND, Instant, format_instant
from leasehold.web.charts import Bar, lease_lanes
from leasehold.web.palette import Palette


@pytest.fixture(scope="module")
def played() -> Played:
    return Played(FIRST_DAY, "20m")


def _bars(played: Played, began: Instant | None) -> list[Bar]:
    rows = msgspec.convert(played.ask("leases")["items"], list[LeaseRow])
    said = None if began is None else format_instant(began)
    lanes = lease_lanes([replace(rows[0], began=said)], played.now, Palette([])).lanes
    return [bar for lane in lanes for bar in lane.bars]


def test_slow_start_is_drawn_at_the_beginning_of_its_lease(played: Played) -> None:
    (whole,) = _bars(played, None)
    lease, starting = _bars(played, played.start + 5 * MINUTE)
    assert (lease.x, lease.width) == (whole.x, whole.width)
    assert (starting.x, starting.look) == (whole.x, "starting")
    assert 0 < starting.width < whole.width / 2
    assert "running since" in lease.title
    assert "running since" not in whole.title


def test_short_start_is_in_the_title_but_not_drawn(played: Played) -> None:
    (bar,) = _bars(played, played.start + SECOND)
    assert "running since" in bar.title
