"""What is to be looked at, and when: runs, Budgets, and the alarms that were set for them.

Filled by the World as facts change and by turns that want to come back; a turn takes what is due.
After a crash everything is looked at again. An alarm that has lost its reason is called off: a look
that nobody needs could find what time alone has changed, and then it would matter when it comes.
"""

from heapq import heappop, heappush

from leasehold.core.facts import Envelope, EnvelopeKey, Uid
from leasehold.core.units import FOREVER, Instant


class Worklist:
    """Read freely; changed by its methods."""

    def __init__(self) -> None:
        self.runs: dict[Uid, None] = {}  # to look at in the next turn
        self.budgets: dict[str, None] = {}  # whose status is to be written
        self.unsettled: dict[str, None] = {}  # budgets that may be overdrawn since they were seen
        self.pending: dict[Uid, None] = {}  # runs with units that wait
        self.elastic: dict[Uid, None] = {}  # runs that are not as wide as they wish
        self._alarms: list[tuple[Instant, Uid]] = []  # a heap, with those that were called off
        self._set: dict[Uid, set[Instant]] = {}  # the alarms that stand
        self._money_alarms: list[tuple[Instant, str]] = []  # a heap of (when, budget)
        self._in_place: dict[EnvelopeKey, tuple[Envelope, int]] = {}
        self._is_taken_up = False
        self._taken_at: Instant = -1  # when a turn last took what was due

    def look_at(self, uid: Uid) -> None:
        """Something happened to this run."""
        assert uid, "a run has a uid"
        self.runs[uid] = None

    def touch_budget(self, key: str) -> None:
        """Something happened to what it may pay for, or to what it pays for."""
        assert key.count("/") == 1, key
        self.budgets[key] = None
        self.unsettled[key] = None

    def file(self, uid: Uid, *, is_pending: bool, is_elastic: bool) -> None:
        """What remains to be done for a run."""
        for table, belongs in ((self.pending, is_pending), (self.elastic, is_elastic)):
            if belongs:
                table[uid] = None
            else:
                table.pop(uid, None)

    def forget(self, uid: Uid) -> None:
        """A run that is gone has nothing left to do."""
        self.pending.pop(uid, None)
        self.elastic.pop(uid, None)

    # Alarms.

    def alarm(self, uid: Uid, at: Instant) -> None:
        """Look at this run again then, or in the next turn: an alarm of the past would hide those
        that are to come."""
        if at <= self._taken_at:
            self.runs[uid] = None
            return
        standing = self._set.setdefault(uid, set())
        if at not in standing:
            standing.add(at)
            heappush(self._alarms, (at, uid))

    def call_off(self, uid: Uid) -> None:
        """Whoever looks at a run sets its alarms anew: what has become of the others is past, and
        the queue is not considered for it."""
        self._set.pop(uid, None)

    def money_alarm(self, budget: str, at: Instant) -> None:
        """Look at this Budget again then."""
        heappush(self._money_alarms, (at, budget))

    @property
    def next_alarm(self) -> Instant:
        while self._alarms and not self._stands(*self._alarms[0]):
            heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else FOREVER

    def _stands(self, at: Instant, uid: Uid) -> bool:
        return at in self._set.get(uid, ())

    @property
    def next_money_alarm(self) -> Instant:
        return self._money_alarms[0][0] if self._money_alarms else FOREVER

    # What a turn takes.

    def take_up(self) -> bool:
        """Whether this is the first turn since the World was made."""
        is_first, self._is_taken_up = not self._is_taken_up, True
        return is_first

    def take_runs(self, now: Instant) -> list[Uid]:
        """Those that something happened to, or whose alarm is due, in order."""
        self._taken_at = now
        while self.next_alarm <= now:
            at, uid = heappop(self._alarms)
            self._set[uid].discard(at)
            if not self._set[uid]:
                del self._set[uid]
            self.runs[uid] = None
        taken = sorted(self.runs)
        self.runs.clear()
        return taken

    def raise_money_alarms(self, now: Instant) -> None:
        while self.next_money_alarm <= now:
            self.touch_budget(heappop(self._money_alarms)[1])

    def take_unsettled(self) -> list[str]:
        taken = sorted(self.unsettled)
        self.unsettled.clear()
        return taken

    def take_budgets(self) -> list[str]:
        """Whose statuses are written now."""
        taken = list(self.budgets)
        self.budgets.clear()
        return taken

    # Leases are opened where their payer covers them; only an edit of the envelope or of a node can
    # put one elsewhere, so what was found in place need not be looked at lease by lease again.

    def note_in_place(self, envelope: Envelope, node_changes: int) -> None:
        """All that it pays for lies where it pays."""
        self._in_place[envelope.key] = (envelope, node_changes)

    def is_in_place(self, envelope: Envelope, node_changes: int) -> bool:
        seen, changes = self._in_place.get(envelope.key, (None, -1))
        return seen is envelope and changes == node_changes
