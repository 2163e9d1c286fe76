"""`leases`: which run used which GPUs and when, which envelope paid, why each lease began and
ended.

At most one pass over all leases, or only over those of a given run. Sorted in ledger order.
"""

from collections.abc import Iterable, Iterator

from leasehold.control.questions.answers.leases import LeaseEnding, LeaseRow, LeasesAnswer
from leasehold.control.questions.formats import gpu_time, instant
from leasehold.control.questions.subject import Archived, Subject, no_archive
from leasehold.core.facts import Lease, Record, ledger_order
from leasehold.core.objects.owners import glob_admits
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.use_of_time import starting_until
from leasehold.core.world.world import World


class Filter(Record):
    """The filters of the list; a filter that is empty or None is not applied."""

    namespace: str = ""  # of the run
    node: str = ""
    owner: str = ""  # of the run; a glob
    payer: str = ""  # an envelope, or a glob over owners of paying envelopes
    since: Instant | None = None
    at: Instant | None = None
    closed: bool = False  # only leases that have ended
    limit: int | None = None  # show only the newest N


def lease_list(
    world: World,
    now: Instant,
    wanted: Filter,
    *,
    subject: Subject | None = None,
    archived: Archived = no_archive,
) -> LeasesAnswer:
    """Return open leases; also closed ones if a time, a run or `closed` is given."""
    found = [
        lease for lease in _candidates(world, wanted, subject, archived) if _admits(wanted, lease)
    ]
    found.sort(key=ledger_order)
    total = len(found)
    if wanted.limit is not None:
        found = found[max(0, total - wanted.limit) :]
    return LeasesAnswer(total=total, items=[_row(world, lease, now) for lease in found])


def _candidates(
    world: World, wanted: Filter, subject: Subject | None, archived: Archived
) -> Iterator[Lease]:
    if subject is not None:
        yield from subject.archived
        yield from subject.leases
    elif wanted.closed or wanted.since is not None or wanted.at is not None:
        since = wanted.since if wanted.at is None else wanted.at
        until = None if wanted.at is None else wanted.at + 1
        yield from (each for each in archived(since, until) if each.name not in world.leases)
        yield from world.leases.values()
    else:
        yield from _open(world, wanted)


def _open(world: World, wanted: Filter) -> Iterator[Lease]:
    by_name: Iterable[Iterable[str]] = world.open_by_run.values()
    if wanted.node:
        by_name = [world.open_by_node.get(wanted.node, ())]
    elif wanted.payer in world.open_by_payer:
        by_name = [world.open_by_payer[wanted.payer]]
    for names in by_name:
        yield from (world.leases[name] for name in names)


def _admits(wanted: Filter, lease: Lease) -> bool:
    if wanted.node and lease.node != wanted.node:
        return False
    if wanted.namespace and lease.namespace != wanted.namespace:
        return False
    end = lease.end
    if end is None:
        if wanted.closed:
            return False
    elif wanted.since is not None and end <= wanted.since:
        return False
    at = wanted.at
    if at is not None and (lease.start > at or (end is not None and end <= at)):
        return False
    if wanted.owner and not glob_admits(wanted.owner, lease.owner):
        return False
    payer = wanted.payer
    return (
        not payer
        or lease.payer == payer
        or ("/" not in payer and glob_admits(payer, lease.payer_owner))
    )


def _row(world: World, lease: Lease, now: Instant) -> LeaseRow:
    ending = lease.ending
    return LeaseRow(
        lease=lease.name,
        run=lease.run_key,
        owner=lease.owner,
        attempt=lease.attempt,
        group=lease.group,
        index=lease.index,
        pod=f"{lease.namespace}/{lease.pod}" if lease.pod else "",
        node=lease.node,
        slots=list(lease.slots),
        gpus=lease.gpus,
        role=lease.role.value,
        payer=lease.payer,
        payer_owner=lease.payer_owner,
        relation=lease.relation.value,
        opened=lease.reason.value,
        start=instant(lease.start),
        began=instant(_began(world, lease)),
        saved=None if lease.closed is None else instant(lease.closed.saved),
        end=instant(lease.end),
        closed="" if lease.closed is None else str(lease.closed.why.reason),
        closure="" if lease.closed is None else str(lease.closed.why),
        cause="" if lease.cause is None else lease.cause.value,
        ending=None
        if ending is None or lease.end is not None
        else LeaseEnding(reason=str(ending.why), deadline=instant(ending.deadline)),
        **gpu_time(lease.gpu_ms(now)),
    )


def _began(world: World, lease: Lease) -> Instant | None:
    """Return when the pod began to run; None if it ran at once, or does not run yet."""
    began = starting_until(world, lease)
    return None if began == FOREVER else began
