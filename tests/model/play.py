"""Time: what happens at each instant, and which instant is next.

Nothing takes time unless the file says so. All events with the same timestamp are applied before
anything is decided (Q2); timers come before the steps of the file.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from tests.model import life, overdraft, queue, resize
from tests.model.bind import see_rejections
from tests.model.facts import Node, Run, World, new_world
from tests.model.resolve import width
from tests.model.story import FOREVER, Story

Look = Callable[[World], None]
TURNS_MAX = 2_000


class Restless(Exception):  # noqa: N818 - it names what is wrong
    """The model does not come to rest within one instant."""


def play(
    story: Story,
    seeds: Any = None,
    look: Look | None = None,
    expect: Callable[[World, list[dict[str, Any]]], None] | None = None,
) -> World:
    """Play the whole file; `look` is called at the end of every instant."""
    world = new_world(story)
    world.seeds = seeds or (lambda cause, subject, at: f"{cause}/{subject}/{at}")
    look = look or (lambda _: None)
    for step in story.steps:
        at = story.start + step["at"]
        if at > world.now:
            look(world)
            _advance(world, at, look)
        if step["do"] != "expect":
            if perform(world, step):
                come_to_rest(world)
        elif expect is not None:
            expect(world, step["what"])
    come_to_rest(world)  # also report what only time has changed
    look(world)
    return world


def _advance(world: World, at: int, look: Look) -> None:
    while (due := next_instant(world)) <= at:
        world.now = due
        come_to_rest(world)
        if due < at:
            look(world)
    world.now = max(world.now, at)


def come_to_rest(world: World) -> None:
    for _ in range(TURNS_MAX):
        if not _take_turn(world):
            return
    raise Restless(world.notes[-20:])


def _take_turn(world: World) -> bool:
    """Do one thing: first apply events, then settle overdrafts, then walk the queue, then grow."""
    if (
        life.see(world)
        or life.mark_due(world)
        or resize.shrink(world)
        or overdraft.settle(world, queue.plans(world))
        or see_rejections(world)
    ):
        return True
    changed, ahead = queue.take_pass(world)
    return changed or resize.grow(world, ahead)


def next_instant(world: World) -> int:
    """The first instant after now at which something is due."""
    config = world.config
    due: list[int] = [overdraft.next_exhaustion(world)]
    for pod in world.pods:
        if world.nodes[pod.node].heard and pod.ends is not None:
            due.append(pod.ends)
    due += [lease.deadline for lease in world.open_leases() if lease.ending]
    for run in world.runs.values():
        for unit in run.units.values():
            if unit.standing == "live" and run.limit is not None:
                due.append(unit.started + run.limit)
            due.append(unit.pause)
        if world.leases_of(run):
            due.append(world.protected_until(run))
        for plan in run.plans.values():
            due += [
                plan.start,
                plan.start - config["activationLead"],
                plan.start - config["reservation.maxWait"],
            ]
            due += [plan.cuts_at or 0, plan.reclaim_at or 0]
        due += [at - wait for at in run.beyond for wait in (0, config["reservation.maxWait"])]
        if run.hold is not None:
            due.append(queue.hold_ends(world, run.hold))
        if run.resized is not None and width(world, run) != run.desired:
            due.append(run.resized + config["resize.interval"])
    for envelope in world.envelopes:
        due += [envelope.start, envelope.end]
    due += [since + config["overdraft.grace"] for since in world.debts.values()]
    return min((at for at in due if at > world.now), default=FOREVER)


def perform(world: World, step: dict[str, Any]) -> bool:
    """Carry out one action of the file; False if it changes nothing, and so is no event."""
    if step["refused"]:
        return False
    before = _written(world)
    pods = deepcopy(world.pods)
    _perform(world, step)
    after = _written(world)
    if before["nodes"] != after["nodes"] and step["do"] != "foreign":
        _nodes_changed(world)
    if step["do"] == "binds":
        return False
    if step["do"] == "pod":
        return pods != world.pods and step["what"]["does"] != "stick"
    return step["do"] == "restart" or before != after


def _written(world: World) -> dict[str, Any]:
    """Return everything that users write. A write without a change, or about a missing node, is not
    an event."""
    specs = {key: run.spec for key, run in world.runs.items()}
    nodes = {name: node for name, node in world.nodes.items() if not node.gone}
    return deepcopy({"nodes": nodes, "budgets": world.budgets, "runs": specs})


def _perform(world: World, step: dict[str, Any]) -> None:
    what = step["what"]
    match step["do"]:
        case "submit":
            for key, spec in what.items():
                _submit(world, key, spec, step["work"])
        case "budget":
            before = world.envelopes
            for key, spec in what.items():
                world.budgets[key] = deepcopy(spec)
            _budgets_changed(world, before)
        case "edit":
            _edit(world, what)
        case "cancel":
            world.runs[what].spec["stop"] = True
            world.runs[what].read_spec()
        case "delete":
            _delete(world, what)
        case "node":
            _node(world, world.nodes[what["name"]], what["is"])
        case "foreign":
            world.nodes[what["node"]].foreign = what["gpus"]
        case "pod":
            _pod(world, what)
        case "binds":
            world.failing_binds = what["fail"]
        case "restart":
            pass
        case other:
            raise AssertionError(other)


def _submit(world: World, key: str, spec: dict[str, Any], works: list[dict[str, Any]]) -> None:
    flavor = spec["resources"]["gpuType"]
    largest = max((n.gpus for n in world.nodes.values() if n.flavor == flavor), default=1)
    world.runs[key] = Run(key, world.now, deepcopy(spec), works, largest)


def _budgets_changed(world: World, before: list[Any]) -> None:
    world.read_budgets()
    overdraft.note_lowered(world, before)


def _edit(world: World, what: dict[str, Any]) -> None:
    if "run" in what:
        run = world.runs[what["run"]]
        run.spec = merged(run.spec, what["spec"])
        run.read_spec()
        return
    namespace, budget, name = what["envelope"].split("/")
    before = world.envelopes
    spec = deepcopy(world.budgets[f"{namespace}/{budget}"])
    fields = {key: value for key, value in what.items() if key != "envelope"}
    spec["envelopes"] = [
        merged(each, fields) if each["name"] == name else each for each in spec["envelopes"]
    ]
    world.budgets[f"{namespace}/{budget}"] = spec
    _budgets_changed(world, before)


def merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """A merge-patch: null removes a field."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict) and isinstance(new.get(key), dict):
            new[key] = merged(new[key], value)
        else:
            new[key] = value
    return new


def _delete(world: World, what: dict[str, Any]) -> None:
    if "budget" in what:
        before = world.envelopes
        del world.budgets[what["budget"]]
        _budgets_changed(world, before)
        return
    node = world.nodes[what["node"]]
    node.gone, node.silent, node.dead = True, False, False  # the cordon stays if the node returns
    node.foreign = 0
    life.lose_node(world, node.name)


def _node(world: World, node: Node, state: str) -> None:
    match state:
        case "dead":
            node.dead, node.silent = True, False
            node.foreign = 0  # foreign processes die with the node
            life.lose_node(world, node.name)
        case "silent":
            node.silent = not node.dead
        case "ready":
            if node.dead or node.gone:
                node.foreign = 0  # no processes run on a missing node
            node.dead = node.silent = node.gone = False
            for pod in world.pods:
                if pod.node == node.name and pod.wanted is not None and pod.told is None:
                    pod.told = world.now
        case "cordoned":
            node.cordoned = True
        case "uncordoned":
            node.cordoned = False


def _nodes_changed(world: World) -> None:
    """End the long pauses after five rejections: any change of a node allows another try."""
    for run in world.runs.values():
        for unit in run.units.values():
            if unit.blocked_binds:
                unit.blocked_binds = False
                unit.pause = world.now


def _pod(world: World, what: dict[str, Any]) -> None:
    run = world.runs[what["run"]]
    group, index, does = what.get("group", 0), what.get("pod", 0), what["does"]
    if does.startswith("exit"):
        life.pod_exits(world, run, group, index, int(does.split()[1]))
        return
    for pod in world.pods:
        if (pod.run, pod.group, pod.index) == (run.key, group, index):
            pod.stuck = does == "stick"
            if does == "unstick" and pod.told is not None:
                ends = pod.ends
                if ends is not None and ends < world.now:
                    pod.until = world.now
                    pod.told = world.now
