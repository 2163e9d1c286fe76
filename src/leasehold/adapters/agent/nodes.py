"""The Node objects of this machine: registers them, refreshes them, and reacts to fencing.

Run by `agent` as one task. The agent writes labels, capacity and readiness; cordons and taints
belong to the administrator. A node with the out-of-service taint, or whose object was deleted,
counts as dead: the agent ends its pods. The node becomes Ready again when nothing runs there any
more and the taint is gone. An annotation can ask the agent to fence a node. The agent then ends the
node's pods and taints the node; from then on the ranks of those pods may start elsewhere.
"""

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from leasehold import __version__
from leasehold.adapters.agent.requests import LocalNode
from leasehold.adapters.agent.shim.records import boot_id
from leasehold.adapters.containment import About, Containment, kept_up
from leasehold.adapters.following import follow
from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Node
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.node import FENCE, OUT_OF_SERVICE, Labels, node_to_wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import Instant, format_instant
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Listing,
    NotFound,
    OutcomeUnknown,
    Store,
    Unavailable,
    WatchEvent,
)

AGENT = f"{GROUP}/agent"  # annotation: the agent of the node
RETRY_MS = 100
PODS_MIN = 110  # kubelet's default
_RETRY = (AlreadyExists, Conflict, NotFound, OutcomeUnknown, Unavailable)
_LOOK_MS = 20  # how often a dead node is checked for being empty


class Nodes:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        nodes: Sequence[LocalNode],
        labels: Labels,
        agent: str,
        heartbeat_ms: int,
        containment: Containment | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._labels = labels
        self._agent = agent
        self._heartbeat_ms = heartbeat_ms
        self._containment = containment or Containment()
        self._local = {node.name: node for node in nodes}
        self._capacity = _capacity(nodes)
        self._stored: dict[str, Wire] = {}  # the last seen objects of our present and former nodes
        self._dead: set[str] = set()
        self._due: dict[str, Instant] = {}  # monotonic time of each node's next heartbeat
        self._changed = tasks.signal()
        self.on_death: Callable[[str], None] = lambda _: None
        self.on_return: Callable[[str], None] = lambda _: None
        self.is_empty: Callable[[str], bool] = lambda _: True

    def find(self, name: str) -> LocalNode | None:
        return self._local.get(name)

    def is_dead(self, name: str) -> bool:
        return name in self._dead

    async def run(self) -> None:
        """Keep the nodes up to date; never return."""
        name = "agent-watch-nodes"
        watch = kept_up(name, self._watch, clock=self._clock, containment=self._containment)
        watching = self._tasks.spawn(name, watch)
        try:
            while True:
                await self._settle_all()
                await self._changed.wait(self._patience())
        finally:
            watching.cancel()

    async def prepare(self) -> None:
        """Register all nodes."""
        listing = await until_answered(self._clock, lambda: self._store.list("Node"))
        for wire in listing.items:
            self._see(wire)
        await self._settle_all()

    async def _settle_all(self) -> None:
        for name in {**self._local, **self._stored}:
            while True:
                try:
                    await self._settle(name)
                    self._containment.went_well(About("Node", name))
                    if name not in self._local:
                        self._due.pop(name, None)
                    break
                except _RETRY:
                    await self._clock.sleep(RETRY_MS)
                    await self._look_again(name)
                except Exception as error:
                    pause = self._containment.failed(About("Node", name), error)
                    self._due[name] = self._clock.monotonic() + pause
                    break

    def _patience(self) -> int:
        if self._dead:
            return _LOOK_MS if any(not self.is_empty(name) for name in self._dead) else 1000
        due = min(self._due.values(), default=self._clock.monotonic() + self._heartbeat_ms)
        return max(due - self._clock.monotonic(), 0)

    # Reading Node objects.

    async def _watch(self) -> None:
        await follow(self._store, self._clock, "Node", listed=self._see_all, changed=self._on_event)

    def _see_all(self, listing: Listing) -> None:
        there = {_name(wire): wire for wire in listing.items}
        for wire in there.values():
            self._see(wire)
        for name in [name for name in self._stored if name not in there]:
            self._lose(name)

    def _on_event(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._lose(_name(event.object))
        else:
            self._see(event.object)

    def _see(self, wire: Wire) -> None:
        name = _name(wire)
        if name not in self._local and not self._was_ours(wire):
            return
        known = self._stored.get(name)
        if known is not None and _version(known) >= _version(wire):
            return
        self._stored[name] = wire
        if _is_fenced(wire) or _is_asked(wire):
            self._die(name)
        self._changed.set()

    def _lose(self, name: str) -> None:
        if self._stored.pop(name, None) is not None and name in self._local:
            self._die(name)
        self._changed.set()

    def _die(self, name: str) -> None:
        if name not in self._dead:
            self._dead.add(name)
            self.on_death(name)

    def _was_ours(self, wire: Wire) -> bool:
        annotations = part(part(wire, "metadata"), "annotations")
        return text_at(annotations, AGENT) == self._agent

    async def _look_again(self, name: str) -> None:
        with suppress(Unavailable):
            try:
                self._see(await self._store.get("Node", "", name))
            except NotFound:
                self._lose(name)

    # Writing Node objects.

    async def _settle(self, name: str) -> None:
        stored = self._stored.get(name)
        # Evaluate once: processes may end between the next lines.
        is_emptied = name in self._dead and self.is_empty(name)
        if name in self._dead and not is_emptied:
            self.on_death(name)  # repeated until it is empty: one signal may come too early
        if stored is not None and is_emptied and _is_asked(stored):
            stored = await self._fence(stored)
        if is_emptied and not _is_fenced(stored or {}):
            self._dead.discard(name)
            self.on_return(name)
        is_ready = name in self._local and name not in self._dead
        local = self._local.get(name)
        if stored is None:
            if local is not None and is_ready:
                self._see(await self._store.create(self._wanted(local, is_ready=True, old={})))
            return
        if local is not None:
            stored = await self._write_labels(local, stored)
        await self._write_status(name, stored, is_ready=is_ready)

    async def _fence(self, stored: Wire) -> Wire:
        """Add the out-of-service taint that the node's annotation asked for, and remove the
        annotation. No process of a pod may run on the node."""
        metadata, spec = part(stored, "metadata"), part(stored, "spec")
        annotations = {
            key: value for key, value in part(metadata, "annotations").items() if key != FENCE
        }
        taints = [each for each in list_at(spec, "taints") if isinstance(each, dict)]
        if not _is_fenced(stored):
            taints.append({"key": OUT_OF_SERVICE, "value": "fenced", "effect": "NoExecute"})
        fenced = {
            **stored,
            "metadata": {**metadata, "annotations": annotations},
            "spec": {**spec, "taints": taints},
        }
        written = await self._store.update(fenced)
        self._see(written)
        return written

    async def _write_labels(self, local: LocalNode, stored: Wire) -> Wire:
        """Set our labels and annotations on the Node object; keep everything else in it."""
        metadata = part(stored, "metadata")
        wanted = part(self._wanted(local, is_ready=True, old={}), "metadata")
        labels = {**part(metadata, "labels"), **part(wanted, "labels")}
        annotations = {**part(metadata, "annotations"), **part(wanted, "annotations")}
        if labels == part(metadata, "labels") and annotations == part(metadata, "annotations"):
            return stored
        changed = {**metadata, "labels": labels, "annotations": annotations}
        written = await self._store.update({**stored, "metadata": changed})
        self._see(written)
        return written

    async def _write_status(self, name: str, stored: Wire, *, is_ready: bool) -> None:
        local = self._local.get(name)
        old = part(stored, "status")
        if local is not None:
            wanted = part(self._wanted(local, is_ready=is_ready, old=old), "status")
        else:
            why = "NotConfigured", "the agent no longer has this node"
            wanted = {**old, "conditions": [self._ready(old, is_ready=False, why=why)]}
        now = self._clock.monotonic()
        is_due = local is not None and now >= self._due.get(name, 0)
        if _without_heartbeat(wanted) == _without_heartbeat(old) and not is_due:
            return
        written = await self._store.patch_status("Node", "", name, wanted, version=_version(stored))
        if local is not None:
            self._due[name] = now + self._heartbeat_ms
        self._see(written)

    def _wanted(self, local: LocalNode, *, is_ready: bool, old: Wire) -> Wire:
        cpu_milli, memory_bytes = self._capacity[local.name]
        node = Node(
            name=local.name,
            flavor=local.flavor,
            region=local.region,
            cluster=local.cluster,
            fabric=local.domain,
            gpus=local.gpus,
            cpu_milli=cpu_milli,
            memory_bytes=memory_bytes,
            pods_max=max(PODS_MIN, local.gpus),
        )
        wire = node_to_wire(node, labels=self._labels)
        metadata, status = part(wire, "metadata"), part(wire, "status")
        metadata["annotations"] = {AGENT: self._agent}
        if local.rack:
            metadata["labels"] = {**part(metadata, "labels"), self._labels.rack: local.rack}
        why = ("AgentReady", "the agent runs") if is_ready else _WHY_DEAD
        status["capacity"] = status["allocatable"]
        status["conditions"] = [self._ready(old, is_ready=is_ready, why=why)]
        status["addresses"] = [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": platform.node()},
        ]
        status["nodeInfo"] = node_info()
        return wire

    def _ready(self, old: Wire, *, is_ready: bool, why: tuple[str, str]) -> Wire:
        now = format_instant(self._clock.now())
        status = "True" if is_ready else "False"
        since = now
        for condition in list_at(old, "conditions"):
            if isinstance(condition, dict) and condition.get("status") == status:
                since = text_at(condition, "lastTransitionTime") or now
        return {
            "type": "Ready",
            "status": status,
            "reason": why[0],
            "message": why[1],
            "lastHeartbeatTime": now,
            "lastTransitionTime": since,
        }


def node_info() -> Wire:
    """Return the `nodeInfo` of a Node's status; clients require all of its fields."""
    return {
        "machineID": _first_line("/etc/machine-id"),
        "systemUUID": _first_line("/sys/class/dmi/id/product_uuid"),
        "bootID": boot_id(),
        "kernelVersion": platform.release(),
        "osImage": platform.platform(terse=True),
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": f"leasehold-{__version__}",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": platform.machine(),
    }


def _first_line(path: str) -> str:
    """Return the first line, or "" if the file is missing or unreadable."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


_WHY_DEAD = (
    "OutOfService",
    f"the node was taken out of service; to use it again, remove the taint {OUT_OF_SERVICE}",
)


def _capacity(nodes: Sequence[LocalNode]) -> dict[str, tuple[int, int]]:
    """Return each node's CPU (in thousandths) and memory. The machine's are divided among its nodes
    in proportion to their GPUs."""
    cpus = len(os.sched_getaffinity(0)) * 1000
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    total = sum(node.gpus for node in nodes) or 1
    return {node.name: (cpus * node.gpus // total, memory * node.gpus // total) for node in nodes}


def _is_fenced(wire: Wire) -> bool:
    taints = list_at(part(wire, "spec"), "taints")
    return any(isinstance(each, dict) and each.get("key") == OUT_OF_SERVICE for each in taints)


def _is_asked(wire: Wire) -> bool:
    return FENCE in part(part(wire, "metadata"), "annotations")


def _without_heartbeat(status: Wire) -> Wire:
    conditions = [
        {key: value for key, value in each.items() if key != "lastHeartbeatTime"}
        for each in list_at(status, "conditions")
        if isinstance(each, dict)
    ]
    return {**status, "conditions": conditions}


def _name(wire: Wire) -> str:
    return text_at(part(wire, "metadata"), "name")


def _version(wire: Wire) -> int:
    return int(text_at(part(wire, "metadata"), "resourceVersion") or 0)
