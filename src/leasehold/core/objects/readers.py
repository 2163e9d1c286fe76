"""Readers of single manifest values: counts, GPU-hours, instants, spans, names.

Each takes any raw value and returns the value that the core uses, or raises `WrongValue` with a
remedy. Called through `fields.Fields`, which adds the path. Floats take part in no arithmetic: a
decimal number is read from its text.
"""

import re
from collections.abc import Callable
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from leasehold.core.objects.owners import GLOB_REMEDY, OWNER_REMEDY, is_owner, is_owner_glob
from leasehold.core.units import HOUR, GpuMs, Instant, Millis, parse_instant, parse_span

GPUS_MAX = 1_000_000
POD_GPUS_MAX = 1_024  # a pod is on one node
GPU_HOURS_MAX = 100_000_000_000
RETRIES_MAX = 1_000
TEXT_CHARS_MAX = 64  # longer than any reasonable instant or span

E = TypeVar("E", bound=StrEnum)

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class WrongValue(Exception):  # noqa: N818 - named for what the value is
    """A value that is not valid; `Fields` turns it into a Problem."""

    def __init__(self, remedy: str) -> None:
        super().__init__(remedy)
        self.remedy = remedy


def flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValue("use true or false")
    return value


def text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise WrongValue("use a string")
    return value


def text_or_none(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValue("use a string")
    return value


def texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongValue("use a list of strings")
    return value


def whole(low: int, high: int) -> Callable[[object], int]:
    """Return a reader for whole numbers within bounds; `true` is not 1 and 8.0 is not 8."""
    remedy = f"use a whole number from {low} to {high}"

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongValue(remedy)
        return value

    return check


gpus = whole(1, GPUS_MAX)
gpus_or_none = whole(0, GPUS_MAX)
pod_gpus = whole(1, POD_GPUS_MAX)
retries = whole(0, RETRIES_MAX)


def gpu_hours(value: object) -> GpuMs:
    """Read hours as a whole or decimal number, exactly, in GPU-ms."""
    remedy = (
        f"use GPU-hours as a number over 0 and up to {GPU_HOURS_MAX}, with at most five decimals"
    )
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongValue(remedy)
    if not 0 < value <= GPU_HOURS_MAX:  # also false for NaN
        raise WrongValue(remedy)
    exact = Decimal(str(value)) * HOUR
    amount = int(exact)
    if amount != exact or amount == 0:
        raise WrongValue(remedy)
    return amount


def instant(value: object) -> Instant:
    found = None
    if isinstance(value, str) and len(value) <= TEXT_CHARS_MAX and value.isascii():
        found = parse_instant(value)
    if found is None:
        raise WrongValue('use an RFC 3339 time with a zone, such as "2026-11-01T00:00:00Z"')
    return found


def span_or_none(value: object) -> Millis:
    found = None
    if isinstance(value, str) and len(value) <= TEXT_CHARS_MAX and value.isascii():
        found = parse_span(value)
    if found is None:
        raise WrongValue("use a duration of at most 3650 days, such as 30s, 15m or 1h30m")
    return found


def span(value: object) -> Millis:
    found = span_or_none(value)
    if found == 0:
        raise WrongValue("use a duration over zero, such as 30s, 15m or 1h30m")
    return found


def one_of(choices: type[E]) -> Callable[[object], E]:
    """Return a reader for one member of an enumeration, by its exact text."""
    members = {str(member): member for member in choices}
    remedy = "use " + " or ".join(members)

    def check(value: object) -> E:
        member = members.get(value) if isinstance(value, str) else None
        if member is None:
            raise WrongValue(remedy)
        return member

    return check


def owner(value: object) -> str:
    if not isinstance(value, str) or not is_owner(value):
        raise WrongValue(OWNER_REMEDY)
    return value


def owner_glob(value: object) -> str:
    if not isinstance(value, str) or not is_owner_glob(value):
        raise WrongValue(GLOB_REMEDY)
    return value


def namespace(value: object) -> str:
    """Read a DNS-1123 label, as Kubernetes requires for namespaces and container names."""
    if not isinstance(value, str) or len(value) > 63 or not _DNS_LABEL.fullmatch(value):
        raise WrongValue(
            "use 1 to 63 lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit"
        )
    return value


def object_name(value: object) -> str:
    """Read a DNS-1123 subdomain, as Kubernetes requires for object names."""
    if not isinstance(value, str) or len(value) > 253 or not _DNS_SUBDOMAIN.fullmatch(value):
        raise WrongValue(
            "use 1 to 253 lower-case letters, digits, '-' and '.', "
            "each part beginning and ending with a letter or digit"
        )
    return value


def word(value: object) -> str:
    """Read a text that is valid as a label value: flavors, locations, envelope names."""
    if not isinstance(value, str) or len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
        raise WrongValue(
            "use 1 to 63 letters, digits, '-', '_' and '.', "
            "beginning and ending with a letter or digit"
        )
    return value


def label_value(value: object) -> str:
    return "" if value == "" else word(value)


def is_label_key(key: str) -> bool:
    """Return whether the key is `name` or `prefix/name`, with at most 63 characters in the name
    and a DNS subdomain as prefix."""
    prefix, slash, name = key.rpartition("/")
    if len(name) > 63 or not _LABEL_VALUE.fullmatch(name):
        return False
    return not slash or (len(prefix) <= 253 and _DNS_SUBDOMAIN.fullmatch(prefix) is not None)
