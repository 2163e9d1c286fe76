"""What a shim must run for a pod: command, environment, user, folder, limits.

Called by `agent` when it starts a pod. Translates the Pod object for this machine and starts
nothing. The job gets no variable of the server's own environment, except PATH if the server does
not run as root.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from leasehold.adapters.agent.cgroups import Cgroups, pids_at_most
from leasehold.adapters.agent.devices import Device
from leasehold.adapters.agent.leftovers import MARKER
from leasehold.adapters.agent.limits import CannotStart, Limits
from leasehold.adapters.agent.rendezvous import Rendezvous
from leasehold.adapters.agent.shim.records import Record, boot_id
from leasehold.adapters.agent.users import Users
from leasehold.adapters.agent.variables import declared, words
from leasehold.core.facts import Pod
from leasehold.core.names import Wire
from leasehold.core.objects.pod import ATTEMPT, RUN_UID, SLOTS
from leasehold.core.objects.quantity import CPU, MEMORY, milli, quantity_or, units
from leasehold.core.objects.wire import list_at, part, text_at, whole_at

VISIBLE = "CUDA_VISIBLE_DEVICES"
LEASES = "LEASEHOLD_LEASES"
GRACE_MS = 30_000


@dataclass(frozen=True, slots=True)
class LocalNode:
    """A node of this machine. If it has no devices, its GPUs are virtual slots."""

    name: str
    flavor: str
    region: str
    cluster: str
    domain: str
    gpus: int
    devices: tuple[Device, ...] = ()
    rack: str = ""

    def __post_init__(self) -> None:
        assert not self.devices or len(self.devices) == self.gpus, self.name


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one agent."""

    work: Path
    notify: Path
    users: Users
    cgroups: Cgroups
    meetings: Rendezvous
    limits: Limits
    hosts: frozenset[str]  # names of all nodes of this machine

    def make(self, pod: Pod, wire: Wire, node: LocalNode) -> Record:
        """Return the request for a pod. Raise `CannotStart` if no attempt to start the pod here
        could succeed."""
        container = first_container(wire)
        account = self.users.account(pod.namespace)
        home = self.users.home(self.work, pod.namespace)
        env = {
            "PATH": self.users.path,
            "HOME": str(home),
            "USER": account.name,
            "LOGNAME": account.name,
            "HOSTNAME": pod.name,
            "LANG": "C.UTF-8",
            "TMPDIR": "/tmp",
        }
        visible = self._visible(pod, wire, node)
        ours = {MARKER: pod.uid} | ({} if visible is None else {VISIBLE: visible})
        moved, places = self._meet(pod, wire, container)
        told = declared(wire, _with(container, moved), given=env | ours)
        env |= told | ours
        memory, cpu = limit(container, MEMORY), limit(container, CPU)
        return {
            "uid": pod.uid,
            "namespace": pod.namespace,
            "name": pod.name,
            "node": node.name,
            "run": pod.run_uid,
            "group": pod.group,
            "index": pod.index,
            "attempt": pod.attempt,
            "boot": boot_id(),
            "argv": _command(container, env),
            "env": env,
            "cwd": text_at(container, "workingDir") or str(home),
            "user": None if account.uid is None else [account.uid, account.gid],
            "groups": list(account.groups),
            "notify": str(self.notify),
            "log_bytes_max": self.limits.log_bytes_max,
            "log_files_max": self.limits.log_files_max,
            "heartbeat_ms": self.limits.sign_of_life_ms,
            "grace_ms": _grace(wire),
            "cgroups": self.cgroups.of_pod(
                pod.uid,
                memory_bytes=memory,
                cpu_milli=cpu,
                pids_max=pids_at_most(self.limits.pids_max),
            ),
            "places": [[list(place), port] for place, port in places],
            "moved": moved,
            "devices": self.devices_of(wire, node),
        }

    def devices_of(self, wire: Wire, node: LocalNode) -> list[str]:
        """Return the UUIDs of the devices that the pod leases; an empty list for virtual slots."""
        return [node.devices[slot].uuid for slot in slots_of(wire, node)] if node.devices else []

    def _meet(
        self, pod: Pod, wire: Wire, container: Wire
    ) -> tuple[dict[str, str], list[tuple[tuple[str, str, str], int]]]:
        labels = part(part(wire, "metadata"), "labels")
        plain = {
            text_at(each, "name"): text_at(each, "value")
            for each in list_at(container, "env")
            if isinstance(each, dict)
        }
        return self.meetings.translate(
            plain,
            pod=pod.uid,
            run=text_at(labels, RUN_UID),
            attempt=text_at(labels, ATTEMPT),
            hosts=self.hosts,
        )

    def _visible(self, pod: Pod, wire: Wire, node: LocalNode) -> str | None:
        """Return the value of CUDA_VISIBLE_DEVICES; None if the pod has no slots on a node without
        devices.

        On a node with devices, the value lists their UUIDs, which survive renumbering. On virtual
        slots it lists the slot numbers, so that a script can tell which slots are its own."""
        slots = slots_of(wire, node)
        if node.devices:
            if len(slots) != pod.gpus:
                raise CannotStart(
                    f"the pod requests {pod.gpus} GPUs, but its annotation {SLOTS} names "
                    f"{len(slots)}"
                )
            return ",".join(node.devices[slot].uuid for slot in slots)
        return ",".join(map(str, slots)) if slots else None


def slots_of(wire: Wire, node: LocalNode) -> list[int]:
    """Return the slots of the pod's leases."""
    written = text_at(part(part(wire, "metadata"), "annotations"), SLOTS)
    found = [int(each) for each in written.split(",") if each.isascii() and each.isdigit()]
    if (written and ",".join(map(str, found)) != written) or any(s >= node.gpus for s in found):
        raise CannotStart(
            f"the pod's annotation {SLOTS} is {written!r}, but {node.name} has {node.gpus} GPUs"
        )
    return found


def leases_of(wire: Wire) -> list[str]:
    """Return the names of the leases that the pod was created for."""
    for variable in list_at(first_container(wire), "env"):
        if isinstance(variable, dict) and variable.get("name") == LEASES:
            return [name for name in text_at(variable, "value").split(",") if name]
    return []


def first_container(wire: Wire) -> Wire:
    for container in list_at(part(wire, "spec"), "containers"):
        if isinstance(container, dict):
            return container
    raise CannotStart("the pod has no container")


def limit(container: Wire, resource: str) -> int | None:
    """Return the container's limit in bytes, or in thousandths of a CPU; None if it has no such
    limit."""
    value = part(part(container, "resources"), "limits").get(resource)
    if value is None:
        return None
    return quantity_or(value, units if resource == MEMORY else milli, 0) or None


def places_of(request: Record) -> list[tuple[tuple[str, str, str], int]]:
    """Return the rendezvous ports that a pod's request records."""
    found = request.get("places")
    return [
        ((str(run), str(attempt), str(place)), int(port))
        for (run, attempt, place), port in (found if isinstance(found, list) else [])
    ]


def moved_of(request: Record) -> dict[str, str]:
    """Return the variables whose values in the request differ from the Pod's spec."""
    found = request.get("moved")
    items = found.items() if isinstance(found, dict) else ()
    return {str(name): str(value) for name, value in items}


def _command(container: Wire, env: dict[str, str]) -> list[str]:
    written = [*list_at(container, "command"), *list_at(container, "args")]
    if not list_at(container, "command"):
        raise CannotStart(
            "spec.containers[0].command is missing, and there is no image that could provide one"
        )
    argv = words(written, env)
    if any("\0" in each for each in [*argv, *env, *env.values()]):
        raise CannotStart("the pod's command or environment contains a zero byte")
    return argv


def _with(container: Wire, changed: dict[str, str]) -> Wire:
    """Return the container with some of its variables changed in place."""
    env: Sequence[object] = [
        {"name": text_at(each, "name"), "value": changed[text_at(each, "name")]}
        if isinstance(each, dict) and text_at(each, "name") in changed
        else each
        for each in list_at(container, "env")
    ]
    return {**container, "env": list(env)}


def _grace(wire: Wire) -> int:
    seconds = whole_at(part(wire, "spec"), "terminationGracePeriodSeconds")
    return GRACE_MS if seconds is None else seconds * 1000
