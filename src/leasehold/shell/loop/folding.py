"""Translates an object from the store into a change of the World.

Called by the loop for every event. The functions return the change as a function of the World (a
fold), which is applied only after the whole object was read. Reading may raise the reader's errors.
"""

from collections.abc import Callable

from msgspec.structs import replace

from leasehold.core.facts import Node, Run, Uid
from leasehold.core.names import Wire
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.objects.node import node_from_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import Instant
from leasehold.core.world.world import World
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.shell.loop.stored import key_of

Fold = Callable[[World], None]
PutRun = Callable[[World, Run], None]


def fold_of(
    kind: str, obj: Wire, terms: PlaneSettings, world: World, put_run: PutRun, *, now: Instant
) -> Fold:
    match kind:
        case "Budget":
            budget = budget_from_wire(obj)
            return lambda world: world.put_budget(budget)
        case "Node":
            node = node_from_wire(obj, labels=terms.labels)
            there = world.fleet.nodes.get(node.name)
            seen = as_heard(node, None if there is None else there.node, now)
            return lambda world: world.put_node(seen)
        case "Run":
            run = run_from_wire(obj, known=world.runs.get(uid_of(obj)))
            return lambda world: put_run(world, run)
        case _:
            pod = pod_from_wire(obj, gpu_resource=terms.policy.gpu_resource)
            return lambda world: world.put_pod(pod)


def fold_of_gone(kind: str, obj: Wire, terms: PlaneSettings) -> Fold:
    """Return the change of the World for a deleted object. The object's name is enough, except for
    a pod, whose last state is folded first."""
    match kind:
        case "Budget":
            return lambda world: world.drop_budget(key_of(obj))
        case "Node":
            return lambda world: world.drop_node(key_of(obj))
        case "Run":
            return lambda world: world.drop_run(uid_of(obj))
        case _:
            pod = pod_from_wire(obj, gpu_resource=terms.policy.gpu_resource)

            def fold(world: World) -> None:
                known = world.pods.get(pod.key)
                if known is not None and known.uid not in ("", pod.uid):
                    return  # a new pod has this name; the old one was known to be gone
                world.put_pod(pod)
                world.drop_pod(pod.key)

            return fold


def fold_of_unreadable(kind: str, obj: Wire) -> Fold:
    """Return the change that removes an unreadable object from the World, because a controller that
    starts now could not read the object either."""
    match kind:
        case "Budget":
            return lambda world: world.drop_budget(key_of(obj))
        case "Node":
            return lambda world: world.drop_node(key_of(obj))
        case "Run":
            return lambda world: world.drop_run(uid_of(obj))
        case _:
            return lambda world: world.drop_pod(key_of(obj))


def as_heard(node: Node, known: Node | None, now: Instant) -> Node:
    """Return the node with `unheard_since`, the time by our own clock since when it is not ready.
    Timestamps of another machine's clock cannot be compared with ours."""
    if node.ready:
        return node
    if known is not None and known.unheard_since is not None:
        silence = (node.uid, node.not_ready_since)
        if (known.uid, known.not_ready_since) == silence:
            return replace(node, unheard_since=known.unheard_since)
    return replace(node, unheard_since=now)


def uid_of(obj: Wire) -> Uid:
    return text_at(part(obj, "metadata"), "uid")
