"""The living shims: has them forked, waits for their deaths without polling, and signals them.

Called by `pods`. A shim is known by a pidfd, so a signal never hits a process that has reused the
shim's pid. What a shim did is in its pod's journal; this module knows only the process.
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

LOOK_MS = 20  # poll interval until killed processes are gone
_AT_ONCE: Millis = 0


class Shims:
    """Manages shims. `on_change(uid)` is called when a shim of this pod has died, or must be
    requested again."""

    def __init__(self, clock: Clock, forks: Forks, on_change: Callable[[str], None]) -> None:
        self._clock = clock
        self._forks = forks
        self._on_change = on_change
        self._asked: dict[str, PodJournal] = {}  # by uid: requests to the current zygote
        self._deaths: dict[str, int] = {}  # deaths seen
        self._graces: dict[str, Millis] = {}  # the shortest one requested
        self._watched: dict[str, dict[int, int]] = {}  # uid -> pid -> pidfd

    def ask(self, journal: PodJournal) -> None:
        """Request a shim for the journal's pod, unless one was already requested."""
        if journal.uid not in self._asked:
            self._asked[journal.uid] = journal
            self._forks.ask(journal)

    def ask_again(self) -> None:
        """Drop all requests, which may have been lost with the zygote, and call `on_change` for
        their pods."""
        asked, self._asked = self._asked, {}
        for uid in asked:
            self._on_change(uid)

    def deaths(self, uid: str) -> int:
        return self._deaths.get(uid, 0)

    def on_fork(self, pid: int, uid: str) -> None:
        """Handle the zygote's answer to a request; pid 0 means that the zygote refused."""
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
        """Ask the shim to end its job. `grace` is the whole grace period, `left` the part of it
        that is left. A request is ignored if its grace period is not 0 and not shorter than the one
        before."""
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
        """End the pod at once, without grace; return True once no process of it is left."""
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
        """Kill what is left of a pod whose shim was killed, then record the pod's end.

        The recorded end is now if this agent saw the shim die or found processes. Otherwise it is
        the pod's last sign of life, but not before `last_alive`."""
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
        """Stop watching the shims; they and their jobs continue."""
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
