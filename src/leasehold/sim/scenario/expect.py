"""Checks a story's expectations against the control loop's World and the store.

Called by the runner when nothing is in progress. It compares the views that `control` computes,
exactly. It derives no scheduling facts itself and changes nothing.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import assert_never

from leasehold.control.views.numbers import envelope_view, node_view, run_view
from leasehold.core.facts import Lease, Role, Uid
from leasehold.core.ledger.lottery import replay
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant
from leasehold.core.world.world import World
from leasehold.shell.archive.reader import Archive
from leasehold.sim.scenario.story import (
    AuditIsOk,
    CoverIs,
    EnvelopeIs,
    Expectation,
    ExpectedField,
    Groups,
    LeaseFilter,
    LeasesAre,
    LedgerIsOk,
    Names,
    NodeShows,
    Number,
    Odds,
    ReservationIs,
    ResolutionIs,
    RunIs,
    RunsAre,
    ShrunkFrom,
    Truth,
    Unit,
    Walk,
    Want,
    Word,
    Words,
    gpu_hours,
)

Got = Mapping[str, object]
Mismatch = tuple[int, str]  # line, text
Check = Callable[[], list[str]]


class Judge:
    """Checks the expectations of a story at one instant."""

    def __init__(
        self,
        world: World,
        *,
        start: Instant,
        now: Instant,
        ledger: Check,
        audit: Check,
        archive: Archive | None = None,
    ) -> None:
        self._world = world
        self._archive = archive
        self._start = start
        self._now = now
        self._ledger = ledger
        self._audit = audit

    def mismatches(self, expectation: Expectation) -> list[Mismatch]:
        """Return a line number and a sentence for each claim of an expectation that does not
        hold."""
        match expectation:
            case RunsAre():
                return self._count_runs(expectation)
            case LedgerIsOk():
                return _not_ok(expectation, self._ledger())
            case AuditIsOk():
                return _not_ok(expectation, self._audit())
        got = self._facts(expectation)
        if isinstance(got, str):
            return [(expectation.line, f"expected {expectation.subject} got {got}")]
        return [
            (claim.line, _sentence(expectation, claim, got[claim.name]))
            for claim in expectation.claims
            if not holds(claim.want, got[claim.name])
        ]

    def _facts(self, expectation: Expectation) -> Got | str:
        """Return the actual values of everything that can be claimed about the subject. Return a
        text if there is no such subject."""
        match expectation:
            case RunIs(run=run):
                uid = self.uid_of(run)
                return "no such run" if uid is None else self._run(uid)
            case LeasesAre(which=which):
                return self._leases(which)
            case EnvelopeIs(envelope=envelope):
                return self._envelope(envelope)
            case ReservationIs(run=run):
                return self._reservation(expectation, run)
            case ResolutionIs(made_for=made_for):
                return self._resolution(expectation, made_for)
            case NodeShows(node=node):
                view = node_view(self._world, node)
                return {"free": view.free, "state": str(view.state)}
            case CoverIs(run=run):
                return self._cover(run)
            case _:
                raise AssertionError(expectation)

    def _leases_ever(self) -> dict[str, Lease]:
        """Return all leases by name: those in the World and the archived ones."""
        if self._archive is None:
            return self._world.leases
        archived = {each.name: each for each in self._archive.leases(since=None, until=None)}
        return archived | self._world.leases

    def _resolutions_ever(self) -> list[Resolution]:
        archived = () if self._archive is None else self._archive.resolutions()
        found = {each.name: each for each in map(resolution_from_wire, archived)}
        return list((found | self._world.resolutions).values())

    def uid_of(self, run: str) -> Uid | None:
        """Return the uid of the newest run with this name. If the run was deleted, its leases still
        have the uid. Return None if there never was such a run."""
        uid = self._world.uid_of.get(run)
        if uid is not None:
            return uid
        leases = [lease for lease in self._leases_ever().values() if lease.run_key == run]
        newest = max(leases, key=lambda lease: lease.batch, default=None)
        return None if newest is None else newest.uid

    def _run(self, uid: Uid) -> Got:
        view = run_view(self._world, uid, self._now)
        return {
            "phase": str(view.phase),
            "because": str(view.because or ""),
            "gpus": view.gpus,
            "spares": view.spares,
            "pending": view.pending,
            "owned": view.owned,
            "shared": view.shared,
            "borrowed": view.borrowed,
            "gpuHours": gpu_hours(view.gpu_ms),
            "attempt": view.attempt,
            "started": self._since(view.started),
            "ended": self._since(view.ended),
            "says": view.message,
        }

    def _since(self, at: Instant | None) -> int | None:
        return None if at is None else at - self._start

    def _count_runs(self, expectation: RunsAre) -> list[Mismatch]:
        wants = {claim.name: claim for claim in expectation.claims}
        states = []
        so = 0
        for run in expectation.runs:
            uid = self.uid_of(run)
            got = {"phase": "no such run", "because": ""} if uid is None else self._run(uid)
            states.append(f"{run} {got['phase']} {got['because']}".rstrip())
            so += all(
                holds(claim.want, got[name]) for name, claim in wants.items() if name != "count"
            )
        count = wants["count"]
        if holds(count.want, so):
            return []
        which = " ".join(f"{name} {wants[name].want}" for name in wants if name != "count")
        text = f"expected {count.want} of {expectation.subject} {which} got {so}"
        return [(count.line, f"{text} ({'; '.join(states)})")]

    def _leases(self, which: LeaseFilter) -> Got:
        found = [lease for lease in self._leases_ever().values() if _matches(which, lease)]
        return {
            "count": len(found),
            "gpus": sum(lease.gpus for lease in found),
            "gpuHours": gpu_hours(sum(lease.gpu_ms(self._now) for lease in found)),
            "nodes": sorted({lease.node for lease in found}),
            "groups": sorted({lease.group for lease in found}),
        }

    def _envelope(self, envelope: str) -> Got:
        view = envelope_view(self._world, envelope, self._now)
        return {
            "used": view.used,
            "lent": view.lent,
            "free": view.free,
            "gpuHours": gpu_hours(view.gpu_ms),
            "committed": gpu_hours(view.committed_ms),
            "left": None if view.left_ms is None else gpu_hours(view.left_ms),
            "overdrawn": view.overdrawn,
        }

    def _reservation(self, expectation: Expectation, run: str) -> Got | str:
        uid = self.uid_of(run)
        subject = None if uid is None else self._world.reservation_of.get(uid)
        if subject is None:
            return {"none": True} if _claims_none(expectation) else "no reservation"
        found = self._world.reservations[subject]
        return {
            "none": False,
            "state": str(found.state),
            "because": found.reason,
            "starts": self._since(found.starts),
            "confidence": str(found.confidence),
            "deficit": found.deficit,
            "odds": dict(found.odds),
        }

    def _resolution(self, expectation: Expectation, made_for: str) -> Got | str:
        made = [each for each in self._resolutions_ever() if self._is_for(each, made_for)]
        found = max(made, key=lambda each: each.batch, default=None)
        if found is None:
            return {"none": True} if _claims_none(expectation) else "no resolution"
        shrunk_from: dict[str, list[int]] = {}
        for run, group, _ in found.shrunk:
            shrunk_from.setdefault(run, []).append(group)
        draws = found.lottery.draws if found.lottery else ()
        return {
            "none": False,
            "spares": sum(gpus for _, gpus in found.spares),
            "shrunk": sum(gpus for _, _, gpus in found.shrunk),
            "drawn": sum(draw.gpus for draw in draws),
            "returned": sum(gpus for _, _, gpus in found.returned),
            "shrunkFrom": shrunk_from,
            "verifies": "; ".join(self._unverified(found)) or True,
        }

    def _is_for(self, resolution: Resolution, made_for: str) -> bool:
        if made_for.count("/") == 2:
            return resolution.subject == made_for
        if resolution.beneficiary != made_for:
            return False
        uid = self.uid_of(made_for)
        return uid is None or resolution.beneficiary_uid in ("", uid)

    def _unverified(self, resolution: Resolution) -> list[str]:
        """Return what is inconsistent in a Resolution, or between it and the leases."""
        problems = replay(resolution)
        leases = self._leases_ever()
        drawn = {draw.bundle for draw in resolution.lottery.draws} if resolution.lottery else set()
        given_back = {name for _, name, _ in resolution.returned}
        for name in resolution.victims:
            if name not in leases:
                problems.append(f"victim {name} is no lease")
        for bundle in sorted(drawn - given_back):
            run, _, group = bundle.partition("#")
            victims = [leases.get(name) for name in resolution.victims]
            if not any(
                lease is not None
                and lease.run_key == run
                and (not group or lease.group == int(group))
                for lease in victims
            ):
                problems.append(f"{bundle} was drawn and none of its leases is a victim")
        return problems

    def _cover(self, run: str) -> Got | str:
        uid = self.uid_of(run)
        trace = None if uid is None else self._world.memory.traces.get(uid)
        if trace is None:
            return "no cover decision"
        return {"walk": [(step.envelope, step.verdict) for step in trace]}


def holds(want: Want, got: object) -> bool:
    """Return whether the actual value `got` is what the story expects."""
    match want:
        case Number():
            return isinstance(got, int | Fraction) and want.holds(Fraction(got))
        case Word(text=text):
            return got == text
        case Words(texts=texts):
            said = str(got).casefold()
            return all(text.casefold() in said for text in texts)
        case Truth(value=value):
            return got is value
        case Names(names=names):
            return got == list(names)
        case Groups(numbers=numbers):
            return got == list(numbers)
        case Walk(steps=steps):
            return got == list(steps)
        case Odds(by_run=by_run):
            odds = got if isinstance(got, dict) else {}
            return all(holds(percent, odds.get(run)) for run, percent in by_run)
        case ShrunkFrom(by_run=by_run):
            shrunk = got if isinstance(got, dict) else {}
            return all(holds(groups, shrunk.get(run, [])) for run, groups in by_run)
        case _:
            assert_never(want)


def _sentence(expectation: Expectation, claim: ExpectedField, got: object) -> str:
    return f"expected {expectation.subject} {claim.name} {claim.want} got {_shown(claim.want, got)}"


def _shown(want: Want, got: object) -> str:
    if isinstance(want, Number):
        unit = want.unit
        if got is None:
            return "none" if unit is Unit.SPAN else "no limit"
        return unit.show(Fraction(got)) if isinstance(got, int | Fraction) else str(got)
    if isinstance(want, Words):
        return repr(got)
    if isinstance(want, Walk) and isinstance(got, list):
        return str(Walk(steps=tuple(got)))
    if isinstance(got, bool):
        return "true" if got else "false"
    return str(got) or "nothing"


def _claims_none(expectation: Expectation) -> bool:
    return any(claim.name == "none" for claim in expectation.claims)


def _not_ok(expectation: Expectation, problems: list[str]) -> list[Mismatch]:
    return [(expectation.line, f"expected {expectation.subject} ok got {p}") for p in problems]


def _matches(which: LeaseFilter, lease: Lease) -> bool:
    # Spares have numbers of their own: a number means a pod unless the role is Spare.
    is_meant = lease.role is not Role.SPARE or which.role == Role.SPARE
    if which.pod is not None and (lease.index != which.pod or not is_meant):
        return False
    if which.closed is not None:
        is_exact = "(" in which.closed
        why = lease.closed.why if lease.closed is not None else None
        if why is None or which.closed != (str(why) if is_exact else why.reason.value):
            return False
    asked: tuple[tuple[object, object], ...] = (
        (which.run, lease.run_key),
        (which.group, lease.group),
        (which.node, lease.node),
        (which.owner, lease.owner),
        (which.payer, lease.payer),
        (which.role, lease.role),
        (which.attempt, lease.attempt),
        (which.open, lease.is_open),
        (which.opened, lease.reason),
    )
    return all(wanted is None or wanted == found for wanted, found in asked)
