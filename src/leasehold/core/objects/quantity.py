"""Kubernetes quantities (`500m`, `16Gi`, `1e3`), and what the containers of a pod request.

Used by the template check and the node and pod decoders. Amounts are integers, rounded up: a pod
that requests half a byte gets one byte.
"""

import re
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from leasehold.core.names import Wire
from leasehold.core.objects.readers import WrongValue
from leasehold.core.objects.wire import list_at, part

CPU = "cpu"
MEMORY = "memory"
Wanted = tuple[str, Callable[[object], int]]  # (resource, function that reads its quantity)
MILLI_MAX = 10**21  # a million terabytes of memory, in thousandths of a byte

_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_REMEDY = "use a Kubernetes quantity of zero or more, such as 500m, 8 or 16Gi"
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def milli(value: object) -> int:
    """Return a quantity in thousandths, rounded up. Raises `WrongValue` if it is malformed."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise WrongValue(_REMEDY)
    if isinstance(value, int) and not 0 <= value <= MILLI_MAX:
        raise WrongValue(_REMEDY)  # checked before printing: an integer can be too long to print
    written = str(value)
    if len(written) > 64:
        raise WrongValue(_REMEDY)
    return _parse(written)


def format_milli(thousandths: int) -> str:
    """Return the quantity that `milli` reads as this number of thousandths."""
    whole, rest = divmod(thousandths, 1000)
    return f"{thousandths}m" if rest else str(whole)


@lru_cache(maxsize=1024)  # a fleet uses few different amounts
def _parse(written: str) -> int:
    match = _QUANTITY.fullmatch(written)
    if match is None:
        raise WrongValue(_REMEDY)
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        number *= 1 << _BINARY[suffix]
    elif suffix:
        number = number.scaleb(_DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:]))
    thousandths = number * 1000
    if not 0 <= thousandths <= MILLI_MAX:
        raise WrongValue(_REMEDY)
    return int(thousandths.to_integral_value(rounding=ROUND_CEILING))


def units(value: object) -> int:
    """Return a quantity in whole units (bytes, GPUs, pods), rounded up."""
    return -(-milli(value) // 1000)


def asked(spec: Wire, *wanted: Wanted) -> list[int]:
    """Return what a pod spec requests of a node, for each resource in `wanted`.

    That is the larger of two sums: all containers and sidecars; or any one init container with the
    sidecars started before it. If the pod requests an amount as a whole, that amount counts
    instead. The runtime's overhead is added.
    """
    found = [0] * len(wanted)
    for container in list_at(spec, "containers"):
        for place, amount in _asked_by(container, wanted):
            found[place] += amount
    beside, most = [0] * len(wanted), [0] * len(wanted)
    for container in list_at(spec, "initContainers"):
        is_sidecar = isinstance(container, dict) and container.get("restartPolicy") == "Always"
        for place, amount in _asked_by(container, wanted):
            most[place] = max(most[place], beside[place] + amount)
            beside[place] += amount if is_sidecar else 0
    found = [max(most[at], amount + beside[at]) for at, amount in enumerate(found)]
    for place, amount in _asked_by(spec, wanted):
        found[place] = amount
    for place, amount in _asked_by({"resources": {"requests": part(spec, "overhead")}}, wanted):
        found[place] += amount
    return found


def _asked_by(container: object, wanted: tuple[Wanted, ...]) -> Iterator[tuple[int, int]]:
    resources = part(container, "resources")
    if not resources:
        return
    requests, limits = part(resources, "requests"), part(resources, "limits")
    for place, (resource, amount) in enumerate(wanted):
        value = requests.get(resource)
        if value is None:
            # a limit without a request counts as the request, as in Kubernetes
            value = limits.get(resource)
        if value is not None:
            yield place, quantity_or(value, amount, 0)


def quantity_or(value: object, amount: Callable[[object], int], default: int) -> int:
    """Return the amount, or the default if it is malformed; for objects written by servers only."""
    try:
        return amount(value)
    except WrongValue:
        return default
