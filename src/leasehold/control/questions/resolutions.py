"""`resolutions`: what was preempted, for which beneficiary and by which draw; or one whole
record."""

from collections.abc import Iterable

from leasehold.control.questions.answers.decisions import (
    DomainLoss,
    GivenBack,
    GivenUp,
    ResolutionRow,
    ResolutionsAnswer,
    SpareDropped,
)
from leasehold.control.questions.answers.reasons import DrawRow
from leasehold.control.questions.explain_preemption import Resolutions, no_resolutions
from leasehold.control.questions.formats import instant
from leasehold.core.ledger.batch import resolution_digest
from leasehold.core.ledger.chain import canonical
from leasehold.core.objects.resolution import resolution_spec
from leasehold.core.resolutions import Resolution
from leasehold.core.world.world import World


def resolutions(
    world: World, *, limit: int | None = None, archived: Resolutions = no_resolutions
) -> ResolutionsAnswer:
    """Return the resolutions, newest first."""
    known = {each.name: each for each in (*archived(), *world.resolutions.values())}
    found = sorted(known.values(), key=lambda each: (each.batch, each.name), reverse=True)
    shown = found if limit is None else found[:limit]
    return ResolutionsAnswer(total=len(found), items=[_row(world, each) for each in shown])


def resolution(
    world: World, name: str, *, archived: Resolutions = no_resolutions
) -> ResolutionsAnswer | None:
    """Return one Resolution with its record, or None if no Resolution has this name."""
    found = world.resolutions.get(name) or _named(name, archived())
    if found is None:
        return None
    return ResolutionsAnswer(total=1, items=[_row(world, found, with_record=True)])


def _named(name: str, among: Iterable[Resolution]) -> Resolution | None:
    return next((each for each in among if each.name == name), None)


def _row(world: World, found: Resolution, *, with_record: bool = False) -> ResolutionRow:
    known = (world.leases.get(name) for name in found.victims)
    draws = () if found.lottery is None else found.lottery.draws
    return ResolutionRow(
        name=found.name,
        batch=found.batch,
        at=instant(found.instant),
        cause=found.cause,
        subject=found.subject,
        beneficiary=found.beneficiary,
        flavor=found.flavor,
        domains=list(found.domains),
        envelope=found.envelope,
        deficit=found.deficit,
        compared=[
            DomainLoss(domain=domain, lottery=lottery, shrink=shrink, spares=spares)
            for domain, lottery, shrink, spares in found.losses
        ],
        spares=[SpareDropped(lease=lease, gpus=gpus) for lease, gpus in found.spares],
        shrunk=[GivenUp(run=run, group=group, gpus=gpus) for run, group, gpus in found.shrunk],
        drawn=[DrawRow(owner=each.owner, bundle=each.bundle, gpus=each.gpus) for each in draws],
        returned=[
            GivenBack(kind=kind, name=name, gpus=gpus) for kind, name, gpus in found.returned
        ],
        victims=len(found.victims),
        runs=sorted({lease.run_key for lease in known if lease is not None}),
        record=canonical(resolution_spec(found)).decode() if with_record else "",
        digest=resolution_digest(found) if with_record else "",
    )
