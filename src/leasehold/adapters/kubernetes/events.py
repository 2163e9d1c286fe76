"""Converts Events to and from `events.k8s.io/v1`, which reports repetitions as a series.

Used by `store`. `shell.observe.events` writes the older form of an Event, with a count. Every other
store keeps this form; for the API server it is converted in both directions.
"""

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at, whole_at

API_VERSION = "events.k8s.io/v1"
NOTE_CHARS_MAX = 1_024  # enforced by the API server, in bytes
REPORTER = "leasehold"


def to_series(event: Wire) -> Wire:
    """Return the event in the API server's form."""
    count = whole_at(event, "count") or 1
    made: Wire = {
        "apiVersion": API_VERSION,
        "kind": "Event",
        "metadata": event["metadata"],
        "eventTime": _micro(text_at(event, "firstTimestamp")),
        "reportingController": REPORTER,
        "reportingInstance": REPORTER,
        "action": event["reason"],
        "reason": event["reason"],
        "regarding": event["involvedObject"],
        "note": _bounded(text_at(event, "message")),
        "type": event["type"],
    }
    if count > 1:
        last = _micro(text_at(event, "lastTimestamp"))
        made["series"] = {"count": count, "lastObservedTime": last}
    return made


def from_series(event: Wire) -> Wire:
    """Convert an `events.k8s.io` event into the core/v1 form that `shell.observe.events` uses."""
    series, first = part(event, "series"), text_at(event, "eventTime")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": event["metadata"],
        "involvedObject": part(event, "regarding"),
        "reason": text_at(event, "reason"),
        "message": text_at(event, "note"),
        "type": text_at(event, "type"),
        "count": whole_at(series, "count") or 1,
        "firstTimestamp": first,
        "lastTimestamp": text_at(series, "lastObservedTime") or first,
    }


def _micro(instant: str) -> str:
    """Return the timestamp with the six decimal digits that the API server requires."""
    whole, _, rest = instant.rstrip("Z").partition(".")
    return f"{whole}.{rest[:6]:0<6}Z"


def _bounded(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= NOTE_CHARS_MAX:
        return message
    return encoded[: NOTE_CHARS_MAX - 3].decode("utf-8", "ignore") + "…"
