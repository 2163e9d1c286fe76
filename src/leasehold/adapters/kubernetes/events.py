"""Events as a cluster keeps them now: `events.k8s.io/v1`, whose repetitions are a series.

Used by `store`. Whoever tells a story (`shell.events`) writes the form that every store has, with a
count; here it becomes the new form on the way out, and that one on the way back.
"""

from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at, whole_at

API_VERSION = "events.k8s.io/v1"
NOTE_CHARS_MAX = 1_024  # which the API server enforces, in bytes
REPORTER = "leasehold"


def to_series(event: Wire) -> Wire:
    """What the API server is given."""
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
    """What whoever wrote it knows it by."""
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
    """With the six digits that the API server wants."""
    whole, _, rest = instant.rstrip("Z").partition(".")
    return f"{whole}.{rest[:6]:0<6}Z"


def _bounded(message: str) -> str:
    encoded = message.encode()
    if len(encoded) <= NOTE_CHARS_MAX:
        return message
    return encoded[: NOTE_CHARS_MAX - 3].decode("utf-8", "ignore") + "…"
