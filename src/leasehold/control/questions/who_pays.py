"""`who-pays`: owned, shared and borrowed by envelope; GPUs now and GPU-hours to date."""

from leasehold.control.questions.answers.money import PaidBy, PaidShare, PaidShares, WhoPaysAnswer
from leasehold.control.questions.formats import gpu_time
from leasehold.control.questions.subject import Subject
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Relation
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def who_pays(world: World, subject: Subject, now: Instant) -> WhoPaysAnswer:
    """Return every envelope that pays or paid for a run, in any attempt."""
    gpus: dict[tuple[str, Relation], int] = {}
    owners: dict[str, str] = {}
    for lease in (*subject.archived, *subject.leases):
        owners[lease.payer] = lease.payer_owner
        if lease.is_open:
            key = (lease.payer, lease.relation)
            gpus[key] = gpus.get(key, 0) + lease.gpus
    spent = subject.spent(world, now)
    rows: list[PaidBy] = []
    shares = {relation: [0, 0] for relation in Relation}
    for (payer, relation), amount in sorted(spent.items()):
        held = gpus.get((payer, relation), 0)
        shares[relation][0] += held
        shares[relation][1] += amount
        rows.append(
            PaidBy(
                envelope=payer,
                payer_owner=owners.get(payer, ""),
                relation=str(relation),
                gpus=held,
                **gpu_time(amount),
            )
        )
    return WhoPaysAnswer(
        run=subject.key,
        owner=subject.owner,
        phase=str(run_view(world, subject.uid, now).phase),
        gpus=sum(gpus.values()),
        **gpu_time(sum(spent.values())),
        shares=PaidShares(
            owned=_share(shares[Relation.OWNED]),
            shared=_share(shares[Relation.SHARED]),
            borrowed=_share(shares[Relation.BORROWED]),
        ),
        payers=rows,
    )


def _share(found: list[int]) -> PaidShare:
    gpus, gpu_ms = found
    return PaidShare(gpus=gpus, **gpu_time(gpu_ms))
