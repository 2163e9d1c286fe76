"""Checks a file's own expectations on the model: those on runs, leases and reservations.

Expectations on envelopes, nodes, odds, resolutions and traces are left to the product's judge.
"""

from typing import Any

from tests.model.compare import end_of_run
from tests.model.facts import Lease, World
from tests.model.play import play
from tests.model.story import HOUR, Story, short, span

RUN = ("phase", "because", "gpus", "spares", "attempt", "started", "owned", "shared", "borrowed")
RESERVATION = ("state", "confidence", "starts")
LEASES = ("count", "gpus", "gpuHours", "nodes", "groups")


def judge(story: Story, seeds: object = None) -> list[str]:
    """One line for each expectation that does not hold."""
    missed: list[str] = []

    def expect(world: World, expectations: list[dict[str, Any]]) -> None:
        for each in expectations:
            for name, wanted, got in _claims(world, each):
                if not holds(wanted, got):
                    at = short(world.now - story.start)
                    missed.append(f"at {at}: {each}: {name} is {got}")

    play(story, seeds, expect=expect)
    return missed


def holds(wanted: Any, got: Any) -> bool:
    if isinstance(wanted, dict):
        low, high = wanted.get("min"), wanted.get("max")
        return (low is None or got >= low) and (high is None or got <= high)
    return bool(wanted == got)


def _claims(world: World, each: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    names: tuple[str, ...] = RUN
    if "run" in each:
        got = _run(world, each["run"])
    elif "runs" in each:
        return [("count", each["count"], _count(world, each))]
    elif "leases" in each:
        got = _leases(world, each["leases"] or {})
        names = LEASES
    elif "reservation" in each:
        got = _reservation(world, each["reservation"])
        names = ("none",) if each.get("none") else RESERVATION
    else:
        return []
    return [(name, _read(name, each[name]), got[name]) for name in names if name in each]


def _read(name: str, wanted: Any) -> Any:
    if name in ("started", "starts") and not isinstance(wanted, dict):
        return span(wanted)
    return wanted


def _run(world: World, key: str) -> dict[str, Any]:
    run = world.runs[key]
    phase, because, attempt = end_of_run(world, run)
    leases = world.leases_of(run)
    started = max((unit.started for unit in run.units.values()), default=0)
    paid = {kind: sum(x.gpus for x in leases if x.relation == kind) for kind in RELATIONS}
    return {
        "phase": phase,
        "because": because,
        "attempt": attempt,
        "gpus": sum(lease.gpus for lease in leases if lease.role != "Spare"),
        "spares": sum(lease.gpus for lease in leases if lease.role == "Spare"),
        "started": started - world.story.start,
        "owned": paid["Owned"],
        "shared": paid["Shared"],
        "borrowed": paid["Borrowed"],
    }


RELATIONS = ("Owned", "Shared", "Borrowed")


def _count(world: World, each: dict[str, Any]) -> int:
    names = [name for name in ("phase", "because") if name in each]
    states = [_run(world, key) for key in each["runs"]]
    return sum(all(state[name] == each[name] for name in names) for state in states)


def _leases(world: World, which: dict[str, Any]) -> dict[str, Any]:
    found = [lease for lease in world.leases if _matches(world, which, lease)]
    spent = sum(x.gpus * ((world.now if x.end is None else x.end) - x.start) for x in found)
    return {
        "count": len(found),
        "gpus": sum(lease.gpus for lease in found),
        "gpuHours": spent / HOUR,
        "nodes": sorted({lease.node for lease in found}),
        "groups": sorted({lease.group for lease in found}),
    }


def _matches(world: World, which: dict[str, Any], lease: Lease) -> bool:
    is_so = {
        "run": lease.run,
        "group": lease.group,
        "pod": lease.pod if lease.role == which.get("role", "Active") else None,
        "node": lease.node,
        "owner": world.runs[lease.run].owner,
        "payer": lease.payer,
        "role": lease.role,
        "attempt": lease.attempt,
        "open": lease.is_open,
        "opened": lease.opened,
        "closed": lease.closed,
    }
    return all(is_so[name] == wanted for name, wanted in which.items())


def _reservation(world: World, key: str) -> dict[str, Any]:
    """Return the newest reservation: the current one, or the last one that was released. Cancelled
    ones are ignored."""
    run = world.runs[key]
    plan = run.plans.get(-1) or (run.history[-1] if run.history else None)
    if plan is None:
        return {"none": True, "state": "Canceled", "confidence": "", "starts": 0}
    return {
        "none": False,
        "state": plan.state,
        "confidence": plan.confidence,
        "starts": plan.start - world.story.start,
    }
