"""Prints answers: tables as kubectl prints them, JSON and YAML as the server sent them.

Nothing is computed here; every number in a table is in the answer. `cell` and `words` make texts
from users safe for terminals. Colours are used only on terminals, and not if NO_COLOR is set.
"""

import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache

import click

from leasehold.app.visible import visible
from leasehold.core.names import Wire
from leasehold.core.units import DAY, HOUR, MINUTE, SECOND, parse_instant

COLOURS = {
    "Running": "green",
    "Completed": "green",
    "StartsNow": "green",
    "Open": "green",
    "Pending": "yellow",
    "Reserved": "yellow",
    "Activating": "yellow",
    "Waits": "yellow",
    "Failed": "red",
    "Blocked": "red",
    "Overdrawn": "red",
    "Refused": "red",
}


def is_terminal() -> bool:
    return sys.stdout.isatty()


def _is_coloured() -> bool:
    return is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def part(wire: object, path: str) -> object:
    """Return the value at a dotted path such as `status.phase`; None if there is none."""
    if "." not in path:
        return wire.get(path) if isinstance(wire, dict) else None
    for key in path.split("."):
        wire = wire.get(key) if isinstance(wire, dict) else None
    return wire


def cell(wire: object, path: str) -> str:
    """Return the value at a dotted path as text for a table or sentence; `-` if there is none."""
    found = part(wire, path)
    if isinstance(found, bool):
        return "yes" if found else "no"
    if isinstance(found, list):
        return visible(",".join(map(str, found))) or "-"
    return "-" if found is None or found == "" else visible(str(found))


def rows(wire: object, path: str = "items") -> list[Wire]:
    found = part(wire, path)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def words(wire: object, path: str) -> list[str]:
    found = part(wire, path)
    return [visible(str(each)) for each in found] if isinstance(found, list) else []


def local(text: str) -> str:
    """Return a time from an answer in the user's time zone, to the second."""
    if len(text) < len("2026-11-15T00:00:00Z"):
        return text or "-"
    minute, zone = _minute(text[:16])
    return f"{minute}{text[16:19]}{zone}"


@lru_cache(maxsize=1 << 14)
def _minute(text: str) -> tuple[str, str]:
    """Return a UTC minute in local time, and the offset of the time zone. Results are cached,
    because the same minutes occur often in a long table."""
    at = parse_instant(f"{text}:00Z")
    if at is None:
        return text, "Z"
    moment = datetime.fromtimestamp(at // SECOND).astimezone()
    offset = moment.strftime("%z")
    zone = "Z" if offset == "+0000" else f"{offset[:3]}:{offset[3:5]}"
    return moment.strftime("%Y-%m-%dT%H:%M"), zone


def age(answer: Wire, then: str) -> str:
    """Return the time between `then` and the `now` of the answer, formatted as kubectl does."""
    at, now = parse_instant(then), parse_instant(cell(answer, "now"))
    if at is None or now is None:
        return "-"
    return span(now - at if now >= at else at - now)


def span(millis: int) -> str:
    """Format a duration as kubectl does: with one unit, or with two where the first number is
    small.

    Example: 90 s gives `90s`, 330 s gives `5m30s`, 12 minutes give `12m`.
    """
    seconds, minutes, hours = millis // SECOND, millis // MINUTE, millis // HOUR
    days = millis // DAY
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return _two(days, "d", hours % 24, "h") if days < 8 else f"{days}d"


def _two(large: int, unit: str, small: int, smaller: str) -> str:
    return f"{large}{unit}{small}{smaller}" if small else f"{large}{unit}"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns, without trailing spaces."""
    lines = [list(head), *map(list, body)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    coloured = _is_coloured()
    shown = []
    for line in lines:
        cells = [text.ljust(width) for text, width in zip(line, widths, strict=True)]
        if coloured:
            cells = [
                click.style(padded, fg=COLOURS[text]) if text in COLOURS else padded
                for padded, text in zip(cells, line, strict=True)
            ]
        shown.append("   ".join(cells).rstrip())
    return shown


Render = Callable[[Wire, bool], list[str]]


def show(answer: Wire, form: str, render: Render) -> None:
    """Print the answer in the output format `form`. `render` makes a table from the answer; its
    second argument is true for the wide one."""
    if form == "json":
        click.echo(as_json(answer))
    elif form == "yaml":
        click.echo(as_yaml(answer), nl=False)
    else:
        lines = render(answer, form == "wide")
        if lines:
            click.echo("\n".join(lines))


def as_json(answer: Wire) -> str:
    from msgspec import json  # imported here: slow to load

    return json.format(json.encode(answer), indent=2).decode()


def as_yaml(answer: Wire) -> str:
    import yaml  # imported here: only needed for YAML

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(answer, Dumper=dumper, sort_keys=False, allow_unicode=True, width=1000)
    return text
