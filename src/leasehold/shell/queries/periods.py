"""Splits time into the days, weeks and months of a time zone, for reports.

Called by `query`. Weeks are ISO weeks, from Monday. A day may have 23 or 25 hours, and the sums of
a report are exact for such days too.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from leasehold.core.units import SECOND, Instant

Bucket = Callable[[Instant], tuple[str, Instant]]  # the label, and where the next one begins
SPANS = ("day", "week", "month")


class NoSuchZone(Exception):  # noqa: N818 - named for the condition
    pass


def buckets(span: str, zone_name: str) -> Bucket:
    """Return a function that finds the day, week or month (`span`) that contains an instant, in the
    time zone `zone_name`. It returns the span's label and the instant at which the next one begins.
    Raise `NoSuchZone` if there is no such zone.

    Example: `buckets("month", "UTC")` maps an instant in May 2026 to "2026-05" and the start of
    June.
    """
    assert span in SPANS, span
    zone = _zone(zone_name)

    def bucket(at: Instant) -> tuple[str, Instant]:
        day = datetime.fromtimestamp(at // SECOND, tz=UTC).astimezone(zone).date()
        label, following = _named(span, day)
        start = datetime.combine(following, time(), tzinfo=zone)
        return label, int(start.timestamp()) * SECOND

    return bucket


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise NoSuchZone(name) from None


def _named(span: str, day: date) -> tuple[str, date]:
    """Return the label of the day, week or month that contains `day`, and the first day after
    it."""
    if span == "day":
        return day.isoformat(), day + timedelta(days=1)
    if span == "week":
        year, week, weekday = day.isocalendar()
        return f"{year}-W{week:02d}", day + timedelta(days=8 - weekday)
    after = date(day.year + day.month // 12, day.month % 12 + 1, 1)
    return f"{day.year:04d}-{day.month:02d}", after
