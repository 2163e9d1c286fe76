"""S, F and the ends of runs: pods, limits, cancels, lost nodes, swaps, retries.

A lease closes when its pod is gone (B4). A lease that must end is marked first, and its closure has
the reason of the mark, whatever the pod's exit code is.
"""

from tests.model.bind import start_pod
from tests.model.facts import Lease, Pod, Run, Unit, World
from tests.model.packing import is_promised
from tests.model.resolve import Cut, fillers_on
from tests.model.story import HOUR

FILLER_GRACE = 5_000
RETRY_PAUSE_MAX = 1_800_000
BIND_PAUSE_MAX = 600_000
RESTART_PAUSE = 10_000


def close(world: World, lease: Lease, reason: str, end: int | None = None) -> None:
    lease.end = world.now if end is None else min(max(end, lease.start), world.now)
    lease.closed = reason


def mark(world: World, lease: Lease, reason: str, most: int | None = None) -> None:
    """Mark a lease that must end.

    Its pod is asked to stop, now or when its node is heard again. A spare has no pod and closes at
    once.
    """
    if lease.ending or lease.end is not None:
        return
    lease.ending, lease.marked, lease.deadline = reason, world.now, world.now
    if lease.role == "Spare":
        return
    grace = min(world.runs[lease.run].grace, world.config["gracePeriod.max"])
    grace = grace if most is None else min(grace, most)
    lease.deadline = world.now + grace
    pod = world.pod_of(lease)
    assert pod is not None, f"{lease} has no pod"
    if pod.wanted is None:
        pod.wanted, pod.allowed = world.now, grace
        if world.nodes[lease.node].heard:
            pod.told = world.now


def end_unit(world: World, run: Run, unit: Unit, fate: str, reason: str) -> None:
    unit.fate = unit.fate or fate
    unit.swaps = []
    for lease in world.leases_of(run, unit):
        mark(world, lease, reason)


def reclaim(world: World, spare: Lease, most: int | None = None) -> None:
    """F3: end the whole filler on this spare; its pods on the spare must end within `most`."""
    leases = fillers_on(world, spare)
    there = {
        (x.run, x.group, x.pod)
        for x in leases
        if x.node == spare.node and set(x.slots) & set(spare.slots)
    }
    for lease in leases:
        unit = world.runs[lease.run].unit_of(lease.group)
        unit.fate = unit.fate or "ReclaimedBySpare"
        is_on_it = (lease.run, lease.group, lease.pod) in there
        mark(world, lease, "ReclaimedBySpare", most if is_on_it else None)


def apply_cuts(world: World, cuts: list[Cut], fate: str) -> None:
    for each in cuts:
        run = world.runs[each.run]
        leases = [world.leases[number] for number in each.leases]
        if each.kind == "spare":
            reclaim(world, leases[0])
            mark(world, leases[0], "DropSpare")
            continue
        for lease in leases:
            if each.kind == "draw":
                unit = run.unit_of(lease.group)
                unit.fate, unit.swaps = unit.fate or fate, []
            mark(world, lease, "Shrink" if each.kind == "shrink" else "RandomPreempt")
        if each.kind == "shrink":
            restart_in_place(world, run)


def restart_in_place(world: World, run: Run) -> None:
    """E3: after a swap or a resize, exits count as restarts for a while, in the whole run."""
    for unit in run.units.values():
        if unit.standing == "live":
            unit.settled = max(unit.settled, world.now + world.config["swap.settle"])


def see(world: World) -> bool:
    """Apply what has happened by now; return whether anything has changed."""
    spares = [x for x in world.open_leases() if x.role == "Spare" and x.ending]
    for lease in spares:
        close(world, lease, lease.ending)
    return bool(spares) or _see_ends(world) or _swap(world) or _finish(world)


def mark_due(world: World) -> bool:
    """Mark leases whose limit is reached and leases of cancelled runs."""
    reached = _reach_limits(world)
    return _cancel(world) or reached


# Pods that ended


def _see_ends(world: World) -> bool:
    """Handle all pods that have ended by now on nodes that are heard."""
    ended = [
        pod
        for pod in world.pods
        if world.nodes[pod.node].heard and pod.ends is not None and pod.ends <= world.now
    ]
    failed: list[tuple[Run, Unit]] = []
    for pod in ended:
        at = pod.ends
        assert at is not None
        run = world.runs[pod.run]
        unit = run.unit_of(pod.group)
        leases = [lease for lease in world.leases_of(run) if world.pod_of(lease) is pod]
        is_stopped = pod.told is not None and (pod.until is None or at < pod.until)
        if any(lease.ending for lease in leases) or is_stopped:
            for lease in leases:
                close(world, lease, lease.ending, at)
        elif pod.code == 0:
            for lease in leases:
                close(world, lease, "Completed", at)
        elif at <= unit.settled and not unit.fate:
            _restart(world, run, unit, pod)
            continue
        else:
            for lease in leases:
                close(world, lease, "Fail", at)
            failed.append((run, unit))
        world.pods.remove(pod)
    for run, unit in failed:
        end_unit(world, run, unit, "WorkloadFailed", "Fail")
    return bool(ended)


def _restart(world: World, run: Run, unit: Unit, pod: Pod) -> None:
    """Restart a pod in place under its open lease.

    A pod that can only fail does so repeatedly, with pauses, until the time to settle is over.
    """
    work = run.work(unit.attempt)
    natural = None if work["lasts"] is None else unit.started + work["lasts"]
    pod.code = work["exit"]
    tries = 1 + (unit.settled - world.now) // RESTART_PAUSE
    over = world.now + tries * RESTART_PAUSE
    pod.until = natural if natural is None or natural > world.now else over


def pod_exits(world: World, run: Run, group: int, index: int, code: int) -> None:
    for pod in world.pods:
        if (pod.run, pod.group, pod.index) == (run.key, group, index):
            ends = pod.ends
            if ends is None or ends > world.now:
                pod.until, pod.code = world.now, code


# Limits and cancels


def _reach_limits(world: World) -> bool:
    done = False
    for run in world.runs.values():
        for unit in run.units.values():
            if run.limit is None or unit.standing != "live":
                continue
            if world.now >= unit.started + run.limit and _has_more_to_end(world, run, unit):
                end_unit(world, run, unit, "TimeLimit", "TimeLimit")
                done = True
    return done


def _has_more_to_end(world: World, run: Run, unit: Unit) -> bool:
    return bool(unit.swaps) or any(not x.ending for x in world.leases_of(run, unit))


def _cancel(world: World) -> bool:
    done = False
    for run in [run for run in world.runs.values() if run.stop]:
        for unit in run.units.values():
            if unit.standing == "waiting":
                unit.standing, unit.reason, unit.ended = "failed", "Canceled", world.now
                done = True
            elif unit.standing == "live" and _has_more_to_end(world, run, unit):
                end_unit(world, run, unit, "Canceled", "Canceled")
                done = True
        world.drop_plans(run)
        run.hold = None
    return done


# Ends of units


def _finish(world: World) -> bool:
    done = False
    for run in world.runs.values():
        for unit in run.units.values():
            if unit.standing != "live" or unit.swaps:
                continue
            leases = world.leases_of(run, unit)
            if all(lease.role == "Spare" for lease in leases):
                for lease in leases:
                    close(world, lease, "Completed")
                _conclude(world, run, unit)
                done = True
    return done


def _conclude(world: World, run: Run, unit: Unit) -> None:
    """Set the standing of a unit whose leases have all ended: done, failed, or waiting again."""
    mine = [x for x in world.leases if x.run == run.key and run.unit_of(x.group) is unit]
    unit.ended = max(x.end or 0 for x in mine)
    fate = unit.fate
    if not fate:
        unit.standing = "done"
    elif fate == "Rejected":
        _pause_after_rejection(world, run, unit)
        return
    elif fate == "WorkloadFailed" and unit.failures < run.retries:
        unit.failures += 1
        pause = world.config["retry.backoff"] << (unit.failures - 1)
        unit.standing, unit.paused_by = "waiting", "WorkloadFailed"
        unit.pause = unit.ended + min(pause, RETRY_PAUSE_MAX)
    elif fate in ("WorkloadFailed", "TimeLimit", "Canceled") or run.checkpoint is None:
        unit.standing, unit.reason = "failed", fate
    else:  # A5: the unit is requeued and begins a new wait
        unit.standing = "waiting"
        if not any(other.standing == "live" for other in run.units.values()):
            run.waiting_since, run.wait_over = unit.ended, None
    if unit.standing == "waiting":
        unit.fate, unit.rejections, unit.avoids = "", 0, []
        run.said = ""
    world.note(f"{run.key}#{unit.index} is {unit.standing} {unit.reason or fate}")


def _pause_after_rejection(world: World, run: Run, unit: Unit) -> None:
    """B2, B3: double the pause after a rejection. After the limit of rejections in a row the pause
    lasts an hour, or until a node changes."""
    unit.standing, unit.fate, unit.paused_by = "waiting", "", "BindFailing"
    pause = world.config["bind.backoff"] << (unit.rejections - 1)
    unit.pause = unit.ended + min(pause, BIND_PAUSE_MAX)
    if unit.rejections >= world.config["bind.attempts"]:
        unit.blocked_binds = True
        unit.pause = world.now + HOUR
        run.hold = None


# Lost nodes


def lose_node(world: World, gone: str) -> None:
    """S1, S2: close the leases of a node whose processes are known to be dead, and replace the lost
    pods."""
    lost: dict[tuple[str, int], list[tuple[int, int]]] = {}
    world.pods = [pod for pod in world.pods if pod.node != gone]
    for lease in [x for x in world.open_leases() if x.node == gone]:
        run = world.runs[lease.run]
        unit = run.unit_of(lease.group)
        was_promised = lease.role == "Spare" and is_promised(world, lease)
        close(world, lease, lease.ending or "NodeFailure")
        key = (run.key, unit.index)
        if was_promised:
            for swap in [s for s in unit.swaps if (s[0], s[2]) == (lease.group, lease.pod)]:
                unit.swaps.remove(swap)
                lost.setdefault(key, []).append((swap[0], swap[1]))
        elif lease.role != "Spare" and not lease.ending:
            lost.setdefault(key, []).append((lease.group, lease.pod))
    for (owner, index), pods in sorted(lost.items()):
        _replace(world, world.runs[owner], world.runs[owner].units[index], sorted(set(pods)))


def _replace(world: World, run: Run, unit: Unit, lost: list[tuple[int, int]]) -> None:
    """S2, S3: replace lost pods by spares. Without spares an elastic run gives up the group, and
    any other unit ends."""
    if unit.fate:
        return
    swaps: list[tuple[int, int, int]] = []
    short: list[int] = []
    for group in sorted({group for group, _ in lost}):
        pods = [pod for g, pod in lost if g == group]
        spares = _whole_spares(world, run, unit, group)
        if len(spares) < len(pods):
            short.append(group)
        else:
            swaps += [(group, pod, spare) for pod, spare in zip(pods, spares, strict=False)]
    if short:
        left = _width_without(world, run, unit, short, swaps)
        if not run.elastic or run.is_sweep or left < run.least:
            end_unit(world, run, unit, "NodeFailure", "NodeFailure")
            return
        for lease in world.leases_of(run):
            if lease.group in short:
                mark(world, lease, "NodeFailure")
        unit.swaps = [swap for swap in unit.swaps if swap[0] not in short]
    restart_in_place(world, run)
    unit.swaps += swaps
    for group, _, spare in swaps:
        for lease in _spare_pod(world, run, group, spare):
            reclaim(world, lease, FILLER_GRACE)


def _width_without(
    world: World, run: Run, unit: Unit, short: list[int], swaps: list[tuple[int, int, int]]
) -> int:
    """Return the width that is left, counting pods that spares will replace."""
    there = sum(
        lease.gpus
        for lease in world.leases_of(run)
        if lease.role != "Spare" and not lease.ending and lease.group not in short
    )
    coming = [swap for swap in (*unit.swaps, *swaps) if swap[0] not in short]
    return there + len(coming) * run.pod_gpus


def _whole_spares(world: World, run: Run, unit: Unit, group: int) -> list[int]:
    """Return the group's whole spare pods on nodes that are heard, which could take over."""
    used = {spare for g, _, spare in unit.swaps if g == group}
    gpus: dict[int, int] = {}
    for lease in world.leases_of(run):
        if lease.role == "Spare" and lease.group == group and world.nodes[lease.node].heard:
            gpus[lease.pod] = gpus.get(lease.pod, 0) + lease.gpus
    return sorted(p for p, count in gpus.items() if count == run.pod_gpus and p not in used)


def _spare_pod(world: World, run: Run, group: int, pod: int) -> list[Lease]:
    return [
        lease
        for lease in world.leases_of(run)
        if lease.role == "Spare" and (lease.group, lease.pod) == (group, pod)
    ]


def _swap(world: World) -> bool:
    """S2: open the active lease when the filler's pod is gone; the spare's payer pays."""
    done = False
    for run in world.runs.values():
        for unit in run.units.values():
            for swap in list(unit.swaps):
                group, lost, spare = swap
                leases = _spare_pod(world, run, group, spare)
                if any(fillers_on(world, lease) for lease in leases):
                    continue
                unit.swaps.remove(swap)
                for lease in leases:
                    close(world, lease, "Swap")
                    world.leases.append(
                        Lease(
                            len(world.leases), run.key, group, lost, unit.attempt, "Active",
                            lease.node, lease.slots, lease.payer, lease.relation, world.now, "Swap",
                        )
                    )  # fmt: skip
                start_pod(world, run, group, lost, leases[0].node)
                restart_in_place(world, run)
                done = True
    return done
