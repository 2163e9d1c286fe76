"""Explains the preemptions of a run: by which Resolution, draw, seed and odds, for which
beneficiary.

Derived from the ledger's records: the leases that ended, the Resolution that ended them, and the
Reservation that announced the odds. Used by `explain`.
"""

from collections.abc import Callable, Iterable
from typing import TypedDict

from leasehold.control.questions.answers.reasons import CutRow, DrawRow, OwnerBundles
from leasehold.control.questions.formats import instant, listed, moment
from leasehold.control.questions.subject import Subject
from leasehold.core.facts import Closed, Lease, RunKey
from leasehold.core.resolutions import Resolution
from leasehold.core.units import plural
from leasehold.core.world.world import World


class _Lost(TypedDict):
    """What a preemption took from the run, with or without a Resolution."""

    at: str | None
    gpus: int
    reasons: list[str]
    groups: list[int]
    attempt: int
    leases: list[str]


# Resolutions that are no longer in the World, read on demand.
Resolutions = Callable[[], Iterable[Resolution]]


def no_resolutions() -> Iterable[Resolution]:
    return ()


_BY_OTHERS = (Closed.RANDOM_PREEMPT, Closed.SHRINK, Closed.DROP_SPARE)
_DONE = {
    Closed.DROP_SPARE: "spare dropped",
    Closed.SHRINK: "groups given up",
    Closed.RANDOM_PREEMPT: "drawn in a lottery",
    Closed.RECLAIMED: "the spare that it used was needed",
}


def cuts(world: World, subject: Subject, archived: Resolutions = no_resolutions) -> list[CutRow]:
    """Return every preemption of the run, oldest first.

    Spares that were taken back from a filler count as well, although they have no Resolution.
    """
    leases = subject.every_lease()
    by_name, victims = _resolutions_of(world, leases, archived)
    by_resolution: dict[str, list[Lease]] = {}
    alone: dict[str, list[Lease]] = {}
    for lease in leases:
        name = victims.get(lease.name)
        reason = _reason(lease)
        if name is not None:
            by_resolution.setdefault(name, []).append(lease)
        elif reason is Closed.RANDOM_PREEMPT:
            alone.setdefault(_seed(lease), []).append(lease)
        elif reason is Closed.RECLAIMED:
            alone.setdefault(f"{_decided(lease)}", []).append(lease)
    found = [_resolved(world, by_name[name], lost) for name, lost in by_resolution.items()]
    found += [_unresolved(lost) for lost in alone.values()]
    return sorted(found, key=lambda cut: str(cut.at))


def _resolutions_of(
    world: World, leases: list[Lease], archived: Resolutions
) -> tuple[dict[str, Resolution], dict[str, str]]:
    """Return the Resolutions by name, and lease -> name of its Resolution.

    The archive is read only if the World lacks the Resolution of a lease.
    """
    victims = {
        lease.name: world.victims[lease.name] for lease in leases if lease.name in world.victims
    }
    for lease in leases:
        if _reason(lease) is Closed.RANDOM_PREEMPT and lease.name not in victims:
            known = world.resolution_of_seed.get(_seed(lease))
            if known is not None:
                victims[lease.name] = known  # the lease is a filler that ended with a spare
    by_name = {name: world.resolutions[name] for name in victims.values()}
    lost = {
        lease.name for lease in leases if lease.name not in victims and _reason(lease) in _BY_OTHERS
    }
    for resolution in archived() if lost else ():
        mine = lost.intersection(resolution.victims)
        if mine:
            by_name[resolution.name] = resolution
            victims |= dict.fromkeys(mine, resolution.name)
    return by_name, victims


def _seed(lease: Lease) -> str:
    return "" if lease.why is None else lease.why.seed


def _reason(lease: Lease) -> Closed | None:
    return None if lease.why is None else lease.why.reason


def _decided(lease: Lease) -> int:
    if lease.ending is not None:
        return lease.ending.at
    assert lease.end is not None, lease.name
    return lease.end


def _resolved(world: World, resolution: Resolution, lost: list[Lease]) -> CutRow:
    run = lost[0].run_key
    reservation = world.reservations.get(resolution.subject)
    odds = dict(reservation.odds).get(run) if reservation is not None else None
    lottery = resolution.lottery
    drawn = lottery is not None and str(Closed.RANDOM_PREEMPT) in _reasons(lost)
    return CutRow(
        **_cut(lost, at=resolution.instant),
        resolution=resolution.name,
        cause=resolution.cause,
        subject=resolution.subject,
        beneficiary=resolution.beneficiary,
        deficit=resolution.deficit,
        odds=odds,
        seed=lottery.seed if lottery is not None and drawn else "",
        conflict_set=[
            OwnerBundles(owner=owner, bundles=len(found))
            for owner, found in (lottery.conflict_set if lottery is not None and drawn else ())
        ],
        draws=[
            DrawRow(owner=draw.owner, bundle=draw.bundle, gpus=draw.gpus)
            for draw in (lottery.draws if lottery is not None and drawn else ())
        ],
        sentences=[
            _what(lost, resolution.instant),
            _for_whom(resolution, reservation is not None),
            *_draw_words(resolution, run, odds, drawn=drawn),
        ],
    )


def _unresolved(lost: list[Lease]) -> CutRow:
    """Describe a preemption whose Resolution is not known.

    A filler has none: its spare was needed for a swap. Other Resolutions may be in an archive that
    is not available.
    """
    at = min(_decided(lease) for lease in lost)
    seed = _seed(lost[0])
    why = (
        f"The lottery's seed was {seed}; its Resolution is not available."
        if seed
        else "The run that pays for the spare needed it back."
    )
    return CutRow(
        **_cut(lost, at=at),
        resolution="",
        cause="",
        subject="",
        beneficiary="",
        deficit=0,
        odds=None,
        seed=seed,
        conflict_set=[],
        draws=[],
        sentences=[_what(lost, at), why],
    )


def _cut(lost: list[Lease], *, at: int) -> _Lost:
    return {
        "at": instant(at),
        "gpus": sum(lease.gpus for lease in lost),
        "reasons": _reasons(lost),
        "groups": sorted({lease.group for lease in lost}),
        "attempt": lost[0].attempt,
        "leases": [lease.name for lease in lost],
    }


def _reasons(lost: list[Lease]) -> list[str]:
    return sorted({str(reason) for lease in lost if (reason := _reason(lease)) is not None})


def _what(lost: list[Lease], at: int) -> str:
    gpus = sum(lease.gpus for lease in lost)
    how = [_DONE.get(Closed(reason), reason) for reason in _reasons(lost)]
    return f"At {moment(at)} it lost {plural(gpus, 'GPU')} ({listed(how)})."


def _for_whom(resolution: Resolution, is_known: bool) -> str:
    name = resolution.name
    if resolution.beneficiary:
        planned = f" (its reservation {resolution.subject} was due)" if is_known else ""
        return (
            f"Resolution {name} made room for {resolution.beneficiary}, which was short of "
            f"{plural(resolution.deficit, 'GPU')}{planned}."
        )
    return (
        f"Resolution {name} brought {resolution.subject} back within its caps, which were "
        f"exceeded by {plural(resolution.deficit, 'GPU')}; these GPUs went to no other run."
    )


def _draw_words(resolution: Resolution, run: RunKey, odds: int | None, *, drawn: bool) -> list[str]:
    lottery = resolution.lottery
    if not drawn or lottery is None:
        return [
            "These GPUs needed no lottery: spares, and groups above a run's minimum, are taken "
            "first."
        ]
    owners = [f"{owner} with {len(found)}" for owner, found in lottery.conflict_set]
    order = [f"{draw.bundle} of {draw.owner}" for draw in lottery.draws]
    words = [
        f"Candidates in the lottery: {listed(owners)} (bundles per owner).",
        f"The lottery drew, in this order: {listed(order)}. The seed was {lottery.seed}.",
    ]
    if odds is not None:
        words.insert(0, f"The announced odds of {run} to be drawn were {odds} %.")
    words.append("Anyone can repeat the draw from that record: `leasehold lottery verify`.")
    return words
