"""The fleet as data for a canvas: whole, or only what has changed since a page looked last.

A holder keeps its number as long as somebody may have seen it, so that a slot that did not change
is the same number as before.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from leasehold.control.questions.answers.fleet import FleetAnswer, HolderRow, NodeRow
from leasehold.control.questions.answers.shape import Wire, wire
from leasehold.web.pages.look import Look

STATES_MAX = 8  # that a page may have seen last
HOLDERS_MAX = 50_000
VISITORS_MAX = 64

_Row = tuple[str, str, str, str, list[int]]  # node, domain, flavor, state, cells


@dataclass(slots=True)
class _Seen:
    """What one visitor was shown."""

    numbers: dict[HolderRow, int] = field(default_factory=dict)
    states: OrderedDict[str, list[_Row]] = field(default_factory=OrderedDict)

    def rows(self, found: FleetAnswer) -> list[_Row]:
        if len(self.numbers) > HOLDERS_MAX:  # whoever comes back is shown all of it again
            self.numbers.clear()
            self.states.clear()
        numbers = [0]
        for each in found.holders:
            numbers.append(self.numbers.setdefault(each, len(self.numbers) + 1))
        return [_row(each, numbers) for each in found.nodes]

    def keep(self, version: str, rows: list[_Row]) -> None:
        self.states[version] = rows
        while len(self.states) > STATES_MAX:
            self.states.popitem(last=False)


def _row(node: NodeRow, numbers: list[int]) -> _Row:
    cells = [cell if cell < 0 else numbers[cell] for cell in node.cells]
    return (node.node, node.domain, node.flavor, node.state, cells)


class FleetFeed:
    def __init__(self) -> None:
        self._visitors: OrderedDict[str, _Seen] = OrderedDict()

    async def data(self, look: Look, whose: str) -> Wire:
        """`whose` tells visitors apart; the filter `since` is the number that the page has."""
        at, version = look.filter("at"), look.house.news.name
        seen = self._of(whose)
        rows = seen.states.get(version) if not at else None
        if rows is None:
            found = await look.ask(FleetAnswer, "fleet", at=at)
            rows = seen.rows(found)
            if not at:
                seen.keep(version, rows)
        before = None if at else seen.states.get(look.filter("since"))
        _, palette = await look.usage()
        owners = {owner for each in seen.numbers for owner in (each.owner, each.payer_owner)}
        shown = {cell for row in rows for cell in row[4]}
        return {
            "version": version,
            "owners": {owner: palette.hue(owner) for owner in sorted(owners | {*palette.owners})},
            "holders": {
                str(number): wire(each) for each, number in seen.numbers.items() if number in shown
            },
            **_difference(before, rows),
        }

    def _of(self, whose: str) -> _Seen:
        found = self._visitors.pop(whose, None) or _Seen()
        self._visitors[whose] = found
        while len(self._visitors) > VISITORS_MAX:
            self._visitors.popitem(last=False)
        return found


def _difference(before: list[_Row] | None, rows: list[_Row]) -> Wire:
    if before is None or [row[:3] for row in before] != [row[:3] for row in rows]:
        return {"nodes": rows}
    pairs = enumerate(zip(before, rows))
    return {"changes": [(place, now[3], now[4]) for place, (was, now) in pairs if was != now]}
