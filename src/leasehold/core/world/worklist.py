"""The work list: which runs and Budgets the next turns must look at, and when.

The World adds runs and Budgets as facts change, and turns set alarms. A turn takes what is due.
After a crash everything is looked at again. Alarms that are no longer needed are cancelled: an
unneeded look could find a change that is due to time alone, and the decision would then depend on
when that look happened.
"""

from heapq import heappop, heappush

from leasehold.core.facts import Envelope, EnvelopeKey, Uid
from leasehold.core.units import FOREVER, Instant


class Worklist:
    """Runs and Budgets to look at. Anyone may read the fields; only methods change them."""

    def __init__(self) -> None:
        self.runs: dict[Uid, None] = {}  # to look at in the next turn
        self.budgets: dict[str, None] = {}  # whose status has to be written
        self.unsettled: dict[str, None] = {}  # Budgets that may be overdrawn since the last check
        self.pending: dict[Uid, None] = {}  # runs with waiting units
        self.elastic: dict[Uid, None] = {}  # runs narrower or wider than desired
        self._alarms: list[tuple[Instant, Uid]] = []  # a heap, including cancelled ones
        self._set: dict[Uid, set[Instant]] = {}  # the alarms that are still valid
        self._money_alarms: list[tuple[Instant, str]] = []  # a heap of (instant, Budget)
        self._in_place: dict[EnvelopeKey, tuple[Envelope, int]] = {}
        self._is_taken_up = False
        self._taken_at: Instant = -1  # when a turn last took the due work

    def look_at(self, uid: Uid) -> None:
        """Look at this run in the next turn."""
        assert uid, "a run has a uid"
        self.runs[uid] = None

    def touch_budget(self, key: str) -> None:
        """Check this Budget in the next turn, because its caps or its leases have changed."""
        assert key.count("/") == 1, key
        self.budgets[key] = None
        self.unsettled[key] = None

    def file(self, uid: Uid, *, is_pending: bool, is_elastic: bool) -> None:
        """Note whether the run has waiting units, and whether its width differs from the desired
        width."""
        for table, belongs in ((self.pending, is_pending), (self.elastic, is_elastic)):
            if belongs:
                table[uid] = None
            else:
                table.pop(uid, None)

    def forget(self, uid: Uid) -> None:
        """Drop the work for a run that is gone."""
        self.pending.pop(uid, None)
        self.elastic.pop(uid, None)

    # Alarms.

    def alarm(self, uid: Uid, at: Instant) -> None:
        """Look at this run again at `at`. If a turn at or after `at` has already begun, look at it
        in the next turn."""
        if at <= self._taken_at:
            self.runs[uid] = None
            return
        standing = self._set.setdefault(uid, set())
        if at not in standing:
            standing.add(at)
            heappush(self._alarms, (at, uid))

    def call_off(self, uid: Uid) -> None:
        """Cancel a run's alarms before a turn looks at it; the turn sets the ones that are still
        needed."""
        self._set.pop(uid, None)

    def money_alarm(self, budget: str, at: Instant) -> None:
        """Check this Budget again at `at`."""
        heappush(self._money_alarms, (at, budget))

    @property
    def next_alarm(self) -> Instant:
        """Return the earliest alarm that is still valid; FOREVER if there is none."""
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
        """Return whether this is the first turn since the World was made."""
        is_first, self._is_taken_up = not self._is_taken_up, True
        return is_first

    def take_runs(self, now: Instant) -> list[Uid]:
        """Take the runs that changed or whose alarm is due, sorted by uid."""
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
        """Check the Budgets whose alarms are due in this turn."""
        while self.next_money_alarm <= now:
            self.touch_budget(heappop(self._money_alarms)[1])

    def take_unsettled(self) -> list[str]:
        """Take the Budgets that may be overdrawn, sorted by key."""
        taken = sorted(self.unsettled)
        self.unsettled.clear()
        return taken

    def take_budgets(self) -> list[str]:
        """Take the Budgets whose statuses have to be written now."""
        taken = list(self.budgets)
        self.budgets.clear()
        return taken

    # A lease is opened only where its payer covers it, and only an edit of the envelope or of a
    # node can change that. An envelope that was checked lease by lease need not be checked again
    # until then.

    def note_in_place(self, envelope: Envelope, node_changes: int) -> None:
        """Note that everything the envelope pays for is in places that it covers."""
        self._in_place[envelope.key] = (envelope, node_changes)

    def is_in_place(self, envelope: Envelope, node_changes: int) -> bool:
        """Return whether all leases of this envelope are known to be in locations that it covers.

        After an edit of the envelope or a change of any node, this is unknown until `note_in_place`
        is called again.
        """
        seen, changes = self._in_place.get(envelope.key, (None, -1))
        return seen is envelope and changes == node_changes
