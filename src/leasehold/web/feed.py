"""The fleet as data for the canvas: complete, or only what changed since the version that a page
has.

Holders of GPUs are sent as numbers. A holder keeps its number as long as any page may know it. So a
slot whose holder is the same has the same number.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from leasehold.control.questions.answers.fleet import FleetAnswer, HolderRow, NodeRow
from leasehold.control.questions.answers.shape import Wire
from leasehold.web.pages.view import PageView
from leasehold.web.palette import Palette

STATES_MAX = 8  # versions that a page may have seen last
HOLDERS_MAX = 50_000
VISITORS_MAX = 64

_Row = tuple[str, str, str, str, list[int]]  # node, domain, flavor, state, cells


@dataclass(frozen=True, slots=True)
class _State:
    rows: list[_Row]
    holders: int  # number of holders with a number then


@dataclass(slots=True)
class _Seen:
    """What the pages of one visitor were sent recently."""

    numbers: dict[HolderRow, int] = field(default_factory=dict)
    states: OrderedDict[str, _State] = field(default_factory=OrderedDict)
    sent: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)

    def rows(self, found: FleetAnswer) -> list[_Row]:
        if len(self.numbers) > HOLDERS_MAX:  # returning pages get everything again
            self.numbers.clear()
            self.states.clear()
            self.sent.clear()
        numbers = [0]
        for each in found.holders:
            numbers.append(self.numbers.setdefault(each, len(self.numbers) + 1))
        return [_row(each, numbers) for each in found.nodes]

    def keep(self, version: str, rows: list[_Row]) -> _State:
        found = self.states[version] = _State(rows, len(self.numbers))
        while len(self.states) > STATES_MAX:
            self.states.popitem(last=False)
        return found


def _row(node: NodeRow, numbers: list[int]) -> _Row:
    cells = [cell if cell < 0 else numbers[cell] for cell in node.cells]
    return (node.node, node.domain, node.flavor, node.state, cells)


class FleetFeed:
    def __init__(self) -> None:
        self._visitors: OrderedDict[str, _Seen] = OrderedDict()

    async def data(self, look: PageView, whose: str) -> bytes:
        """Return the fleet as JSON. `whose` is the visitor's key. The filter `since` is the version
        that the page has."""
        if look.filter("at"):
            return await self._past(look, whose)
        version, since = look.house.news.name, look.filter("since")
        seen = self._of(whose)
        known = seen.sent.get((version, since))
        if known is not None:
            return known
        state = seen.states.get(version)
        if state is None:
            rows = seen.rows(await look.ask(FleetAnswer, "fleet"))
            state = seen.keep(version, rows)
        before = seen.states.get(since)
        _, palette = await look.usage()
        body = _encoded(seen, version, palette, state, before)
        seen.sent[version, since] = body
        while len(seen.sent) > STATES_MAX:
            seen.sent.popitem(last=False)
        return body

    async def _past(self, look: PageView, whose: str) -> bytes:
        seen = self._of(whose)
        rows = seen.rows(await look.ask(FleetAnswer, "fleet", at=look.filter("at")))
        _, palette = await look.usage()
        return _encoded(seen, "", palette, _State(rows, len(seen.numbers)), None)

    def _of(self, whose: str) -> _Seen:
        found = self._visitors.pop(whose, None) or _Seen()
        self._visitors[whose] = found
        while len(self._visitors) > VISITORS_MAX:
            self._visitors.popitem(last=False)
        return found


def _encoded(
    seen: _Seen, version: str, palette: Palette, state: _State, before: _State | None
) -> bytes:
    """Encode the holders that the page does not know, and the nodes that have changed. If the
    page's version cannot be compared with this one, encode all holders and nodes."""
    rows = state.rows
    if before is not None and [row[:3] for row in before.rows] != [row[:3] for row in rows]:
        before = None
    found: Wire = {"version": version}
    if before is None:
        shown = {cell for row in rows for cell in row[4]}
        new = [(each, number) for each, number in seen.numbers.items() if number in shown]
        found["nodes"] = rows
    else:
        new = list(islice(seen.numbers.items(), before.holders, state.holders))
        pairs = enumerate(zip(before.rows, rows))
        found["changes"] = [(place, now[3], now[4]) for place, (was, now) in pairs if was != now]
    found["holders"] = {str(number): each for each, number in new}
    owners = {owner for each, _ in new for owner in (each.owner, each.payer_owner)}
    found["owners"] = {owner: palette.hue(owner) for owner in sorted(owners)}
    return msgspec.json.encode(found)
