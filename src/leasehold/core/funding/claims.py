"""Funding requests, and the claims that a plan has on its payers."""

from leasehold.core.facts import Location, Relation
from leasehold.core.requests import FundingRequest, StartRequest
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Covered, Segment
from leasehold.core.world.accounts import Claim
from leasehold.core.world.world import World


def funding_request_for(
    request: StartRequest, location: Location, gpus: int, *, start: Instant, borrowed: int
) -> FundingRequest:
    """Return the request for payers of `gpus` GPUs of the run in a location.

    `borrowed`: GPUs that the run borrows already, for `maxBorrowGPUs`.
    """
    spec = request.run.spec
    return FundingRequest(
        owner=spec.owner,
        flavor=spec.flavor,
        region=location[0],
        cluster=location[1],
        gpus=gpus,
        start=start,
        span=request.span,
        linger=request.linger,
        funding=spec.funding,
        borrowed_already=borrowed,
    )


def paid_here(world: World, flavor: str, location: Location) -> tuple[bool, ...]:
    """Return, for each selector of the flavor's envelopes, whether it matches the location.

    Two locations with equal results have the same payers. A comparison of two searches would not
    show that: a search stops as soon as it has found enough payers.
    """
    region, cluster = location
    return tuple(
        selector[0] in (None, region) and selector[1] in (None, cluster)
        for selector in world.tree.selectors(flavor)
    )


def preference(funded: tuple[Location, Covered]) -> tuple[int, int, Location]:
    """Return the sort key by which locations are preferred (P4): least borrowed, then least shared,
    then by name."""
    shares = dict.fromkeys(Relation, 0)
    for segment in funded[1].segments:
        shares[segment.relation] += segment.gpus
    return shares[Relation.BORROWED], shares[Relation.SHARED], funded[0]


def claims_of(
    world: World, request: StartRequest, covered: Covered, *, start: Instant
) -> list[Claim]:
    """Return what a plan claims of its payers: GPUs from `start` on, and GPU-hours."""
    claims = []
    for segment in covered.segments:
        until = world.envelopes[segment.envelope].end
        span = world.policy.accounting_horizon if request.span is None else request.span
        committed = max(0, min(start + span, until) - start)
        claims.append(
            Claim(
                uid=request.run.uid,
                payer=segment.envelope,
                start=start,
                end=min(FOREVER, start + request.end_after),
                gpus=segment.gpus,
                borrowed=segment.relation is Relation.BORROWED,
                gpu_ms=segment.gpus * committed,
            )
        )
    return claims


def claim_on_top(
    world: World, request: StartRequest, covered: Covered, *, start: Instant
) -> list[Claim]:
    """Claim the money of one group, so that it pays for no other group. Returns the claims.

    The caller must hold an open what-if.
    """
    claims = claims_of(world, request, covered, start=start)
    for claim in claims:
        world.accounts.claim(claim)
    return claims


def merged(covers: list[Covered]) -> Covered:
    """Merge the payers of several groups in one location: one segment per payer, in payer order."""
    found: dict[str, Segment] = {}
    for covered in covers:
        for segment in covered.segments:
            known = found.get(segment.envelope)
            found[segment.envelope] = Segment(
                envelope=segment.envelope,
                owner=segment.owner,
                gpus=segment.gpus + (known.gpus if known else 0),
                relation=segment.relation,
            )
    return Covered(segments=tuple(found.values()), trace=covers[0].trace)
