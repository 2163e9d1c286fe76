"""Reads a scenario file into plain records. The product must have accepted the file."""

from pathlib import Path
from typing import Any

import yaml
from tests.model import story as before
from tests.model.story import (
    DAY,
    FOREVER,
    HOUR,
    MINUTE,
    SECOND,
    NotCovered,
    Story,
    instant,
    short,
    span,
    written,
)

__all__ = [
    "DAY", "FOREVER", "HOUR", "MINUTE", "SECOND", "NotCovered", "Story",
    "instant", "read", "read_file", "read_text", "short", "span", "written",
]  # fmt: skip

DEFAULTS: dict[str, Any] = {
    **before.DEFAULTS,
    "reservation.patience": "15m",
    "resolver.minTenure": "0s",
    "resolver.cuts": "Lottery",
    "resolver.ownedLast": False,
}
WORDS = ("resolver.cuts",)  # keys whose value is a word, not a span


def read_file(path: Path | str) -> Story:
    return read_text(Path(path).read_text(encoding="utf-8"))


def read_text(text: str) -> Story:
    return read(yaml.safe_load(text))


def read(document: dict[str, Any]) -> Story:
    given = before._flat(document.get("config") or {})
    unknown = sorted(set(given) - set(DEFAULTS))
    if unknown:
        raise NotCovered(f"config key {unknown[0]}")
    config = {**DEFAULTS, **given}
    for key, value in config.items():
        if isinstance(value, str) and key not in WORDS:
            config[key] = span(value)
    story = before.read({**document, "config": {}})
    story.config = config
    return story
