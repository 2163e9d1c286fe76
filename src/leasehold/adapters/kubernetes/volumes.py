"""Finds the nodes that can reach the volumes of a pod.

A bound volume may be restricted to some nodes, and the pod must be placed on one of these. A claim
may also be configured to be bound only when a pod that uses it is scheduled. Such a claim needs a
scheduler that chooses volumes. Ours does not, so the claim is reported as a problem.
"""

from collections.abc import Callable, Mapping
from urllib.parse import quote

import msgspec

from leasehold.adapters.kubernetes.client import ApiRequest, Client
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.store import Invalid, NotFound

LATE = "WaitForFirstConsumer"
_ONLY_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_decode = msgspec.json.Decoder(dict[str, object]).decode
Nodes = Mapping[str, Wire]  # name -> labels


class Volumes:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def reached_from(self, pod: Wire) -> frozenset[str] | None:
        """Return the nodes that can reach all volumes of the pod; None if the volumes exclude no
        node. Raise `Invalid` for a claim that would never be bound."""
        namespace = text_at(part(pod, "metadata"), "namespace")
        terms: list[list[Wire]] = []
        for number, volume in enumerate(list_at(part(pod, "spec"), "volumes")):
            claim = text_at(part(volume, "persistentVolumeClaim"), "claimName")
            if claim:
                place = f"spec.volumes[{number}].persistentVolumeClaim"
                terms += await self._terms(namespace, claim, place)
        if not terms:
            return None
        nodes = await self._nodes()
        return frozenset(
            name
            for name, labels in nodes.items()
            if all(any(_matches(each, name, labels) for each in one) for one in terms)
        )

    async def _terms(self, namespace: str, claim: str, place: str) -> list[list[Wire]]:
        """Return the node selector terms of the volume to which the claim is bound. A node must
        match one term of the volume."""
        path = f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(claim)}"
        try:
            found = await self._read(path)
        except NotFound:
            return []  # it may still be created; the kubelet reports what it waits for
        spec = part(found, "spec")
        volume = text_at(spec, "volumeName")
        if not volume:
            await self._check_bound_soon(text_at(spec, "storageClassName"), claim, place)
            return []
        try:
            bound = await self._read(f"/api/v1/persistentvolumes/{quote(volume)}")
        except NotFound:
            return []
        required = part(part(part(bound, "spec"), "nodeAffinity"), "required")
        terms = [each for each in list_at(required, "nodeSelectorTerms") if isinstance(each, dict)]
        return [terms] if terms else []

    async def _check_bound_soon(self, storage_class: str, claim: str, place: str) -> None:
        if not storage_class:
            return
        try:
            path = f"/apis/storage.k8s.io/v1/storageclasses/{quote(storage_class)}"
            found = await self._read(path)
        except NotFound:
            return
        if found.get("volumeBindingMode") == LATE:
            why = (
                f"the claim {claim} is not bound, and its storage class {storage_class} waits "
                "for its first consumer; bind the claim first (with a pod of another scheduler "
                "that uses it), or use a storage class that binds immediately"
            )
            raise Invalid([(place, why)], "Pod")

    async def _nodes(self) -> Nodes:
        request = ApiRequest("GET", "/api/v1/nodes", ("Node", "", ""), accept=_ONLY_METADATA)
        listed = list_at(_decode(await self._client.ask(request)), "items")
        return {text_at(part(each, "metadata"), "name"): part(part(each, "metadata"), "labels")
                for each in listed if isinstance(each, dict)}  # fmt: skip

    async def _read(self, path: str) -> Wire:
        return _decode(await self._client.read(path))


def _matches(term: Wire, name: str, labels: Wire) -> bool:
    """Return whether a node meets all requirements of the term. A term without requirements matches
    no node."""
    of_name: Wire = {"metadata.name": name}
    asked = [(each, labels) for each in list_at(term, "matchExpressions")]
    asked += [(each, of_name) for each in list_at(term, "matchFields")]
    return bool(asked) and all(
        isinstance(each, dict) and _holds(each, said) for each, said in asked
    )


def _holds(asked: Wire, labels: Wire) -> bool:
    key = text_at(asked, "key")
    values = [str(each) for each in list_at(asked, "values")]
    check: Callable[[], bool] | None = {
        "In": lambda: labels.get(key) in values,
        "NotIn": lambda: labels.get(key) not in values,
        "Exists": lambda: key in labels,
        "DoesNotExist": lambda: key not in labels,
        "Gt": lambda: _number(labels.get(key)) > _number(values[0] if values else "") >= 0,
        "Lt": lambda: 0 <= _number(labels.get(key)) < _number(values[0] if values else ""),
    }.get(text_at(asked, "operator"))
    return check is not None and check()


def _number(text: object) -> int:
    return int(text) if isinstance(text, str) and text.isdecimal() else -1
