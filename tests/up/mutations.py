"""Random manifests with mistakes, as a hostile or careless user may write them.

Used by `fuzz`. Each has up to three changes at random places of a valid object: a value of
another type, a field removed or added, or a longer list. The server refuses most of them. Some are
still legal, and must then run, fail or wait like any other object.
"""

import copy
import random
from typing import Any

WORDS = (
    "name", "value", "valueFrom", "fieldRef", "fieldPath", "resourceFieldRef", "resource",
    "divisor", "env", "args", "command", "image", "workingDir", "resources", "limits", "requests",
    "cpu", "memory", "ports", "labels", "annotations", "metadata", "spec", "status", "template",
    "containers", "initContainers", "volumes", "tolerations", "key", "operator", "effect",
    "terminationGracePeriodSeconds", "restartPolicy", "funding", "sponsors", "allowBorrow",
    "maxBorrowGPUs", "malleable", "minTotalGPUs", "maxTotalGPUs", "stepGPUs", "desiredTotalGPUs",
    "sparesPerGroup", "opportunistic", "stop", "runtime", "maxDuration", "checkpoint", "retries",
    "gracePeriod", "gang", "locality", "groupGPUs", "selector", "region", "cluster",
    "fabric.domain", "owner", "parents", "namespaces", "envelopes", "aggregateCaps", "lending",
    "to", "allow", "flavor", "concurrency", "maxGPUHours", "start", "end", "sharing", "taints",
    "unschedulable", "finalizers", "ownerReferences", "generateName", "uid", "resourceVersion",
    "deletionTimestamp", "creationTimestamp", "managedFields", "rq.davidlangworthy.io/drain",
    "nvidia.com/gpu", "gpusPerPod", "totalGPUs", "gpuType", "", "a b", "x" * 300, "\u0000", "é",
)  # fmt: skip
SCALARS: tuple[object, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 8, 64, 10**6, 10**9, 2**31, 2**53, 2**62, 2**70, 0.5,
    1e308, "", " ", "0", "-1", "1", "8", "x", "true", "null", "team", "org:team", "org:*", "*",
    "virtual", "H100", "10s", "0s", "1h30m", "9999999h", "soon", "Run", "Group", "Always", "Never",
    "metadata.name", "metadata.labels['a']", "metadata.annotations['b']", "spec.nodeName",
    "status.podIP", "spec.nothing", "limits.cpu", "requests.memory", "limits.", "100m", "1Gi",
    "1e3", "-5", "1.5", "2026-11-15T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z",
    "$(HOME)", "$$(X)", "$(", "/", "/tmp", "/nowhere", "..", "\u0000", "\ud800", "𝔘", "x" * 64,
    "x" * 300, "y" * 5000, "a\nb", "rq.davidlangworthy.io/leases-closed", "NoExecute",
    "node.kubernetes.io/out-of-service", "Exists", "Equal",
)  # fmt: skip
LIVES = (("true",), ("sh", "-c", "exit 3"), ("sleep", "0.05"), ("/nowhere/x",), ("sleep", "600"))


class Mutations:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def run(self, name: str) -> dict[str, Any]:
        """Return a valid Run of one of several shapes."""
        chance = self._chance
        command = list(chance.choice(LIVES))
        container: dict[str, Any] = {"name": "main", "image": "none", "command": command}
        if chance.random() < 0.5:
            container["env"] = [
                {"name": "A", "value": "$(B)"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            ]
        if chance.random() < 0.3:
            container |= {
                "args": ["x"], "workingDir": "/tmp", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1", "memory": "64Mi"}},
            }  # fmt: skip
        spec: dict[str, Any] = {
            "owner": "org:team",
            "resources": {"gpuType": "virtual", "totalGPUs": 4, "gpusPerPod": 2},
            "runtime": {"maxDuration": "5s", "retries": 1, "gracePeriod": "1s"},
            "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"b": "c"}},
                "spec": {"containers": [container], "tolerations": [{"key": "x"}]},
            },
        }
        shape = chance.randrange(4)
        if shape == 1:
            spec["locality"] = {"groupGPUs": 2, "selector": {"region": "r"}}
            spec["malleable"] = {"minTotalGPUs": 2, "maxTotalGPUs": 8, "stepGPUs": 2}
        elif shape == 2:
            spec |= {"gang": "Group", "locality": {"groupGPUs": 2}, "sparesPerGroup": 2}
        elif shape == 3:
            spec["funding"] = {"allowBorrow": True, "sponsors": ["org:lender"]}
            spec["opportunistic"] = True
        return _object("Run", name, spec)

    def budget(self, name: str) -> dict[str, Any]:
        envelope = {
            "name": "e", "flavor": "virtual", "concurrency": 8, "maxGPUHours": 2.5,
            "selector": {"region": "r"}, "start": "2026-01-01T00:00:00Z",
            "lending": {"allow": True, "to": ["org:*"], "maxConcurrency": 4},
        }  # fmt: skip
        spec = {
            "owner": f"org:{name}", "parents": ["org"], "namespaces": ["team"],
            "envelopes": [envelope, {**envelope, "name": "f"}],
            "aggregateCaps": [
                {"name": "a", "flavor": "virtual", "envelopes": ["e", "f"], "maxConcurrency": 8}
            ],
        }  # fmt: skip
        return _object("Budget", name, spec)

    def node(self) -> dict[str, Any]:
        """Return a patch of a Node."""
        return {
            "metadata": {"labels": {"rack": "7"}, "annotations": {"a": "b"}},
            "spec": {"taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}]},
        }

    def edit(self) -> dict[str, Any]:
        """Return a patch of an existing Run."""
        return {
            "metadata": {"labels": {"a": "c"}},
            "spec": {
                "stop": self._chance.random() < 0.2,
                "runtime": {"maxDuration": "6s"},
                "malleable": {"desiredTotalGPUs": self._chance.choice((2, 3, 4, 6, 8, 10))},
                "funding": {"sponsors": ["org:lender"]},
            },
        }

    def spoiled(self, sound: dict[str, Any]) -> Any:
        """Return a copy with one to three changes, sometimes none; the name stays."""
        found = copy.deepcopy(sound)
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 3))):
            self._change(found)
        return found

    def _change(self, root: dict[str, Any]) -> None:
        holders = [each for each in _holders(root) if each is not root or "kind" not in root]
        holder = self._chance.choice(holders or [root])
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if holder is root.get("metadata"):
            keys = [key for key in keys if key not in ("name", "namespace")]
        how = self._chance.randrange(6)
        if how == 0 or not keys:
            self._add(holder)
        elif how == 1:
            del holder[self._chance.choice(keys)]
        elif how == 2:
            key = self._chance.choice(keys)
            holder[key] = self._wrapped(holder[key])
        else:
            holder[self._chance.choice(keys)] = self._value()

    def _add(self, holder: Any) -> None:
        if isinstance(holder, dict):
            holder[self._chance.choice(WORDS)] = self._value()
        elif holder and self._chance.random() < 0.5:
            holder.extend(copy.deepcopy(holder) * self._chance.choice((1, 100)))
        else:
            holder.append(self._value())

    def _wrapped(self, value: Any) -> Any:
        return self._chance.choice(([value], {"x": value}, [], {}, [value, value], str(value)))

    def _value(self, depth: int = 2) -> Any:
        draw = self._chance.random()
        if draw < 0.75 or not depth:
            return self._chance.choice(SCALARS)
        if draw < 0.85:
            return [self._value(depth - 1) for _ in range(self._chance.randrange(3))]
        return {
            self._chance.choice(WORDS): self._value(depth - 1)
            for _ in range(self._chance.randrange(3))
        }


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "team"},
        "spec": spec,
    }


def _holders(value: Any) -> list[Any]:
    found = [value] if isinstance(value, dict | list) else []
    members = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    return found + [each for member in members for each in _holders(member)]
