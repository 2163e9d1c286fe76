"""Instants, spans and GPU-time as integers, and their text forms.

An instant is milliseconds since the epoch (UTC); GPU-time is GPU-milliseconds. Decisions never use
floats, so that anybody can recompute a bill exactly. Used by the codecs and by everything that
prints; never reads a clock.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

Instant = int  # aliases that document intent: all three are plain integers
Millis = int
GpuMs = int

SECOND: Millis = 1_000
MINUTE: Millis = 60 * SECOND
HOUR: Millis = 60 * MINUTE
DAY: Millis = 24 * HOUR

FOREVER: Instant = 1 << 62  # later than any window's end; compared, never printed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})"
)
_SPAN = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_SPAN_UNITS = (DAY, HOUR, MINUTE, SECOND, 1)
SPAN_MAX: Millis = 3650 * DAY


@lru_cache(maxsize=4096)  # objects are read repeatedly, with the same stamps
def parse_instant(text: str) -> Instant | None:
    """Parse an RFC 3339 text; None if it is malformed or has no time zone."""
    match = _INSTANT.fullmatch(text)
    if match is None:
        return None
    day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    except ValueError:
        return None
    whole = (moment - _EPOCH) // timedelta(milliseconds=1)
    return whole + int((fraction or "0").ljust(3, "0")[:3])


def format_instant(at: Instant) -> str:
    """Format as RFC 3339 UTC, always with milliseconds: equal instants give equal texts."""
    second, fraction = divmod(at, SECOND)
    return f"{_format_second(second)}.{fraction:03d}Z"


@lru_cache(maxsize=1024)
def _format_second(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def parse_span(text: str) -> Millis | None:
    """Parse a span such as `1h50m`, `30s`, `250ms` or `2d` into milliseconds; None if malformed."""
    match = _SPAN.fullmatch(text)
    if match is None or not text:
        return None
    total = sum(int(part) * unit for part, unit in zip(match.groups(), _SPAN_UNITS) if part)
    return total if total <= SPAN_MAX else None


def format_span(span: Millis) -> str:
    """Return the shortest text that `parse_span` accepts: `1h50m`, `0s`."""
    if span < 0:
        return "-" + format_span(-span)
    parts = []
    for suffix, unit in zip(("d", "h", "m", "s", "ms"), _SPAN_UNITS):
        count, span = divmod(span, unit)
        if count:
            parts.append(f"{count}{suffix}")
    return "".join(parts) or "0s"


def plural(count: object, noun: str, nouns: str = "") -> str:
    """Return `1 GPU`, `2 GPUs`; the count may be a number or its text."""
    return f"{count} {noun}" if str(count) == "1" else f"{count} {nouns or noun + 's'}"


def format_gpu_hours(amount: GpuMs) -> str:
    """Format as GPU-hours, at most three decimals, without floats: `276`, `0.5`, `-4.125`."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    thousandths = (amount * 1000 + HOUR // 2) // HOUR
    whole, rest = divmod(thousandths, 1000)
    tail = f".{rest:03d}".rstrip("0").rstrip(".") if rest else ""
    return f"{sign}{whole}{tail}"


def format_cpus(milli: int) -> str:
    """Format thousandths of a CPU: `32 CPUs`, `1 CPU`, `0.5 CPUs`."""
    whole, rest = divmod(milli, 1000)
    number = f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)
    return f"{number} CPU" if number == "1" else f"{number} CPUs"


def format_memory(amount: int) -> str:
    """Format bytes in the largest unit that gives at least 1, rounded down to tenths: `64GiB`,
    `1.5GiB`."""
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if amount >> power:
            tenths = amount * 10 >> power
            return f"{tenths // 10}.{tenths % 10}{unit}" if tenths % 10 else f"{tenths // 10}{unit}"
    return plural(amount, "byte")
