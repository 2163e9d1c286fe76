"""Formats instants, spans and names for pages; no calculations."""

import re
from datetime import UTC, datetime
from urllib.parse import quote

Millis = int

_SPANS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"))


def millis(text: str | None) -> Millis | None:
    """Convert an instant of an answer to milliseconds."""
    if text is None:
        return None
    found = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)
    return round(found.timestamp() * 1000)


def instant(at: Millis) -> str:
    """Return the instant in the RFC 3339 form that the query API accepts."""
    found = datetime.fromtimestamp(at / 1000, UTC)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{at % 1000:03d}Z"


def clock(text: str | None) -> str:
    """Return the time of day of an instant that is recent enough to be shown without its date."""
    return "–" if text is None else text[11:19]


def date_and_clock(text: str | None) -> str:
    return "–" if text is None else f"{text[:10]} {text[11:19]}"


def span(length: Millis) -> str:
    """Return a duration in its two largest units: `2d 4h`, `14m 59s`, `0s`."""
    left = max(0, length)
    parts: list[str] = []
    for size, letter in _SPANS:
        count, left = divmod(left, size)
        if count or (parts and len(parts) < 2):
            parts.append(f"{count}{letter}")
        if len(parts) == 2:
            break
    shown = [each for each in parts if each[0] != "0"] or parts[:1]
    return " ".join(shown) or "0s"


def short(name: str) -> str:
    """Return the last part of the name of an owner, envelope or domain. The page shows the full
    name in the tooltip."""
    return name.rpartition("/")[2].rpartition(":")[2]


def run_path(run: str) -> str:
    namespace, _, name = run.partition("/")
    return f"/ui/runs/{quote(namespace, safe='')}/{quote(name, safe='')}"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def grouped(count: int) -> str:
    return f"{count:,}"


def anchor(heading: str) -> str:
    """Return the anchor of a section, formed as on the documentation site."""
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
