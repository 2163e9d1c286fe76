"""Which pods there are, by run and node; which were lost, and what strangers take of nodes.

One of the World's indices. A pod is *wanted* while leases are open for it and none of them is to
end: one that goes meanwhile was lost, and somebody has to act on that.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from leasehold.core.facts import Lease, Pod, PodPhase, Uid
from leasehold.core.units import Instant
from leasehold.core.world.fleet import Fleet
from leasehold.core.world.loads import Loads
from leasehold.core.world.open_index import Names, discard


class PodIndex:
    def __init__(
        self, fleet: Fleet, leases: Mapping[str, Lease], open_by_pod: Mapping[str, Names]
    ) -> None:
        self._leases = leases
        self._open_by_pod = open_by_pod
        self._loads = Loads(fleet)
        self.by_key: dict[str, Pod] = {}
        self.by_run: dict[Uid, Names] = {}
        self.by_node: dict[str, Names] = {}
        self.lost: Names = {}  # gone without our asking, their lease still open
        self.finished_at: dict[str, Instant] = {}  # when the process of a gone pod really ended
        # When it began to run, None if it has not; left out of it, nobody saw when.
        self.began_at: dict[str, Instant | None] = {}
        self.restarted: dict[str, tuple[Uid, Instant]] = {}  # pod -> the one made again, when

    def put(self, pod: Pod) -> bool:
        """Whether that is news to its run."""
        key = pod.key
        old = self.by_key.get(key)
        if old is not None and pod.version and pod.version < old.version:
            return False  # a lagging watch tells old news
        if old is not None and replace(old, version=pod.version) == pod:
            self.by_key[key] = pod  # what else its status says is nothing to us
            return False
        if old is not None and old.node != pod.node:
            self._loads.drop(key)
            discard(self.by_node, old.node, key)
        self.by_key[key] = pod
        self.by_node.setdefault(pod.node, {})[key] = None
        if pod.run_uid:
            self.by_run.setdefault(pod.run_uid, {})[key] = None
            if pod.ended_because_deleted and self._is_wanted(pod):
                self.lost[key] = None
        self.reload(key)
        return True

    def drop(self, key: str) -> Pod | None:
        """The one that is gone, if any."""
        pod = self.by_key.get(key)
        if pod is None:
            return None
        if self._has_unread_end(pod):
            self.by_key[key] = replace(pod, deleting=True)
            return None
        del self.by_key[key]
        self._loads.drop(key)
        discard(self.by_node, pod.node, key)
        if pod.run_uid:
            discard(self.by_run, pod.run_uid, key)
            if key in self._open_by_pod and pod.phase is not PodPhase.ORDERED:
                self._note_loss(pod)
        return pod

    def restart(self, pod: Pod, now: Instant) -> None:
        """We remove this one, to make it again in place."""
        assert pod.has_ended, pod.key
        self.restarted[pod.key] = (pod.uid, now)

    def reload(self, key: str) -> None:
        """A pod that lives without an open lease of ours takes its GPUs as a foreign one does."""
        self._loads.drop(key)
        pod = self.by_key.get(key)
        if pod is not None:
            self._note_begin(pod)
            leased = self._open_by_pod.get(key, ())
            if not any(self._leases[name].node == pod.node for name in leased):
                self._loads.put(pod)

    def node_came(self, node: str) -> None:
        for key in sorted(self.by_node.get(node, ())):
            self._loads.forget(key)  # it was counted on a node that was not there
            self.reload(key)

    def node_goes(self, node: str) -> None:
        for key in sorted(self.by_node.get(node, ())):
            self._loads.forget(key)

    def lease_closed(self, key: str) -> None:
        """What was to be acted on is over with the last of its leases."""
        if key not in self._open_by_pod:
            self.lost.pop(key, None)
            self.finished_at.pop(key, None)
            self.began_at.pop(key, None)
            self.restarted.pop(key, None)
        self.reload(key)

    def _is_wanted(self, pod: Pod) -> bool:
        """Whether leases are open for the pod, none of them is to end, and it is not the one that
        we remove to make it again in place."""
        names = self._open_by_pod.get(pod.key, {})
        made_again, _ = self.restarted.get(pod.key, ("", 0))
        is_ours = made_again == pod.uid and pod.has_ended
        if not names or is_ours:
            return False
        return all(self._leases[name].ending is None for name in names)

    def _has_unread_end(self, pod: Pod) -> bool:
        """Its object went as soon as it had ended: how it ended is still to be acted on."""
        is_read = bool(pod.reason) or pod.key in self.lost
        return pod.has_ended and not is_read and self._is_wanted(pod)

    def _note_begin(self, pod: Pod) -> None:
        """One that is made again in place began when the first one did. One that failed and says
        nothing of a begin had none, if it was seen to wait for it."""
        key = pod.key
        if key not in self._open_by_pod or self.began_at.get(key) is not None:
            return
        if pod.began_at is not None or pod.phase in (PodPhase.ORDERED, PodPhase.PENDING):
            self.began_at[key] = pod.began_at
        elif pod.phase is not PodPhase.FAILED:
            self.began_at.pop(key, None)

    def _note_loss(self, pod: Pod) -> None:
        if pod.finished_at is not None:
            self.finished_at[pod.key] = pod.finished_at
        if not pod.has_ended and self._is_wanted(pod):
            self.lost[pod.key] = None
