"""`sponsors`: a run's possible sponsors, what each would lend, and what it pays now."""

from leasehold.control.questions.answers.money import (
    SponsorEnvelope,
    SponsorRow,
    SponsorsAnswer,
)
from leasehold.control.questions.formats import gpu_time
from leasehold.control.questions.subject import Subject
from leasehold.core.facts import Envelope, Relation, Run
from leasehold.core.funding.cover import admits
from leasehold.core.units import Instant, plural
from leasehold.core.world.world import World


def sponsors(world: World, subject: Subject, now: Instant) -> SponsorsAnswer:
    """Return the sponsors that a run names, in order, and those that paid for it."""
    run = subject.run
    named = run.spec.funding.sponsors if run is not None else ()
    paying: dict[str, int] = {}
    owners: dict[str, str] = {}
    for lease in (*subject.archived, *subject.leases):
        owners[lease.payer] = lease.payer_owner
        if lease.relation is Relation.BORROWED and lease.is_open:
            paying[lease.payer_owner] = paying.get(lease.payer_owner, 0) + lease.gpus
    paid: dict[str, int] = {}
    for (payer, relation), amount in subject.spent(world, now).items():
        if relation is Relation.BORROWED:
            owner = owners.get(payer, "")
            paid[owner] = paid.get(owner, 0) + amount
    others = sorted({*paying, *paid} - set(named))
    return SponsorsAnswer(
        run=subject.key,
        owner=subject.owner,
        allow_borrow=run is not None and run.spec.funding.allow_borrow,
        max_borrow_gpus=None if run is None else run.spec.funding.max_borrow_gpus,
        items=[
            SponsorRow(
                owner=owner,
                named=owner in named,
                gpus=paying.get(owner, 0),
                **gpu_time(paid.get(owner, 0)),
                envelopes=[] if run is None else _envelopes(world, run, owner),
            )
            for owner in (*named, *others)
        ],
    )


def _envelopes(world: World, run: Run, owner: str) -> list[SponsorEnvelope]:
    return [
        SponsorEnvelope(
            envelope=envelope.key,
            lends=admits(envelope, run.spec.owner),
            says=_says(world, run, envelope),
        )
        for envelope in world.tree.envelopes((owner,), run.spec.flavor)
    ]


def _says(world: World, run: Run, envelope: Envelope) -> str:
    if not envelope.lending.allow:
        return "does not lend"
    if not admits(envelope, run.spec.owner):
        return f"does not lend to {run.spec.owner}"
    account = world.accounts.of(envelope.key)
    free = max(0, envelope.concurrency - account.gpus)
    cap = envelope.lending.max_concurrency
    if cap is not None:
        free = min(free, max(0, cap - account.lent))
    return f"lends; {plural(free, 'GPU')} could be lent now"
