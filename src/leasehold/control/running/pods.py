"""Derives from open leases which pods must be created, bound or removed.

Level-triggered and addressed by name: a pod exists because a committed lease requires it. Missing
pods are ordered again, pods without a lease are removed, and nothing waits for an answer.
"""

import hashlib

from msgspec.structs import replace

from leasehold.control.running.tend import restarts
from leasehold.control.turn import Turn
from leasehold.core.facts import Gang, Lease, Pod, PodPhase, Record, Role, Run, Uid
from leasehold.core.names import API_VERSION, GROUP, LEASE_CLOSED, Wire
from leasehold.core.objects.lease import label_value
from leasehold.core.objects.pod import LEAST, MASTER, SLOTS, pod_to_wire
from leasehold.core.units import SECOND, Millis
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World

_PORT_FIRST = 29500
_MEETING_FIRST, _MEETING_PORTS = 20_000, 9_000  # below the ports that hosts assign themselves
# The least grace period. Zero would delete the object at once, although the pod may still run.
AT_ONCE: Millis = 1
_STRAY_GRACE: Millis = 30 * SECOND  # for a pod without a lease


class MakePod(Record):
    """Create a pod."""

    pod: Pod  # the record that the World keeps until the pod is observed
    wire: Wire


class BindPod(Record):
    """Bind a pod that was created without a node."""

    pod: Pod  # known, created, and not bound yet
    node: str


class RemovePod(Record):
    """Delete a pod."""

    pod: Pod  # as known
    grace: Millis
    version: int | None = None  # remove only this version, if set


class PodOrders(Record):
    """What must be done about the pods of one run."""

    makes: list[MakePod]
    binds: list[BindPod]
    removes: list[RemovePod]
    releases: list[Pod]  # their end is in the ledger: remove our finalizer


def pod_orders(turn: Turn, uid: Uid) -> PodOrders:
    """Return what must be done so that one run's pods agree with its leases."""
    makes, binds = _missing(turn, uid)
    removes, releases = _superfluous(turn, uid)
    return PodOrders(makes=makes, binds=binds, removes=removes, releases=releases)


def _missing(turn: Turn, uid: Uid) -> tuple[list[MakePod], list[BindPod]]:
    world = turn.world
    run = world.runs.get(uid)
    if run is None:
        return [], []
    by_pod: dict[str, list[Lease]] = {}
    ranked = [
        lease
        for lease in open_leases(world, uid)
        if lease.role is not Role.SPARE and lease.ending is None
    ]
    for lease in sorted(ranked, key=lambda each: (each.group, each.index, each.slots)):
        by_pod.setdefault(lease.pod, []).append(lease)
    orders, binds = [], []
    for name, leases in by_pod.items():
        known = world.pods.get(f"{run.namespace}/{name}")
        # If it was only ordered, no answer came; ordering again is harmless.
        if known is None or known.phase is PodPhase.ORDERED:
            orders.append(_order(world, run, leases, list(by_pod.values())))
        elif not known.placed and not known.deleting and not known.has_ended:
            binds.append(BindPod(pod=known, node=leases[0].node))
    return orders, binds


def _order(world: World, run: Run, leases: list[Lease], gang: list[list[Lease]]) -> MakePod:
    first = leases[0]
    gpus = sum(lease.gpus for lease in leases)
    wire = pod_to_wire(
        run.spec.template,
        name=first.pod,
        namespace=run.namespace,
        node=first.node,
        gpus=gpus,
        labels={
            f"{GROUP}/run": label_value(run.name),
            f"{GROUP}/run-uid": run.uid,
            f"{GROUP}/group-index": str(first.group),
            f"{GROUP}/pod-index": str(first.index),
            f"{GROUP}/attempt": str(first.attempt),
            f"{GROUP}/opened": str(first.reason),
        },
        annotations={
            SLOTS: ",".join(str(slot) for lease in leases for slot in lease.slots),
            MASTER: _master(run, leases, gang),
            **_least(world, run, gang),
        },
        env=environment(run, leases, gang),
        owner={
            "apiVersion": API_VERSION,
            "kind": "Run",
            "name": run.name,
            "uid": run.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        },
        grace=min(run.spec.grace, world.policy.grace_max),
        gpu_resource=world.policy.gpu_resource,
    )
    pod = Pod(
        namespace=run.namespace,
        name=first.pod,
        node=first.node,
        gpus=gpus,
        run_uid=run.uid,
        group=first.group,
        index=first.index,
        attempt=first.attempt,
        cpu_milli=run.spec.cpu_milli,
        memory_bytes=run.spec.memory_bytes,
        phase=PodPhase.ORDERED,
    )
    return MakePod(pod=pod, wire=wire)


def trial_pod(run: Run, gpu_resource: str) -> Wire:
    """Return a pod like those of the run, but without node and lease, for a dry run of its
    creation."""
    wire = pod_to_wire(
        run.spec.template,
        name=f"{label_value(run.name)[:40].strip('-._').lower()}-tried",
        namespace=run.namespace,
        node="",
        gpus=run.spec.gpus_per_pod or 1,
        labels={f"{GROUP}/run": label_value(run.name), f"{GROUP}/run-uid": run.uid},
        env={},
        gpu_resource=gpu_resource,
    )
    spec = wire["spec"]
    assert isinstance(spec, dict)
    del spec["nodeName"]
    return wire


def _mates(run: Run, leases: list[Lease], gang: list[list[Lease]]) -> list[list[Lease]]:
    """Return the pods of the same gang in order of rank."""
    if run.spec.gang is not Gang.GROUP:
        return gang
    return [pod for pod in gang if pod[0].group == leases[0].group]


def _master(run: Run, leases: list[Lease], gang: list[list[Lease]]) -> str:
    first = _mates(run, leases, gang)[0][0]
    return f"g{first.group}-p{first.index}"


def _least(world: World, run: Run, gang: list[list[Lease]]) -> dict[str, str]:
    """Return the annotation that says how many of the run's pods must stay in a voluntary
    disruption.

    The others can be lost: spares or the elastic minimum make up for them.
    """
    if len(gang) < 2:
        return {}
    gpus = sum(lease.gpus for lease in gang[0])
    if run.spec.malleable is not None:
        return {LEAST: str(min(len(gang), -(-run.spec.malleable.min_gpus // gpus)))}
    spares = dict.fromkeys((pod[0].group for pod in gang), 0)
    for lease in open_leases(world, run.uid):
        if lease.role is Role.SPARE and lease.ending is None:
            spares[lease.group] = spares.get(lease.group, 0) + lease.gpus
    return {LEAST: str(len(gang) - min(spares.values()) // gpus)}


def environment(run: Run, leases: list[Lease], gang: list[list[Lease]]) -> dict[str, str]:
    """Return the environment variables of a pod: its gang, its rank, and where the gang meets.

    Ranks are given only if no swap or resize can change them.
    """
    first = leases[0]
    mates = _mates(run, leases, gang)
    gpus = sum(lease.gpus for lease in leases)
    place = next(i for i, pod in enumerate(mates) if pod[0].pod == first.pod)
    before = sum(lease.gpus for pod in mates[:place] for lease in pod)
    host, port = mates[0][0].node, _PORT_FIRST + min(mates[0][0].slots)
    env = {
        "LEASEHOLD_RUN": run.key,
        "LEASEHOLD_GROUP": str(first.group),
        "LEASEHOLD_LEASES": ",".join(lease.name for lease in leases),
        "LEASEHOLD_ATTEMPT": str(first.attempt),
        "NPROC_PER_NODE": str(gpus),
        "PET_NPROC_PER_NODE": str(gpus),
    }
    if run.spec.malleable is not None or run.spec.spares_per_group:
        size = run.spec.total_gpus if run.spec.malleable is None else run.spec.malleable.min_gpus
        most = run.spec.total_gpus if run.spec.malleable is None else run.spec.malleable.max_gpus
        env |= {
            "PET_NNODES": f"{-(-size // gpus)}:{-(-most // gpus)}",
            "PET_RDZV_BACKEND": "c10d",
            # the run's own host name, which stays when the first pod moves
            "PET_RDZV_ENDPOINT": f"{label_value(run.name)}.{run.namespace}:{_meeting_port(run)}",
            "PET_RDZV_ID": f"{run.uid}-{first.attempt}",
        }
        return env
    return env | {
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(sum(lease.gpus for pod in mates for lease in pod)),
        "RANK": str(before),
        "NNODES": str(len(mates)),
        "NODE_RANK": str(place),
        "PET_MASTER_ADDR": host,
        "PET_MASTER_PORT": str(port),
        "PET_NNODES": str(len(mates)),
        "PET_NODE_RANK": str(place),
    }


def _meeting_port(run: Run) -> int:
    """Return the port at which the run's pods meet, the same for all of them.

    It follows from the uid, because slots change with a swap.
    """
    digest = hashlib.sha256(run.uid.encode()).digest()
    return _MEETING_FIRST + int.from_bytes(digest[:4], "big") % _MEETING_PORTS


def _superfluous(turn: Turn, uid: Uid) -> tuple[list[RemovePod], list[Pod]]:
    """Return the pods to remove, and the pods whose finalizer can go because their end is
    recorded."""
    world = turn.world
    orders: list[RemovePod] = []
    releases: list[Pod] = []
    again = {pod.key for pod in restarts(turn, uid)}
    for key in sorted(world.pods_by_run.get(uid, ())):
        pod = world.pods[key]
        leases = [world.leases[name] for name in sorted(world.open_by_pod.get(key, ()))]
        if not leases or key in again:
            is_over = pod.has_ended or _is_dead(world, pod)
            if is_over and LEASE_CLOSED in pod.finalizers:
                releases.append(pod)
            if key not in again and _is_kept(world, pod):
                continue
            if is_over:
                orders.append(_remove(pod, grace=0))
            elif not pod.deleting:
                orders.append(_remove(pod, grace=_STRAY_GRACE))
        elif all(lease.ending is not None for lease in leases) and not pod.deleting:
            deadline = max(lease.ending.deadline for lease in leases if lease.ending is not None)
            order = _remove(pod, grace=max(AT_ONCE, deadline - turn.now))
            # A pod that has ended disappears at once when it is deleted, and with it the time of
            # its end. Its leases are closed with that time first, so the version must be the one we
            # know.
            orders.append(replace(order, version=pod.version or None))
    return orders, releases


def _is_kept(world: World, pod: Pod) -> bool:
    """Return whether the pod stays so that its log can be read: the pod ended by itself.

    Such a pod stays even if there is a newer attempt, because users ask for the failed one.
    `shell.loop.ended_pods` removes old ones and limits their number.
    """
    run = world.runs.get(pod.run_uid)
    return run is not None and not run.deleting and pod.has_ended and not pod.deleting


def _is_dead(world: World, pod: Pod) -> bool:
    """Return whether the pod's node is fenced or gone, and so will never report the pod's end."""
    state = world.fleet.nodes.get(pod.node)
    return state is None or state.node.fenced


def _remove(pod: Pod, *, grace: Millis) -> RemovePod:
    return RemovePod(pod=pod, grace=grace)
