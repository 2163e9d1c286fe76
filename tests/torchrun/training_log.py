"""Collect the output of the ranks of a training while pods come and go.

Called by `elastic`. A pod that is created again has a new log, so the log must be read repeatedly;
each read adds the new lines. Lines that the training did not print (those of torchrun, tracebacks
of lost connections) are skipped.
"""

import re
from dataclasses import dataclass

from tests.up.server import Up

_LINE = re.compile(
    r"rank (?P<rank>\d+) of (?P<world>\d+) on (?P<node>[\w-]+): (?:(?P<begins>begins)"
    r"|goes on from step (?P<first>\d+)|step (?P<step>\d+), loss (?P<loss>\d+\.\d{6})"
    r"|done after (?P<done>\d+) steps: (?P<story>.*))"
)


@dataclass(frozen=True)
class Line:
    """The first step of a rank (`first`), or a step with its loss, or the end with its story."""

    rank: int
    world: int
    node: str
    first: int | None = None
    step: int = 0
    loss: float = 0.0
    story: str = ""


class TrainingLog:
    def __init__(self, server: Up, run: str, namespace: str) -> None:
        self._server = server
        self._run = run
        self._namespace = namespace
        self._shown: dict[str, list[Line]] = {}  # by node: the known lines of its pod's log
        self.looks: list[list[Line]] = []  # the new lines of each look
        self.restarted: set[str] = set()  # nodes whose pod has a new log

    def look(self) -> None:
        """Add the new lines of all logs. A starting or ending pod may have a log only later."""
        said = self._server.runs("logs", self._run, "-n", self._namespace, ok=False)
        now: dict[str, list[Line]] = {}
        for text in said.stdout.splitlines():
            if line := _parsed(text):
                now.setdefault(line.node, []).append(line)
        new: list[Line] = []
        for node, lines in now.items():
            before = self._shown.get(node, [])
            if lines[: len(before)] == before:
                new += lines[len(before) :]
            elif lines == before[: len(lines)]:
                continue  # truncated, because the pod is ending
            else:
                self.restarted.add(node)
                new += lines
            self._shown[node] = lines
        self.looks.append(new)

    @property
    def lines(self) -> list[Line]:
        return [line for look in self.looks for line in look]

    @property
    def step(self) -> int:
        """Return the last step that any rank has printed."""
        return max((line.step for line in self.lines), default=0)

    def ranks_at(self, step: int, world: int) -> dict[str, int]:
        """Return the rank of each node when a world of this size last made this step."""
        return {
            line.node: line.rank for line in self.lines if line.step == step and line.world == world
        }

    def lost_steps(self) -> int:
        """Return the most steps that any rank repeated: the furthest step of earlier looks minus
        the step it resumed from. The order of lines within one look is unknown."""
        worst = furthest = 0
        for look in self.looks:
            firsts = [line.first for line in look if line.first is not None]
            worst = max([worst, *(furthest - first for first in firsts)])
            furthest = max([furthest, *(line.step for line in look)])
        return worst


def _parsed(text: str) -> Line | None:
    found = _LINE.search(text)
    if found is None:
        return None
    first = 0 if found["begins"] else int(found["first"]) if found["first"] else None
    return Line(
        rank=int(found["rank"]),
        world=int(found["world"]),
        node=found["node"],
        first=first,
        step=int(found["step"] or 0),
        loss=float(found["loss"] or 0),
        story=found["story"] or "",
    )
