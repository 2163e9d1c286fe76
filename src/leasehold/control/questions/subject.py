"""The run that a question is about: an existing one, a past one, or an archived one.

Several runs may have used a name; the newest is meant. A run whose object is gone is found by its
leases, which the ledger keeps forever, in the World or in the archive.
"""

from collections.abc import Callable, Iterable, Sequence

from leasehold.control.views.numbers import spent_by
from leasehold.core.facts import EnvelopeKey, Lease, Pod, Relation, Run, RunKey, Uid, ledger_order
from leasehold.core.units import GpuMs, Instant
from leasehold.core.world.world import World

# Returns archived closed leases that overlap [since, until); None: unbounded.
Archived = Callable[[Instant | None, Instant | None], Iterable[Lease]]


def no_archive(_since: Instant | None, _until: Instant | None) -> Iterable[Lease]:
    return ()


class Subject:
    """A run and all its leases, from the World and the archive."""

    def __init__(self, world: World, key: RunKey, uid: Uid, archived: Sequence[Lease] = ()) -> None:
        self.key = key
        self.uid = uid
        self.run: Run | None = world.runs.get(uid)
        book = world.books.get(uid)
        names = book.names if book else []
        self.leases = [world.leases[name] for name in names if name in world.leases]
        known = set(names)
        self.archived = [lease for lease in archived if lease.name not in known]

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def owner(self) -> str:
        if self.run is not None:
            return self.run.spec.owner
        leases = self.every_lease()
        return leases[-1].owner if leases else ""

    def every_lease(self) -> list[Lease]:
        """Return all leases in ledger order."""
        return sorted([*self.archived, *self.leases], key=ledger_order)

    def pods(self, world: World) -> list[Pod]:
        """Return the run's living pods, and all pods of its newest attempt.

        Older pods are kept only for their logs.
        """
        found = [world.pods[key] for key in sorted(world.pods_by_run.get(self.uid, ()))]
        return [pod for pod in found if not pod.has_ended or _is_of_newest_attempt(world, pod)]

    def spent(self, world: World, now: Instant) -> dict[tuple[EnvelopeKey, Relation], GpuMs]:
        """Return the GPU-time to date by payer and relation, including archived leases."""
        if self.run is not None:  # its book counts archived leases, too
            return spent_by(world, self.uid, now)
        spent: dict[tuple[EnvelopeKey, Relation], GpuMs] = {}
        for lease in self.every_lease():
            key = (lease.payer, lease.relation)
            spent[key] = spent.get(key, 0) + lease.gpu_ms(now)
        return spent


def _is_of_newest_attempt(world: World, pod: Pod) -> bool:
    unit = world.book(pod.run_uid).units.get(world.unit_of(pod.run_uid, pod.group))
    return unit is None or unit.last is None or pod.attempt >= unit.last.number


def find(world: World, key: RunKey, archived: Archived = no_archive) -> Subject | None:
    """Return the newest run of this `namespace/name`, or None if there never was one."""
    uid = world.uid_of.get(key)
    if uid is not None:
        created = world.runs[uid].created if uid in world.runs else None
        mine = [lease for lease in archived(created, None) if lease.uid == uid]
        return Subject(world, key, uid, mine)
    uid = _of_the_past(world, key)
    of_name = [lease for lease in archived(None, None) if lease.run_key == key]
    if uid is None:
        newest = max(of_name, key=ledger_order, default=None)
        if newest is None:
            return None
        uid = newest.uid
    return Subject(world, key, uid, [lease for lease in of_name if lease.uid == uid])


def _of_the_past(world: World, key: RunKey) -> Uid | None:
    newest: Lease | None = None
    for book in world.books.values():
        last = world.leases.get(book.names[-1]) if book.names else None
        if (
            last is not None
            and last.run_key == key
            and (newest is None or last.batch > newest.batch)
        ):
            newest = last
    return None if newest is None else newest.uid
