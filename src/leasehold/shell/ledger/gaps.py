"""Watches that every committed batch is still in the store, and alerts when one is missing.

The leader's loop runs this on a store that others can write to. A missing batch does not stop the
leader, but no other process can take over and the ledger cannot be verified.
"""

from collections.abc import Callable

from leasehold.adapters.following import follow
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Listing, Store, WatchEvent
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.ledger.read_chain import KIND, spans


class Gaps:
    """Keeps the numbers of committed batches whose objects are missing in the store."""

    def __init__(self, ledger: Ledger, alert: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._alert = alert
        self.missing: frozenset[int] = frozenset()

    async def follow(self, store: Store, clock: Clock, since: int) -> None:
        """Watch the batch objects; never return. At version `since` of the store no batch was
        missing."""
        await follow(store, clock, KIND, since=since, listed=self._listed, changed=self._changed)

    def _listed(self, listing: Listing) -> None:
        there = {_name(each) for each in listing.items}
        chain = self._ledger.chain
        self._note(frozenset(seq for seq, each in chain.items() if each.name not in there))

    def _changed(self, event: WatchEvent) -> None:
        name = _name(event.object)
        number = name.partition("-")[0]
        seq = int(number) if number.isdecimal() else 0
        committed = self._ledger.chain.get(seq)
        if committed is None or committed.name != name:
            # Compaction takes a batch off the chain before it deletes the object.
            self._note(self.missing & self._ledger.chain.keys())
        elif event.type == "DELETED":
            self._note(self.missing | {seq})
        else:
            self._note(self.missing - {seq})

    def _note(self, missing: frozenset[int]) -> None:
        new, self.missing = missing - self.missing, missing
        if new:
            word = "batch" if len(new) == 1 else "batches"
            self._alert(
                f"the store has lost {word} {spans(sorted(new))} of the ledger; "
                "leasehold ledger restore puts them back from an archive or exported files"
            )


def _name(obj: Wire) -> str:
    return text_at(part(obj, "metadata"), "name")
