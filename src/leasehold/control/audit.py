"""audit: check that leases, pods and balances agree, and name every record that does not.

Run by the simulator after each story. Repairs nothing.
"""

from leasehold.core.facts import Node, Pod, PodPhase, Role
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def audit(world: World, pods: list[Pod], now: Instant) -> list[str]:
    """Return every disagreement between open leases, existing pods and accounts."""
    return [
        *_pods_without_leases(world, pods),
        *_leases_without_pods(world, pods, now),
        *_balances(world, now),
    ]


def _pods_without_leases(world: World, pods: list[Pod]) -> list[str]:
    found = []
    for pod in sorted(pods, key=lambda each: each.key):
        if not pod.run_uid or pod.has_ended:
            continue
        leases = [world.leases[name] for name in world.open_by_pod.get(pod.key, ())]
        state = world.fleet.nodes.get(pod.node)
        if not leases and state is not None and not _is_out_of_reach(pod, state.node):
            found.append(f"pod {pod.key} runs on {pod.node} without an open lease")
        elif leases and sum(lease.gpus for lease in leases) != pod.gpus:
            found.append(f"pod {pod.key} has {pod.gpus} GPUs, its leases say otherwise")
        elif leases and not pod.placed:
            found.append(f"pod {pod.key} is not bound to {pod.node} yet")
        elif leases and any(lease.node != pod.node for lease in leases):
            found.append(f"pod {pod.key} is on {pod.node}, its leases say otherwise")
    return found


def _is_out_of_reach(pod: Pod, node: Node) -> bool:
    """Return whether the pod died with its node, or gets its stop signal when its node is back."""
    return node.fenced or (pod.deleting and not node.ready)


def _leases_without_pods(world: World, pods: list[Pod], now: Instant) -> list[str]:
    there = {pod.key: pod for pod in pods if pod.phase is not PodPhase.ORDERED}
    found = []
    for name in sorted(name for names in world.open_by_run.values() for name in names):
        lease = world.leases[name]
        if lease.role is Role.SPARE:
            continue
        pod = there.get(f"{lease.namespace}/{lease.pod}")
        if pod is None:
            found.append(f"lease {name} is open, but it has no pod {lease.namespace}/{lease.pod}")
        elif (
            pod.has_ended
            and not _is_pausing(world, pod, now)
            and (state := world.fleet.nodes.get(lease.node))
            and state.node.ready
        ):
            found.append(f"lease {name} is open, but pod {lease.namespace}/{lease.pod} has ended")
    return found


def _is_pausing(world: World, pod: Pod, now: Instant) -> bool:
    """Return whether the pod, already restarted in place once, failed again and is created again
    soon."""
    uid, at = world.restarted.get(pod.key, (pod.uid, now))
    return uid != pod.uid and now < at + world.policy.restart_pause


def _balances(world: World, now: Instant) -> list[str]:
    """Compare each envelope's account with a plain sum over all leases."""
    used: dict[str, int] = {}
    accounts = world.accounts
    spent = {
        payer: accounts.carried_ms(payer, accounts.of(payer).since)[0]
        for payer in world.carried.charges
    }
    for lease in world.leases.values():
        since = world.accounts.of(lease.payer).since
        end = now if lease.end is None else lease.end
        amount = lease.gpus * max(0, end - max(lease.start, since))
        spent[lease.payer] = spent.get(lease.payer, 0) + amount
        if lease.is_open:
            used[lease.payer] = used.get(lease.payer, 0) + lease.gpus
    found = []
    for payer in world.accounts.payers():
        account = world.accounts.of(payer)
        if account.gpus != used.get(payer, 0):
            found.append(
                f"{payer} pays for {used.get(payer, 0)} GPUs, its account says {account.gpus}"
            )
        if account.used_ms(now) != spent.get(payer, 0):
            found.append(
                f"{payer} spent {spent.get(payer, 0)} GPU-ms, its account says "
                f"{account.used_ms(now)}"
            )
    return found
