"""The life of a run as lanes: what of a lease was for starting, if that can be seen."""

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


def test_a_slow_start_lies_at_the_beginning_of_its_lease(played: Played) -> None:
    (whole,) = _bars(played, None)
    lease, starting = _bars(played, played.start + 5 * MINUTE)
    assert (lease.x, lease.width) == (whole.x, whole.width)
    assert (starting.x, starting.look) == (whole.x, "starting")
    assert 0 < starting.width < whole.width / 2
    assert "running since" in lease.title
    assert "running since" not in whole.title


def test_a_start_that_is_too_short_to_be_seen_is_told_and_not_drawn(played: Played) -> None:
    (bar,) = _bars(played, played.start + SECOND)
    assert "running since" in bar.title
