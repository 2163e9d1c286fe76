"""Days, weeks and months of a zone, also where a day has 23 or 25 hours."""

import pytest

from leasehold.core.units import HOUR, parse_instant
from leasehold.shell.queries.periods import NoSuchZone, buckets


@pytest.mark.parametrize(
    ("span", "zone", "at", "label", "following"),
    [
        ("day", "", "2026-11-15T23:59:59Z", "2026-11-15", "2026-11-16T00:00:00Z"),
        ("day", "Europe/Berlin", "2026-11-15T23:30:00Z", "2026-11-16", "2026-11-16T23:00:00Z"),
        ("week", "UTC", "2027-01-03T12:00:00Z", "2026-W53", "2027-01-04T00:00:00Z"),
        ("week", "UTC", "2026-11-16T00:00:00Z", "2026-W47", "2026-11-23T00:00:00Z"),
        ("month", "UTC", "2026-12-31T23:59:59Z", "2026-12", "2027-01-01T00:00:00Z"),
        ("month", "America/New_York", "2026-12-01T04:59:59Z", "2026-11", "2026-12-01T05:00:00Z"),
    ],
)
def test_instant_belongs_to_one_bucket_with_label_and_end(
    span: str, zone: str, at: str, label: str, following: str
) -> None:
    instant = parse_instant(at)
    assert instant is not None
    assert buckets(span, zone)(instant) == (label, parse_instant(following))


def test_day_on_which_clocks_change_has_23_or_25_hours() -> None:
    day = buckets("day", "Europe/Berlin")
    for start, hours in (("2026-03-28T23:00:00Z", 23), ("2026-10-24T22:00:00Z", 25)):
        at = parse_instant(start)
        assert at is not None
        assert day(at)[1] - at == hours * HOUR


@pytest.mark.parametrize("zone", ["Nowhere/At-all", "../etc/passwd", "x" * 400, "a\0b"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(NoSuchZone):
        buckets("day", zone)
