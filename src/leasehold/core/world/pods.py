"""Which pods exist, by run and node; which were lost, and what foreign pods use on nodes.

One of the World's indices. A pod is *wanted* while it has open leases and none of them is ending: a
wanted pod that disappears was lost, and a turn has to act on that.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from leasehold.core.facts import Lease, Pod, PodPhase, Uid
from leasehold.core.units import Instant
from leasehold.core.world.fleet import Fleet
from leasehold.core.world.loads import Loads
from leasehold.core.world.open_index import Names, discard


class PodIndex:
    """The known pods, by key, run and node."""

    def __init__(
        self, fleet: Fleet, leases: Mapping[str, Lease], open_by_pod: Mapping[str, Names]
    ) -> None:
        self._leases = leases
        self._open_by_pod = open_by_pod
        self._loads = Loads(fleet)
        self.by_key: dict[str, Pod] = {}
        self.by_run: dict[Uid, Names] = {}
        self.by_node: dict[str, Names] = {}
        self.lost: Names = {}  # disappeared unexpectedly, with their leases still open
        self.finished_at: dict[str, Instant] = {}  # pod -> when the process of a removed pod ended
        # pod -> when it began to run; None if it has not; no key if that was not observed
        self.began_at: dict[str, Instant | None] = {}
        # pod that is made again in place -> (uid of the failed pod, when it was removed)
        self.restarted: dict[str, tuple[Uid, Instant]] = {}

    def put(self, pod: Pod) -> bool:
        """Take a pod's newest state. Returns whether that is news for its run."""
        key = pod.key
        old = self.by_key.get(key)
        if old is not None and pod.version and pod.version < old.version:
            return False  # outdated, from a lagging watch
        if old is not None and replace(old, version=pod.version) == pod:
            self.by_key[key] = pod  # the other parts of its status do not matter
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
        """Remove a pod and return it.

        Returns None if the pod was unknown, or if a turn still has to act on its end.
        """
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
        """Note that a failed pod is removed in order to create it again on the same node."""
        assert pod.has_ended, pod.key
        self.restarted[pod.key] = (pod.uid, now)

    def reload(self, key: str) -> None:
        """Count the pod as foreign if it runs on its node without an open lease of ours."""
        self._loads.drop(key)
        pod = self.by_key.get(key)
        if pod is not None:
            self._note_begin(pod)
            leased = self._open_by_pod.get(key, ())
            if not any(self._leases[name].node == pod.node for name in leased):
                self._loads.put(pod)

    def node_came(self, node: str) -> None:
        for key in sorted(self.by_node.get(node, ())):
            self._loads.forget(key)  # it was counted on a node that did not exist
            self.reload(key)

    def node_goes(self, node: str) -> None:
        for key in sorted(self.by_node.get(node, ())):
            self._loads.forget(key)

    def lease_closed(self, key: str) -> None:
        """Forget what was noted about a pod once the last of its leases is closed."""
        if key not in self._open_by_pod:
            self.lost.pop(key, None)
            self.finished_at.pop(key, None)
            self.began_at.pop(key, None)
            self.restarted.pop(key, None)
        self.reload(key)

    def _is_wanted(self, pod: Pod) -> bool:
        """Return whether the pod has open leases, none of them ending, and is not being replaced
        in place."""
        names = self._open_by_pod.get(pod.key, {})
        made_again, _ = self.restarted.get(pod.key, ("", 0))
        is_ours = made_again == pod.uid and pod.has_ended
        if not names or is_ours:
            return False
        return all(self._leases[name].ending is None for name in names)

    def _has_unread_end(self, pod: Pod) -> bool:
        """Return whether a turn still has to act on the pod's end.

        The object of a pod may disappear as soon as the pod has ended.
        """
        is_read = bool(pod.reason) or pod.key in self.lost
        return pod.has_ended and not is_read and self._is_wanted(pod)

    def _note_begin(self, pod: Pod) -> None:
        """Note when the pod began to run.

        A pod made again in place began when the first one did. A pod that failed without a start
        time never began, if it was seen waiting before.
        """
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
