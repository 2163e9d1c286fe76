"""Somebody asks the owner of a ledger to compact it now, from elsewhere, and waits for the end.

Served by `leasehold controller` to whoever may, asked by `leasehold ledger compact`. A compaction
may take longer than a request to an API server can: whoever asked is told how far it is and asks
again, naming the request, so that it hears of the end of that one and does not begin another.
"""

import secrets
from collections.abc import Callable

from leasehold.core.facts import Record
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock
from leasehold.shell.archive.compactor import Compacted, Compactor

NAME = "compaction"  # what is posted to
PATIENCE: Millis = 20 * SECOND  # an API server gives up after a minute
_POLL: Millis = SECOND // 20


class CompactionAsked(Record):
    """`keep`: how long closed leases stay, if not as configured. `request`: one that was told
    before."""

    keep: str = ""
    request: str = ""


class CompactionTold(Record):
    """`compacted` None: nothing was old enough, or nothing has left yet."""

    request: str
    ended: bool
    problem: str = ""
    compacted: Compacted | None = None


class CompactionRequests:
    """Those that came to one process. `wake` has the owner look at them soon; `leads` says whether
    it is still the owner."""

    def __init__(
        self,
        compactor: Compactor,
        clock: Clock,
        *,
        wake: Callable[[], None],
        leads: Callable[[], bool],
    ) -> None:
        self._compactor = compactor
        self._clock = clock
        self._wake = wake
        self._leads = leads
        self._names = secrets.token_hex(4)  # another process counts anew

    async def ask(self, request: str, keep: Millis | None) -> CompactionTold | None:
        """What has come of it after a while; None where the ledger is somebody else's by now."""
        number = self._known(request)
        if number is None:
            number = self._compactor.request(keep)
            self._wake()
        due = self._clock.monotonic() + PATIENCE
        while self._leads():
            answered = self._compactor.answered
            if answered is not None and answered[0] >= number:
                return CompactionTold(
                    request=self._name(number),
                    ended=True,
                    problem=answered[1].problem,
                    compacted=answered[1].compacted,
                )
            if self._clock.monotonic() >= due:
                sofar = self._compactor.last
                return CompactionTold(request=self._name(number), ended=False, compacted=sofar)
            await self._clock.sleep(_POLL)
        return None

    def _known(self, request: str) -> int | None:
        """The number of a request that was told before, by this process and not by another."""
        return next(
            (each for each in range(1, self._compactor.requests + 1)[-2:]
             if request == self._name(each)), None
        )  # fmt: skip

    def _name(self, number: int) -> str:
        return f"{self._names}-{number}"
