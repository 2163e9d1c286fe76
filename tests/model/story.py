"""Reads a scenario file into plain records; the product must have accepted the file.

A step is a dict: `at` in milliseconds since the start, `do` (the action's name) and the action's
own value, spans already in milliseconds where the model needs them.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
FOREVER = 1 << 62

DEFAULTS: dict[str, Any] = {
    "activationLead": "15m",
    "reservation.maxWait": "1d",
    "reservation.depth": 256,
    "reservation.depthPerOwner": 8,
    "reservation.moneyDepth": 256,
    "reservation.moneyDepthPerOwner": 32,
    "resize.interval": "10m",
    "accounting.horizon": "1d",
    "overdraft.grace": "15m",
    "forbidReciprocalLending": False,
    "reservation.patience": "15m",
    "resolver.minTenure": "0s",
    "resolver.cuts": "Lottery",
    "resolver.ownedLast": False,
    "drain.timeout": "15m",
    "gracePeriod.max": "1h",
    "bind.attempts": 5,
    "bind.backoff": "10s",
    "retry.backoff": "30s",
    "swap.settle": "10m",
}


WORDS = ("Lottery", "Reclaim", "Never", "byCheckpoint")  # values that are not spans


class NotCovered(Exception):  # noqa: N818 - it says which files the model leaves out
    """The file uses something that the model does not cover."""


@dataclass
class Story:
    title: str
    start: int
    config: dict[str, Any]
    fleet: list[dict[str, Any]]
    budgets: dict[str, dict[str, Any]]
    steps: list[dict[str, Any]] = field(default_factory=list)


def span(text: object) -> int:
    """`1h15m` in milliseconds."""
    if isinstance(text, int):
        return text
    parts = re.findall(r"(\d+)(ms|s|m|h|d)", str(text))
    return sum(int(count) * UNITS[unit] for count, unit in parts)


def instant(text: str) -> int:
    """An RFC 3339 text in milliseconds UTC."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)
    whole = moment.replace(microsecond=0)
    return int(whole.timestamp()) * SECOND + moment.microsecond // 1000


def written(at: int) -> str:
    """An instant as the lottery writes it: `2026-11-15T00:00:10.000Z`."""
    moment = datetime.fromtimestamp(at // SECOND, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{at % SECOND:03d}Z"


def short(at: int) -> str:
    """A span for people: `1h15m`."""
    if at < 0:
        return "-" + short(-at)
    out = ""
    for name in ("d", "h", "m", "s", "ms"):
        count, at = divmod(at, UNITS[name])
        out += f"{count}{name}" if count else ""
    return out or "0s"


def read_file(path: Path | str) -> Story:
    return read_text(Path(path).read_text(encoding="utf-8"))


def read_text(text: str) -> Story:
    return read(yaml.safe_load(text))


def read(document: dict[str, Any]) -> Story:
    config = dict(DEFAULTS)
    for key, value in _flat(document.get("config") or {}).items():
        if key not in config:
            raise NotCovered(f"config key {key}")
        config[key] = value
    for key, value in config.items():
        if isinstance(value, str) and value not in WORDS:
            config[key] = span(value)
    if any("cpu" in row or "memory" in row for row in document.get("fleet") or []):
        raise NotCovered("CPU and memory")
    return Story(
        title=document.get("title", ""),
        start=instant(document.get("start", "2026-01-01T00:00:00Z")),
        config=config,
        fleet=document.get("fleet") or [],
        budgets=document.get("budgets") or {},
        steps=[_step(step) for step in document.get("steps") or []],
    )


def _step(step: dict[str, Any]) -> dict[str, Any]:
    names = [key for key in step if key not in ("at", "work", "refused")]
    assert len(names) == 1, f"one action a step: {step}"
    do = names[0]
    taken = {"at": span(step["at"]), "do": do, "what": step[do], "refused": step.get("refused")}
    if do == "submit":
        taken["work"] = _works(step.get("work"))
    if do == "node" and step[do]["is"] == "draining":
        raise NotCovered("a node under drain")
    if do == "delete" and "run" in step[do]:
        raise NotCovered("a run that is deleted")
    return taken


def _works(work: object) -> list[dict[str, Any]]:
    """Return one entry per attempt (the last one repeats): duration, exit code, time to stop."""
    given: list[Any] = work if isinstance(work, list) else [work or {}]
    return [
        {
            "lasts": span(each["lasts"]) if "lasts" in each else None,
            "exit": each.get("exit", 0),
            "stops": span(each.get("stops", "0s")),
        }
        for each in given
    ]


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat
