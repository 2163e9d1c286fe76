"""Compaction requests from other processes: ask the leader to compact now and wait for the end.

Sent by `leasehold ledger compact`; `leasehold controller` handles them for authorised users. A
compaction may take longer than an API server request may last. So each answer reports how far the
compaction is. The client then asks again with the name of its request, which does not start another
compaction.
"""

import secrets
from collections.abc import Callable

from leasehold.core.facts import Record
from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock
from leasehold.shell.archive.compactor import Compacted, Compactor

NAME = "compaction"  # path segment of the POST
PATIENCE: Millis = 20 * SECOND  # less than the minute after which an API server times out
_POLL: Millis = SECOND // 20


class CompactionOrder(Record):
    """The body of a request. `keep`: how long closed leases stay in the store; "": as configured.
    `request`: the name of an earlier request, to ask how far it is; "": start a new one."""

    keep: str = ""
    request: str = ""


class CompactionState(Record):
    """The state of a compaction request. `compacted` is None while nothing has left the store yet;
    if the request has ended, nothing was old enough."""

    request: str
    ended: bool
    problem: str = ""
    compacted: Compacted | None = None


class CompactionRequests:
    """Handles the compaction requests that this process receives. `wake` makes the leader's loop
    handle them soon. `leads` returns whether this process still leads."""

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
        self._names = secrets.token_hex(4)  # prefix of names; differs by process

    async def ask(self, request: str, keep: Millis | None) -> CompactionState | None:
        """Start a compaction, or find the earlier one named `request`, and wait for its end, at
        most `PATIENCE`. Return its state; None if this process no longer leads."""
        number = self._known(request)
        if number is None:
            number = self._compactor.request(keep)
            self._wake()
        due = self._clock.monotonic() + PATIENCE
        while self._leads():
            answered = self._compactor.answered
            if answered is not None and answered[0] >= number:
                return CompactionState(
                    request=self._name(number),
                    ended=True,
                    problem=answered[1].problem,
                    compacted=answered[1].compacted,
                )
            if self._clock.monotonic() >= due:
                sofar = self._compactor.last
                return CompactionState(request=self._name(number), ended=False, compacted=sofar)
            await self._clock.sleep(_POLL)
        return None

    def _known(self, request: str) -> int | None:
        """Return the number of the compaction request called `request`. Only the two newest
        requests of this process are known; otherwise None."""
        return next(
            (each for each in range(1, self._compactor.requests + 1)[-2:]
             if request == self._name(each)), None
        )  # fmt: skip

    def _name(self, number: int) -> str:
        return f"{self._names}-{number}"
