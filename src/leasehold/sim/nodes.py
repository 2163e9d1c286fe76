"""Simulated kubelets: watch Pods like any client, run them on machines, and report.

The scenario runner and the fault simulation each start one SimFleet in a process of its own, and
tell it what happens to nodes and pods. `sim.machines` has the state of the machines; this module
reads and writes the store. It takes no scheduling decisions. Pending writes are kept in a list. If
a write fails, its object is read again and the write is repeated.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from leasehold.adapters.following import follow
from leasehold.adapters.objects.foreign_pod import write_foreign
from leasehold.control.running.pods import AT_ONCE
from leasehold.core.facts import Node, Opened, Pod, PodPhase, Uid
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.core.units import SECOND, Instant, Millis
from leasehold.ports.runtime import Clock, Signal, Tasks
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
from leasehold.sim.machines import JobProcess, Machine, MachineRoom, NodeIs, Rank, Work
from leasehold.sim.node_objects import ended, rejection, running, shut_down, write_node

OPENED = f"{GROUP}/opened"  # label: why the pod's leases were opened
RETRY_MS = 100
MISSED_AFTER: Millis = 40 * SECOND  # a silent node is NotReady after so long, as in Kubernetes

_POD_NAME = re.compile(r".+-(\d+)-g\d+-p\d+")
_RETRY = (AlreadyExists, Conflict, OutcomeUnknown, Unavailable)
_Todo = tuple[str, str]  # kind of object (pod, node, foreign), and its name


@dataclass(frozen=True)
class _Seen:
    """A Pod as it was last seen in the store."""

    pod: Pod
    opened: str
    grace: Millis
    container: str


@dataclass
class _ObjectWriter:
    """The pending writes of one writer: the node controller, or the kubelet of one node."""

    store: Store
    changed: Signal
    todo: dict[_Todo, None] = field(default_factory=dict)


class SimFleet:
    """The kubelets of all simulated nodes, and the node controller."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        labels: Labels | None = None,
        fences: Mapping[str, Millis | None] | None = None,
        links: Callable[[str], Store] | None = None,
    ) -> None:
        """`fences`: by flavor (`*`: all others), the time after which an unreachable node kills its
        processes. `links`: returns the store as one node reaches it; without it, all nodes share
        one link."""
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._labels = labels or Labels()
        self._fences = fences or {}
        self._hall = MachineRoom()
        self._pods: dict[str, _Seen] = {}  # by namespace/name
        self._buried: set[Uid] = set()  # deleted pods, whose late events are ignored
        self._rejected: set[Uid] = set()
        self._starts: set[tuple[Uid, str]] = set()  # attempts to start that were seen
        self._rejections_left = 0
        self.effects: Counter[str] = Counter()  # of what the scenario did
        self._links = links
        self._everybody = _ObjectWriter(store, tasks.signal())
        self._kubelets: dict[str, _ObjectWriter] = {}  # by node, if nodes have links of their own

    @property
    def breaches(self) -> list[str]:
        """What the machines did that no real machine can do."""
        return self._hall.breaches

    @property
    def nodes(self) -> list[str]:
        return list(self._hall.machines)

    def is_silent(self, name: str) -> bool:
        """Return whether the node lives and has a Node object, but is shown as not ready."""
        machine = self._hall.machines[name]
        return machine.alive and machine.exists and not machine.is_ready

    async def run(self) -> None:
        """Watch pods, run them and report; never return."""
        self._tasks.spawn("watch-pods", self._watch_pods())
        while True:
            self._pass_time()
            await self._report(self._everybody)
            due = self._hall.next_end()
            await self._everybody.changed.wait(None if due is None else due - self._clock.now())

    # What the scenario does.

    def add_node(self, node: Node) -> None:
        """Add a simulated machine, and write its Node object."""
        assert node.name not in self._hall.machines, node.name
        self._hall.machines[node.name] = Machine(node)
        self._note("node", node.name)

    def assign(self, run: Uid, works: tuple[Work, ...], *, per_group: bool) -> None:
        self._hall.assign(run, works, per_group=per_group)

    def works_of(self, run: Uid) -> tuple[Work, ...]:
        return self._hall.works_of(run)

    def reject_starts(self, count: int) -> None:
        """Reject the first pod in each of the next `count` attempts to start a run."""
        self._rejections_left = count

    def set_node(self, name: str, state: NodeIs) -> None:
        machine, now = self._hall.machines[name], self._clock.now()
        self._pass_time()
        match state:
            case NodeIs.DEAD:
                self._hall.lose(name, now)
                if machine.alive:  # it may be dead already
                    machine.silent_since = now
                machine.alive = machine.heard = False
                machine.fences_at = None
                self._note("node", name)
                self._note_pods(name)
            case NodeIs.SILENT:
                if machine.heard:
                    machine.silent_since = now
                machine.heard = False
                self._begin_to_fence(machine, now)
                self._note("node", name)
            case NodeIs.READY:
                self._come_back(machine, now)
            case NodeIs.CORDONED | NodeIs.UNCORDONED | NodeIs.DRAINING:
                machine.cordoned = state is not NodeIs.UNCORDONED
                machine.draining = state is NodeIs.DRAINING
                self._note("node", name)

    def delete_node(self, name: str) -> None:
        """Delete the Node object, and kill the processes on the machine."""
        machine = self._hall.machines[name]
        self._pass_time()
        self._hall.lose(name, self._clock.now())
        machine.alive = machine.exists = False
        machine.fences_at = None
        machine.foreign = 0
        self._note("node", name)
        self._note("foreign", name)
        self._note_pods(name)

    def set_gpus(self, name: str, left: int, code: int | None = None) -> None:
        """Break or repair GPUs, so that `left` work. With a `code`, processes on broken GPUs exit
        with it; without one, they continue."""
        self._pass_time()
        lost = self._hall.machines[name].gpus - left
        ended = self._hall.break_gpus(name, left, code, self._clock.now())
        for process in ended:
            self._note_process(process)
        self.effects["gpu-break"] += max(lost, 0)
        self.effects["gpu-break in use"] += bool(ended) or self._hall.used_on(name) > left
        self._note("node", name)

    def cut_link(self, name: str, *, deaf: bool, mute: bool) -> None:
        """Cut a node's link to the store: `deaf`, its kubelet sees no writes; `mute`, its own
        writes are lost."""
        self._pass_time()
        machine, now = self._hall.machines[name], self._clock.now()
        if mute and not machine.mute:
            machine.missed_at = now + MISSED_AFTER
        machine.deaf, machine.mute = machine.deaf or deaf, machine.mute or mute
        self._begin_to_fence(machine, now)
        self._everybody.changed.set()

    def heal_link(self, name: str) -> None:
        self._pass_time()
        machine = self._hall.machines[name]
        machine.deaf = machine.mute = machine.missed = False
        machine.missed_at = None
        if machine.alive and machine.exists and machine.heard:
            self._come_back(machine, self._clock.now())

    def busy_nodes(self) -> list[str]:
        """Return the nodes on which processes run."""
        return sorted({process.node for process in self._hall.running()})

    def _begin_to_fence(self, machine: Machine, now: Instant) -> None:
        fence = self._fences.get(machine.node.flavor, self._fences.get("*"))
        if fence is not None and machine.fences_at is None:
            machine.fences_at = now + fence

    def set_foreign(self, name: str, gpus: int) -> None:
        self._hall.machines[name].foreign = gpus
        self._note("foreign", name)

    def exit_pod(self, rank: Rank, code: int) -> bool:
        """End the process of one pod now. Return False if no such process runs."""
        self._pass_time()
        process = self._hall.find(rank)
        if process is not None:
            self._hall.exit(process, code, self._clock.now())
            self._note_process(process)
        return process is not None

    def stick_pod(self, rank: Rank, *, stuck: bool) -> bool:
        """Make the process of a pod ignore signals from now on, or react to them again. Return
        False if no such process runs."""
        self._pass_time()
        process = self._hall.find(rank)
        if process is None:
            return False
        if stuck:
            process.is_stuck = True
        else:
            self._hall.unstick(process, self._clock.now())
        self._note_process(process)
        return True

    def _come_back(self, machine: Machine, now: Instant) -> None:
        if not machine.alive:
            machine.foreign = 0
            self._note("foreign", machine.node.name)
        machine.alive = machine.heard = machine.exists = True
        machine.silent_since = machine.fences_at = machine.missed_at = None
        machine.missed = machine.has_fenced = False
        if machine.mute:
            machine.missed_at = now + MISSED_AFTER
        if machine.hears:
            self._hall.hear(machine.node.name, now)
            for seen in self._on_node(machine.node.name):
                self._take(seen, now)
        # Report ended pods before the node reports that it is ready.
        self._note_pods(machine.node.name)
        self._note("node", machine.node.name)

    # Reading Pods.

    async def _watch_pods(self) -> None:
        await follow(
            self._store,
            self._clock,
            "Pod",
            listed=self._relist,
            changed=self._on_event,
            pause=RETRY_MS,
        )

    def _relist(self, listing: Listing) -> None:
        present = set()
        for wire in listing.items:
            self._see(wire)
            present.add(text_at(part(wire, "metadata"), "uid"))
        for seen in list(self._pods.values()):
            if seen.pod.uid not in present:
                self._forget(seen.pod)

    def _on_event(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._forget(pod_from_wire(event.object, gpu_resource=self._labels.gpu_resource))
        else:
            self._see(event.object)

    def _see(self, wire: Wire) -> None:
        pod = pod_from_wire(wire, gpu_resource=self._labels.gpu_resource)
        known = self._pods.get(pod.key)
        if not pod.run_uid or not pod.placed or pod.uid in self._buried:
            return
        if known is not None and pod.version <= known.pod.version:
            return
        if known is not None and known.pod.uid != pod.uid:
            self._forget(known.pod)
        metadata = part(wire, "metadata")
        containers = part(wire, "spec").get("containers")
        first = containers[0] if isinstance(containers, list) and containers else {}
        seen = _Seen(
            pod=pod,
            opened=text_at(part(metadata, "labels"), OPENED),
            grace=whole_at(metadata, "deletionGraceMs") or 0,
            container=text_at(first, "name") if isinstance(first, dict) else "",
        )
        self._pods[pod.key] = seen
        machine = self._hall.machines.get(pod.node)
        if machine is not None and machine.hears:
            self._take(seen, self._clock.now())
        self._note("pod", pod.key, pod.node)

    def _forget(self, pod: Pod) -> None:
        self._buried.add(pod.uid)
        self._hall.abandon(pod.uid, self._clock.now())
        known = self._pods.get(pod.key)
        if known is not None and known.pod.uid == pod.uid:
            del self._pods[pod.key]

    def _take(self, seen: _Seen, now: Instant) -> None:
        """Let the kubelet handle a pod of its node: start its process, or tell the process to
        stop."""
        pod = seen.pod
        process = self._hall.processes.get(pod.uid)
        if process is not None:
            if pod.deleting and process.is_running:
                # A grace of AT_ONCE must not let simulated time pass.
                process.signal(0 if seen.grace <= AT_ONCE else seen.grace, now)
        elif not pod.deleting and not pod.has_ended and pod.uid not in self._rejected:
            if self._is_to_be_rejected(seen):
                self._rejected.add(pod.uid)
            else:
                self._pass_time()  # frees GPUs for it
                self._hall.start(pod, now)
                self._pass_time()  # it may be over at once

    def _is_to_be_rejected(self, seen: _Seen) -> bool:
        """Return whether the kubelet rejects a pod. It does if broken GPUs leave too few for the
        pod, or if the scenario asked for rejections. Then the first pod of an attempt is rejected;
        pods are created in order."""
        machine, pod = self._hall.machines[seen.pod.node], seen.pod
        used = self._hall.used_on(pod.node) if machine.broken else 0
        if machine.gpus < used + pod.gpus <= machine.node.gpus:
            self.effects["gpu-break before a start"] += 1
            return True
        name = _POD_NAME.fullmatch(seen.pod.name)
        if name is None or seen.opened != Opened.START:
            return False
        attempt = (seen.pod.run_uid, name.group(1))
        is_first = attempt not in self._starts
        self._starts.add(attempt)
        if not is_first or not self._rejections_left:
            return False
        self._rejections_left -= 1
        return True

    def _pass_time(self) -> None:
        now = self._clock.now()
        for process in self._hall.pass_time(now):
            self._note_process(process)
            self.effects["self-fenced"] += self._hall.machines[process.node].has_fenced
        for name, machine in self._hall.machines.items():
            if machine.missed_at is not None and machine.missed_at <= now:
                machine.missed, machine.missed_at = True, None
                self.effects["node missed"] += 1
                machine.silent_since = machine.silent_since or now
                self._note("node", name)

    # Writing.

    def _note(self, kind: str, name: str, node: str = "") -> None:
        desk = self._desk_of(node)
        desk.todo[kind, name] = None
        desk.changed.set()

    def _desk_of(self, node: str) -> _ObjectWriter:
        """Return the writer for the objects of a node. "" as `node` means the node controller."""
        if self._links is None or node not in self._hall.machines:
            return self._everybody
        if node not in self._kubelets:
            desk = self._kubelets[node] = _ObjectWriter(self._links(node), self._tasks.signal())
            self._tasks.spawn(f"kubelet of {node}", self._keep_reporting(desk))
        return self._kubelets[node]

    async def _keep_reporting(self, desk: _ObjectWriter) -> None:
        while True:
            await self._report(desk)
            await desk.changed.wait(None)

    def _note_process(self, process: JobProcess) -> None:
        for seen in self._on_node(process.node):
            if seen.pod.uid == process.uid:
                self._note("pod", seen.pod.key, process.node)
        self._everybody.changed.set()

    def _note_pods(self, node: str) -> None:
        for seen in self._on_node(node):
            self._note("pod", seen.pod.key, node)

    def _on_node(self, node: str) -> list[_Seen]:
        return [seen for seen in self._pods.values() if seen.pod.node == node]

    async def _report(self, desk: _ObjectWriter) -> None:
        while desk.todo:
            failed: list[_Todo] = []
            while desk.todo:
                todo = next(iter(desk.todo))
                del desk.todo[todo]
                try:
                    await self._write(desk.store, *todo)
                except _RETRY:
                    failed.append(todo)
            if failed:
                await self._clock.sleep(RETRY_MS)
                self._pass_time()
                await self._look_again(desk.store, [name for kind, name in failed if kind == "pod"])
                desk.todo.update(dict.fromkeys(failed))

    async def _write(self, store: Store, kind: str, name: str) -> None:
        match kind:
            case "pod":
                await self._write_pod(store, name)
            case "node":
                await write_node(store, self._hall.machines[name], self._labels)
            case _:
                held = self._hall.machines[name].foreign
                await write_foreign(store, name, held, self._labels)

    async def _look_again(self, store: Store, keys: list[str]) -> None:
        """Read pods again whose writes failed. A pod that cannot be read is left for the next
        try."""
        for key in keys:
            namespace, _, name = key.partition("/")
            try:
                self._see(await store.get("Pod", namespace, name))
            except NotFound:
                if key in self._pods:
                    self._forget(self._pods[key].pod)
            except Unavailable:
                continue

    async def _write_pod(self, store: Store, key: str) -> None:
        seen = self._pods.get(key)
        if seen is None:
            return
        machine = self._hall.machines.get(seen.pod.node)
        process = self._hall.processes.get(seen.pod.uid)
        if machine is None or not machine.exists:
            await self._remove(self._everybody.store, seen)  # like pod garbage collection
        elif not machine.alive:
            if seen.pod.deleting:  # like on a node that is out of service
                await self._remove(self._everybody.store, seen)
        elif machine.heard and not (machine.deaf and process is None):
            await self._write_heard(store, seen, process, knows=machine.hears)

    async def _write_heard(
        self, store: Store, seen: _Seen, process: JobProcess | None, *, knows: bool
    ) -> None:
        """Write the status of a pod whose kubelet reports, or remove its object. `knows`: the
        kubelet sees the latest Pod object; otherwise it knows only what it did itself."""
        pod = seen.pod
        if process is not None and process.is_lost:
            if not knows:
                return
            if pod.finalizers and not pod.has_ended:
                # The holder of its finalizer waits for this status.
                await self._patch(store, seen, shut_down(pod))
            else:
                await self._remove(store, seen)
            return
        if not pod.has_ended:
            if pod.uid in self._rejected:
                await self._patch(store, seen, rejection(pod))
            elif process is not None and process.ended_at is not None:
                await self._patch(store, seen, ended(process, process.ended_at, seen.container))
            elif process is not None and pod.phase is PodPhase.PENDING:
                await self._patch(store, seen, running(process, seen.container))
        if knows and pod.deleting and (process is None or not process.is_running):
            await self._remove(store, seen)

    async def _patch(self, store: Store, seen: _Seen, status: Wire) -> None:
        pod = seen.pod
        try:
            # Conditional on the version, because another pod may have the name by now.
            stored = await store.patch_status(
                "Pod", pod.namespace, pod.name, status, version=pod.version
            )
        except NotFound:
            self._forget(pod)
        else:
            self._see(stored)

    async def _remove(self, store: Store, seen: _Seen) -> None:
        pod = seen.pod
        with suppress(NotFound, Conflict):  # it is gone, or another pod has its name
            await store.delete("Pod", pod.namespace, pod.name, uid=pod.uid, grace_ms=0)
        self._forget(pod)
