"""The pods of this machine: starts each once, stops it when asked, and reports its end.

Called by `agent` with news from the store, the shims and the nodes. Each pod is level-triggered:
after every event its next step is derived from its Pod object and its journal. Failed steps are
retried. No scheduling decisions are taken here.
"""

import asyncio
import signal
from contextlib import suppress
from dataclasses import replace

from leasehold.adapters.agent import statuses
from leasehold.adapters.agent.devices import is_alive
from leasehold.adapters.agent.foreign import describe
from leasehold.adapters.agent.journals import Exit, PodJournal, PodStage, RecordsGone
from leasehold.adapters.agent.leftovers import descends, end_leftovers, is_marked
from leasehold.adapters.agent.limits import CannotStart
from leasehold.adapters.agent.machine import HostMachine, Seen
from leasehold.adapters.agent.past_logs import PastLogs
from leasehold.adapters.agent.requests import LocalNode, first_container, leases_of, places_of
from leasehold.adapters.agent.shims import LOOK_MS, Shims
from leasehold.adapters.containment import About, reason_of
from leasehold.adapters.disk_pace import DiskPace
from leasehold.core.facts import Pod, PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import instant_at, list_at, part, text_at, version_at, whole_at
from leasehold.core.units import Instant, Millis
from leasehold.ports.runtime import Clock, Task, Tasks
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    NotFound,
    OutcomeUnknown,
    Store,
    Unavailable,
)

RETRY_MS = 100
LAST_WORDS_MS = 10_000  # time limit for reporting the ends of pods
TROUBLE_MS = 1_000  # pause after an error of the machine instead of the store
_RETRY = (AlreadyExists, Conflict, OutcomeUnknown, Unavailable)


class AgentPods:
    def __init__(self, store: Store, clock: Clock, tasks: Tasks, machine: HostMachine) -> None:
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._machine = machine
        self._seen: dict[str, Seen] = {}  # all maps here are keyed by uid
        self._held: dict[str, PodJournal] = {}
        self._refusals: dict[str, str] = {}  # why a shim could not start it
        self._failing: dict[str, str] = {}  # why it is only ended and nothing else
        self._put_away: dict[str, PodJournal] = {}  # their journals, for the logs
        self._buried: set[str] = set()  # deleted objects, of which late events are ignored
        self._busy: dict[str, Task] = {}
        self._disk = DiskPace()
        self._is_closing = False  # nothing is started any more
        self._again: set[str] = set()
        self._own: set[int] = set()  # versions written here whose events are still to come
        self._last_alive: Instant = 0  # when an agent last saw all these shims alive
        self.past = PastLogs(clock, machine.limits, self._held)
        self.shims = Shims(clock, machine.forks, self.note)

    # Input from the agent.

    def adopt(self, last_alive: Instant) -> None:
        """Take over an earlier agent's pods: running ones continue, ended ones are reported."""
        self._last_alive = last_alive
        for journal in self._machine.journals.all():
            try:
                self._adopt(journal)
            except Exception as error:  # the journal's content is not what was written
                self._held[journal.uid] = journal
                self._fail(journal.uid, error)

    def _adopt(self, journal: PodJournal) -> None:
        if journal.stage() is PodStage.VOID:
            self._machine.journals.discard(journal)
            return
        self._held[journal.uid] = journal
        self._machine.requests.meetings.remember(journal.uid, places_of(journal.request))
        self.shims.watch(journal, journal.shim)

    def is_own(self, version: int) -> bool:
        """Return whether the event with this version reports our own write. Return True only once
        per version."""
        if version not in self._own:
            return False
        self._own.discard(version)
        return True

    def see(self, wire: Wire) -> None:
        """Process a Pod object from the store. A version older than the one already seen is
        ignored."""
        metadata = part(wire, "metadata")
        known = self._seen.get(text_at(metadata, "uid"))
        if known is not None and version_at(metadata) <= known.pod.version:
            return
        pod = self._pod(wire)
        if not pod.run_uid or not pod.placed or pod.uid in self._buried:
            return
        if self._machine.nodes.find(pod.node) is None and pod.uid not in self._held:
            return  # another machine's node
        self._keep(pod, wire)
        self.note(pod.uid)

    def _pod(self, wire: Wire) -> Pod:
        return pod_from_wire(wire, gpu_resource=self._machine.labels.gpu_resource)

    def _keep(self, pod: Pod, wire: Wire) -> None:
        metadata = part(wire, "metadata")
        self._seen[pod.uid] = Seen(
            pod=pod,
            wire=wire,
            grace=whole_at(metadata, "deletionGraceMs") or 0,
            due_at=instant_at(metadata, "deletionTimestamp"),
        )

    def forget(self, uid: str) -> None:
        """Note that the Pod object with this uid was deleted."""
        self._buried.add(uid)
        if self._seen.pop(uid, None) is not None or uid in self._held:
            self.note(uid)

    def keep_only(self, uids: set[str]) -> None:
        """Forget all pods except these, after a new listing of the store. Events that come later
        have newer versions than the listing."""
        self._own.clear()
        for uid in [uid for uid in {**self._seen, **self._held} if uid not in uids]:
            self.forget(uid)

    def hear(self, what: str, uid: str, detail: str) -> None:
        """Handle a message from a shim."""
        if what == "refused":
            self._refusals[uid] = detail
        self.note(uid)

    def on_death(self, node: str) -> None:
        """Mark all running pods of a dead node as lost: the agent ends them and reports no
        result."""
        for uid, journal in self._held.items():
            if journal.node == node and journal.stage() is not PodStage.OVER:
                try:
                    journal.mark_lost()
                except OSError as error:
                    self._machine.advice.trouble(self._seen.get(uid), error)
                self.note(uid)

    def look_for_records(self) -> None:
        """Check whether a journal was deleted. Called periodically, because nothing reports a
        deletion."""
        for uid, journal in self._held.items():
            if journal.is_removed:
                self.note(uid)

    def on_return(self, node: str) -> None:
        for uid, seen in self._seen.items():
            if seen.pod.node == node:
                self.note(uid)

    def is_empty(self, node: str) -> bool:
        return not any(
            journal.node == node and journal.is_lost and journal.stage() not in _SETTLED
            for journal in self._held.values()
        )

    def owns(self, pid: int, device: str) -> bool:
        """Return whether a process that uses a device belongs to a pod that has this device. If no
        process with this pid exists here, return True for such a device: NVML may report another
        container's pids."""
        for uid, journal in self._held.items():
            has_it = device in journal.devices and journal.stage() is PodStage.RUNNING
            if has_it and (not is_alive(pid) or is_marked(pid, uid) or descends(pid, journal.shim)):
                return True
        return False

    def find(self, uid: str) -> PodJournal | None:
        return self._held.get(uid) or self._put_away.get(uid)

    @property
    def running(self) -> list[str]:
        return [uid for uid, each in self._held.items() if each.stage() not in _SETTLED]

    async def end_all(self) -> None:
        """Kill all pods and start nothing more; return when their ends are reported."""
        self._is_closing = True
        patience = self._clock.monotonic() + LAST_WORDS_MS
        while (uids := self.running) or (self._busy and self._clock.monotonic() < patience):
            for uid in uids:
                journal = self._held.get(uid)
                if journal is None:
                    continue
                # Removed records are noticed by `note`, which then ends the pod.
                if journal.is_removed or await self.shims.is_ended(journal):
                    self.note(uid)
            await self._clock.sleep(LOOK_MS)

    def close(self) -> None:
        """Stop watching the shims; running pods continue."""
        for task in list(self._busy.values()):
            task.cancel()
        self.shims.close()

    # One pod at a time.

    def note(self, uid: str) -> None:
        """Schedule a look at the pod with this uid, which takes the pod's next step."""
        if uid in self._busy:
            self._again.add(uid)
        else:
            self._busy[uid] = self._tasks.spawn(f"agent-pod {uid}", self._attend(uid))

    async def _attend(self, uid: str) -> None:
        while True:
            self._again.discard(uid)
            try:
                await self._settle(uid)
            except _RETRY:
                await self._clock.sleep(RETRY_MS)
                await self._look_again(uid)
                self._again.add(uid)
            except OSError as error:
                self._machine.advice.trouble(self._seen.get(uid), error)
                await self._clock.sleep(TROUBLE_MS)
                self._again.add(uid)
            except Exception as error:
                await self._clock.sleep(self._fail(uid, error))
                self._again.add(uid)
            if uid not in self._again:
                del self._busy[uid]
                return

    async def _look_again(self, uid: str) -> None:
        """Read the Pod object again after a failed write. If the read fails too, the agent retries
        later."""
        seen = self._seen.get(uid)
        if seen is None:
            return
        with suppress(Unavailable):
            try:
                wire = await self._store.get("Pod", seen.pod.namespace, seen.pod.name)
            except NotFound:
                self.forget(uid)
                return
            if pod_from_wire(wire).uid != uid:
                self.forget(uid)
            self.see(wire)

    async def _settle(self, uid: str) -> None:
        seen, journal = self._seen.get(uid), self._held.get(uid)
        if uid in self._failing:
            await self._put_down(uid)
        elif journal is not None and journal.is_removed and journal.stage() not in _SETTLED:
            raise RecordsGone(
                f"the records of the pod ({journal.path}) were removed while the pod ran"
            )
        elif seen is None:
            if journal is not None and uid in self._buried and await self.shims.is_ended(journal):
                self._bury(journal)
        elif self._machine.nodes.is_dead(seen.pod.node):
            # Like a dead machine: report nothing, and let deleted pods go.
            if (journal is None or await self.shims.is_ended(journal)) and seen.pod.deleting:
                await self._remove(seen)
        elif journal is None:
            await self._settle_new(seen)
        elif journal.is_lost:
            if await self.shims.is_ended(journal):
                await self._remove(seen)
        else:
            await self._settle_held(seen, journal)

    def _fail(self, uid: str, error: Exception) -> Millis:
        """Record that handling this pod raised an error; return how long to wait, in ms, before the
        next step.

        From now on the agent only ends this pod and reports the error. Other pods continue."""
        seen = self._seen.get(uid)
        about = About("Pod", uid, uid=uid)
        if seen is not None:
            about = About("Pod", seen.pod.name, seen.pod.namespace, uid)
        self._failing.setdefault(
            uid, f"the agent failed while it handled this pod: {reason_of(error)}"
        )
        return self._machine.containment.failed(about, error)

    async def _put_down(self, uid: str) -> None:
        """End what is left of a pod for which `_fail` was called, and report the reason. The pod's
        journal need not exist."""
        seen = self._seen.get(uid)
        journal = self._held.get(uid) or self._put_away.get(uid) or self._machine.journals.at(uid)
        while await asyncio.to_thread(end_leftovers, journal):
            await self._clock.sleep(LOOK_MS)
        if uid in self._held:
            self._put_away[uid] = self._held.pop(uid)
            self.shims.forget(uid)
        if seen is None:
            if uid in self._buried:
                del self._failing[uid]
                self._bury(journal)
        elif not seen.pod.has_ended:
            await self._patch(seen, self._bad_end(seen, journal))
            self._machine.advice.rejected(seen, self._failing[uid])
        elif seen.pod.deleting:
            await self._wait_for_leases(seen)
            await self._remove(seen)

    def _bad_end(self, seen: Seen, journal: PodJournal) -> Wire:
        """Return the status of a pod whose handling failed: rejected if the pod surely never ran,
        otherwise failed."""
        why = self._failing[seen.pod.uid]
        if journal.started is None and seen.pod.phase is PodPhase.PENDING:
            return statuses.rejected(why)
        now = self._clock.now()
        exit_ = Exit(code=None, signal=None, error=why, is_oom=False, finished_at=now)
        containers = list_at(part(seen.wire, "spec"), "containers")
        first = next((each for each in containers if isinstance(each, dict)), {})
        return statuses.ended(first, self._machine.agent, exit_, journal.started_at)

    async def _settle_new(self, seen: Seen) -> None:
        pod = seen.pod
        node = self._machine.nodes.find(pod.node)
        assert node is not None, pod.key
        claimer = statuses.claimer(seen.wire)
        if pod.has_ended:
            return
        if pod.phase is PodPhase.RUNNING or claimer not in ("", self._machine.agent):
            await self._settle_unrecorded(seen)
        elif pod.deleting:
            await self._remove(seen)
        elif not self._is_closing:
            await self._start(seen, node)

    async def _settle_unrecorded(self, seen: Seen) -> None:
        """End a pod that was started according to its object, but has no journal on this
        machine."""
        ghost = self._machine.journals.at(seen.pod.uid)
        while await asyncio.to_thread(end_leftovers, ghost):
            await self._clock.sleep(LOOK_MS)
        exit_ = Exit(
            code=None,
            signal=None,
            error="the agent has no record of this pod",
            is_oom=False,
            finished_at=self._clock.now(),
        )
        await self._tell_end(seen, exit_, None)

    async def _start(self, seen: Seen, node: LocalNode) -> None:
        pod = seen.pod
        try:
            await self._check_devices(node, seen)
            request = self._machine.requests.make(pod, seen.wire, node)
        except CannotStart as error:
            await self._reject(seen, str(error))
            return
        # Conditional on the version: if the assignment has changed, nothing is started.
        claim = statuses.claimed(self._machine.agent, self._clock.now())
        stored = await self._patch(seen, claim)
        latest = self._seen.get(pod.uid)
        if stored is None or latest is None or latest.pod.deleting:
            self._again.add(pod.uid)
            return
        journal = await self._disk.do(lambda: self._machine.journals.create(pod.uid, request))
        self._held[pod.uid] = journal
        if pod.uid in self._buried or self._machine.nodes.is_dead(pod.node) or self._is_closing:
            self._again.add(pod.uid)  # it must not be started any more
            return
        self.shims.ask(journal)
        self._machine.advice.started(latest, request)

    async def _check_devices(self, node: LocalNode, seen: Seen) -> None:
        """Raise `CannotStart` if a foreign process uses one of the pod's devices."""
        wanted = set(self._machine.requests.devices_of(seen.wire, node))
        if not wanted:
            return
        for uuid, pids in (await self._machine.foreign.held(node)).items():
            if uuid in wanted:
                raise CannotStart(f"GPU {uuid} is held by process {describe(pids)}")

    async def _settle_held(self, seen: Seen, journal: PodJournal) -> None:
        pod, stage = seen.pod, journal.stage()
        if stage is PodStage.ORPHANED:
            await self.shims.bring_to_end(journal, self._last_alive)
            stage = journal.stage()
        match stage:
            case PodStage.VOID:
                self._let_go(journal)
                self._again.add(pod.uid)
            case PodStage.REQUESTED:
                await self._settle_requested(seen, journal)
            case PodStage.RUNNING:
                self.shims.watch(journal, journal.shim)
                if pod.deleting or pod.has_ended:
                    self._stop(seen, journal)
                if pod.phase is PodPhase.PENDING and not pod.deleting:
                    container = first_container(seen.wire)
                    at = journal.started_at
                    status = statuses.running(container, self._machine.agent, at)
                    await self._patch(seen, statuses.with_env(status, journal))
            case PodStage.OVER:
                if not pod.has_ended:
                    await self._wait_for_devices(journal)
                    await self._tell_end(seen, journal.exit(), journal)
                elif pod.deleting:
                    await self._wait_for_leases(seen)
                    await self._remove(seen)

    async def _wait_for_leases(self, seen: Seen) -> None:
        """Wait until the pod's leases are closed, or until a time limit is over. Until they are
        closed, only the Pod object tells a restarted controller how the pod ended."""
        patience = self._clock.monotonic() + self._machine.limits.leases_patience_ms
        names = leases_of(seen.wire)
        while names and self._clock.monotonic() < patience:
            with suppress(NotFound):
                lease = await self._store.get("Lease", "", names[-1])
                if part(lease, "status").get("closed") is not True:
                    await self._clock.sleep(LOOK_MS)
                    continue
            names.pop()

    async def _settle_requested(self, seen: Seen, journal: PodJournal) -> None:
        uid = seen.pod.uid
        failed = self.shims.deaths(uid) >= self._machine.limits.starts_max
        if seen.pod.deleting or seen.pod.has_ended or failed or uid in self._refusals:
            if not journal.give_up():
                self._again.add(uid)  # a shim has started it already
                return
            self._let_go(journal)
            self._again.add(uid)
            if failed or uid in self._refusals:
                why = self._refusals.pop(uid, "the shim died before it could start the pod")
                await self._reject(seen, why)
        elif not self._is_closing:
            self.shims.ask(journal)

    def _stop(self, seen: Seen, journal: PodJournal) -> None:
        """Ask the shim to stop the pod. The grace period counts from the deletion of the Pod
        object, even if the agent was restarted since."""
        grace = left = seen.grace if seen.pod.deleting else 0
        if seen.due_at is not None:
            left = min(max(seen.due_at - self._clock.now(), 0), grace)
        self.shims.stop(journal, grace, left)

    async def _tell_end(self, seen: Seen, exit_: Exit, journal: PodJournal | None) -> None:
        container = first_container(seen.wire)
        if self._is_closing and exit_.signal == signal.SIGKILL and not exit_.error:
            exit_ = replace(exit_, error="the pod was stopped together with the control plane")
        started_at = 0 if journal is None else journal.started_at
        status = statuses.ended(container, self._machine.agent, exit_, started_at)
        if await self._patch(seen, statuses.with_env(status, journal)) is not None:
            self._machine.advice.ended(seen, exit_)
            self._again.add(seen.pod.uid)

    async def _reject(self, seen: Seen, why: str) -> None:
        self._machine.requests.meetings.leave(seen.pod.uid)
        if await self._patch(seen, statuses.rejected(why)) is not None:
            self._machine.advice.rejected(seen, why)

    async def _wait_for_devices(self, journal: PodJournal) -> None:
        """Wait until the driver has released the pod's devices, which takes longer than its
        processes. After a time limit, a process that still uses the devices counts as foreign."""
        patience = self._clock.monotonic() + self._machine.limits.devices_patience_ms
        while self._clock.monotonic() < patience:
            if not await self._machine.foreign.lingers(journal.devices):
                return
            await self._clock.sleep(RETRY_MS)

    # Writing objects.

    async def _patch(self, seen: Seen, status: Wire) -> Wire | None:
        """Write a status and return the stored Pod object; None if the object is gone.

        The event of this write brings nothing new, and is ignored, unless another version was seen
        meanwhile."""
        pod = seen.pod
        try:
            # Conditional on the version, because another pod may have the name by now.
            stored = await self._store.patch_status(
                "Pod", pod.namespace, pod.name, status, version=pod.version
            )
        except NotFound:
            self.forget(pod.uid)
            return None
        known = self._seen.get(pod.uid)
        if known is not None and known.pod.version == pod.version:
            written = self._pod(stored)
            self._keep(written, stored)
            self._own.add(written.version)
        return stored

    async def _remove(self, seen: Seen) -> None:
        pod = seen.pod
        with suppress(NotFound, Conflict):  # it is gone, or another pod has its name
            await self._store.delete("Pod", pod.namespace, pod.name, uid=pod.uid, grace_ms=0)
        self.forget(pod.uid)

    def _let_go(self, journal: PodJournal) -> None:
        self._machine.journals.discard(journal)
        self._held.pop(journal.uid, None)
        self.shims.forget(journal.uid)
        self._machine.requests.meetings.leave(journal.uid)

    def _bury(self, journal: PodJournal) -> None:
        """Drop the pod but keep journal and logs for a while, for queries."""
        uid = journal.uid
        self._held.pop(uid, None)
        self._put_away.pop(uid, None)
        self._machine.requests.meetings.leave(uid)
        self.shims.forget(uid)
        self._refusals.pop(uid, None)
        self.past.keep(journal)


_SETTLED = (PodStage.OVER, PodStage.VOID)
