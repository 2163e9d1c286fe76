"""Publish a preemption: record the Resolution first, then mark its victims as ending (A3).

Used for activations and for overdrafts, so that every preemption is recorded in the same way.
"""

from leasehold.control.reannounce import announce_anew, is_provable
from leasehold.control.turn import Turn
from leasehold.core.facts import Closed, ClosureReason, Lease, RunKey, Uid
from leasehold.core.ledger import lottery
from leasehold.core.objects.resolution import resolution_name
from leasehold.core.preemption.resolve import Resolved
from leasehold.core.preemption.victims import CutKind, Cuts
from leasehold.core.resolutions import CutCause, Lottery, Resolution


class Announced:
    """The announcement of a preemption: its subject (a Reservation or an overdraft), batch and
    commitment."""

    def __init__(self, name: str, *, batch: int, commitment: str) -> None:
        self.name = name
        self.batch = batch
        self.commitment = commitment

    def seed(self, turn: Turn) -> str:
        """Return the seed of a lottery that is held now. It is needed only if bundles are drawn."""
        return lottery.seed(self.name, turn.now, turn.world.head.digest, self.nonce(turn))

    def nonce(self, turn: Turn) -> str:
        """Return the nonce to which the announcement committed."""
        return lottery.nonce(turn.key, self.name, self.batch)


def can_publish(turn: Turn, subject: Announced) -> bool:
    """Return whether a Resolution may go into the current batch; otherwise it waits for the next
    turn.

    A Resolution contains the digest of the batch before its own, and its commitment must have been
    published in an earlier batch. Two Resolutions of one batch must not have the same name, which
    is possible for envelopes of different Budgets.
    """
    name = resolution_name(subject.name, turn.seq)
    named = any(each.name == name for each in turn.resolutions)
    return turn.in_first_batch and subject.batch < turn.seq and not named


def publish_cuts(
    turn: Turn,
    cuts: Cuts,
    subject: Announced,
    *,
    cause: CutCause,
    beneficiary: tuple[RunKey, Uid] = ("", ""),
    resolved: Resolved | None = None,
    domains: tuple[str, ...] = (),
    losses: tuple[tuple[str, int, int, int], ...] = (),
    flavor: str = "",
    envelope: str = "",
    deficit: int = 0,
) -> Resolution:
    """Publish the Resolution and mark its victims as ending (A3).

    A victim's lease closes when its pod is gone.

    `beneficiary`: key and uid of the run that gains from the preemption; empty for an overdraft.
    `resolved`: set if GPUs were short. `deficit`: GPUs too many, if money was short.
    `losses`: the losses that were compared to choose the site (R2).
    """
    assert can_publish(turn, subject), subject.name
    victims = _victims(cuts)
    resolution = Resolution(
        name=resolution_name(subject.name, turn.seq),
        batch=turn.seq,
        cause=cause,
        subject=subject.name,
        beneficiary=beneficiary[0],
        beneficiary_uid=beneficiary[1],
        flavor=flavor,
        domains=domains,
        envelope=envelope,
        instant=turn.now,
        deficit=resolved.deficit if resolved else deficit,
        spares=tuple((cut.name, cut.gpus) for cut in cuts.taken if cut.kind is CutKind.SPARE),
        shrunk=tuple(
            (cut.run, cut.group or 0, cut.gpus) for cut in cuts.taken if cut.kind is CutKind.SHRINK
        ),
        lottery=_lottery(turn, cuts, subject, beneficiary[1]),
        returned=tuple((_RETURNED[cut.kind], cut.name, cut.gpus) for cut in cuts.returned),
        victims=tuple(sorted(victims)),
        need=resolved.need if resolved else (),
        free=resolved.free if resolved else (),
        losses=losses,
    )
    turn.publish(resolution)
    for name in sorted(victims):
        _mark(turn, *victims[name])
    turn.again = True
    return resolution


def _mark(turn: Turn, lease: Lease, why: ClosureReason) -> None:
    run = turn.world.runs.get(lease.uid)
    turn.mark(lease, why, grace=run.spec.grace if run is not None else 0)


def finish_cuts(turn: Turn) -> None:
    """Mark the victims of the last Resolution that are not marked yet; called first after a
    restart.

    Some marks may belong to the batch after the Resolution's: if one batch cannot hold them all, or
    if a victim was opened in the batch of the Resolution. A crash between the two batches loses
    these marks.
    """
    world = turn.world
    newest = max((each.batch for each in world.resolutions.values()), default=0)
    for resolution in world.resolutions.values():
        if resolution.batch == newest:
            for name in resolution.victims:
                lease = world.leases.get(name)
                if lease is not None and lease.is_open and lease.ending is None:
                    _mark(turn, lease, _reason(resolution, lease))
    announce_anew(turn)


_RETURNED = {CutKind.SPARE: "lease", CutKind.SHRINK: "group", CutKind.DRAW: "bundle"}


def _lottery(turn: Turn, cuts: Cuts, subject: Announced, beneficiary: Uid) -> Lottery | None:
    """Return everything that is needed to repeat the draws (R7); None if nothing was drawn."""
    if not cuts.seed:
        return None
    provable = is_provable(turn, subject.name, subject.batch, subject.commitment)
    assert provable, f"the draw for {subject.name} could never be proved"
    return Lottery(
        seed=cuts.seed,
        subject=subject.name,
        instant=turn.now,
        ledger_digest=turn.world.head.digest,
        nonce=subject.nonce(turn),
        commitment=subject.commitment,
        announced_in=subject.batch,
        conflict_set=cuts.conflict_set,
        draws=cuts.draws,
        sweeps=cuts.sweeps,
        owned_last=bool(beneficiary) and turn.world.policy.owned_last,
    )


def _reason(resolution: Resolution, lease: Lease) -> ClosureReason:
    """Return why a Resolution ends this lease. The result must be the same as that of
    `_victims`."""
    returned = {name for _, name, _ in resolution.returned}
    group = f"{lease.run_key}#{lease.group}"
    shrunk = {f"{run}#{index}" for run, index, _ in resolution.shrunk} - returned
    if lease.name in {name for name, _ in resolution.spares} - returned:
        return ClosureReason(reason=Closed.DROP_SPARE)
    if group in shrunk:
        return ClosureReason(reason=Closed.SHRINK)
    lottery = resolution.lottery
    if lottery is not None and {draw.bundle for draw in lottery.draws} & {lease.run_key, group}:
        return ClosureReason(reason=Closed.RANDOM_PREEMPT, detail=lottery.seed)
    return ClosureReason(reason=Closed.RECLAIMED)


def _victims(cuts: Cuts) -> dict[str, tuple[Lease, ClosureReason]]:
    """Return each victim lease once, with the reason of the first cut that ends it."""
    reasons = {
        CutKind.SPARE: ClosureReason(reason=Closed.DROP_SPARE),
        CutKind.SHRINK: ClosureReason(reason=Closed.SHRINK),
        CutKind.DRAW: ClosureReason(reason=Closed.RANDOM_PREEMPT, detail=cuts.seed),
    }
    victims: dict[str, tuple[Lease, ClosureReason]] = {}
    for cut in cuts.kept:
        for lease in cut.leases:
            victims.setdefault(lease.name, (lease, reasons[cut.kind]))
        for lease in cut.fillers:
            victims.setdefault(lease.name, (lease, ClosureReason(reason=Closed.RECLAIMED)))
    return victims
