"""Places in line: who of those that wait is planned, and what the others are told.

Made anew with the line of every pass. So many of an owner are planned and so many in all. Those
short of money take no place among those short of GPUs: they have a line of their own, in which an
owner's runs count for each reason by itself, so that what can never be paid is in nobody's way.
"""

from msgspec.structs import replace

from leasehold.core.facts import Record, Run
from leasehold.core.policy import Policy
from leasehold.core.verdicts import Refusal, Refused

_EXACT = 16  # the first that is told about

_Owner = tuple[str, Refusal | None]  # and the reason, of those short of money


class PlaceInLine(Record):
    """Where a run stands. A far place is told about, or everybody would be told anew whenever the
    first one starts."""

    is_planned: bool
    mine: int  # among the owner's, as it is told
    total: int
    of_owner: int  # who are planned at most
    of_all: int
    is_for_money: bool

    def words(self, owner: str) -> str:
        return (
            f"{'' if self.mine < _EXACT else 'about '}number {self.mine} of {owner} and "
            f"{'' if self.total < _EXACT else 'about '}{self.total} of all in line"
            f"{' for money' if self.is_for_money else ''}, of whom {self.of_owner} of an owner "
            f"and {self.of_all} in all are planned"
        )


def told_place(refused: Refused, place: PlaceInLine, run: Run) -> Refused:
    """The same refusal for somebody who is not planned."""
    return replace(refused, remedy=f"{refused.remedy}; {place.words(run.spec.owner)}")


class _Shortage:
    """Those that lack the same: how many are in line, and how many of them are planned."""

    def __init__(self, of_owner: int, of_all: int) -> None:
        self.of_owner = of_owner
        self.of_all = of_all
        self.planned = self.total = 0
        self.planned_of: dict[_Owner, int] = {}
        self.count_of: dict[_Owner, int] = {}

    def is_full(self, owner: _Owner) -> bool:
        return self.planned >= self.of_all or self.planned_of.get(owner, 0) >= self.of_owner

    def take(self, owner: _Owner) -> tuple[bool, int]:
        """Whether the next of this owner is planned, and its number among the owner's."""
        is_planned = not self.is_full(owner)
        self.total += 1
        mine = self.count_of[owner] = self.count_of.get(owner, 0) + 1
        if is_planned:
            self.planned += 1
            self.planned_of[owner] = self.planned_of.get(owner, 0) + 1
        return is_planned, mine


class PlacesInLine:
    def __init__(self, policy: Policy) -> None:
        self._gpus = _Shortage(policy.reservation_depth_per_owner, policy.reservation_depth)
        self._money = _Shortage(
            policy.reservation_money_depth_per_owner, policy.reservation_money_depth
        )

    def is_full(self, run: Run, refused: Refused) -> bool:
        """Whether nobody of this owner who is refused for this reason is planned any more."""
        shortage, owner = self._of(run, refused)
        return shortage.is_full(owner)

    def take(self, run: Run, refused: Refused) -> PlaceInLine:
        """The next place is this run's."""
        shortage, owner = self._of(run, refused)
        is_planned, mine = shortage.take(owner)
        return PlaceInLine(
            is_planned=is_planned,
            mine=_about(mine),
            total=_about(shortage.total),
            of_owner=shortage.of_owner,
            of_all=shortage.of_all,
            is_for_money=shortage is self._money,
        )

    def _of(self, run: Run, refused: Refused) -> tuple[_Shortage, _Owner]:
        if refused.reason.is_about_money:
            return self._money, (run.spec.owner, refused.reason)
        return self._gpus, (run.spec.owner, None)


def _about(number: int) -> int:
    """The number itself, or of a far one the next lower quarter of a power of two."""
    return number if number < _EXACT else number >> (step := number.bit_length() - 3) << step
