"""The shims that live: has them forked, waits for their deaths without polling, and signals them.

Called by `pods`. A shim is known by a pidfd, so that a signal never reaches a process that only has
its number. What a shim did is in its pod's journal; here is only who it is.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from leasehold.adapters.agent.forks import Forks
from leasehold.adapters.agent.journals import PodJournal, PodStage
from leasehold.adapters.agent.leftovers import end_leftovers
from leasehold.adapters.agent.shim import records
from leasehold.core.units import Instant, Millis
from leasehold.ports.runtime import Clock

LOOK_MS = 20  # how often it looks whether killed processes are gone
_AT_ONCE: Millis = 0


class Shims:
    """`on_change(uid)`: a shim of this pod died, or must be asked for again."""

    def __init__(self, clock: Clock, forks: Forks, on_change: Callable[[str], None]) -> None:
        self._clock = clock
        self._forks = forks
        self._on_change = on_change
        self._asked: dict[str, PodJournal] = {}  # by uid: what this zygote was asked to start
        self._deaths: dict[str, int] = {}  # that we saw
        self._graces: dict[str, Millis] = {}  # the shortest that was asked for
        self._watched: dict[str, dict[int, int]] = {}  # pid to pidfd

    def ask(self, journal: PodJournal) -> None:
        """Asks for one, unless that was done."""
        if journal.uid not in self._asked:
            self._asked[journal.uid] = journal
            self._forks.ask(journal)

    def ask_again(self) -> None:
        """The zygote died, perhaps with what it was asked."""
        asked, self._asked = self._asked, {}
        for uid in asked:
            self._on_change(uid)

    def deaths(self, uid: str) -> int:
        return self._deaths.get(uid, 0)

    def on_fork(self, pid: int, uid: str) -> None:
        """The pid is 0 when there is none, because the zygote did not understand the request."""
        journal = self._asked.get(uid)
        if journal is not None and pid:
            self.watch(journal, pid)
        elif journal is not None:
            self._on_death(journal, pid)

    def watch(self, journal: PodJournal, pid: int | None) -> None:
        if pid is None or pid in self._watched.get(journal.uid, {}):
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._on_death(journal, pid)
            return
        self._watched.setdefault(journal.uid, {})[pid] = fd
        journal.watch(pid)
        asyncio.get_running_loop().add_reader(fd, self._on_death, journal, pid)

    def stop(self, journal: PodJournal, grace: Millis, left: Millis) -> None:
        """Asks it to end its job: `left` of its grace remains. Asking for more time is nothing."""
        if self._graces.get(journal.uid, grace + 1) <= grace and grace > _AT_ONCE:
            return
        journal.ask_to_stop(grace_ms=grace, due_boot_ms=records.boot_ms() + left)
        pid = journal.shim
        self.watch(journal, pid)
        fd = self._watched.get(journal.uid, {}).get(pid or 0)
        if fd is not None:
            self._graces[journal.uid] = grace
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGTERM)

    async def is_ended(self, journal: PodJournal) -> bool:
        """Ends the pod without grace; true once nothing of it is left."""
        stage = journal.stage()
        if stage is PodStage.REQUESTED and not journal.give_up():
            stage = journal.stage()
        if stage is PodStage.RUNNING:
            self.stop(journal, _AT_ONCE, _AT_ONCE)
            return False
        if stage is PodStage.ORPHANED:
            await self.bring_to_end(journal, self._clock.now())
        return True

    async def bring_to_end(self, journal: PodJournal, last_alive: Instant) -> None:
        """Its shim was killed: what is left of the pod is killed too, and only then is it over.

        It ended now if we saw it die or something was left; else when there was the last sign."""
        count = 0
        while left := await asyncio.to_thread(end_leftovers, journal):
            count += left
            await self._clock.sleep(LOOK_MS)
        if count or journal.uid in self._deaths:
            journal.write_unknown_exit(self._clock.now())
        else:
            journal.write_unknown_exit(max(journal.last_sign_of_life(), last_alive))

    def forget(self, uid: str) -> None:
        self._asked.pop(uid, None)
        self._deaths.pop(uid, None)
        self._graces.pop(uid, None)
        for pid in list(self._watched.get(uid, {})):
            self._unwatch(uid, pid)

    def close(self) -> None:
        """Looks no more; what lives goes on."""
        for uid in list(self._watched):
            self.forget(uid)

    def _on_death(self, journal: PodJournal, pid: int) -> None:
        uid = journal.uid
        self._unwatch(uid, pid)
        journal.watch(None)
        self._deaths[uid] = self._deaths.get(uid, 0) + 1
        asked = self._asked.get(uid)
        if asked is not None and asked.started is None:
            del self._asked[uid]
        self._on_change(uid)

    def _unwatch(self, uid: str, pid: int) -> None:
        watched = self._watched.get(uid, {})
        fd = watched.pop(pid, None)
        if fd is not None:
            asyncio.get_running_loop().remove_reader(fd)
            os.close(fd)
        if not watched:
            self._watched.pop(uid, None)
